//! Tests of commands that run until a signal or a time limit: `--watch`, `feed tail`, `workflow wait`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::dev_server::DevServer;
use crate::program::{command, signal, text};
use crate::verbs::World;

/// Interrupts a command, which must then end with success.
fn interrupt(mut command: Child) {
    signal(&command, "INT");
    assert_eq!(command.wait().expect("an exit status").code(), Some(0));
}

#[test]
fn a_watched_list_is_shown_again_until_a_signal() {
    let dev = DevServer::start();
    dev.succeed(&["container", "create", "duroxide/duroxide", "--workflows"]);
    let mut watch = dev.command(&["workflow", "list", "-o", "jsonl", "--watch=100ms"]);
    let mut child = watch.stdout(Stdio::piped()).spawn().expect("the binary runs");
    dev.succeed(&["workflow", "start", "hello", "--id", "hello-1"]);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    for _ in 0..3 {
        let line = lines.next().expect("a line").expect("text");
        assert!(line.contains("\"instanceId\":\"hello-1\""), "{line}");
    }
    interrupt(child);
}

/// A rule that refuses 60 queries. The driver repeats a query only a few times, so a command sees
/// failures.
const REFUSALS: &str = r#"{"operation":"query","count":60,"status":503}"#;

#[test]
fn a_watched_list_continues_after_transient_failures() {
    let dev = DevServer::start();
    dev.succeed(&["container", "create", "duroxide/duroxide", "--workflows"]);
    dev.succeed(&["workflow", "start", "hello", "--id", "hello-1"]);
    let mut watch = dev.command(&["workflow", "list", "-o", "jsonl", "--watch=100ms"]);
    let mut child = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    lines.next().expect("a line").expect("text");
    dev.succeed(&["manage", "POST", "faults", REFUSALS]);
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    errors.next().expect("a failure is printed").expect("text");
    dev.succeed(&["manage", "DELETE", "faults"]);
    // Lines that were printed before the failures may still be in the pipe. They do not have the new
    // workflow.
    dev.succeed(&["workflow", "start", "hello", "--id", "hello-2"]);
    let seen = lines.map(|line| line.expect("text")).any(|line| line.contains("\"instanceId\":\"hello-2\""));
    assert!(seen, "the list was not shown again");
    interrupt(child);
}

/// A rule that refuses 60 reads of a change feed. The driver repeats a read only a few times, so a
/// command sees failures.
const FEED_REFUSALS: &str = r#"{"operation":"change_feed","count":60,"status":503}"#;

#[test]
fn a_followed_feed_continues_after_transient_failures() {
    let dev = DevServer::start();
    let orders = ["-d", "shop", "-c", "orders"];
    let put = |id: &str| {
        let file = dev.scratch.path().join("item.json");
        std::fs::write(&file, format!("{{\"id\":\"{id}\"}}")).expect("a file");
        dev.succeed(&[&["item", "put", file.to_str().expect("a path")][..], &orders].concat());
    };
    dev.succeed(&["container", "create", "shop/orders", "--key-path", "/id"]);
    put("first");
    let tail = ["feed", "tail", "--from", "beginning", "-o", "jsonl"];
    let mut tail = dev.command(&[&tail[..], &orders].concat());
    let mut child = tail.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert!(lines.next().expect("a line").expect("text").contains("\"first\""));
    dev.succeed(&["manage", "POST", "faults", FEED_REFUSALS]);
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let failure = errors.next().expect("a failure is printed").expect("text");
    assert!(failure.contains("cannot read the change feed"), "{failure}");
    put("second");
    dev.succeed(&["manage", "DELETE", "faults"]);
    assert!(lines.next().expect("a line after the failure").expect("text").contains("\"second\""));
    interrupt(child);
}

#[test]
fn a_wait_prints_transient_failures_and_continues() {
    let dev = DevServer::start();
    dev.succeed(&["container", "create", "duroxide/duroxide", "--workflows"]);
    dev.succeed(&["workflow", "start", "hello", "--id", "hello-1"]);
    let mut wait = dev.command(&["workflow", "wait", "hello-1", "--timeout", "20s"]);
    let mut child = wait.stderr(Stdio::piped()).spawn().expect("the binary runs");
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let mut line = || errors.next().expect("a line").expect("text");
    assert!(line().contains("is pending: no worker is alive"));
    dev.succeed(&["manage", "POST", "faults", REFUSALS]);
    let failure = line();
    assert!(failure.contains("cannot read \"hello-1\": "), "{failure}");
    dev.succeed(&["manage", "DELETE", "faults"]);
    // The workflow is read again after the failure, and is still pending at the end.
    assert!(errors.map(|line| line.expect("text")).any(|line| line.contains("is pending after 20s")));
    assert_eq!(child.wait().expect("an exit status").code(), Some(8));
}

/// Story of a bug: a transient failure of any read of `describe` but the first ended the command.
#[test]
fn a_watched_description_continues_after_transient_failures() {
    let world = World::start();
    let endpoint = world.endpoint();
    let run = |arguments: &[&str]| command(&world.scratch, &[arguments, &["--endpoint", &endpoint]].concat());
    let manage = |arguments: &[&str]| {
        let output = run(&[&["manage"], arguments].concat()).output().expect("the binary runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    let mut watch = run(&["workflow", "describe", "approval-1", "-o", "jsonl", "--watch=100ms"]);
    let mut child = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    lines.next().expect("a line").expect("text");
    // The first read is a query, which this rule does not refuse. The rule refuses a later read.
    manage(&["POST", "faults", r#"{"operation":"read_item","count":100000,"status":503}"#]);
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    errors.next().expect("a failure is printed").expect("text");
    manage(&["DELETE", "faults"]);
    let raised =
        run(&["workflow", "raise", "approval-1", "approved", "yes"]).status().expect("the binary runs");
    assert!(raised.success());
    let seen = lines.map(|line| line.expect("text")).any(|line| line.contains("\"status\":\"Completed\""));
    assert!(seen, "the description was not shown again");
    interrupt(child);
}

/// Story of a bug: the time of `--timeout` was looked at only after a read, so a read that hung prolonged
/// the wait by the time limits of the driver.
#[test]
fn a_wait_ends_in_time_although_the_account_does_not_answer() {
    let dev = DevServer::start();
    dev.succeed(&["container", "create", "duroxide/duroxide", "--workflows"]);
    dev.succeed(&["workflow", "start", "hello", "--id", "hello-1"]);
    let mut wait = dev.command(&["workflow", "wait", "hello-1", "--timeout", "4s"]);
    let mut child = wait.stderr(Stdio::piped()).spawn().expect("the binary runs");
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let mut line = || errors.next().expect("a line").expect("text");
    assert!(line().contains("is pending: no worker is alive"));
    dev.server.signal("STOP");
    let began = Instant::now();
    let last = line();
    let status = child.wait().expect("an exit status");
    let took = began.elapsed();
    dev.server.signal("CONT");
    assert_eq!(status.code(), Some(8), "{last}");
    assert!(last.contains("after 4s"), "{last}");
    // The driver gives up a hanging read much later.
    assert!(took < Duration::from_secs(12), "{took:?}");
}
