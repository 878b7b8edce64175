//! Runs a target on many inputs, and watches panics, time and memory.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use perihelion_testkit::Random;

use crate::mutate::mutate;
use crate::targets::Target;

/// An input that takes longer is a failure. Inputs are small, and most take microseconds; the
/// rest of this time is a margin for a busy machine and a build without optimisation.
pub const SLOW: Duration = Duration::from_secs(10);

/// If an input is still running after this time, the process exits.
const HANGING: Duration = Duration::from_secs(60);

/// The most memory of the whole process, in bytes.
pub const MEMORY_MAX: u64 = 1 << 30;

/// The memory is checked each time this many inputs have run.
const MEMORY_INTERVAL: u64 = 256;

/// The stack of the thread that runs inputs, as large as that of a server's worker thread.
const STACK_BYTES: usize = 2 * 1024 * 1024;

/// The target, the seed and the inputs of a run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The target.
    pub target: Target,
    /// The seed.
    pub seed: u64,
    /// The number of the first input.
    pub from: u64,
    /// The most inputs.
    pub inputs: u64,
    /// The most time; `None` for no limit.
    pub time: Option<Duration>,
}

/// An input that makes the target fail.
#[derive(Debug)]
pub struct Failure {
    /// The target.
    pub target: Target,
    /// The seed.
    pub seed: u64,
    /// The number of the input.
    pub number: u64,
    /// The input.
    pub input: Vec<u8>,
    /// What happened.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { target, seed, number, input, reason } = self;
        writeln!(f, "{}: {reason}", target.name())?;
        writeln!(f, "input: {}", String::from_utf8_lossy(input).escape_debug())?;
        write!(
            f,
            "run it again: cargo xtask fuzz --target {} --seed {seed} --from {number} --inputs 1",
            target.name()
        )
    }
}

impl std::error::Error for Failure {}

/// When the running input began, and its number; for the watchdog in [`fuzz`].
type Running = Arc<Mutex<Option<(Instant, u64)>>>;

/// Runs the plan. Returns the number of inputs, or the first failure.
pub fn fuzz(plan: Plan) -> Result<u64, Failure> {
    let running = Running::default();
    let watched = Arc::clone(&running);
    let worker = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || run(plan, &watched));
    let worker = worker.expect("a thread for the inputs");
    while !worker.is_finished() {
        std::thread::park_timeout(Duration::from_millis(20));
        let hanging = *running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, number)) = hanging.filter(|(began_at, _)| began_at.elapsed() > HANGING) {
            let failure = failure(plan, number, input(plan, number), format!("no end after {HANGING:?}"));
            eprintln!("{failure}");
            std::process::exit(1);
        }
    }
    worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn run(plan: Plan, running: &Running) -> Result<u64, Failure> {
    let (examples, mut subject) = (plan.target.examples(), plan.target.subject());
    let run_began_at = Instant::now();
    let end = plan.from.saturating_add(plan.inputs);
    for number in plan.from..end {
        if plan.time.is_some_and(|time| run_began_at.elapsed() >= time) {
            return Ok(number - plan.from);
        }
        let input = mutate(&mut random(plan.seed, number), &examples, plan.target.words());
        let set_running = |value| *running.lock().unwrap_or_else(PoisonError::into_inner) = value;
        let input_began_at = Instant::now();
        set_running(Some((input_began_at, number)));
        let outcome = catch_unwind(AssertUnwindSafe(|| subject(&input)));
        set_running(None);
        let reason = match outcome {
            Err(panic) => Some(panic_text(&*panic)),
            Ok(()) if input_began_at.elapsed() > SLOW => Some(format!("took {:?}", input_began_at.elapsed())),
            Ok(()) if number % MEMORY_INTERVAL == 0 && memory() > MEMORY_MAX => {
                Some(format!("the process has {} bytes of memory", memory()))
            }
            Ok(()) => None,
        };
        if let Some(reason) = reason {
            return Err(failure(plan, number, input, reason));
        }
    }
    Ok(plan.inputs)
}

/// The random numbers of one input.
fn random(seed: u64, number: u64) -> Random {
    let first = Random::new(seed).bits();
    Random::new(first ^ Random::new(number).bits())
}

fn input(plan: Plan, number: u64) -> Vec<u8> {
    mutate(&mut random(plan.seed, number), &plan.target.examples(), plan.target.words())
}

fn failure(plan: Plan, number: u64, input: Vec<u8>, reason: String) -> Failure {
    Failure { target: plan.target, seed: plan.seed, number, input, reason }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("without a text"))
}

/// The resident memory of this process in bytes; 0 where the system does not tell.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
