//! Shared code of the client programs: command line, documents, the closed loop, and the
//! figures as one line of JSON. A program adds only how its library connects, reads and
//! creates. So any difference in the figures comes from the library.
//!
//! All client programs run on a multi-thread tokio runtime with the same number of workers.
//! They verify the server's certificate against the CA in the file that the variable
//! `SSL_CERT_FILE` names. They decode what they read into [`Document`] and encode what they
//! create from [`NewDocument`].

mod allocations;
mod arguments;
mod bulk;
mod cpu;
mod documents;
mod drive;
mod histogram;
mod measure;

use std::error::Error;
use std::future::Future;
use std::process::ExitCode;

pub use arguments::{Arguments, Operation, Span};
pub use bulk::BulkDocument;
pub use cpu::{children_cpu, cpu_of};
pub use documents::{
    DOCUMENT_BYTES, Document, NewDocument, PADDING, READ_KEYS, READABLE_DOCUMENTS, payload_for, readable_id,
};
pub use histogram::Histogram;

/// The error of a client program.
pub type Problem = Box<dyn Error + Send + Sync>;

/// The master key of the servers under test. It is public, but it is not the emulators' key:
/// with the emulators' key our client accepts any certificate from this machine.
pub const KEY: &str =
    "ofl3ZrqXQklMkSTpHL8MsKUkvmwxN37wWuuyAqjYUCp2wmtfRX94X+0ZKNu2MzP9WIq1dhPM0cDTSFVukJnJTQ==";

/// The variable that names the file with the CA. OpenSSL and the platform verifier of rustls
/// read it.
pub const CA_VARIABLE: &str = "SSL_CERT_FILE";

/// A library under test, connected to one container. Every client of a run owns a
/// clone, as the tasks of a real program would.
pub trait Client: Clone + Send + 'static {
    fn read(&mut self, key: &str, id: &str) -> impl Future<Output = Result<Document, Problem>> + Send;
    fn create(&mut self, document: &NewDocument<'_>) -> impl Future<Output = Result<(), Problem>> + Send;

    /// Creates all these documents in one bulk. A library that has no bulk fails.
    fn bulk<'a>(
        &mut self,
        documents: impl Iterator<Item = BulkDocument<'a>> + Send + 'a,
    ) -> impl Future<Output = Result<(), Problem>> + Send {
        drop(documents);
        async { Err("this library has no bulk".into()) }
    }
}

/// The `main` of a client program: connects, measures, and prints the figures.
pub fn main<C, F>(connect: impl FnOnce(Arguments) -> F) -> ExitCode
where
    C: Client,
    F: Future<Output = Result<C, Problem>>,
{
    match run(connect) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("{problem}");
            let mut cause = problem.source();
            while let Some(error) = cause {
                eprintln!("  because: {error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}

fn run<C, F>(connect: impl FnOnce(Arguments) -> F) -> Result<String, Problem>
where
    C: Client,
    F: Future<Output = Result<C, Problem>>,
{
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(arguments.workers).enable_all().build()?;
    let figures = runtime.block_on(async {
        let client = connect(arguments.clone()).await?;
        measure::measure(client, &arguments).await
    })?;
    Ok(figures.to_string())
}
