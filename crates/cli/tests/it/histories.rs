//! Histories of transactions on the real program, judged by the checker of the test kit
//! ([`perihelion_testkit::history`]). Sixteen clients read and append to lists in eight
//! partitions and three containers. Meanwhile the program is killed and answers are lost
//! ([`crate::crashing`]).
//!
//! A client reads lists in a read transaction, and appends in a write transaction whose
//! preconditions are the etags that it read. So a read and the writes after it are one
//! transaction. In other tests the clients make a mistake ([`Mistake`]) that users make too. These
//! tests show that the checker finds the anomalies of such mistakes.
//!
//! `HISTORY_SECONDS=600 HISTORY_SEED=7 cargo test --release -p perihelion histories` sets the
//! length of the load and the seed.

mod appender;
mod lists;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use perihelion_testkit::Random;
use perihelion_testkit::history::{AnomalyKind, Outcome, Transaction, check};
use tokio::time::Instant;

use self::appender::Appender;
use self::lists::Lists;
use crate::crashing::{CrashingServer, Places};
use crate::kills::setting;

const CLIENTS: usize = 16;

/// How many anomalies are shown. A defect may cause very many.
const ANOMALIES_SHOWN: usize = 10;

/// The mistake that the clients of a run make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// Lists are read with one point read each, instead of one read transaction.
    SeparateReads,
    /// A list that was read is replaced without a precondition.
    UncheckedReplace,
    /// The lists that are appended to have preconditions. The lists that were only read have none.
    UncheckedReads,
    /// Each list is written in a transaction of its own. When one is aborted, the client
    /// believes that nothing was written.
    SeparateWrites,
}

/// Runs the clients until the time is up, and reads all lists at the end.
async fn run(server: CrashingServer, mistake: Mistake, seed: u64, load: Duration, has_crashes: bool) -> Run {
    let mut random = Random::new(seed);
    let client = server.client().await;
    let places = Places::create(&client).await;
    let lists = Arc::new(Lists::create(&places).await);
    let end = Instant::now() + load;
    let mut appenders = Vec::new();
    for number in 0..CLIENTS {
        let client = server.client().await;
        let appender = Appender {
            number: number as u64,
            places: places.for_client(&client),
            client,
            lists: Arc::clone(&lists),
            random: Random::new(random.bits()),
            mistake,
            appended: 0,
            history: Vec::new(),
        };
        appenders.push(tokio::spawn(appender.work_until(end)));
    }
    let server = if has_crashes { server.crash_until(end).await } else { server };
    let mut history = Vec::new();
    for appender in appenders {
        history.extend(appender.await.expect("a client ends without a panic"));
    }
    history.push(lists.read_all(&client, &places).await);
    Run { server, history }
}

/// A run that has ended.
struct Run {
    server: CrashingServer,
    history: Vec<Transaction>,
}

impl Run {
    fn count(&self, outcome: Outcome) -> usize {
        self.history.iter().filter(|transaction| transaction.outcome == outcome).count()
    }

    fn anomalies(&self) -> BTreeMap<AnomalyKind, usize> {
        let mut kinds = BTreeMap::new();
        for anomaly in check(&self.history) {
            *kinds.entry(anomaly.kind).or_default() += 1;
        }
        kinds
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_are_strictly_serializable_while_the_server_is_killed() {
    let (seconds, seed) = (setting("HISTORY_SECONDS", 20), setting("HISTORY_SEED", 1));
    println!("HISTORY_SECONDS={seconds} HISTORY_SEED={seed}");
    let server = CrashingServer::start(seed);
    let run = run(server, Mistake::None, seed, Duration::from_secs(seconds), true).await;
    let started_at = Instant::now();
    let anomalies = check(&run.history);
    let shown: Vec<String> = anomalies.iter().take(ANOMALIES_SHOWN).map(ToString::to_string).collect();
    let outcomes = [Outcome::Committed, Outcome::Aborted, Outcome::Unknown].map(|outcome| run.count(outcome));
    println!("{:?}", run.server.events);
    println!(
        "{} committed, {} aborted, {} unknown; checked in {:?}",
        outcomes[0],
        outcomes[1],
        outcomes[2],
        started_at.elapsed()
    );
    assert!(anomalies.is_empty(), "seed {seed}: {} anomalies\n  {}", anomalies.len(), shown.join("\n  "));
    assert!(outcomes[0] > 200 && outcomes[1] > 2 && outcomes[2] > 0, "too little happened: {outcomes:?}");
    assert!(run.server.events.kills > 2, "{:?}", run.server.events);
}

/// Runs clients with a mistake, until the checker finds the anomaly that the mistake causes.
async fn check_found(mistake: Mistake, expected: AnomalyKind) {
    // A run of one second has several hundred transactions. On a busy machine there may be no two
    // transactions that overlap in the way that causes the anomaly.
    const RUNS_MAX: u64 = 20;
    for seed in 0..RUNS_MAX {
        let server = CrashingServer::start(seed);
        let run = run(server, mistake, seed, Duration::from_secs(1), false).await;
        let anomalies = run.anomalies();
        println!("{mistake:?}, seed {seed}: {} transactions, {anomalies:?}", run.history.len());
        if anomalies.contains_key(&expected) {
            return;
        }
    }
    panic!("{mistake:?} was not found as {expected:?} in {RUNS_MAX} runs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn separate_point_reads_are_found_as_read_skew() {
    check_found(Mistake::SeparateReads, AnomalyKind::SingleAntiDependency).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replace_without_a_precondition_is_found_as_a_lost_update() {
    check_found(Mistake::UncheckedReplace, AnomalyKind::LostUpdate).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_without_a_precondition_are_found_as_write_skew() {
    check_found(Mistake::UncheckedReads, AnomalyKind::AntiDependency).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn separate_writes_are_found_as_a_dirty_read() {
    check_found(Mistake::SeparateWrites, AnomalyKind::AbortedRead).await;
}
