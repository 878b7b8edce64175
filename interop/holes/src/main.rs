//! Runs the cases of `cases/` with the published duroxide-cdb 0.1.10 on our server. Our own
//! provider passes all cases. For each case, `cases/all.rs` states how the published crate
//! fails, or why it passes, and the outcome has to be as stated. So the cases are known to
//! detect the defects, and a fix in a later published version shows as a failure here.
//!
//! The program prints a line per case and ends with `N passed, N failed, N skipped`. A case
//! whose outcome differs from its entry counts as failed and gives exit code 1.
//!
//! `PERIHELION_BIN` names the server to start (by default the debug build of
//! this checkout). A word on the command line runs the cases whose name
//! contains it.

#[path = "../cases/all.rs"]
mod cases;
mod peer;

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
