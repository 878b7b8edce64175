//! Checks the official Rust SDK (`azure_data_cosmos`, as published) against our server. Every
//! check makes requests through the SDK and compares the answers with what it expects. Only the
//! checks of `our_client` are the other way round: our client on the emulator inside the SDK.
//!
//! The checks run in several worlds: over TLS and in clear, with one physical partition and
//! with four, and in one world without the option `--merge-in-gateway`, so that our server refuses
//! what the real gateway refuses. Each check has its own container, so that no check depends on
//! another. The program prints a line per check and ends with `N passed, N failed, N
//! skipped`. A failed check gives exit code 1.
//!
//! `PERIHELION_BIN` names the server to start (by default the debug build of
//! this checkout). A word on the command line runs the checks whose name
//! contains it.

mod areas;
mod check;
mod management;
mod query;
mod relay;
mod sdk_emulator;
mod transaction;
mod world;

use std::process::ExitCode;

use crate::check::{Check, Score};
use crate::world::{Scheme, World, WorldOptions};

/// The first argument with which a check of TLS starts this program as its child.
pub(crate) const TRUST_PROBE: &str = "--trust-probe";

const WORLDS: [WorldOptions; 3] = [
    WorldOptions { name: "tls, 1 partition", scheme: Scheme::Https, partitions: 1, is_strict: false },
    WorldOptions { name: "clear, 4 partitions", scheme: Scheme::Http, partitions: 4, is_strict: false },
    WorldOptions { name: "tls, 4, strict", scheme: Scheme::Https, partitions: 4, is_strict: true },
];

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [first, endpoint] = words.as_slice()
        && first == TRUST_PROBE
    {
        return areas::transport::trust_probe(endpoint).await;
    }
    let wanted = words.first().map_or("", String::as_str);
    let mut score = Score::default();
    for options in WORLDS {
        run_world(options, wanted, &mut score).await;
    }
    println!("{score}");
    if score.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run_world(options: WorldOptions, wanted: &str, score: &mut Score) {
    let mut checks = all_checks();
    // Our server has no part in the checks of `our_client`, so one world is enough for them.
    if options.name == WORLDS[0].name {
        checks.extend(areas::our_client::checks());
    }
    checks.retain(|check| check.name.contains(wanted));
    checks.extend(areas::server::checks());
    match World::start(options).await {
        Ok(world) => {
            for check in checks {
                score.run(&world, check).await;
            }
        }
        Err(error) => score.fail(options.name, "the server starts", &*error),
    }
}

fn all_checks() -> Vec<Check> {
    [
        areas::resources::checks(),
        areas::items::checks(),
        areas::keys::checks(),
        areas::preconditions::checks(),
        areas::batches::checks(),
        areas::queries::checks(),
        areas::cross_partition_queries::checks(),
        areas::change_feeds::checks(),
        areas::ranges::checks(),
        areas::transactions::checks(),
        areas::transaction_replays::checks(),
        areas::transaction_comparison::checks(),
        areas::faults::checks(),
        areas::transport::checks(),
    ]
    .concat()
}
