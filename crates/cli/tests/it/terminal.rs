//! Tests of the program in a terminal: what `--watch` draws, and questions to a person.
//!
//! `script` of util-linux runs the program in a terminal of its own, and passes on what is typed and
//! what is drawn. Where it is missing, these tests say so and do nothing.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use crate::dev_server::DevServer;
use crate::program::{TIMEOUT, text};

const SCRIPT: &str = "/usr/bin/script";

/// Moves to the beginning of the screen and erases what follows.
const ERASE_SCREEN: &str = "\x1b[H\x1b[J";

/// What a terminal sends for Ctrl-C.
const CTRL_C: &str = "\x03";

/// Whether there is a `script` with the options that the tests use.
fn has_script() -> bool {
    let version = Command::new(SCRIPT).arg("--version").output();
    let is_there = version.is_ok_and(|output| text(&output.stdout).contains("util-linux"));
    if !is_there {
        eprintln!("skipped: {SCRIPT} of util-linux is missing");
    }
    is_there
}

/// A program in a terminal.
struct Terminal {
    child: Child,
    keyboard: ChildStdin,
    drawn: Receiver<Vec<u8>>,
    /// What was drawn so far.
    screen: String,
}

impl Terminal {
    fn start(dev: &DevServer, arguments: &[&str]) -> Terminal {
        let words = [&[env!("CARGO_BIN_EXE_perihelion")], arguments, &["--endpoint", &dev.endpoint]].concat();
        let line: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let mut script = Command::new(SCRIPT);
        // `exec`, because the shell would end with an exit code of its own after Ctrl-C.
        let line = format!("exec {}", line.join(" "));
        script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        script.env_clear().env("SHELL", "/bin/sh").env("XDG_CACHE_HOME", dev.scratch.path());
        let mut child =
            script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a terminal starts");
        let mut output = child.stdout.take().expect("a pipe");
        let (send, drawn) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                if send.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let keyboard = child.stdin.take().expect("a pipe");
        Terminal { child, keyboard, drawn, screen: String::new() }
    }

    /// Waits until what was drawn is as expected. `what` describes it, for the failure.
    fn wait_until(&mut self, what: &str, is_expected: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !is_expected(&self.screen) {
            match self.drawn.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.screen.push_str(&text(&bytes)),
                Err(error) => panic!("{what}: {error}, only {:?}", self.screen),
            }
        }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the terminal is open");
        self.keyboard.flush().expect("the terminal is open");
    }

    /// Waits until the program has ended. Returns its exit code and all that was drawn.
    fn end(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + TIMEOUT;
        while let Ok(bytes) = self.drawn.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            self.screen.push_str(&text(&bytes));
        }
        (self.child.wait().expect("an exit status").code(), self.screen)
    }
}

/// The screens that a watched command has drawn completely.
fn screens(drawn: &str) -> Vec<&str> {
    let mut screens: Vec<&str> = drawn.split(ERASE_SCREEN).collect();
    screens.pop();
    screens
}

#[test]
fn a_watched_list_is_drawn_again_in_its_place() {
    if !has_script() {
        return;
    }
    let dev = DevServer::start();
    dev.succeed(&["container", "create", "duroxide/duroxide", "--workflows"]);
    // A hostile id, which would colour the terminal.
    dev.succeed(&["workflow", "start", "hello", "--id", "red\x1b[31m"]);
    let mut terminal = Terminal::start(&dev, &["workflow", "list", "--watch=100ms"]);
    terminal.wait_until("two screens", |drawn| screens(drawn).len() > 2);
    dev.succeed(&["workflow", "start", "hello", "--id", "hello-2"]);
    terminal.wait_until("the new workflow", |drawn| {
        screens(drawn).last().is_some_and(|screen| screen.contains("hello-2"))
    });
    // After Ctrl-C the terminal may draw `^C`, so the test looks only at what was drawn before.
    let drawn = terminal.screen.clone();
    terminal.press(CTRL_C);
    let (code, all) = terminal.end();
    assert_eq!(code, Some(0), "{all:?}");
    let screens = screens(&drawn);
    assert_eq!(screens[0], "", "nothing is drawn before the first screen");
    for screen in &screens[1..] {
        let lines: Vec<&str> = screen.trim_end().lines().collect();
        assert!(lines[0].starts_with("INSTANCE ") && (2..=3).contains(&lines.len()), "{screen:?}");
        assert!(screen.contains("red\\u{1b}[31m") && !screen.contains('\x1b'), "{screen:?}");
    }
}

#[test]
fn a_question_is_answered_in_a_terminal() {
    if !has_script() {
        return;
    }
    let dev = DevServer::start();
    dev.succeed(&["container", "create", "duroxide/duroxide", "--workflows"]);
    dev.succeed(&["workflow", "start", "hello", "--id", "hello-1"]);
    for (answer, expected, last) in
        [("no\n", 1, "nothing was done"), ("\n", 1, "nothing was done"), ("yes\n", 0, "hello-1   deleted")]
    {
        let mut terminal = Terminal::start(&dev, &["workflow", "delete", "hello-1"]);
        terminal.wait_until("the question", |drawn| drawn.ends_with("Type yes to go on: "));
        terminal.press(answer);
        let (code, drawn) = terminal.end();
        assert_eq!(code, Some(expected), "{drawn:?}");
        assert!(drawn.contains("This will delete 1 workflow in duroxide/duroxide on "), "{drawn:?}");
        assert!(drawn.contains(last), "{drawn:?}");
    }
}
