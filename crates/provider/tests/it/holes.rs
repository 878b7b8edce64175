//! Holes: ways in which a provider can lose, duplicate or block work. The tests show that
//! this provider has none of them. The cases are in `interop/holes/cases`, because they also
//! run on the published crate (`duroxide-cdb` 0.1.10). Here each case is a test on a server
//! of its own, over the wire. Tests that need access to internals are in `src/ops/tests/` and
//! beside the file they test. `docs/provider-holes.md` lists the test of each hole, and
//! `table` checks that list.

mod regions;
mod table;
mod tiers;

use perihelion_server::ServerOptions;
use perihelion_testkit::TestServer;

use crate::cases::world::{CaseFailure, Opener, Outcome, World, as_published};

/// Runs a case on a server of its own.
async fn run_case(case: impl AsyncFnOnce(World) -> Outcome) {
    run_case_with(as_published, case).await;
}

/// Runs a case on a server of its own, with providers opened by `open`.
async fn run_case_with(open: Opener, case: impl AsyncFnOnce(World) -> Outcome) {
    let options = ServerOptions { management: true, ..ServerOptions::default() };
    let server = TestServer::on_socket(options).await;
    let outcome = case(World::new(server.address().port(), "case", open)).await;
    if let Err(CaseFailure(why)) = outcome {
        panic!("{why}");
    }
    server.stop().await;
}

/// Makes a test of each case. `$verdict` and `$words` are about the published crate and are not used.
macro_rules! tests {
    ($($module:ident :: $case:ident : $verdict:ident $words:literal,)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                run_case(crate::cases::$module::$case).await;
            }
        )+
    };
}

crate::cases::each_case!(tests);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_written_for_the_published_crate_compiles_and_works() {
    run_case(crate::cases::drop_in::the_published_surface_works).await;
}
