//! The published duroxide-cdb 0.1.10 on our server: every case of `cases/` that
//! our own provider keeps must break there, in the way that is written beside
//! it; what does not break there is listed with the reason. So the cases are
//! known to bite, and a fix upstream shows as a failure here.
//!
//! It prints a line per case and closes with `N passed, N failed, N skipped`; a
//! case that behaves otherwise than written fails and gives exit code 1.
//! `PERIHELION_BIN` names the server to start (by default the debug build of
//! this checkout). A word on the command line runs the cases whose name
//! contains it.

#[path = "../cases/all.rs"]
mod cases;
mod peer;
mod server;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    match peer::run(&wanted).await {
        Ok(score) => {
            println!("{} passed, {} failed, 0 skipped", score.passed, score.failed);
            if score.failed == 0 && score.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            println!("FAIL the server starts: {error}");
            println!("0 passed, 1 failed, 0 skipped");
            ExitCode::FAILURE
        }
    }
}
