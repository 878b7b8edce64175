//! Runs the cases against the published crate and compares each outcome with its entry in
//! `cases/all.rs`. Several cases run at a time. That is possible because each case has its own
//! container, and its fault rules apply to that container only.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use perihelion_interop_common::{Problem, Server};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::cases;
use crate::cases::world::{CaseFailure, Outcome, World, as_published};

/// The number of cases that run at a time. Cases mostly wait.
const PARALLEL_MAX: usize = 8;

/// The time limit of a case. A case that takes longer counts as failed.
const CASE_LIMIT: Duration = Duration::from_secs(40);

/// The known outcome of a case with the published crate.
#[derive(Clone, Copy)]
enum Expected {
    /// The case fails with a message that contains this text.
    Fails(&'static str),
    /// The case passes, for this reason.
    Passes(&'static str),
}

struct Case {
    name: &'static str,
    expected: Expected,
    run: fn(World) -> CaseFuture,
}

type CaseFuture = Pin<Box<dyn Future<Output = Outcome>>>;

/// The number of cases with the expected outcome, and with another one.
pub(crate) struct Score {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
}

/// Makes a [`Case`] for each entry of `cases/all.rs`.
macro_rules! table {
    ($($module:ident :: $case:ident : $verdict:ident $words:literal,)+) => {
        vec![$(Case {
            name: concat!(stringify!($module), "::", stringify!($case)),
            expected: table!(@ $verdict $words),
            run: |world| Box::pin(cases::$module::$case(world)),
        }),+]
    };
    (@ fails $words:literal) => { Expected::Fails($words) };
    (@ passes $words:literal) => { Expected::Passes($words) };
}

fn all_cases() -> Vec<Case> {
    let mut all: Vec<Case> = cases::each_case!(table);
    all.push(Case {
        name: "drop_in::the_published_surface_works",
        expected: Expected::Passes("it is the published surface"),
        run: |world| Box::pin(cases::drop_in::the_published_surface_works(world)),
    });
    all
}

/// Runs the cases whose name contains `wanted`.
pub(crate) async fn run(wanted: &str) -> Result<Score, Problem> {
    let server = Server::start(&["--merge-in-gateway"]).await?;
    let permits = Arc::new(Semaphore::new(PARALLEL_MAX));
    let mut running = JoinSet::new();
    for (number, case) in all_cases().into_iter().enumerate().filter(|(_, case)| case.name.contains(wanted)) {
        let world = World::new(server.port(), &format!("case-{number}"), as_published);
        let permits = Arc::clone(&permits);
        running.spawn(async move {
            let _permit = permits.acquire_owned().await;
            let started = Instant::now();
            // Each case has its own thread and tokio runtime. So a panic becomes an outcome, and
            // tasks that a case left behind end with its runtime.
            let outcome = tokio::task::spawn_blocking(move || run_alone(case.run, world)).await;
            let outcome = outcome.unwrap_or_else(|error| Err(format!("panicked: {error}")));
            (case, outcome, started.elapsed())
        });
    }
    let mut score = Score { passed: 0, failed: 0 };
    while let Some(done) = running.join_next().await {
        let (case, outcome, time) = done?;
        judge(&mut score, &case, outcome, time);
    }
    Ok(score)
}

/// Runs a case on a tokio runtime of its own.
fn run_alone(run: fn(World) -> CaseFuture, world: World) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let outcome = runtime.block_on(async { tokio::time::timeout(CASE_LIMIT, run(world)).await });
    runtime.shutdown_background();
    match outcome {
        Ok(outcome) => outcome.map_err(|CaseFailure(why)| why),
        Err(_) => Err(format!("hangs: not done after {CASE_LIMIT:?}")),
    }
}

/// Compares the outcome of a case with the expected one, and counts and prints the result.
fn judge(score: &mut Score, case: &Case, outcome: Result<(), String>, time: Duration) {
    let Case { name, expected, .. } = case;
    let time = time.as_millis();
    let verdict = match (expected, outcome) {
        (Expected::Fails(words), Err(why)) if why.contains(words) => Ok(format!("fails, as expected: {why}")),
        (Expected::Fails(words), Err(why)) => Err(format!("fails, but not with \"{words}\": {why}")),
        (Expected::Fails(words), Ok(())) => Err(format!("passes, but was expected to fail with \"{words}\"")),
        (Expected::Passes(reason), Ok(())) => Ok(format!("passes too: {reason}")),
        (Expected::Passes(_), Err(why)) => Err(format!("fails, but was expected to pass: {why}")),
    };
    match verdict {
        Ok(words) => {
            score.passed += 1;
            println!("ok   {name} ({time} ms): {words}");
        }
        Err(words) => {
            score.failed += 1;
            println!("FAIL {name} ({time} ms): {words}");
        }
    }
}
