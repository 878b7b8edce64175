//! The speed of the disk itself, for comparison with the figures of durable servers: the time
//! to append 4 KiB to a file and flush it.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use perihelion_bench_client::Histogram;

/// The number of appends: enough for a steady 99th percentile, and a few seconds on a slow disk.
const APPENDS: usize = 1_000;

/// The times of bare appends with their flushes, in milliseconds.
pub struct DiskSpeed {
    pub p50_ms: f64,
    pub p99_ms: f64,
}

/// Appends to a file in a directory and measures each append with its flush.
pub fn measure_disk(directory: &Path) -> anyhow::Result<DiskSpeed> {
    let path = directory.join("fdatasync");
    let mut file = File::create(&path)?;
    let mut times = Histogram::new();
    for _ in 0..APPENDS {
        let started = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        times.record(started.elapsed());
    }
    fs::remove_file(path)?;
    Ok(DiskSpeed { p50_ms: times.quantile_ms(0.5), p99_ms: times.quantile_ms(0.99) })
}
