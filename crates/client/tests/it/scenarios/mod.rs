//! Scenarios, one per file, each run in every world.

use crate::worlds::{LIVE_VARIABLE, World};

/// Declares scenarios, and for each one test per world.
macro_rules! scenarios {
    ($($name:ident)*) => {
        $(mod $name;)*

        mod in_process {
            $(#[tokio::test]
            async fn $name() {
                let world = super::World::in_process().await;
                super::$name::scenario(&world).await;
                world.end().await;
            })*
        }

        mod over_the_wire {
            $(#[tokio::test]
            async fn $name() {
                let world = super::World::server().await;
                super::$name::scenario(&world).await;
                world.end().await;
            })*
        }

        mod live_account {
            $(#[tokio::test]
            #[ignore = "needs an account: set PERIHELION_LIVE_CONNECTION_STRING, and run with --ignored"]
            async fn $name() {
                let world = super::World::live().await;
                super::$name::scenario(&world).await;
                world.end().await;
            })*
        }

        /// All scenarios.
        const NAMES: [&str; [$(stringify!($name)),*].len()] = [$(stringify!($name)),*];
    };
}

scenarios! {
    batches
    change_feeds
    conditions
    items
    management
    patches
    queries
    read_many
    throughput
}

/// Says which worlds this run is about (`--nocapture` shows it), and that no
/// file beside this one was forgotten.
#[test]
fn the_suite_says_which_worlds_it_runs_in() {
    let live = match std::env::var(LIVE_VARIABLE) {
        Ok(text) if !text.is_empty() => "a live account".to_owned(),
        _ => format!("no live account ({LIVE_VARIABLE} is not set)"),
    };
    println!("{} scenarios: the engine in process, our server over TLS, {live}", NAMES.len());
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/scenarios");
    let files = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().file_name());
    let mut files: Vec<String> = files.filter_map(|name| name.into_string().ok()).collect();
    files.retain(|name| name != "mod.rs");
    files.sort();
    assert_eq!(files, NAMES.map(|name| format!("{name}.rs")));
}
