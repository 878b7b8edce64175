//! A server of the real program that is killed and started again while clients use it. It keeps
//! its data directory and its address, so a client outlives the kills. While the server runs,
//! fault rules lose answers of transactions and refuse some transactions.

mod places;

use std::process::Stdio;
use std::time::Duration;

use perihelion_client::{Client, Credential};
use perihelion_model::json::Value;
use perihelion_testkit::http_client::{HttpClient, HttpRequest, HttpResponse};
use perihelion_testkit::{Random, ScratchDirectory};
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep};

pub(crate) use self::places::{Places, distinct_numbers};
use crate::kills::kill;
use crate::program::{RunningServer, command, own_host};

/// The faults of a running server, the lost answers first. The others refuse the transaction or lose
/// the request. A client finds out the outcome of most of these requests by itself: it sends them
/// again with the same token. 500/5411: the ledger failed. 449/5352: the transaction with this token
/// is still running. 408: a timeout.
const FAULTS: [&str; 5] = [
    r#""drop":"after","probability":0.04"#,
    r#""status":500,"subStatus":5411,"when":"after","probability":0.02"#,
    r#""drop":"before","probability":0.02"#,
    r#""status":449,"subStatus":5352,"retryAfterMs":5,"probability":0.01"#,
    r#""status":408,"retryAfterMs":5,"probability":0.01"#,
];

/// How many of the faults lose the answer of a request that was carried out.
const LOST_ANSWERS: usize = 2;

/// The shortest and the longest time that a server runs before it is killed.
const RUN_TIMES: (Duration, Duration) = (Duration::from_millis(300), Duration::from_millis(2500));

/// A start takes some tens of milliseconds. A kill within this time comes before, during or just
/// after recovery.
const START_MAX: Duration = Duration::from_millis(60);

/// Longer than a client tries to reach a server that is down: three retries after 250, 500 and
/// 1000 ms, so 1.75 s (docs/transactions.md).
const OUTAGE: Duration = Duration::from_millis(2500);

/// The server, its data directory, and what happened to it.
pub(crate) struct CrashingServer {
    scratch: ScratchDirectory,
    host: String,
    port: u16,
    server: Option<RunningServer>,
    random: Random,
    pub(crate) events: Events,
}

/// How often each event happened.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) kills: u64,
    pub(crate) kills_at_start: u64,
    pub(crate) outages: u64,
    /// Transactions that were carried out and whose answer a fault rule lost. Those of the last
    /// moment before a kill are not counted.
    pub(crate) lost_answers: u64,
}

impl CrashingServer {
    /// Starts a server on an empty directory.
    pub(crate) fn start(seed: u64) -> CrashingServer {
        let mut server = CrashingServer {
            scratch: ScratchDirectory::new(),
            // While the server is down, no other test is given its port.
            host: own_host(),
            port: 0,
            server: None,
            random: Random::new(seed),
            events: Events::default(),
        };
        server.restart();
        server
    }

    /// A client of the server that shares nothing with other clients.
    pub(crate) async fn client(&self) -> Client {
        let url = format!("http://{}:{}", self.host, self.port);
        Client::with_credential(&url, Credential::emulator()).await.expect("an account")
    }

    /// Kills the server at random moments and starts it again, until the time is up. The server
    /// runs afterwards, without faults.
    pub(crate) async fn crash_until(mut self, end: Instant) -> CrashingServer {
        self.add_faults().await;
        loop {
            let (least, most) = RUN_TIMES;
            let run = least + self.random_time(most - least);
            if Instant::now() + run >= end {
                tokio::time::sleep_until(end).await;
                break;
            }
            sleep(run).await;
            self.count_lost_answers().await;
            self.kill();
            self.stay_down().await;
            block_in_place(|| self.restart());
            self.add_faults().await;
        }
        self.count_lost_answers().await;
        assert_eq!(self.manage("DELETE", "").await.status, 200);
        self
    }

    /// Kills the server and starts it again.
    pub(crate) fn crash(&mut self) {
        self.kill();
        block_in_place(|| self.restart());
    }

    fn kill(&mut self) {
        block_in_place(|| kill(self.server.take().expect("a running server")));
        self.events.kills += 1;
    }

    /// The time between a kill and the next start. Mostly nothing happens. Sometimes a server is
    /// killed while it starts, and sometimes there is an outage that is longer than the clients try.
    async fn stay_down(&mut self) {
        match self.random.below(8) {
            0 => {
                self.events.outages += 1;
                sleep(OUTAGE).await;
            }
            1 | 2 => {
                self.events.kills_at_start += 1;
                let mut child =
                    self.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
                sleep(self.random_time(START_MAX)).await;
                child.kill().expect("a process to kill");
                child.wait().expect("an end");
            }
            _ => {}
        }
    }

    fn restart(&mut self) {
        let server = RunningServer::start(&mut self.command());
        self.port = server.port();
        self.server = Some(server);
    }

    fn command(&self) -> std::process::Command {
        let data = self.scratch.path().join("data").display().to_string();
        let port = self.port.to_string();
        let mut command = command(&self.scratch, &["server", "--host", &self.host, "--port", &port]);
        command.args(["--data", &data, "--partitions", places::PARTITIONS_TEXT, "--management"]);
        // One read transaction reads all accounts. Standard error is not read while the server
        // runs, so the log must not fill the pipe.
        command.args(["--transaction-operations", "1000", "--log", "error"]);
        command
    }

    async fn add_faults(&self) {
        for fault in FAULTS {
            let answer = self.manage("POST", &format!(r#"{{"operation":"transaction",{fault}}}"#)).await;
            assert!((200..300).contains(&answer.status), "{fault}: {}", answer.text());
        }
    }

    async fn count_lost_answers(&mut self) {
        let report = self.manage("GET", "").await.json().expect("JSON");
        let rules = report.get("faults").and_then(Value::as_array).expect("a list of faults");
        let hits = rules.iter().take(LOST_ANSWERS).map(|rule| rule.get("hits").and_then(Value::as_i64));
        self.events.lost_answers += hits.map(|hits| hits.expect("a number of hits") as u64).sum::<u64>();
    }

    async fn manage(&self, method: &str, body: &str) -> HttpResponse {
        let address = format!("{}:{}", self.host, self.port).parse().expect("an address");
        let request = HttpRequest::new(method, "/_perihelion/faults").omit("authorization");
        HttpClient::new(address).send(&request.body(body.to_owned())).await.expect("an answer")
    }

    fn random_time(&mut self, longest: Duration) -> Duration {
        Duration::from_micros(self.random.below(longest.as_micros() as u64))
    }
}
