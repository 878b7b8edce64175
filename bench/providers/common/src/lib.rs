//! Shared code of the provider programs: command line, workloads, and the figures as one line
//! of JSON. A program adds only how its provider is opened. So any difference in the figures
//! comes from the provider.
//!
//! All provider programs run duroxide 0.1.32 on a multi-thread tokio runtime with the same
//! number of workers. duroxide's runtime has its default options, except in the two harnesses.
//! Every measurement is a process of its own on empty storage.

mod arguments;
mod harness;
mod observed;
mod timed;
mod workflows;

use std::error::Error;
use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;

use duroxide::providers::Provider;

pub use arguments::{Arguments, Location, Workload};

/// The error of a provider program.
pub type Problem = Box<dyn Error + Send + Sync>;

/// The `main` of a program: opens the provider of the named location, runs one
/// workload on it and prints the figures.
pub fn main<F>(open: impl FnOnce(Location) -> F) -> ExitCode
where
    F: Future<Output = Result<Arc<dyn Provider>, Problem>>,
{
    match run(open) {
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

fn run<F>(open: impl FnOnce(Location) -> F) -> Result<String, Problem>
where
    F: Future<Output = Result<Arc<dyn Provider>, Problem>>,
{
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(arguments.workers).enable_all().build()?;
    let figures = runtime.block_on(async {
        let provider = open(arguments.location).await?;
        match arguments.workload {
            Workload::Stress { dispatchers, seconds } => {
                harness::stress(provider, dispatchers, seconds).await
            }
            Workload::Payload { dispatchers, seconds } => {
                harness::payload(provider, dispatchers, seconds).await
            }
            Workload::Loop { clients, seconds } => timed::closed_loop(provider, clients, seconds).await,
            Workload::Smallest { count } => timed::smallest(provider, count).await,
            Workload::FanOut { count } => timed::wide(provider, workflows::FAN_OUT, count).await,
            Workload::Children { count } => timed::wide(provider, workflows::CHILDREN, count).await,
            Workload::Counted { count } => timed::counted(provider, count).await,
        }
    })?;
    // Background work of the provider is not waited for.
    runtime.shutdown_background();
    Ok(figures.to_string())
}
