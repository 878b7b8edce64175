//! Tests of `perihelion transaction run` as an operator runs it.

use std::process::Output;

use perihelion_client::{Client, ContainerProperties, Credential};
use perihelion_testkit::ScratchDirectory;
use perihelion_wire::signature::EMULATOR_KEY;
use serde_json::{Value, json};

use crate::program::{RunningServer, command, run, text};

/// Runs the command with a file of this content.
fn transaction(endpoint: &str, content: &str, arguments: &[&str]) -> Output {
    let directory = ScratchDirectory::new();
    let file = directory.path().join("transaction.json");
    std::fs::write(&file, content).expect("the file is written");
    let mut all_arguments = vec!["transaction", "run", file.to_str().expect("a path")];
    all_arguments.extend(arguments);
    let mut command = command(&directory, &all_arguments);
    command
        .env("COSMOS_ENDPOINT", endpoint)
        .env("COSMOS_KEY", EMULATOR_KEY)
        .output()
        .expect("the binary runs")
}

/// Checks the exit code, and that both outputs contain these parts.
#[track_caller]
fn check(output: &Output, code: i32, stdout_parts: &[&str], stderr_part: &str) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}{err}");
    for part in stdout_parts {
        assert!(out.contains(part), "{part} is not in {out}");
    }
    assert!(err.contains(stderr_part), "{err}");
}

/// A file that moves 6 from ada to bob, if ada has at least 6.
fn transfer() -> String {
    let by = |amount: i64| json!([{"op": "incr", "path": "/balance", "value": amount}]);
    json!({"operations": [
        {"do": "patch", "in": "bank/accounts", "key": "ada", "id": "ada", "patch": by(-6),
         "condition": "FROM c WHERE c.balance >= 6"},
        {"do": "patch", "in": "bank/accounts", "key": "bob", "id": "bob", "patch": by(6)}]})
    .to_string()
}

#[test]
fn a_file_is_committed_once_and_its_outcome_is_shown() {
    let server = RunningServer::start(&mut command(&ScratchDirectory::new(), &["dev", "--port", "0"]));
    let endpoint = format!("http://127.0.0.1:{}", server.port());
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let accounts = runtime.block_on(async {
        let client = Client::with_credential(&endpoint, Credential::emulator()).await.expect("an account");
        let database = client.create_database_if_missing("bank").await.expect("a database");
        let properties = ContainerProperties::new("accounts", "/owner");
        let accounts = database.create_container(&properties).await.expect("a container");
        for owner in ["ada", "bob"] {
            let account = json!({"id": owner, "owner": owner, "balance": 10});
            accounts.create(owner, &account).await.expect("a document");
        }
        accounts
    });
    let balance = |owner: &str| {
        let account = runtime.block_on(accounts.read::<Value>(owner, owner)).expect("an account");
        account.value["balance"].as_i64().expect("a number")
    };
    let first = transaction(&endpoint, &transfer(), &[]);
    check(&first, 0, &["patch", "bank/accounts", "ada", "200", "committed: 2 operations"], "token ");
    assert!(text(&first.stderr).contains("committing 2 operations on http://127.0.0.1:"));
    let errors = text(&first.stderr);
    let token = errors.lines().find_map(|line| line.strip_prefix("token ")).expect("a token").to_owned();
    check(&transaction(&endpoint, &transfer(), &["--token", &token]), 0, &["committed"], &token);
    assert_eq!((balance("ada"), balance("bob")), (4, 16), "the transaction is applied once");

    let refused = transaction(&endpoint, &transfer(), &[]);
    // 412 is the status of the condition, 453 that of the operation that was rolled back.
    check(&refused, 1, &["412", "453"], "nothing was written");
    assert_eq!((balance("ada"), balance("bob")), (4, 16));

    let reads = json!({"operations": [
        {"do": "read", "in": "bank/accounts", "key": "ada", "id": "ada"},
        {"do": "read", "in": "bank/accounts", "key": ["bob"], "id": "bob"}]});
    check(&transaction(&endpoint, &reads.to_string(), &[]), 0, &["read: 2 operations", "\"balance\":16"], "");
}

#[test]
fn a_wrong_file_is_refused_with_the_reason() {
    let server = RunningServer::start(&mut command(&ScratchDirectory::new(), &["dev", "--port", "0"]));
    let endpoint = format!("http://127.0.0.1:{}", server.port());
    let with = |operation: Value| json!({"operations": [operation]}).to_string();
    for (content, words) in [
        ("{".to_owned(), "cannot read"),
        (r#"{"operations":[],"more":1}"#.to_owned(), "unknown field"),
        (with(json!({"do": "erase", "in": "a/b", "key": 1})), "unknown variant"),
        (with(json!({"do": "delete", "in": "a", "key": 1, "id": "1"})), "operation 0: `in` is `a`"),
        (with(json!({"do": "delete", "in": "a/b", "key": {"x": 1}, "id": "1"})), "operation 0: `key`"),
        (with(json!({"do": "create", "in": "a/b", "key": 1})), "needs a `document`"),
        (
            with(json!({"do": "create", "in": "a/b", "key": 1, "id": "1", "document": {"id": "1"}})),
            "operation 0: a create does not take `id`",
        ),
        (
            with(json!({"do": "upsert", "in": "a/b", "key": 1, "id": "2", "document": {"id": "1"}})),
            "does not take `id`",
        ),
        (
            with(json!({"do": "delete", "in": "a/b", "key": 1, "id": "1", "document": {}})),
            "does not take `document`",
        ),
        (
            json!({"operations": [{"do": "read", "in": "a/b", "key": 1, "id": "1"},
                                  {"do": "delete", "in": "a/b", "key": 1, "id": "1"}]})
            .to_string(),
            "use two files",
        ),
        (with(json!({"do": "delete", "in": "a/b?", "key": 1, "id": "1"})), "the name of a container"),
        (with(json!({"do": "delete", "in": "a/b", "key": 1, "id": "x".repeat(3000)})), "has 3000 bytes"),
        (
            with(json!({"do": "create", "in": "a/b", "key": 1, "document": {"id": "x".repeat(3000)}})),
            "has 3000 bytes",
        ),
    ] {
        check(&transaction(&endpoint, &content, &[]), 2, &[], words);
    }
    let empty = transaction(&endpoint, r#"{"operations":[]}"#, &[]);
    check(&empty, 2, &[], "at least one");
    assert!(!text(&empty.stderr).contains("committing"), "{}", text(&empty.stderr));
    let many = vec![json!({"do": "delete", "in": "a/b", "key": 1, "id": "1"}); 101];
    let many = json!({ "operations": many }).to_string();
    check(&transaction(&endpoint, &many, &[]), 2, &[], "at most 100");
    check(&run(&["transaction", "run", "no such file.json"]), 2, &[], "cannot read");
    check(&run(&["transaction", "run", "x.json", "--token", "7"]), 2, &[], "a token is a UUID");
}
