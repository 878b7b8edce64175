//! Runs the cases against the published crate and judges each by what is
//! written beside it. Several run at a time: each has a container of its own,
//! and faults are aimed at containers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::cases;
use crate::cases::world::{Broken, Outcome, World, as_published};
use crate::server::Server;

/// Cases at a time: most of their time is waiting.
const PARALLEL: usize = 8;

/// A case that takes longer hangs, which is a way to break.
const CASE_LIMIT: Duration = Duration::from_secs(40);

/// What the published crate is known to do with a case.
#[derive(Clone, Copy)]
enum Known {
    /// It breaks, and the case says this about it.
    Fails(&'static str),
    /// It holds, for this reason.
    Passes(&'static str),
}

struct Case {
    name: &'static str,
    known: Known,
    run: fn(World) -> Story,
}

type Story = Pin<Box<dyn Future<Output = Outcome>>>;

pub(crate) struct Score {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
}

macro_rules! table {
    ($($module:ident :: $case:ident : $verdict:ident $words:literal,)+) => {
        vec![$(Case {
            name: concat!(stringify!($module), "::", stringify!($case)),
            known: table!(@ $verdict $words),
            run: |world| Box::pin(cases::$module::$case(world)),
        }),+]
    };
    (@ fails $words:literal) => { Known::Fails($words) };
    (@ passes $words:literal) => { Known::Passes($words) };
}

fn all() -> Vec<Case> {
    let mut all: Vec<Case> = cases::each_case!(table);
    all.push(Case {
        name: "drop_in::the_published_surface_works",
        known: Known::Passes("it is the published surface"),
        run: |world| Box::pin(cases::drop_in::the_published_surface_works(world)),
    });
    all
}

pub(crate) async fn run(wanted: &str) -> Result<Score, Box<dyn std::error::Error>> {
    let server = Server::start().await?;
    let places = Arc::new(Semaphore::new(PARALLEL));
    let mut running = JoinSet::new();
    for (number, case) in all().into_iter().enumerate().filter(|(_, case)| case.name.contains(wanted)) {
        let world = World::new(server.port(), &format!("case-{number}"), as_published);
        let places = Arc::clone(&places);
        running.spawn(async move {
            let _place = places.acquire_owned().await;
            let began = Instant::now();
            // A thread and a runtime of its own: a panic is an outcome like any
            // other, and all that a case left behind ends with it.
            let outcome = tokio::task::spawn_blocking(move || alone(case.run, world)).await;
            let outcome = outcome.unwrap_or_else(|error| Err(format!("panicked: {error}")));
            (case, outcome, began.elapsed())
        });
    }
    let mut score = Score { passed: 0, failed: 0 };
    while let Some(done) = running.join_next().await {
        let (case, outcome, time) = done?;
        judge(&mut score, &case, outcome, time);
    }
    Ok(score)
}

fn alone(run: fn(World) -> Story, world: World) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let outcome = runtime.block_on(async { tokio::time::timeout(CASE_LIMIT, run(world)).await });
    runtime.shutdown_background();
    match outcome {
        Ok(outcome) => outcome.map_err(|Broken(why)| why),
        Err(_) => Err(format!("hangs: not done after {CASE_LIMIT:?}")),
    }
}

fn judge(score: &mut Score, case: &Case, outcome: Result<(), String>, time: Duration) {
    let Case { name, known, .. } = case;
    let time = time.as_millis();
    let verdict = match (known, outcome) {
        (Known::Fails(words), Err(why)) if why.contains(words) => Ok(format!("breaks, as known: {why}")),
        (Known::Fails(words), Err(why)) => Err(format!("breaks otherwise than by \"{words}\": {why}")),
        (Known::Fails(words), Ok(())) => Err(format!("holds, and was known to break by \"{words}\"")),
        (Known::Passes(reason), Ok(())) => Ok(format!("holds there too: {reason}")),
        (Known::Passes(_), Err(why)) => Err(format!("breaks, and was known to hold: {why}")),
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
