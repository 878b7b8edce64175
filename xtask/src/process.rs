//! Runs one step: prints its output as it arrives, and parses it.
//!
//! Every wait has an end. A step that exceeds its time limit is killed with its
//! descendants, and the reason is printed at once. If a step has exited but a process that it
//! started holds the output open, the output is read for a few more seconds only. A step that
//! prints nothing for a while is reported with its phase and its last line.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::outcome::{Ending, Phase, StepOutcome};
use crate::runners::{Reading, Runner};

/// The most lines that are read and not yet printed. A step that prints faster has to wait.
const LINES_WAITING_MAX: usize = 1024;

/// The time between two checks whether a silent step still runs.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A step that prints nothing is reported after this time, and again after each further
/// interval.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The time limit from the exit of a step to the end of its output. Reading the rest
/// of the pipe takes far less.
const OUTPUT_LIMIT_AFTER_EXIT: Duration = Duration::from_secs(5);

/// One command, and how to read its output.
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) command: Command,
    pub(crate) runner: Runner,
    pub(crate) phase: Phase,
    /// The longest time that the step may run.
    pub(crate) limit: Duration,
    /// Whether the following steps are skipped when this step fails.
    pub(crate) is_needed: bool,
}

/// A line of a step's output, or the error after which there are no more lines.
type Line = std::io::Result<(OutputStream, Vec<u8>)>;

/// The output of a step that a line comes from.
#[derive(Clone, Copy)]
enum OutputStream {
    Stdout,
    Stderr,
}

pub(crate) fn run(step: Step) -> StepOutcome {
    let Step { name, mut command, runner, phase, limit, .. } = step;
    eprintln!("\n=== {}, {} s at most: {name}", phase.name(), limit.as_secs());
    let started = Instant::now();
    let mut progress = Progress { phase, started, reading: Reading::new(runner), last_line: String::new() };
    let ending = match start(&mut command) {
        Ok((child, lines)) => watch(child, &lines, limit, &mut progress),
        Err(error) => Ending::NotRun(format!("cannot start {}: {error}", command.get_program().display())),
    };
    if let Ending::TimedOut(_) = &ending {
        eprintln!("=== CUT OFF at its limit: {}", progress.describe());
    }
    let outcome = progress.reading.finish(&name, &ending);
    StepOutcome { phase, took: started.elapsed(), ..outcome }
}

/// The progress of a step.
struct Progress {
    phase: Phase,
    started: Instant,
    reading: Reading,
    /// The last line that is not blank.
    last_line: String,
}

impl Progress {
    fn describe(&self) -> String {
        let (phase, seconds) = (self.phase.name(), self.started.elapsed().as_secs());
        format!("{phase} for {seconds} s; its last line: {}", self.last_line)
    }
}

/// Starts the process and two threads that read its output.
fn start(command: &mut Command) -> std::io::Result<(Child, Receiver<Line>)> {
    if std::io::stderr().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (sender, lines) = sync_channel(LINES_WAITING_MAX);
    if let Some(stdout) = child.stdout.take() {
        forward(stdout, OutputStream::Stdout, sender.clone());
    }
    if let Some(stderr) = child.stderr.take() {
        forward(stderr, OutputStream::Stderr, sender);
    }
    Ok((child, lines))
}

/// Reads lines on a new thread and sends them to the channel. The thread ends when the output
/// ends or the receiver is dropped.
fn forward(output: impl Read + Send + 'static, source: OutputStream, sender: SyncSender<Line>) {
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        loop {
            let mut line = Vec::new();
            let message = match output.read_until(b'\n', &mut line) {
                Ok(0) => return,
                Ok(_) => Ok((source, line)),
                Err(error) => Err(error),
            };
            let is_last = message.is_err();
            if sender.send(message).is_err() || is_last {
                return;
            }
        }
    });
}

/// Prints and parses the output until it ends, then waits for the exit code.
fn watch(mut child: Child, lines: &Receiver<Line>, limit: Duration, progress: &mut Progress) -> Ending {
    let deadline = Instant::now() + limit;
    let mut exited_at: Option<Instant> = None;
    let mut last_output_at = Instant::now();
    loop {
        match lines.recv_timeout(CHECK_INTERVAL) {
            Ok(Ok((source, line))) => {
                print(source, &line);
                let line = String::from_utf8_lossy(&line);
                progress.reading.read_line(&line);
                last_output_at = Instant::now();
                if !line.trim().is_empty() {
                    progress.last_line = line.trim().to_owned();
                }
            }
            Ok(Err(error)) => {
                kill_tree(&mut child);
                return Ending::NotRun(format!("its output cannot be read: {error}"));
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = Instant::now();
        if now - last_output_at > SILENCE_MAX {
            eprintln!("... {}", progress.describe());
            last_output_at = now;
        }
        if exited_at.is_none() && matches!(child.try_wait(), Ok(Some(_))) {
            exited_at = Some(now);
        }
        if exited_at.is_some_and(|exited| now - exited > OUTPUT_LIMIT_AFTER_EXIT) {
            return Ending::OutputHeldOpen;
        }
        if exited_at.is_none() && now > deadline {
            kill_tree(&mut child);
            return Ending::TimedOut(limit);
        }
    }
    await_exit(&mut child, deadline, limit)
}

/// Waits for the exit of a process whose output has ended. Most processes then exit at once.
fn await_exit(child: &mut Child, deadline: Instant, limit: Duration) -> Ending {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ending::Exited { is_success: status.success() },
            Ok(None) if Instant::now() > deadline => {
                kill_tree(child);
                return Ending::TimedOut(limit);
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => return Ending::NotRun(format!("its exit code cannot be read: {error}")),
        }
    }
}

fn print(source: OutputStream, line: &[u8]) {
    // If the reader of this program's output has ended (`cargo xtask test | head`), the tests go
    // on, and the exit code still has the result.
    let _ignored = match source {
        OutputStream::Stdout => std::io::stdout().write_all(line),
        OutputStream::Stderr => std::io::stderr().write_all(line),
    };
}

/// Kills the step and its descendants. If only the runner were killed, its tests would go on.
fn kill_tree(child: &mut Child) {
    let descendants = descendants(child.id(), &parents());
    if !descendants.is_empty() {
        let _best_effort =
            Command::new("kill").arg("-KILL").args(descendants.iter().map(u32::to_string)).status();
    }
    let _already_exited = child.kill();
    let _reaped = child.wait();
}

/// The id of every process and the id of its parent. Empty on a system without `/proc`; then
/// only the step itself is killed.
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let process_ids = entries.flatten().filter_map(|entry| parse_id(&entry.file_name()));
    process_ids
        .filter_map(|id| {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
            Some((id, parent_in_stat(&stat)?))
        })
        .collect()
}

fn parse_id(name: &OsString) -> Option<u32> {
    name.to_str()?.parse().ok()
}

/// The parent's id in the text of `/proc/ID/stat`. The name of the program comes before the
/// id, in brackets, and may contain brackets itself.
fn parent_in_stat(stat: &str) -> Option<u32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok()
}

/// The children of a process, their children, and so on.
fn descendants(root: u32, parents: &[(u32, u32)]) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        next += 1;
        for (id, its_parent) in parents {
            if *its_parent == parent && !found.contains(id) {
                found.push(*id);
            }
        }
    }
    found.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Tally;

    /// The outcome of a step that runs this shell script.
    fn shell(script: &str, runner: Runner, limit: Duration) -> StepOutcome {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run(Step { name: "sh".to_owned(), command, runner, phase: Phase::Run, limit, is_needed: false })
    }

    #[test]
    fn both_outputs_are_read_and_the_exit_code_counts() {
        let limit = Duration::from_secs(60);
        let good = shell("echo '2 passed, 0 failed, 1 skipped' >&2", Runner::Suite, limit);
        assert_eq!(good.tally, Tally { passed: 2, failed: 0, skipped: 1 });
        assert_eq!(good.failures, [""; 0]);
        let bad = shell("echo FAIL it; echo '2 passed, 1 failed, 0 skipped'; exit 1", Runner::Suite, limit);
        assert_eq!(bad.tally, Tally { passed: 2, failed: 1, skipped: 0 });
        assert_eq!(bad.failures, ["it"]);
    }

    #[test]
    fn output_that_is_not_utf8_does_no_harm() {
        let outcome =
            shell("printf '\\377\\n1 passed, 0 failed, 0 skipped'", Runner::Suite, Duration::from_secs(60));
        assert_eq!(outcome.tally, Tally { passed: 1, failed: 0, skipped: 0 });
    }

    #[test]
    fn a_step_that_hangs_is_killed_with_its_descendants() {
        let started = Instant::now();
        let outcome = shell("sleep 600 & sleep 600", Runner::ExitCode, Duration::from_millis(300));
        assert_eq!(outcome.failures, ["sh: not done after 0 s"]);
        assert!(started.elapsed() < Duration::from_secs(60));
        assert!(outcome.took >= Duration::from_millis(300));
    }

    #[test]
    fn a_missing_program_is_a_failure_that_names_the_program() {
        let command = Command::new("/nowhere/node");
        let step = Step {
            name: "node run.mjs".to_owned(),
            command,
            runner: Runner::Suite,
            phase: Phase::Run,
            limit: Duration::from_secs(9),
            is_needed: false,
        };
        let outcome = run(step);
        assert_eq!(outcome.tally.failed, 1);
        assert!(
            outcome.failures[0].starts_with("node run.mjs: cannot start /nowhere/node"),
            "{:?}",
            outcome.failures
        );
    }

    #[test]
    fn descendants_are_found_through_their_parents() {
        let parents = [(2, 1), (3, 2), (4, 3), (5, 1), (6, 4)];
        assert_eq!(descendants(2, &parents), [3, 4, 6]);
        assert_eq!(descendants(6, &parents), []);
    }

    #[test]
    fn the_id_of_a_parent_is_found_after_a_program_name_with_brackets() {
        assert_eq!(parent_in_stat("17 (a ) b) S 4 17 17 0"), Some(4));
        assert_eq!(parent_in_stat("nonsense"), None);
    }
}
