//! `--watch` shows a result again and again, and a signal ends it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use perihelion_testkit::ScratchDirectory;

use crate::program::{RunningServer, command};

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
