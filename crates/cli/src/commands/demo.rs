//! `perihelion demo`: a small shop on durable workflows. This process is the
//! shop; its worker is another process, which is killed without warning in the
//! middle of an order when half of the orders are done. A second worker goes on
//! from what is on disk, and the shop's ledger shows that every order was
//! completed exactly once.

mod ledger;
mod messages;
mod shop;
mod worker;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use clap::Args;
use ledger::Ledger;
use messages::{Order, Step, WorkerCommand, WorkerMessage};

use crate::args::Level;
use crate::exit::{self, Failure};
use crate::logs;

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
    /// How many customers order
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(2..=ORDERS_MAX))]
    orders: u32,

    /// Keep the workflows in this directory, made if missing and empty at
    /// first [default: a temporary one, removed at the end]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Be the worker of a shop
    #[arg(long, hide = true)]
    worker: bool,
}

/// More orders than this would take minutes.
const ORDERS_MAX: i64 = 1_000;

pub(crate) fn run(typed: DemoArgs, begun: Instant) -> Result<(), Failure> {
    match (typed.worker, typed.data) {
        (true, Some(data)) => work(data),
        (true, None) => Err(Failure::usage("a worker needs its data", "the shop starts workers itself")),
        (false, Some(data)) => {
            refuse_unless_empty(&data)?;
            open_shop(&data, typed.orders, begun)
        }
        (false, None) => {
            let scratch = Scratch::new()?;
            open_shop(&scratch.0, typed.orders, begun)
        }
    }
}

/// Orders of an earlier demo would be taken for orders of this one.
fn refuse_unless_empty(data: &Path) -> Result<(), Failure> {
    let is_empty = std::fs::read_dir(data).map_or(true, |mut entries| entries.next().is_none());
    let refused = || Failure::usage(format!("{} is not empty", data.display()), "name a new directory");
    is_empty.then_some(()).ok_or_else(refused)
}

fn work(data: PathBuf) -> Result<(), Failure> {
    logs::start(Level::Error);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::runtime(format!("cannot start threads: {error}")))?;
    runtime.block_on(worker::run(data))
}

fn open_shop(data: &Path, orders: u32, begun: Instant) -> Result<(), Failure> {
    print(&format!("{orders} orders; their workflows live in {}\n", data.display()))?;
    let mut ledger = Ledger::new(orders);

    let mut first = Worker::start(data, &mut ledger)?;
    let (order, step) = first.work_until_half(&mut ledger)?;
    let process = first.kill(&mut ledger)?;
    print(&format!(
        "worker {process} killed in the middle of order {order} ({}); {} of {orders} orders were through\n",
        step.name(),
        ledger.ended(),
    ))?;

    let mut second = Worker::start(data, &mut ledger)?;
    second.work_to_the_end(&mut ledger)?;
    second.finish(&mut ledger)?;

    let faults = ledger.faults();
    if !faults.is_empty() {
        return Err(Failure::runtime(faults.join("\n  ")));
    }
    let took = begun.elapsed().as_secs_f64();
    print(&format!("every order completed exactly once, after {took:.1} s:\n{}", ledger.report()))
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::runtime)
}

/// A worker's process, seen from the shop. Killed when the shop forgets it.
struct Worker {
    process: Child,
    commands: ChildStdin,
    messages: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a worker and tells it of the orders that are open.
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
            return Err(Failure::runtime("a worker without pipes"));
        };
        print(&format!("worker {} started\n", process.id()))?;
        let mut worker = Worker { process, commands, messages: BufReader::new(messages) };
        for command in ledger.tasks_for_new_worker() {
            worker.send(command)?;
        }
        Ok(worker)
    }

    /// Until half way, and something was done just now for an order, which its
    /// workflow cannot know of yet.
    fn work_until_half(&mut self, ledger: &mut Ledger) -> Result<(Order, Step), Failure> {
        loop {
            let message = self.next(ledger)?;
            if let (true, WorkerMessage::Did { order, step }) = (ledger.is_half_way(), message) {
                return Ok((order, step));
            }
        }
    }

    fn work_to_the_end(&mut self, ledger: &mut Ledger) -> Result<(), Failure> {
        while ledger.ended() < ledger.len() {
            self.next(ledger)?;
        }
        Ok(())
    }

    /// The next thing it says, entered in the ledger and answered.
    fn next(&mut self, ledger: &mut Ledger) -> Result<WorkerMessage, Failure> {
        let message = self.receive()?.ok_or_else(|| Failure::runtime("the worker ended by itself"))?;
        if let WorkerMessage::Failed { why } = message {
            return Err(Failure::runtime(why));
        }
        if let Some(command) = ledger.record(&message) {
            self.send(command)?;
        }
        Ok(message)
    }

    /// The next line; a line cut short by the end of the process was not said.
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

    /// Ends it on the spot, as a power cut would, and enters its last words:
    /// what it did to the world before is done. Its process was this one.
    fn kill(mut self, ledger: &mut Ledger) -> Result<u32, Failure> {
        self.process.kill().and_then(|()| self.process.wait()).map_err(Failure::runtime)?;
        while let Some(message) = self.receive()? {
            ledger.record(&message);
        }
        Ok(self.process.id())
    }

    /// Lets it finish in good order.
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
        // It has ended already unless the shop failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A directory that goes with the demo.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, Failure> {
        let path = std::env::temp_dir().join(format!("perihelion-demo-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .map_err(|error| Failure::runtime(format!("{}: {error}", path.display())))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is in the directory for temporary things.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
