//! Compares distributed transactions of the SDK's driver on the emulator inside that driver with
//! those of our client on our engine, and on the same emulator. All of them are in this process,
//! because the emulator has no socket. Figures go to stdout as JSON, progress to stderr.

mod arguments;
mod emulator;
mod measure;
mod ours;
mod rounds;
mod sdk;
mod shape;
mod store;
mod target;

use std::process::ExitCode;

use arguments::Arguments;
use perihelion_bench_client::Problem;

fn main() -> ExitCode {
    match run() {
        Ok(figures) => {
            println!("{figures}");
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

fn run() -> Result<String, Problem> {
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(arguments.workers).enable_all().build()?;
    Ok(runtime.block_on(rounds::run(&arguments))?.to_string())
}
