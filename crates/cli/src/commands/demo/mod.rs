//! `perihelion demo`: a small shop on durable workflows. The shop itself is
//! this process; its worker is another, which is killed without warning in the
//! middle of an order when half of them are through. A second worker goes on
//! from what is on disk, and the shop's books show that every order was
//! completed exactly once.

mod books;
mod line;
mod shop;
mod worker;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use books::Books;
use line::{Effect, Order, Said, Told};

use crate::args::{DemoArgs, Level};
use crate::exit::Failure;
use crate::logs;

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
    let mut books = Books::new(orders);

    let mut first = Worker::hire(data, &mut books)?;
    let (order, effect) = first.work_until_half(&mut books)?;
    let process = first.kill(&mut books)?;
    print(&format!(
        "worker {process} killed in the middle of order {order} ({}); {} of {orders} orders were through\n",
        effect.name(),
        books.ended(),
    ))?;

    let mut second = Worker::hire(data, &mut books)?;
    second.work_to_the_end(&mut books)?;
    second.dismiss(&mut books)?;

    let faults = books.faults();
    if !faults.is_empty() {
        return Err(Failure::runtime(faults.join("\n  ")));
    }
    let took = begun.elapsed().as_secs_f64();
    print(&format!("every order completed exactly once, after {took:.1} s:\n{}", books.report()))
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::runtime)
}

/// A worker's process, seen from the shop. Killed when the shop forgets it.
struct Worker {
    process: Child,
    tell: ChildStdin,
    hear: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a worker and tells it of the orders that are open.
    fn hire(data: &Path, books: &mut Books) -> Result<Worker, Failure> {
        let failed = |error: std::io::Error| Failure::runtime(format!("cannot start a worker: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let mut process = Command::new(program)
            .args(["demo", "--worker", "--data"])
            .arg(data)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (Some(tell), Some(hear)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(Failure::runtime("a worker without pipes"));
        };
        print(&format!("worker {} started\n", process.id()))?;
        let mut worker = Worker { process, tell, hear: BufReader::new(hear) };
        for told in books.hire() {
            worker.tell(told)?;
        }
        Ok(worker)
    }

    /// Until half way, and something was done just now for an order, which its
    /// workflow cannot know of yet.
    fn work_until_half(&mut self, books: &mut Books) -> Result<(Order, Effect), Failure> {
        loop {
            let said = self.next(books)?;
            if let (true, Said::Did { order, effect }) = (books.is_half_way(), said) {
                return Ok((order, effect));
            }
        }
    }

    fn work_to_the_end(&mut self, books: &mut Books) -> Result<(), Failure> {
        while books.ended() < books.len() {
            self.next(books)?;
        }
        Ok(())
    }

    /// The next thing it says, entered in the books and answered.
    fn next(&mut self, books: &mut Books) -> Result<Said, Failure> {
        let said = self.hear()?.ok_or_else(|| Failure::runtime("the worker ended by itself"))?;
        if let Said::Failed { why } = said {
            return Err(Failure::runtime(why));
        }
        if let Some(told) = books.enter(&said) {
            self.tell(told)?;
        }
        Ok(said)
    }

    /// The next line; a line cut short by the end of the process was not said.
    fn hear(&mut self) -> Result<Option<Said>, Failure> {
        let mut line = String::new();
        self.hear.read_line(&mut line).map_err(Failure::runtime)?;
        if !line.ends_with('\n') {
            return Ok(None);
        }
        serde_json::from_str(&line).map(Some).map_err(Failure::runtime)
    }

    fn tell(&mut self, told: Told) -> Result<(), Failure> {
        line::write(&mut self.tell, &told).map_err(Failure::runtime)
    }

    /// Ends it on the spot, as a power cut would, and enters its last words:
    /// what it did to the world before is done. Its process was this one.
    fn kill(mut self, books: &mut Books) -> Result<u32, Failure> {
        self.process.kill().and_then(|()| self.process.wait()).map_err(Failure::runtime)?;
        while let Some(said) = self.hear()? {
            books.enter(&said);
        }
        Ok(self.process.id())
    }

    /// Lets it finish in good order.
    fn dismiss(mut self, books: &mut Books) -> Result<(), Failure> {
        self.tell(Told::Finish)?;
        while let Some(said) = self.hear()? {
            books.enter(&said);
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
