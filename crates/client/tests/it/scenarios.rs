//! Scenarios, one per file. Each runs on every kind of account.

use crate::account::{LIVE_VARIABLE, TestAccount};

/// Declares scenarios. Each scenario becomes one test per kind of account.
macro_rules! scenarios {
    ($($name:ident)*) => {
        $(mod $name;)*

        mod in_process {
            $(#[tokio::test]
            async fn $name() {
                let account = super::TestAccount::in_process().await;
                super::$name::scenario(&account).await;
                account.end().await;
            })*
        }

        mod over_the_wire {
            $(#[tokio::test]
            async fn $name() {
                let account = super::TestAccount::over_tls().await;
                super::$name::scenario(&account).await;
                account.end().await;
            })*
        }

        mod live_account {
            $(#[tokio::test]
            #[ignore = "needs an account: set PERIHELION_LIVE_CONNECTION_STRING, and run with --ignored"]
            async fn $name() {
                let account = super::TestAccount::live().await;
                super::$name::scenario(&account).await;
                account.end().await;
            })*
        }

        /// All scenarios.
        const NAMES: [&str; [$(stringify!($name)),*].len()] = [$(stringify!($name)),*];
    };
}

scenarios! {
    batches
    bulk
    change_feeds
    conditions
    items
    management
    patches
    queries
    read_many
    throughput
    transactions
}

/// Prints the accounts of this run (shown with `--nocapture`), and checks that
/// every file of the directory is declared above.
#[test]
fn every_scenario_is_declared_and_its_accounts_are_printed() {
    let live = match std::env::var(LIVE_VARIABLE) {
        Ok(text) if !text.is_empty() => "a live account".to_owned(),
        _ => format!("no live account ({LIVE_VARIABLE} is not set)"),
    };
    println!("{} scenarios: the engine in process, our server over TLS, {live}", NAMES.len());
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/scenarios");
    let files = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().file_name());
    let mut files: Vec<String> = files.filter_map(|name| name.into_string().ok()).collect();
    files.sort();
    assert_eq!(files, NAMES.map(|name| format!("{name}.rs")));
}
