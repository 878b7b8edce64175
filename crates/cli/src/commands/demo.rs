//! `perihelion demo`: a small shop on durable workflows. This process is the shop.
//! Its worker is another process. About half way (see `Ledger::is_half_way`) the shop kills
//! the worker without warning in the middle of an order. A second worker continues
//! from the data on disk, and the shop's ledger shows that every order was completed
//! exactly once.

mod ledger;
mod messages;
mod traffic;
mod worker;
mod workflows;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use clap::Args;
use ledger::Ledger;
use messages::{Order, Step, WorkerCommand, WorkerMessage};
pub(crate) use traffic::Traffic;

use crate::args::Level;
use crate::exit::{self, Failure};
use crate::logs;
use crate::process::{block_on, print};

const EXAMPLES: &str = "\
Examples:
  perihelion demo                    24 orders, nothing left behind
  perihelion demo --orders 200
  perihelion demo --data ./shop      keep the workflows, to look into them";

/// Run a small shop on durable workflows: kill its worker half way, start
/// another, and see every order completed exactly once.
#[derive(Clone, Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", exit::HELP))]
pub(crate) struct DemoArgs {
    /// Number of orders
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(2..=ORDERS_MAX))]
    orders: u32,

    /// Keep the workflows in this directory, which must be new or empty
    /// [default: a temporary one, removed at the end]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Run as the worker of a demo
    #[arg(long, hide = true)]
    worker: bool,
}

/// The most orders. More would take minutes.
const ORDERS_MAX: i64 = 1_000;

pub(crate) fn run(args: DemoArgs, started_at: Instant) -> Result<(), Failure> {
    match (args.worker, args.data) {
        (true, Some(data)) => run_worker(data),
        (true, None) => {
            Err(Failure::usage("--worker needs --data", "do not start workers by hand: the demo does it"))
        }
        (false, Some(data)) => {
            refuse_unless_empty(&data)?;
            run_shop(&data, args.orders, started_at)
        }
        (false, None) => {
            let directory = TemporaryDirectory::new()?;
            run_shop(&directory.0, args.orders, started_at)
        }
    }
}

/// Refuses a directory with entries, because the orders of an earlier demo would count
/// as orders of this demo. A directory that does not exist or cannot be read is not refused.
fn refuse_unless_empty(data: &Path) -> Result<(), Failure> {
    let is_empty = std::fs::read_dir(data).map_or(true, |mut entries| entries.next().is_none());
    let refused = || {
        Failure::usage(format!("{} is not empty", data.display()), "name a directory that is new or empty")
    };
    is_empty.then_some(()).ok_or_else(refused)
}

fn run_worker(data: PathBuf) -> Result<(), Failure> {
    logs::start(Level::Error);
    block_on(worker::run(data))
}

fn run_shop(data: &Path, orders: u32, started_at: Instant) -> Result<(), Failure> {
    print(&format!("{orders} orders; their workflows live in {}\n", data.display()))?;
    let mut ledger = Ledger::new(orders);

    let mut first = Worker::start(data, &mut ledger)?;
    let (order, step) = first.work_until_half_way(&mut ledger)?;
    let process_id = first.kill(&mut ledger)?;
    print(&format!(
        "worker {process_id} killed in the middle of order {order} ({}); {} of {orders} orders were done\n",
        step.name(),
        ledger.ended_orders(),
    ))?;

    let mut second = Worker::start(data, &mut ledger)?;
    second.work_to_the_end(&mut ledger)?;
    second.finish(&mut ledger)?;

    let errors = ledger.errors();
    if !errors.is_empty() {
        return Err(Failure::runtime(errors.join("\n  ")));
    }
    let seconds = started_at.elapsed().as_secs_f64();
    print(&format!("every order completed exactly once, after {seconds:.1} s:\n{}", ledger.report()))
}

/// The process of a worker, as the shop sees it. Dropping the `Worker` kills the process.
struct Worker {
    process: Child,
    commands: ChildStdin,
    messages: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a worker and sends it the open orders.
    fn start(data: &Path, ledger: &mut Ledger) -> Result<Worker, Failure> {
        let failed = |error: std::io::Error| Failure::runtime(format!("cannot start a worker: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let mut process = Command::new(program)
            .args(["demo", "--worker", "--data"])
            .arg(data)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (Some(commands), Some(messages)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(Failure::runtime("the worker has no standard input or output"));
        };
        print(&format!("worker {} started\n", process.id()))?;
        let mut worker = Worker { process, commands, messages: BufReader::new(messages) };
        for command in ledger.commands_for_new_worker() {
            worker.send(command)?;
        }
        Ok(worker)
    }

    /// Handles messages until the work is half done, and returns right after a step. Most likely
    /// the workflow has not recorded that step yet, and the next worker repeats it.
    fn work_until_half_way(&mut self, ledger: &mut Ledger) -> Result<(Order, Step), Failure> {
        loop {
            let message = self.handle_next_message(ledger)?;
            if let (true, WorkerMessage::StepDone { order, step }) = (ledger.is_half_way(), message) {
                return Ok((order, step));
            }
        }
    }

    fn work_to_the_end(&mut self, ledger: &mut Ledger) -> Result<(), Failure> {
        while ledger.ended_orders() < ledger.len() {
            self.handle_next_message(ledger)?;
        }
        Ok(())
    }

    /// Receives the next message, records it and sends the command that follows.
    fn handle_next_message(&mut self, ledger: &mut Ledger) -> Result<WorkerMessage, Failure> {
        let message = self.receive()?.ok_or_else(|| Failure::runtime("the worker ended by itself"))?;
        if let WorkerMessage::Failed { why } = message {
            return Err(Failure::runtime(why));
        }
        if let Some(command) = ledger.record(&message) {
            self.send(command)?;
        }
        Ok(message)
    }

    /// The next message; `None` at the end of the process. A line that the end of the
    /// process cut short is not a message.
    fn receive(&mut self) -> Result<Option<WorkerMessage>, Failure> {
        let mut line = String::new();
        self.messages.read_line(&mut line).map_err(Failure::runtime)?;
        if !line.ends_with('\n') {
            return Ok(None);
        }
        serde_json::from_str(&line).map(Some).map_err(Failure::runtime)
    }

    fn send(&mut self, command: WorkerCommand) -> Result<(), Failure> {
        messages::write(&mut self.commands, &command).map_err(Failure::runtime)
    }

    /// Kills the process without warning. Records the messages that the process had sent,
    /// because the steps that they report are done. Returns the process id.
    fn kill(mut self, ledger: &mut Ledger) -> Result<u32, Failure> {
        self.process.kill().and_then(|()| self.process.wait()).map_err(Failure::runtime)?;
        while let Some(message) = self.receive()? {
            ledger.record(&message);
        }
        Ok(self.process.id())
    }

    /// Tells the worker to shut down, and waits for its end.
    fn finish(mut self, ledger: &mut Ledger) -> Result<(), Failure> {
        self.send(WorkerCommand::Finish)?;
        while let Some(message) = self.receive()? {
            ledger.record(&message);
        }
        let status = self.process.wait().map_err(Failure::runtime)?;
        if status.success() {
            Ok(())
        } else {
            Err(Failure::runtime(format!("the worker ended with {status}")))
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The process has ended already unless the demo failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A temporary directory, removed at the end of the demo.
struct TemporaryDirectory(PathBuf);

impl TemporaryDirectory {
    fn new() -> Result<TemporaryDirectory, Failure> {
        let path = std::env::temp_dir().join(format!("perihelion-demo-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .map_err(|error| Failure::runtime(format!("{}: {error}", path.display())))?;
        Ok(TemporaryDirectory(path))
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        // A failure leaves the directory among the system's temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
