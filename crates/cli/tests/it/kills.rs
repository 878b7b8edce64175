//! Durability of the real program: SIGKILL while sixteen clients write.
//!
//! The server is started and killed many times on one data directory. In each run
//! sixteen clients write (see [`writer`]) until the kill, which comes at a random
//! moment. Before some runs, a server is killed while it starts. In some runs a partition
//! is being split. Some runs write more than the storage's log holds, so that the kill
//! hits a checkpoint. After the next start every acknowledged write must exist, no
//! write may exist in part, and point reads, queries and the change feed must agree.
//! [`audit`] checks that through the HTTP API.
//!
//! `KILLS=10000 KILLS_SEED=7 cargo test --release -p perihelion sigkill` sets the
//! number of kills. The seed fixes what each client writes and how long each run
//! lasts; the exact moment of the kill depends on the machine.
//!
//! Kills do not test fsync, because the page cache survives a kill. The engine's tests
//! with simulated power cuts test fsync.

mod audit;
mod journal;
mod regions;
mod transactions;
mod writer;

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use perihelion_model::json::{object, parse_str};
use perihelion_testkit::Random;
use perihelion_testkit::ScratchDirectory;
use perihelion_testkit::http_client::{HttpClient, HttpRequest};

use self::audit::Audit;
use self::journal::Journal;
use self::writer::Load;
use crate::program::{RunningServer, command};

/// Clients that write at once.
const CLIENTS: usize = 16;

/// Logical partitions that the clients share, so that their writes interleave.
const PARTITION_KEYS: usize = 6;

/// The longest run of a server under load. Long enough for some hundred writes of a
/// debug build, short enough for fifty runs in a minute.
const RUN_MAX: Duration = Duration::from_millis(300);

/// A start takes some tens of milliseconds. A kill within this time comes before,
/// during or just after recovery.
const START_MAX: Duration = Duration::from_millis(40);

/// One of this many runs is heavy: its clients write until the log is full, which takes seconds.
const HEAVY_ONE_IN: u64 = 20;

/// The bytes that fill one of the log's files and begin a checkpoint
/// (docs/storage.md).
const HEAVY_BYTES: u64 = 17 * 1024 * 1024;

/// The longest time until the clients of a heavy run have filled the log. A debug build on a
/// busy machine needs a tenth of this time.
const HEAVY_RUN_MAX: Duration = Duration::from_secs(30);

/// The most physical partitions. Each of them makes an audit slower.
const RANGES_MAX: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigkill_under_load_loses_no_acknowledged_write() {
    let (kills, seed) = (setting("KILLS", 50), setting("KILLS_SEED", 1));
    println!("KILLS={kills} KILLS_SEED={seed}");
    let scratch = ScratchDirectory::new();
    let mut test = KillTest::new(&scratch, seed);
    let started_at = Instant::now();
    test.set_up().await;
    for kill in 1..=kills {
        test.run_until_killed(kill % HEAVY_ONE_IN == HEAVY_ONE_IN / 2).await;
        if let Err(violations) = test.check(kill == kills).await {
            let shown = violations[..violations.len().min(VIOLATIONS_SHOWN)].join("\n  ");
            panic!("seed {seed}, kill {kill}: {} violation(s)\n  {shown}", violations.len());
        }
    }
    let (acknowledged, unanswered, took_effect) = test.totals();
    println!(
        "{kills} kills, {} during start: {acknowledged} writes acknowledged, 0 lost; {unanswered} in flight, \
         {took_effect} of them took effect; {} ranges, {} documents, {:?}",
        test.kills_at_start,
        test.audit.range_count(),
        test.audit.document_count(&test.journals),
        started_at.elapsed(),
    );
    assert!(acknowledged > kills * CLIENTS as u64, "seed {seed}: too few writes were acknowledged");
    assert!(unanswered > kills, "seed {seed}: too few writes were in flight at the kills");
}

/// How many violations are shown. A defect may cause very many.
const VIOLATIONS_SHOWN: usize = 12;

/// A number from the environment variable `name`.
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// One data directory on which a server is started and killed many times, and the
/// journals of its clients.
struct KillTest<'s> {
    scratch: &'s ScratchDirectory,
    random: Random,
    journals: Vec<Journal>,
    audit: Audit,
    kills_at_start: u64,
}

impl<'s> KillTest<'s> {
    fn new(scratch: &'s ScratchDirectory, seed: u64) -> KillTest<'s> {
        let journals = (0..CLIENTS).map(Journal::new).collect();
        KillTest { scratch, random: Random::new(seed), journals, audit: Audit::default(), kills_at_start: 0 }
    }

    fn command(&self) -> std::process::Command {
        let data = self.scratch.path().join("data").display().to_string();
        let arguments = ["server", "--port", "0", "--data", &data, "--partitions", "2", "--merge-in-gateway"];
        let mut command = command(self.scratch, &arguments);
        // Standard error is not read while the server runs, so the log must not fill the
        // pipe.
        command.args(["--management", "--log", "error"]);
        command
    }

    fn start(&self) -> (RunningServer, SocketAddr) {
        let server = RunningServer::start(&mut self.command());
        let address = SocketAddr::from(([127, 0, 0, 1], server.port()));
        (server, address)
    }

    /// Creates the database, the container and the counters that all clients share.
    async fn set_up(&mut self) {
        let (server, address) = self.start();
        let client = HttpClient::new(address);
        for (path, body) in [
            ("/dbs", r#"{"id":"d"}"#),
            ("/dbs/d/colls", r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#),
        ] {
            let body = parse_str(body).expect("JSON");
            let created = client.send(&HttpRequest::new("POST", path).json(&body)).await.expect("an answer");
            assert_eq!(created.status, 201, "{}", created.text());
        }
        self.audit.create_counters(&client).await;
        kill(server);
    }

    /// One run under load, ended by a kill.
    async fn run_until_killed(&mut self, is_heavy: bool) {
        if self.random.one_in(6) {
            self.kill_while_starting().await;
        }
        let (server, address) = self.start();
        let load = Arc::new(Load::new(is_heavy.then_some(HEAVY_BYTES)));
        let mut writers = Vec::new();
        for journal in std::mem::take(&mut self.journals) {
            let random = Random::new(self.random.bits());
            let load = Arc::clone(&load);
            writers.push(tokio::spawn(writer::write_until_the_end(address, load, journal, random)));
        }
        if self.random.one_in(6) && self.audit.range_count() < RANGES_MAX {
            let range = self.audit.random_range(&mut self.random);
            tokio::spawn(split(address, range));
        }
        tokio::time::timeout(HEAVY_RUN_MAX, load.wait_until_written())
            .await
            .expect("the writers make progress");
        self.sleep_at_random(RUN_MAX).await;
        kill(server);
        for writer in writers {
            self.journals.push(writer.await.expect("a writer ends without a panic"));
        }
    }

    /// Starts a server and kills it while it starts.
    async fn kill_while_starting(&mut self) {
        let mut child = self.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
        self.sleep_at_random(START_MAX).await;
        child.kill().expect("a process to kill");
        child.wait().expect("an end");
        self.kills_at_start += 1;
    }

    /// Sleeps for a random time. All other waits of this test are for an event.
    async fn sleep_at_random(&mut self, longest: Duration) {
        tokio::time::sleep(Duration::from_micros(self.random.below(longest.as_micros() as u64))).await;
    }

    /// Starts the server again and checks its data against the journals.
    async fn check(&mut self, is_last: bool) -> Result<(), Vec<String>> {
        let (server, address) = self.start();
        let reads_everything = is_last || self.random.one_in(10);
        let violations =
            self.audit.check(address, &mut self.journals, &mut self.random, reads_everything).await;
        kill(server);
        if violations.is_empty() { Ok(()) } else { Err(violations) }
    }

    /// How many writes were acknowledged, how many were in flight at a kill, and how many of
    /// those in flight took effect. The last number does not include increments.
    fn totals(&self) -> (u64, u64, u64) {
        let sum = |count: fn(&Journal) -> u64| self.journals.iter().map(count).sum();
        (
            sum(|journal| journal.acknowledged),
            sum(|journal| journal.unanswered),
            sum(|journal| journal.took_effect),
        )
    }
}

/// Asks for a split. The audit reads the ranges that exist, so the split may come before
/// or after the kill.
async fn split(address: SocketAddr, range: String) {
    let body = object([("database", "d".into()), ("container", "c".into()), ("range", range.into())]);
    let call = HttpRequest::new("POST", "/_perihelion/split").omit("authorization").json(&body);
    let _ = HttpClient::new(address).send(&call).await;
}

/// Kills a server with SIGKILL. Fails if the server had ended before.
pub(crate) fn kill(server: RunningServer) {
    server.signal("KILL");
    let (status, log) = server.wait_for_end();
    assert_eq!(status.code(), None, "the server ended without the kill: {log}");
}
