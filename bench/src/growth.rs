//! Measures our durable server with more and more documents in one container. A query that an
//! index answers should take the same time with a million documents as with ten thousand, and
//! the server's memory should not grow with the data. The benchmark has no peer: each size is compared
//! with the smallest size.

mod report;
mod shapes;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::documents::Queue;
use crate::emulators::{QUEUE_KEY, load_queue};
use crate::load::{Clients, Limits};
use crate::output;
use crate::requests::Partition;
use crate::setup::{create_container, create_database};
use crate::targets::{Launcher, Server, Target, server_program};
use report::Report;
use shapes::{Shape, ShapeClient};

const CONTAINER: &str = "growth";

/// The time for the server to write a checkpoint and release memory before its memory is read.
const SETTLE_TIME: Duration = Duration::from_secs(3);

/// The least number of documents: the queue's order needs more documents than its stride.
const SIZE_MIN: u64 = 8_000;

#[derive(clap::Args)]
pub struct Options {
    /// Without the largest size, and with shorter windows.
    #[arg(long)]
    quick: bool,
    /// Documents in the container, multiples of 400
    /// [default: 10000,100000,1000000, or 10000,100000 with --quick].
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<u64>,
    /// How often each kind of request is measured with each size.
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// Our server's program; built from this checkout with the profile `dist` when not given.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Directory for data and logs of the server, on the disk to be measured.
    #[arg(long)]
    scratch: Option<PathBuf>,
    /// Writes all figures to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// The figures with one number of documents.
pub struct Size {
    pub documents: u64,
    pub load_seconds: f64,
    /// Resident memory after loading and after all requests, whichever is more.
    pub resident_mb: f64,
    pub disk_mb: f64,
    /// One row for each shape, in the order of `Shape::ALL`.
    pub rows: Vec<Row>,
}

/// The figures of one shape with one number of documents: one number for each repeat.
pub struct Row {
    pub shape: Shape,
    pub p50_ms: Vec<f64>,
    pub p99_ms: Vec<f64>,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let sizes = match (&options.sizes[..], options.quick) {
        ([], true) => vec![10_000, 100_000],
        ([], false) => vec![10_000, 100_000, 1_000_000],
        (given, _) => given.to_vec(),
    };
    ensure!(
        sizes.iter().all(|size| *size >= SIZE_MIN && size % 400 == 0),
        "--sizes: multiples of 400, at least {SIZE_MIN}"
    );
    let launcher = Launcher {
        scratch: output::scratch_directory(options.scratch.as_deref())?,
        vercel: None,
        ours: Some(server_program(options.binary.as_deref()).await?),
        ours_arguments: &[],
    };
    let window = Duration::from_millis(if options.quick { 500 } else { 2_000 });
    let mut measured = Vec::new();
    for documents in sizes {
        measured.push(measure_size(&launcher, documents, window, options.repeats).await?);
    }
    let report = Report { sizes: measured };
    println!("{report}");
    output::write_json(options.json.as_deref(), || report.json())?;
    fs::remove_dir_all(&launcher.scratch).context("removing the server's data")
}

/// Starts a server, loads the documents, and measures every shape.
async fn measure_size(
    launcher: &Launcher,
    documents: u64,
    window: Duration,
    repeats: usize,
) -> anyhow::Result<Size> {
    let server = launcher.start(Target::Durable).await?;
    create_database(&server).await?;
    create_container(&server, CONTAINER).await?;
    let queue = Queue { size: documents };
    let load_seconds = load_queue(&server, CONTAINER, queue).await?;
    tokio::time::sleep(SETTLE_TIME).await;
    let mut resident_mb = server.resident_mb()?;
    eprintln!("  {documents} documents: loaded in {load_seconds:.1} s, {resident_mb:.0} MB resident");
    let mut rows = Vec::new();
    for shape in Shape::ALL {
        rows.push(measure_shape(&server, shape, queue, window, repeats).await?);
        resident_mb = resident_mb.max(server.resident_mb()?);
    }
    let disk_mb = bytes_under(&launcher.data_directory())? as f64 / 1e6;
    server.stop().await?;
    Ok(Size { documents, load_seconds, resident_mb, disk_mb, rows })
}

/// Measures one shape with one client. The first request is not counted: an index is built by the
/// first query that needs it.
async fn measure_shape(
    server: &Server,
    shape: Shape,
    queue: Queue,
    window: Duration,
    repeats: usize,
) -> anyhow::Result<Row> {
    let client = ShapeClient::new(server.address, &Partition::new(CONTAINER, QUEUE_KEY), shape, queue)?;
    let mut clients = Clients::new(server.address, vec![client]);
    let one_request = Limits { time: window, requests_max: 1 };
    clients.drive(one_request).await.with_context(|| format!("the first {}", shape.name()))?;
    let mut row = Row { shape, p50_ms: Vec::new(), p99_ms: Vec::new() };
    for _ in 0..repeats {
        let limits = Limits { time: window, requests_max: u64::MAX };
        let latencies = clients.drive(limits).await.with_context(|| shape.name())?.latencies;
        row.p50_ms.push(latencies.quantile_ms(0.5));
        row.p99_ms.push(latencies.quantile_ms(0.99));
    }
    eprintln!("    {}", shape.name());
    Ok(row)
}

/// The bytes of all files under a directory.
fn bytes_under(directory: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { bytes_under(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}
