//! Runs the real binary. Tests wait for its output, never for a fixed time.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use perihelion_testkit::ScratchDirectory;

/// How long a test waits for output of the program before it fails.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// The binary with an empty environment, except for the scratch directory as its
/// cache.
pub(crate) fn command(scratch: &ScratchDirectory, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perihelion"));
    command.args(arguments).env_clear().env("XDG_CACHE_HOME", scratch.path()).stdin(Stdio::null());
    command
}

/// Runs the binary to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    command(&ScratchDirectory::new(), arguments).output().expect("the binary runs")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A loopback address that no other test uses. So no other test is given one of its ports.
pub(crate) fn own_host() -> String {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let process = std::process::id();
    format!(
        "127.{}.{}.{}",
        64 + NEXT.fetch_add(1, Ordering::Relaxed) % 64,
        (process >> 8) & 0xff,
        1 + process % 254
    )
}

/// A running server. Dropping the `RunningServer` kills the process.
pub(crate) struct RunningServer {
    child: Child,
    /// The lines of standard output that were not read yet.
    lines: Receiver<String>,
    /// The lines of the banner.
    banner: Vec<String>,
}

impl RunningServer {
    /// Starts a server and waits for the last line of its banner.
    pub(crate) fn start(command: &mut Command) -> RunningServer {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
        let mut output = BufReader::new(child.stdout.take().expect("standard output is piped"));
        let (send, lines) = channel();
        std::thread::spawn(move || {
            let mut line = Vec::new();
            while output.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                if send.send(text(&line)).is_err() {
                    return;
                }
                line.clear();
            }
        });
        let mut server = RunningServer { child, lines, banner: Vec::new() };
        while server.banner.last().is_none_or(|line| line != "Started\r\n") {
            let Ok(line) = server.lines.recv_timeout(TIMEOUT) else {
                let standard_error = server.kill_and_read_stderr();
                panic!("no banner, only {:?} and {standard_error}", server.banner)
            };
            server.banner.push(line);
        }
        server
    }

    pub(crate) fn banner(&self) -> String {
        self.banner.concat()
    }

    /// The port in the line `Now listening on:`.
    pub(crate) fn port(&self) -> u16 {
        let banner = self.banner();
        let listening = banner.lines().find_map(|line| line.strip_prefix("Now listening on: http://"));
        let port = listening.and_then(|authority| authority.rsplit_once(':')).map(|(_, port)| port);
        port.and_then(|port| port.parse().ok()).expect("a port in the banner")
    }

    /// The endpoint of the account, without TLS.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port())
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port())).expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        stream
    }

    /// Sends a signal to the program, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Waits until the program ends. Returns its exit status and standard error.
    pub(crate) fn wait_for_end(mut self) -> (ExitStatus, String) {
        loop {
            match self.lines.recv_timeout(TIMEOUT) {
                Ok(_) => continue,
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("the program does not end"),
            }
        }
        let status = self.child.wait().expect("an exit status");
        let standard_error = self.kill_and_read_stderr();
        (status, standard_error)
    }

    /// Kills the program and returns its standard error.
    fn kill_and_read_stderr(&mut self) -> String {
        let _ = self.child.kill();
        let mut standard_error = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            let _ = errors.read_to_string(&mut standard_error);
        }
        standard_error
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a program, such as `INT`.
pub(crate) fn signal(program: &Child, name: &str) {
    let id = program.id().to_string();
    assert!(Command::new("kill").args(["-s", name, &id]).status().expect("kill runs").success());
}

/// Sends a GET over HTTP/1.1 and returns the whole answer.
pub(crate) fn get(mut stream: impl Read + Write, path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").expect("a request");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    text(&answer)
}
