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
            async fn $name() {
                let Some(world) = super::World::live().await else { return };
                super::$name::scenario(&world).await;
                world.end().await;
            })*
        }

        /// How many scenarios there are.
        const COUNT: usize = [$(stringify!($name)),*].len();
    };
}

scenarios! {
    batches
    change_feeds
    conditions
    items
    management
    patches
    read_many
    throughput
}

/// Says which worlds this run is about; `--nocapture` shows it, and so does a
/// failure.
#[test]
fn the_suite_says_which_worlds_it_runs_in() {
    let live = match std::env::var(LIVE_VARIABLE) {
        Ok(text) if !text.is_empty() => "a live account".to_owned(),
        _ => format!("no live account ({LIVE_VARIABLE} is not set)"),
    };
    let worlds = format!("{COUNT} scenarios: the engine in process, our server over TLS, {live}");
    println!("{worlds}");
    assert!(COUNT >= 8, "{worlds}");
}
