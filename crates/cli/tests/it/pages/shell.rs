//! `Shell`: runs the commands of a page one after the other, as a reader would.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;

use crate::program::{TIMEOUT, text};
use crate::verbs::World;

/// How the pages build and run the program. The program under test is run instead.
const CARGO_RUN: [&str; 2] = ["cargo run --release -- ", "cargo run -- "];

/// The host and port that the documentation names.
const DOCUMENTED_AUTHORITY: &str = "localhost:8081";

/// The commands that start a server and run until Ctrl-C.
const SERVERS: [&str; 2] = ["perihelion dev", "perihelion server"];

pub(super) struct Shell<'a>(pub(super) &'a World);

impl Shell<'_> {
    /// Runs a command. The error is what the command printed.
    pub(super) fn run(&self, command_text: &str) -> Result<(), String> {
        let built = CARGO_RUN.iter().find_map(|start| command_text.strip_prefix(start));
        let command_text =
            built.map_or_else(|| command_text.to_owned(), |arguments| format!("perihelion {arguments}"));
        match SERVERS.iter().any(|server| command_text.starts_with(server)) {
            // `exec`, so that killing the shell kills the server.
            true => {
                run_until(self.command(&format!("exec {command_text} --port 0")), "Now listening on: http://")
            }
            false if command_text.contains("--watch") => {
                run_until(self.command(&format!("exec {command_text}")), "")
            }
            false => self.finish(&command_text),
        }
    }

    /// The command in a shell, with the program under test on its path.
    fn command(&self, command_text: &str) -> Command {
        let endpoint = self.0.endpoint();
        let authority = endpoint.trim_start_matches("http://").trim_end_matches('/');
        // Without `--fail-with-body`, curl succeeds whatever the status of the answer is.
        let command_text = command_text
            .replace(DOCUMENTED_AUTHORITY, authority)
            .replace("curl ", "curl --silent --show-error --fail-with-body ");
        let scratch = self.0.scratch.path();
        let bin = scratch.join("bin");
        let program = bin.join("perihelion");
        if !program.exists() {
            std::fs::create_dir_all(&bin).expect("a directory");
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_perihelion"), &program).expect("a link");
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("sh");
        command.args(["-c", &command_text]).current_dir(scratch).env_clear();
        command.env("PATH", format!("{}:{path}", bin.display())).env("XDG_CACHE_HOME", scratch);
        command.env("COSMOS_ENDPOINT", endpoint).stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    fn finish(&self, command_text: &str) -> Result<(), String> {
        let output = self.command(command_text).output().expect("a shell");
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("{}{}{}", text(&output.stdout), text(&output.stderr), output.status)),
        }
    }
}

/// Runs a command until it prints a line that begins with `start`, and then kills the command.
fn run_until(mut command: Command, start: &'static str) -> Result<(), String> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a shell");
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let line = output.lines().map_while(Result::ok).find(|line| line.starts_with(start));
        // After the timeout there is no receiver.
        let _ = send.send(line);
    });
    let line = receive.recv_timeout(TIMEOUT).ok().flatten();
    let _ = child.kill();
    let mut errors = String::new();
    let _ = child.stderr.take().expect("a pipe").read_to_string(&mut errors);
    let _ = child.wait();
    line.map(drop).ok_or_else(|| format!("it printed no line that begins with {start:?}\n{errors}"))
}
