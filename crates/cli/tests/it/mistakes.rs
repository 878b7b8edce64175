//! Tests of what an operator is told after a mistake: the exit code, the reason, and what to do about
//! it. The mistakes here need a server without a worker, or no server at all; the transcripts have the
//! rest.

use std::net::TcpListener;
use std::process::Output;

use perihelion_testkit::ScratchDirectory;

use crate::dev_server::DevServer;
use crate::program::{RunningServer, command, text};

/// A key. No error may contain it.
const SECRET: &str = "c2VjcmV0IGtleSBvZiBtaW5l";

/// Checks the exit code, and that standard error has these words, but no name of a Rust type and no key.
#[track_caller]
fn check(output: &Output, code: i32, words: &[&str]) {
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    for word in words {
        assert!(errors.contains(word), "{word:?} is not in {errors}");
    }
    assert!(!errors.contains("HttpOptions") && !errors.contains(SECRET), "{errors}");
}

#[test]
fn the_error_about_a_workflow_that_stays_pending_says_that_no_worker_is_alive() {
    let dev = DevServer::start();
    let create = "container create duroxide/duroxide --workflows";
    check(&dev.run(&["workflow", "execute", "hello"]), 6, &["does not exist", "A worker", create]);
    check(&dev.run(&["container", "create", "duroxide/duroxide", "--workflows"]), 0, &[]);
    let executed = dev.run(&["workflow", "execute", "hello", "--id", "hello-1", "--timeout", "100ms"]);
    let no_worker = "no worker is alive on this container";
    check(&executed, 8, &["started hello-1 in duroxide/duroxide on", "is pending after", no_worker]);
    let listed = text(&dev.run(&["workflow", "list", "-o", "jsonl"]).stdout);
    assert!(
        listed.contains(r#""version":null,"status":"Pending""#),
        "a worker chooses the version: {listed}"
    );
    let described = text(&dev.run(&["workflow", "describe", "hello-1", "-o", "jsonl"]).stdout);
    assert!(described.contains(r#""version":null,"status":"Pending""#), "{described}");
    assert!(described.contains(r#""events":null,"historyBytes":null,"input":null"#), "{described}");
    assert!(described.contains(r#""cost":null"#), "{described}");
    let waited = dev.run(&["workflow", "wait", "hello-1", "--timeout", "4s"]);
    check(&waited, 8, &["hello-1 is pending: no worker is alive", no_worker]);
}

#[test]
fn a_missing_container_or_data_directory_ends_a_command_with_exit_code_six() {
    let dev = DevServer::start();
    let file = dev.scratch.path().join("transaction.json");
    let operation = r#"{"do": "delete", "in": "nope/nope", "key": 1, "id": "1"}"#;
    std::fs::write(&file, format!(r#"{{"operations": [{operation}]}}"#)).expect("a file");
    for (arguments, words) in [
        (vec!["migrate", "--from", "nope/nope", "--to", "shop/new"], "there is no container nope/nope"),
        (vec!["transaction", "run", file.to_str().expect("a path")], "container"),
        (vec!["check", "no-such-directory"], "there is no data directory"),
    ] {
        let mut command = command(&dev.scratch, &arguments);
        let output = command.env("COSMOS_ENDPOINT", &dev.endpoint).output().expect("the binary runs");
        check(&output, 6, &[words]);
    }
}

#[test]
fn a_broken_connection_string_is_wrong_usage() {
    let scratch = ScratchDirectory::new();
    for broken in ["nonsense", "AccountEndpoint=https://shop.invalid/", &format!("AccountKey={SECRET}")] {
        let mut command = command(&scratch, &["workflow", "list"]);
        let output = command.env("COSMOS_CONNECTION_STRING", broken).output().expect("the binary runs");
        check(&output, 2, &["the connection string (from COSMOS_CONNECTION_STRING)", "quote it"]);
    }
}

#[test]
fn the_dashboard_ends_with_the_exit_code_of_an_address_in_use() {
    let dev = DevServer::start();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    check(&dev.run(&["dashboard", "--address", &address]), 4, &["cannot listen on", "--address"]);
}

#[test]
fn a_server_is_emptied_only_with_yes() {
    let dev = DevServer::start();
    check(&dev.run(&["container", "create", "shop/orders", "--key-path", "/id"]), 0, &[]);
    for path in ["reset", "/_perihelion/reset/"] {
        check(&dev.run(&["manage", "post", path]), 2, &["remove all databases of", "--yes"]);
    }
    assert!(text(&dev.run(&["container", "list"]).stdout).contains("orders"));
    check(&dev.run(&["manage", "POST", "reset", "--yes"]), 0, &[]);
    assert!(!text(&dev.run(&["container", "list"]).stdout).contains("orders"));
}

/// An address that no machine has: <https://www.rfc-editor.org/rfc/rfc5737>. The commands refuse to
/// connect, so nothing is sent there.
const OTHER_MACHINE: &str = "http://192.0.2.1:8081/";

#[test]
fn no_command_sends_requests_without_tls_to_another_machine() {
    let scratch = ScratchDirectory::new();
    for arguments in [&["workflow", "list"][..], &["manage", "GET", "counters"], &["metrics"]] {
        let arguments = [arguments, &["--endpoint", OTHER_MACHINE, "--key", SECRET]].concat();
        let output = command(&scratch, &arguments).output().expect("the binary runs");
        check(&output, 1, &["not connecting without TLS to another machine", "use https"]);
    }
}

#[test]
fn a_certificate_for_another_name_and_a_missing_authority_have_their_own_advice() {
    let scratch = ScratchDirectory::new();
    let mut dev = command(&scratch, &["dev", "--port", "0", "--host", "0.0.0.0"]);
    let server = RunningServer::start(dev.env("PERIHELION_KEY", SECRET));
    let list = |authority: &str, host: &str| {
        let endpoint = format!("https://{host}:{}/", server.port());
        let mut list = command(&scratch, &["workflow", "list", "--endpoint", &endpoint, "--key", SECRET]);
        list.env("SSL_CERT_FILE", authority).output().expect("the binary runs")
    };
    let path = command(&scratch, &["cert", "path"]).output().expect("the binary runs");
    // The certificate has 127.0.0.1, and not the other addresses of this machine.
    check(&list(text(&path.stdout).trim(), "127.0.0.2"), 1, &["--tls-name"]);
    check(&list("/no/such/ca.pem", "127.0.0.1"), 1, &["/no/such/ca.pem, which does not exist"]);
}
