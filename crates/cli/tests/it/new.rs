//! Tests that `perihelion new` writes a project that builds and runs.
//!
//! The worker of the template is compiled into this binary, so it needs no build of its own: the
//! test runs this binary again as the worker. `cargo tree` checks that cargo can resolve the
//! dependencies in the project's Cargo.toml.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use perihelion_testkit::ScratchDirectory;

use crate::dashboard;
use crate::pages::Block;
use crate::program::{RunningServer, TIMEOUT, command, get, text};

mod app {
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/templates/app/main.rs"));

    pub(super) fn start() {
        main().expect("the worker ends well");
    }
}

#[test]
#[ignore = "the worker of the test below, which runs it as a process"]
fn the_worker_of_the_template() {
    app::start();
}

/// Ends the worker when the test ends.
struct Worker(std::process::Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_worker(endpoint: &str) -> Worker {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", "new::the_worker_of_the_template", "--ignored"])
        .env("COSMOS_ENDPOINT", endpoint);
    Worker(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the worker starts"))
}

/// The commands of the README in a new project, block by block: the programs to start, the first
/// commands for a workflow, and its last ones.
fn commands_of_readme() -> [Vec<String>; 3] {
    let readme = include_str!("../../templates/app/README.md");
    let blocks = Block::all(readme).into_iter();
    let blocks = blocks.map(|block| block.commands.into_iter().map(|command| command.text).collect());
    blocks.collect::<Vec<Vec<String>>>().try_into().expect("three blocks")
}

/// The first minutes of a new user, with the commands of the new project's README: a worker is killed
/// while its workflow waits, another one is started, and the workflow is followed in the dashboard.
#[test]
fn a_workflow_started_from_the_command_line_outlives_its_worker_and_is_seen_in_the_dashboard() {
    let [programs, first_commands, last_commands] = commands_of_readme();
    assert_eq!(programs, ["perihelion dev", "cargo run"], "the server, and the worker of this test");
    let scratch = ScratchDirectory::new();
    let server = RunningServer::start(&mut command(&scratch, &["dev", "--port", "0"]));
    let endpoint = server.endpoint();
    let run = |command_text: &str| {
        let arguments: Vec<&str> = command_text.split(' ').skip(1).collect();
        let arguments = arguments.as_slice();
        let mut command = command(&scratch, arguments);
        let output = command.env("COSMOS_ENDPOINT", &endpoint).output().expect("the binary runs");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let dashboard = dashboard::address(&server.banner()).expect("an address");
    let page = || get(TcpStream::connect(&dashboard).expect("the dashboard listens"), "/workflow?id=order-1");
    let worker = start_worker(&endpoint);
    // The worker creates the container when it starts.
    wait_until("the container is listed", || run("perihelion container list").contains("duroxide"));
    for command_text in first_commands {
        run(&command_text);
    }
    wait_until("the dashboard shows the custom status", || page().contains("waits for payment"));
    assert!(page().contains("Running"));
    drop(worker);
    let _worker = start_worker(&endpoint);
    let outputs: Vec<String> = last_commands.iter().map(|command_text| run(command_text)).collect();
    assert_eq!(outputs[1], "lamp is reserved, paid with card\n", "{last_commands:?}");
    wait_until("the dashboard shows the end of the workflow", || {
        let page = page();
        page.contains("Completed") && page.contains("lamp is reserved, paid with card")
    });
}

/// Waits until another process has done something. `what` describes it, for the failure.
fn wait_until(what: &str, mut is_done: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_done() {
        assert!(Instant::now() < deadline, "{what}: not within {TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn cargo_resolves_the_dependencies_of_a_new_project() {
    let scratch = ScratchDirectory::new();
    let directory = scratch.path().join("my-app");
    let output = command(&scratch, &["new", &directory.display().to_string()]).output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    // With the versions of this repository nothing has to be downloaded.
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    std::fs::copy(lock, directory.join("Cargo.lock")).expect("the lock file");
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "--offline", "--depth", "1", "--prefix", "none"]).current_dir(&directory);
    let output = tree.output().expect("cargo runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let packages = text(&output.stdout);
    for name in ["my-app v0.1.0 ", "duroxide v0.1.32", "duroxide-cdb v0.1.11 ", "tokio v1."] {
        assert!(packages.lines().any(|line| line.starts_with(name)), "{name} is not in\n{packages}");
    }
}
