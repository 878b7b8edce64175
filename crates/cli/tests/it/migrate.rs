//! Tests of `perihelion migrate` as an operator runs it, against a server with a
//! container of the published crate, duroxide-cdb 0.1.10.

use std::process::Output;

use perihelion_client::{Client, ContainerProperties, Credential};
use perihelion_testkit::ScratchDirectory;
use perihelion_wire::signature::EMULATOR_KEY;
use serde_json::Value;

use crate::program::{RunningServer, command, run, text};

/// A container that the published crate has written: see `interop/migration`.
const PUBLISHED_CONTAINER: &str = include_str!("../../../provider/tests/fixtures/published-0.1.10.json");

fn migrate(endpoint: &str, key: &str, arguments: &[&str]) -> Output {
    let mut all_arguments = vec!["migrate", "--from", "shop/old", "--to", "shop/new"];
    all_arguments.extend(arguments);
    let mut command = command(&ScratchDirectory::new(), &all_arguments);
    command.env("COSMOS_ENDPOINT", endpoint).env("COSMOS_KEY", key).output().expect("the binary runs")
}

/// Checks the exit code, and that both outputs contain these parts.
fn check(output: &Output, code: i32, stdout_part: &str, stderr_part: &str) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}{err}");
    assert!(out.contains(stdout_part), "{out}");
    assert!(err.contains(stderr_part), "{err}");
}

/// Creates `shop/old` as the published crate has written it.
pub(crate) async fn create_published_container(endpoint: &str) {
    let mut container: Value = serde_json::from_str(PUBLISHED_CONTAINER).expect("JSON");
    let Value::Array(documents) = container["documents"].take() else { panic!("no documents") };
    let client = Client::with_credential(endpoint, Credential::emulator()).await.expect("an account");
    let mut properties = ContainerProperties::new("old", "/instanceId");
    properties.indexing_policy =
        serde_json::from_value(container["indexingPolicy"].take()).expect("a policy");
    let database = client.create_database_if_missing("shop").await.expect("a database");
    let container = database.create_container(&properties).await.expect("a container");
    for document in documents {
        let instance = document["instanceId"].as_str().expect("an instance");
        container.create(instance, &document).await.expect("a document");
    }
}

#[test]
fn a_container_is_moved_once_and_never_while_it_is_in_use() {
    let server = RunningServer::start(&mut command(&ScratchDirectory::new(), &["dev", "--port", "0"]));
    let endpoint = format!("http://127.0.0.1:{}", server.port());
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    runtime.block_on(create_published_container(&endpoint));
    let run = |arguments: &[&str]| migrate(&endpoint, EMULATOR_KEY, arguments);
    // The documents were written a moment ago, so the container counts as in use.
    check(&run(&[]), 1, "", "is in use");
    let sum = "16 instances with 101 events, 7 messages and 44 activities";
    check(&run(&["--dry-run", "--force"]), 0, &format!("would move {sum}"), "");
    check(&run(&["--force"]), 0, &format!("moved {sum}; from now on use shop/new in your programs"), "");
    check(&run(&["--force"]), 0, "nothing to do", "");
}

#[test]
fn wrong_usage_and_failures_have_different_exit_codes() {
    let no_database = run(&["migrate", "--from", "old", "--to", "shop/new"]);
    check(&no_database, 2, "", "DATABASE/CONTAINER");
    let account =
        ["migrate", "--from", "shop/old", "--to", "shop/new", "--endpoint", "https://shop.invalid/"];
    check(&run(&account), 2, "", "COSMOS_CONNECTION_STRING");
    let secret = "c2VjcmV0IGtleSBvZiBtaW5l";
    let server = RunningServer::start(&mut command(&ScratchDirectory::new(), &["dev", "--port", "0"]));
    let wrong_key = migrate(&format!("http://127.0.0.1:{}", server.port()), secret, &[]);
    check(&wrong_key, 1, "", "cannot connect to the account");
    assert!(!text(&wrong_key.stderr).contains(secret), "an error must not repeat the key");
}

/// Story of a bug: a dry run did not look at the target, and a real run turned on the time to live of the
/// target before it refused the target.
#[test]
fn a_target_that_is_refused_stays_as_it_is_and_is_refused_by_a_dry_run_too() {
    let server = RunningServer::start(&mut command(&ScratchDirectory::new(), &["dev", "--port", "0"]));
    let endpoint = format!("http://127.0.0.1:{}", server.port());
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    runtime.block_on(create_published_container(&endpoint));
    let client = runtime.block_on(Client::with_credential(&endpoint, Credential::emulator()));
    let database = client.expect("an account").database("shop");
    let target = database.container("new");
    let check_refused = |key_path: &str, document: Option<Value>, reason: &str| {
        let properties = ContainerProperties::new("new", key_path);
        runtime.block_on(database.create_container(&properties)).expect("a container");
        if let Some(document) = document {
            runtime.block_on(target.create("other", &document)).expect("a document");
        }
        let before = runtime.block_on(target.properties()).expect("the properties");
        for arguments in [&["--force", "--dry-run"][..], &["--force"]] {
            check(&migrate(&endpoint, EMULATOR_KEY, arguments), 1, "", reason);
        }
        let after = runtime.block_on(target.properties()).expect("the properties");
        assert_eq!((after.ttl, after.etag), (before.ttl, before.etag));
        runtime.block_on(target.delete_container()).expect("a deletion");
    };
    let document = serde_json::json!({"id": "1", "instanceId": "other"});
    check_refused("/instanceId", Some(document), "shop/new is not empty");
    check_refused("/customer", None, "its partition key is /customer");
}
