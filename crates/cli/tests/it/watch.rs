//! Tests of commands that run until a signal or a time limit: `--watch`, `feed tail`, `workflow wait`.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use perihelion_testkit::ScratchDirectory;

use crate::program::{RunningServer, command, text};

#[test]
fn a_watched_list_is_shown_again_until_a_signal() {
    let scratch = ScratchDirectory::new();
    let server = RunningServer::start(&mut command(&scratch, &["dev", "--port", "0"]));
    let endpoint = format!("http://127.0.0.1:{}/", server.port());
    let create = ["container", "create", "duroxide/duroxide", "--workflows", "--endpoint", &endpoint];
    assert!(command(&scratch, &create).status().expect("the binary runs").success());
    let watch = ["workflow", "list", "-o", "jsonl", "--watch=100ms", "--endpoint", &endpoint];
    let mut child = command(&scratch, &watch).stdout(Stdio::piped()).spawn().expect("the binary runs");
    let start = ["workflow", "start", "hello", "--id", "hello-1", "--endpoint", &endpoint];
    assert!(command(&scratch, &start).stdout(Stdio::null()).status().expect("the binary runs").success());
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    for _ in 0..3 {
        let line = lines.next().expect("a line").expect("text");
        assert!(line.contains("\"instanceId\":\"hello-1\""), "{line}");
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &id]).status().expect("kill runs").success());
    assert_eq!(child.wait().expect("an exit status").code(), Some(0));
}

/// The driver tries a request again for a while. This many refusals last longer.
const REFUSALS: &str = r#"{"operation":"query","count":60,"status":503}"#;

#[test]
fn a_watched_list_continues_after_transient_failures() {
    let scratch = ScratchDirectory::new();
    let server = RunningServer::start(&mut command(&scratch, &["dev", "--port", "0"]));
    let endpoint = format!("http://127.0.0.1:{}/", server.port());
    let run = |arguments: &[&str]| {
        let arguments = [arguments, &["--endpoint", &endpoint]].concat();
        let output = command(&scratch, &arguments).output().expect("the binary runs");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    };
    run(&["container", "create", "duroxide/duroxide", "--workflows"]);
    run(&["workflow", "start", "hello", "--id", "hello-1"]);
    let watch = ["workflow", "list", "-o", "jsonl", "--watch=100ms", "--endpoint", &endpoint];
    let mut watch = command(&scratch, &watch);
    let mut child = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    lines.next().expect("a line").expect("text");
    run(&["manage", "POST", "faults", REFUSALS]);
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    errors.next().expect("a failure is printed").expect("text");
    run(&["manage", "DELETE", "faults"]);
    // Lines that were printed before the failures may still be in the pipe; a new workflow is not.
    run(&["workflow", "start", "hello", "--id", "hello-2"]);
    let seen = lines.map(|line| line.expect("text")).any(|line| line.contains("\"instanceId\":\"hello-2\""));
    assert!(seen, "the list was not shown again");
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &id]).status().expect("kill runs").success());
    assert_eq!(child.wait().expect("an exit status").code(), Some(0));
}

/// As [`REFUSALS`], for the change feed.
const FEED_REFUSALS: &str = r#"{"operation":"change_feed","count":60,"status":503}"#;

#[test]
fn a_followed_feed_continues_after_transient_failures() {
    let scratch = ScratchDirectory::new();
    let server = RunningServer::start(&mut command(&scratch, &["dev", "--port", "0"]));
    let endpoint = format!("http://127.0.0.1:{}/", server.port());
    let orders = ["-d", "shop", "-c", "orders"];
    let run = |arguments: &[&str]| {
        let arguments = [arguments, &["--endpoint", &endpoint]].concat();
        let output = command(&scratch, &arguments).output().expect("the binary runs");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    };
    let put = |id: &str| {
        let file = scratch.path().join("item.json");
        std::fs::write(&file, format!("{{\"id\":\"{id}\"}}")).expect("a file");
        run(&[&["item", "put", file.to_str().expect("a path")][..], &orders].concat());
    };
    run(&["container", "create", "shop/orders", "--key-path", "/id"]);
    put("first");
    let tail = ["feed", "tail", "--from", "beginning", "-o", "jsonl", "--endpoint", &endpoint];
    let mut tail = command(&scratch, &[&tail[..], &orders].concat());
    let mut child = tail.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert!(lines.next().expect("a line").expect("text").contains("\"first\""));
    run(&["manage", "POST", "faults", FEED_REFUSALS]);
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let failure = errors.next().expect("a failure is printed").expect("text");
    assert!(failure.contains("cannot read the change feed"), "{failure}");
    put("second");
    run(&["manage", "DELETE", "faults"]);
    assert!(lines.next().expect("a line after the failure").expect("text").contains("\"second\""));
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &id]).status().expect("kill runs").success());
    assert_eq!(child.wait().expect("an exit status").code(), Some(0));
}

#[test]
fn a_wait_prints_transient_failures_and_continues() {
    let scratch = ScratchDirectory::new();
    let server = RunningServer::start(&mut command(&scratch, &["dev", "--port", "0"]));
    let endpoint = format!("http://127.0.0.1:{}/", server.port());
    let run = |arguments: &[&str]| {
        let arguments = [arguments, &["--endpoint", &endpoint]].concat();
        let output = command(&scratch, &arguments).output().expect("the binary runs");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    };
    run(&["container", "create", "duroxide/duroxide", "--workflows"]);
    run(&["workflow", "start", "hello", "--id", "hello-1"]);
    let wait = ["workflow", "wait", "hello-1", "--timeout", "20s", "--endpoint", &endpoint];
    let mut child = command(&scratch, &wait).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let mut line = || errors.next().expect("a line").expect("text");
    assert!(line().contains("is pending: no worker is alive"));
    run(&["manage", "POST", "faults", REFUSALS]);
    let failure = line();
    assert!(failure.contains("cannot read \"hello-1\": "), "{failure}");
    run(&["manage", "DELETE", "faults"]);
    // The workflow is read again after the failure, and is still pending at the end.
    assert!(errors.map(|line| line.expect("text")).any(|line| line.contains("is pending after 20s")));
    assert_eq!(child.wait().expect("an exit status").code(), Some(8));
}
