//! Tests of `perihelion stress`: its figures, its errors, and that a run leaves an account as it
//! was before.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use duroxide_cdb::CosmosDBProvider;
use perihelion_client::{Batch, Client, Container, Credential, Query};
use perihelion_testkit::ScratchDirectory;
use perihelion_wire::signature::EMULATOR_KEY;
use serde_json::{Value, json};

use crate::program::{RunningServer, TIMEOUT, command, run, signal, text};

/// A server over a socket, and the test's own client of it.
struct Account {
    server: RunningServer,
    runtime: tokio::runtime::Runtime,
    client: Client,
}

impl Account {
    fn start() -> Account {
        let server = RunningServer::start(&mut command(&ScratchDirectory::new(), &["dev", "--port", "0"]));
        let runtime = tokio::runtime::Runtime::new().expect("threads");
        let endpoint = endpoint(&server);
        let connected = runtime.block_on(Client::with_credential(&endpoint, Credential::emulator()));
        Account { server, client: connected.expect("an account"), runtime }
    }

    /// `perihelion stress` on this account.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(&ScratchDirectory::new(), &["stress"]);
        command
            .args(arguments)
            .env("COSMOS_ENDPOINT", endpoint(&self.server))
            .env("COSMOS_KEY", EMULATOR_KEY);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the binary runs")
    }

    fn database_names(&self) -> Vec<String> {
        let databases = self.runtime.block_on(self.client.databases()).expect("a list");
        databases.into_iter().map(|database| database.id).collect()
    }

    fn container_names(&self, database: &str) -> Vec<String> {
        let containers = self.runtime.block_on(self.client.database(database).containers()).expect("a list");
        containers.into_iter().map(|container| container.id).collect()
    }

    fn documents(&self, container: &Container) -> Vec<Value> {
        self.runtime.block_on(container.query(Query::new("SELECT * FROM c")).collect()).expect("documents")
    }

    /// A container of the provider, as another program would have created it.
    fn create_container(&self, database: &str, name: &str) -> Container {
        self.runtime.block_on(async {
            let database = self.client.create_database_if_missing(database).await.expect("a database");
            database.create_container(&duroxide_cdb::container_properties(name)).await.expect("a container")
        })
    }
}

fn endpoint(server: &RunningServer) -> String {
    format!("http://127.0.0.1:{}", server.port())
}

/// The rows of a run that ended with exit code 0 and wrote JSON.
fn rows(output: &Output) -> Vec<Value> {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    let report: Value = serde_json::from_str(&out).expect("JSON");
    report["rows"].as_array().expect("rows").clone()
}

fn number(row: &Value, member: &str) -> f64 {
    row[member].as_f64().unwrap_or_else(|| panic!("no number {member} in {row}"))
}

/// Checks that the figures of a row of a healthy run agree with each other.
fn check_plausible(row: &Value, activities: f64) {
    let figure = |member: &str| number(row, member);
    assert!(figure("completed") > 0.0 && figure("failed") == 0.0 && figure("unfinished") == 0.0, "{row}");
    assert_eq!(figure("started"), figure("completed"), "{row}");
    let (per_second, seconds) = (figure("orchestrationsPerSecond"), figure("seconds"));
    assert!((per_second * seconds - figure("completed")).abs() < 0.1 * figure("completed"), "{row}");
    assert!(figure("activitiesPerSecond") >= activities * per_second * 0.99, "{row}");
    let latencies = ["p50Ms", "p95Ms", "p99Ms", "maxMs"].map(figure);
    assert!(latencies[0] > 0.0 && latencies.is_sorted(), "{row}");
    // A start, one write for each activity, and at least one turn.
    assert!(figure("requestsPerOrchestration") >= activities + 2.0, "{row}");
    assert!(figure("requestsPerOrchestration") < 100.0, "{row}");
    assert!(figure("requestUnitsPerOrchestration") > figure("requestsPerOrchestration"), "{row}");
    assert!(figure("statusRequests") > 0.0, "{row}");
}

#[test]
fn a_run_in_memory_reports_plausible_figures_for_every_concurrency() {
    let arguments =
        ["--concurrency", "1,2/3", "--duration", "500ms", "--activities", "2", "--activity-time", "1ms"];
    let output = run(&[&["stress", "-o", "json"], &arguments[..]].concat());
    let rows = rows(&output);
    let concurrencies: Vec<_> =
        rows.iter().map(|row| (row["dispatchers"].clone(), row["workers"].clone())).collect();
    assert_eq!(concurrencies, [(json!(1), json!(1)), (json!(2), json!(3))]);
    for row in &rows {
        check_plausible(row, 2.0);
        assert!(number(row, "seconds") >= 0.5, "{row}");
        assert_eq!(number(row, "throttled"), 0.0, "{row}");
    }
}

#[test]
fn exactly_the_given_number_of_orchestrations_runs_and_is_shown_in_a_table() {
    let output = run(&["stress", "--concurrency", "2", "--orchestrations", "7", "--at-once", "3"]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    let head = lines.iter().position(|cells| cells.first() == Some(&"workers")).expect("a head");
    assert_eq!(lines[head + 1][..3], ["2/2", "7", "0"], "{out}");
    assert!(out.contains("3 orchestrations at once, each with 5 activities of 10 ms"), "{out}");
    // Standard error is not a terminal, so there is one line for each phase, and nothing that moves
    // the cursor.
    assert_eq!(err.lines().count(), 3, "{err}");
    assert!(err.contains("2/2: running 7 orchestrations") && err.contains("7 of 7 completed"), "{err}");
    assert!(!err.contains(['\r', '\x1b']), "{err:?}");
}

#[test]
fn a_small_throughput_causes_throttled_answers() {
    let arguments = ["--concurrency", "2", "--orchestrations", "6", "--activities", "3"];
    let output = run(&[&["stress", "-o", "json", "--throughput", "400"], &arguments[..]].concat());
    let rows = rows(&output);
    assert!(number(&rows[0], "throttled") > 0.0, "{}", rows[0]);
    assert_eq!(number(&rows[0], "completed"), 6.0, "{}", rows[0]);
}

#[test]
fn a_run_with_failed_orchestrations_reports_them_and_ends_with_an_error() {
    let arguments = ["--concurrency", "1", "--orchestrations", "4", "--activity-time", "50ms"];
    let output = run(&[&["stress", "-o", "json", "--timeout", "1ms"], &arguments[..]].concat());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{out}{err}");
    assert!(
        err.contains("4 of 4 orchestrations failed") && err.contains("not completed within 1ms"),
        "{err}"
    );
    let report: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(
        (&report["rows"][0]["failed"], &report["rows"][0]["p50Ms"]),
        (&json!(4), &Value::Null),
        "{out}"
    );
}

#[test]
fn a_run_leaves_no_container_in_its_data_directory() {
    let directory = ScratchDirectory::new();
    let data = directory.path().join("data");
    std::fs::create_dir(&data).expect("a directory");
    let data = data.to_str().expect("a path");
    let arguments = ["stress", "--data", data, "--orchestrations", "3", "--concurrency", "1", "-o", "json"];
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((report["endpoint"].as_str(), report["rows"][0]["completed"].as_u64()), (Some(data), Some(3)));
    let left = run(&["container", "list", "--data", data, "-o", "jsonl"]);
    assert_eq!((left.status.code(), text(&left.stdout)), (Some(0), String::new()));
}

#[test]
fn wrong_arguments_are_explained() {
    let check = |arguments: &[&str], words: &[&str]| {
        let output = run(&[&["stress"], arguments].concat());
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {err}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        for word in words {
            assert!(err.contains(word), "{arguments:?} does not say {word}: {err}");
        }
    };
    check(&["--concurrency", "1,none"], &["`none`", "2/8"]);
    check(&["--concurrency", "0"], &["from 1 to 1024"]);
    check(&["--concurrency", &["1"; 33].join(",")], &["33 values", "32 rows"]);
    check(&["--duration", "10"], &["`10`", "10s"]);
    check(&["--duration", "0s"], &["`0s`"]);
    check(&["--activities", "0"], &["--activities"]);
    check(&["--orchestrations", "0"], &["--orchestrations"]);
    check(&["--activity-time", "2m"], &["at most 1m"]);
    check(&["--container", "load"], &["--database"]);
    check(&["--database", "a/b"], &["none of them /"]);
    check(&["-o", "xml"], &["table", "json"]);
    check(&["--endpoint", "https://shop.invalid"], &["COSMOS_KEY"]);
    check(&["--key", "c2VjcmV0"], &["COSMOS_ENDPOINT"]);
}

#[test]
fn the_error_for_an_account_that_does_not_answer_does_not_contain_its_key() {
    let secret = "c2VjcmV0IGtleSBvZiBtaW5l";
    let output = run(&["stress", "--endpoint", "http://127.0.0.1:1", "--key", secret]);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("cannot connect to the account") && !err.contains(secret), "{err}");
}

#[test]
fn a_run_over_a_socket_leaves_the_account_as_it_was() {
    let account = Account::start();
    account.create_container("shop", "orders");
    let arguments = ["-o", "json", "--concurrency", "2", "--orchestrations", "12", "--activities", "2"];
    check_plausible(&rows(&account.run(&arguments))[0], 2.0);
    assert_eq!(account.database_names(), ["shop"]);
    check_plausible(&rows(&account.run(&[&arguments[..], &["--database", "shop"]].concat()))[0], 2.0);
    assert_eq!(account.container_names("shop"), ["orders"]);
    let named = ["--database", "new", "--container", "load", "--throughput", "1000"];
    check_plausible(&rows(&account.run(&[&arguments[..], &named].concat()))[0], 2.0);
    assert_eq!(account.database_names(), ["shop"]);
}

#[test]
fn a_named_container_that_exists_keeps_everything_but_the_instances_of_the_run() {
    let account = Account::start();
    let container = account.create_container("shop", "workflows");
    let note = json!({"id": "note", "instanceId": "mine", "type": "note"});
    account.runtime.block_on(container.create("mine", &note)).expect("a document");
    let arguments = ["-o", "json", "--concurrency", "2", "--orchestrations", "12", "--activities", "2"];
    let named = ["--database", "shop", "--container", "workflows"];
    let output = account.run(&[&arguments[..], &named].concat());
    check_plausible(&rows(&output)[0], 2.0);
    assert!(text(&output.stderr).contains("removing 12 instances"), "{}", text(&output.stderr));
    let left = account.documents(&container);
    assert_eq!(left.iter().map(|document| &document["id"]).collect::<Vec<_>>(), ["note"], "{left:?}");
    // `--throughput` is only for a container that the run creates.
    let refused = account.run(&[&named[..], &["--throughput", "400"]].concat());
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("exists"), "{}", text(&refused.stderr));
}

#[test]
fn a_container_with_unfinished_workflows_is_refused() {
    let account = Account::start();
    let container = account.create_container("shop", "workflows");
    account.runtime.block_on(async {
        let builder = CosmosDBProvider::builder().with_client(account.client.clone());
        let provider = builder.with_database("shop").with_container("workflows").open().await;
        let provider = provider.expect("a provider");
        let client = duroxide::Client::new(std::sync::Arc::new(provider.clone()));
        client.start_orchestration("order-1", "order", "1").await.expect("a start");
        provider.close().await;
    });
    let before = account.documents(&container);
    assert_eq!(before.len(), 1, "{before:?}");
    let output = account.run(&["--database", "shop", "--container", "workflows"]);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("shop/workflows is in use: \"order-1\" is pending, 1 messages"), "{err}");
    assert_eq!(account.documents(&container), before);
}

/// The past executions of the large container. Counting them costs more than 200 RU, the limit of one
/// call of the provider's `get_system_metrics`.
const PAST_EXECUTIONS: usize = 15_000;

/// Story of two bugs. First, the check called `get_system_metrics`, which counted only the first part of a
/// large container, so the check missed a running workflow in the rest. Second, the check opened a
/// provider, and the provider turned on the container's time to live before the container was refused.
#[test]
fn a_large_container_with_a_running_workflow_is_refused_and_stays_as_it_is() {
    let account = Account::start();
    let container = account.runtime.block_on(async {
        let database = account.client.create_database_if_missing("shop").await.expect("a database");
        let mut properties = duroxide_cdb::container_properties("workflows");
        properties.ttl = None;
        let container = database.create_container(&properties).await.expect("a container");
        for first in (0..PAST_EXECUTIONS).step_by(Batch::OPERATIONS_MAX) {
            let mut batch = Batch::new("old");
            for number in first..first + Batch::OPERATIONS_MAX {
                let past = json!({"id": number.to_string(), "instanceId": "old", "type": "execution",
                    "status": "Completed", "events": 1});
                batch.create(&past).expect("a document");
            }
            container.batch(batch).await.expect("a batch");
        }
        let running = json!({"id": "i", "instanceId": "order-1", "type": "history", "created": true,
            "name": "order", "version": "1.0.0", "status": "Running", "createdAt": 1, "updatedAt": 1,
            "execution": 1, "executionId": 1});
        container.create("order-1", &running).await.expect("a document");
        container
    });
    let before = account.runtime.block_on(container.properties()).expect("the properties");
    let output = account.run(&["--database", "shop", "--container", "workflows", "--duration", "1s"]);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("shop/workflows is in use: \"order-1\" is running."), "{err}");
    let after = account.runtime.block_on(container.properties()).expect("the properties");
    assert_eq!((after.ttl, after.etag), (before.ttl, before.etag));
}

/// Waits until the run has started orchestrations: its container has documents.
fn wait_for_instances(account: &Account) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        assert!(Instant::now() < deadline, "no orchestration was started");
        for database in account.database_names() {
            for container in account.container_names(&database) {
                let container = account.client.database(&database).container(&container);
                if account.documents(&container).iter().any(|document| document["type"] == "history") {
                    return;
                }
            }
        }
    }
}

#[test]
fn an_interrupted_run_reports_what_it_measured_and_removes_what_it_created() {
    let account = Account::start();
    let container = account.create_container("shop", "workflows");
    for names in [&[][..], &["--database", "shop", "--container", "workflows"]] {
        let arguments = ["-o", "json", "--concurrency", "2,4", "--duration", "10m", "--activity-time", "1s"];
        let mut command = account.command(&[&arguments[..], names].concat());
        let stress = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
        wait_for_instances(&account);
        signal(&stress, "INT");
        let output = stress.wait_with_output().expect("an end");
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{out}{err}");
        let report: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(report["isInterrupted"], json!(true), "{out}");
        let rows = report["rows"].as_array().expect("rows");
        assert!(rows.len() == 1 && number(&rows[0], "unfinished") > 0.0, "{out}");
        assert!(err.contains("SIGINT: stopping"), "{err}");
        assert_eq!(account.database_names(), ["shop"], "{err}");
        assert_eq!(account.documents(&container), Vec::<Value>::new(), "{err}");
    }
}

#[test]
fn a_second_interrupt_ends_a_run_whose_server_hangs() {
    let account = Account::start();
    let mut command = account.command(&["--concurrency", "1", "--duration", "10m"]);
    let mut stress = command.stderr(Stdio::piped()).spawn().expect("the binary runs");
    wait_for_instances(&account);
    account.server.signal("STOP");
    signal(&stress, "INT");
    let mut lines = BufReader::new(stress.stderr.take().expect("standard error is piped"));
    let mut err = String::new();
    while !err.contains("SIGINT: stopping") {
        assert_ne!(lines.read_line(&mut err).expect("text"), 0, "{err}");
    }
    signal(&stress, "INT");
    lines.read_to_string(&mut err).expect("text");
    assert_eq!(stress.wait().expect("an end").code(), Some(1), "{err}");
    assert!(err.contains("second signal (SIGINT): what this run created may still be there"), "{err}");
}
