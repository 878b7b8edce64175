//! `perihelion stress`: duroxide's stress workload at several concurrencies, on any account or
//! on the engine in this process, with its throughput, latency and cost as a table.
//!
//! duroxide's own harness reports nothing before its end, measures no latency, and cannot be
//! stopped. So this command runs the same workload itself (`workload`). `target` creates a
//! container for the run and removes it, `row` measures one concurrency, `report` has the result
//! as a table and as JSON.

mod latencies;
mod report;
mod row;
mod target;
mod workload;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::pin::pin;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use tokio::sync::watch;

use self::report::Report;
use self::row::{Concurrency, Row};
use self::target::{Names, Target};
use self::workload::Load;
use crate::account::AccountArgs;
use crate::args::{Level, parse_time};
use crate::exit::{self, Failure};
use crate::logs;
use crate::process::{Signals, block_on, print};
use crate::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  perihelion stress                                the engine in memory, 3 rows of 10 s
  perihelion stress --concurrency 8,4/16 --duration 1m
  perihelion stress --orchestrations 500 --activities 1 -o json
  perihelion stress --throughput 4000              in memory, 429 beyond 4000 RU/s
  export COSMOS_ENDPOINT=https://account.documents.azure.com COSMOS_KEY=...
  perihelion stress --throughput 10000             in a container of its own
  perihelion stress --database shop --container load-test

The workload is that of duroxide's harness for providers (provider_stress_tests,
parallel_orchestrations): fan out to --activities activities and wait for all of them,
--at-once orchestrations at a time. It runs in a loop of this command, because the
harness shows no progress and measures no latency.

The table has one row for each concurrency:
  workers    orchestration dispatchers/activity workers
  orch/s     completed orchestrations per second, from the first start to the last end
  act/s      finished activities per second, repeated ones included
  p50 ...    milliseconds from the start until a client sees the end. A client reads
             the status after 5, 10, 20, 40, 80 ms and then every 100 ms
  requests   requests (round trips) per completed orchestration, with polls, heartbeats
             and cleanup, without the status reads of waiting clients
  RU         request units of these requests per completed orchestration
  409/412    writes that lost against another writer, in all
  429        throttled answers, in all

Without an account the engine runs in memory. An account is named by the options or by
the environment (AZURE_COSMOS_CONNECTION_STRING, COSMOS_CONNECTION_STRING, or
COSMOS_ENDPOINT with COSMOS_KEY), or --data names a data directory. The file
perihelion.toml is not read. On an account or a data directory, the run creates a
database or a container of its own and removes it at the end, also after Ctrl-C. A
container that exists is used only when --container names it. It must hold no unfinished
workflows, and no other program may use it meanwhile. It stays, without the instances of
this run.

The exit code is 1 when an orchestration failed.";

/// Run duroxide's stress workload at several concurrencies, on any account or in memory, and
/// print throughput, latency, round trips and request units.
#[derive(Clone, Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", exit::HELP))]
pub(crate) struct StressArgs {
    #[command(flatten)]
    account: AccountArgs,

    /// How many orchestration dispatchers and activity workers, one row for each value:
    /// 4 is four of both, 2/8 is two dispatchers and eight workers
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4")]
    concurrency: Vec<Concurrency>,

    /// How long orchestrations are started for each row: 500ms, 10s, 5m [default: 10s,
    /// or no limit with --orchestrations]
    #[arg(long, value_name = "TIME", value_parser = time)]
    duration: Option<Duration>,

    /// Orchestrations to start for each row [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=ORCHESTRATIONS_MAX))]
    orchestrations: Option<u64>,

    /// Orchestrations that run at the same time
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=AT_ONCE_MAX))]
    at_once: u32,

    /// Activities of each orchestration
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=ACTIVITIES_MAX))]
    activities: u32,

    /// How long an activity takes, at most 1m
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = activity_time)]
    activity_time: Duration,

    /// An orchestration that takes longer has failed
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = time)]
    timeout: Duration,

    /// The database, created if missing [default: a new one]
    #[arg(long, value_name = "NAME", value_parser = resource_name)]
    database: Option<String>,

    /// The container, created if missing [default: a new one]
    #[arg(long, value_name = "NAME", value_parser = resource_name, requires = "database")]
    container: Option<String>,

    /// Request units per second of the container that is created. In memory, requests
    /// beyond that get 429 [default: in memory no throttling, else what the account gives]
    #[arg(long, value_name = "RU", value_parser = clap::value_parser!(u32).range(1..))]
    throughput: Option<u32>,

    /// The form of the result on standard output
    #[arg(short, long, value_enum, value_name = "FORM", default_value_t)]
    output: Output,
}

/// `--output`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    #[default]
    Table,
    Json,
}

/// The most rows of the table. More values of `--concurrency` are a mistake.
const ROWS_MAX: usize = 32;

/// The most orchestrations of a row: more than a run of a day can start.
const ORCHESTRATIONS_MAX: u64 = 1_000_000_000;

/// The most orchestrations at a time. Each one has a client that waits for it.
const AT_ONCE_MAX: i64 = 10_000;

/// The most activities of an orchestration. With more, the run would measure a single
/// orchestration and not many.
const ACTIVITIES_MAX: i64 = 10_000;

/// How long orchestrations are started for each row if neither a time nor a number is given.
/// duroxide's harness has the same default.
const DURATION_DEFAULT: Duration = Duration::from_secs(10);

/// The longest duration and the longest timeout.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

const ACTIVITY_TIME_MAX: Duration = Duration::from_secs(60);

/// The most characters in the name of a database or a container.
const NAME_MAX: usize = 255;

fn time(text: &str) -> Result<Duration, String> {
    let is_valid = |time: &Duration| !time.is_zero() && *time <= TIME_MAX;
    parse_time(text).filter(is_valid).ok_or_else(|| {
        format!("`{text}` is not a time from 1ms to 1440m (a day): write it like 500ms, 10s or 5m")
    })
}

fn activity_time(text: &str) -> Result<Duration, String> {
    parse_time(text)
        .filter(|time| *time <= ACTIVITY_TIME_MAX)
        .ok_or_else(|| format!("`{text}` is not a time of at most 1m: write it like 0ms, 10ms or 2s"))
}

/// Refuses names that the service would refuse.
fn resource_name(text: &str) -> Result<String, String> {
    let is_valid = !text.is_empty()
        && text.chars().count() <= NAME_MAX
        && !text.contains(['/', '\\', '#', '?'])
        && !text.contains(char::is_control)
        && !text.ends_with(' ');
    is_valid.then(|| text.to_owned()).ok_or_else(|| {
        format!("a name has 1 to {NAME_MAX} characters, none of them / \\ # ? or a control character, and no space at the end")
    })
}

pub(crate) fn run(args: StressArgs, _started_at: Instant) -> Result<(), Failure> {
    if args.concurrency.len() > ROWS_MAX {
        return Err(Failure::usage(
            format!(
                "--concurrency has {} values, and the table at most {ROWS_MAX} rows",
                args.concurrency.len()
            ),
            "run the command several times",
        ));
    }
    // The result names the failures. Warnings during the run would break the line of progress.
    logs::start(Level::Error);
    block_on(stop_on_signal(args))
}

/// Runs to the end. The first signal stops the measurement, but the run still removes what it
/// created. The second signal ends the program at once.
async fn stop_on_signal(args: StressArgs) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let progress = Progress::new();
    let (stop, stopped) = watch::channel(false);
    let mut work = pin!(stress(&args, stopped, &progress));
    loop {
        tokio::select! {
            done = &mut work => return done,
            signal = signals.next() => {
                if stop.send_replace(true) {
                    return Err(Failure::runtime(format!(
                        "ended at once by a second signal ({signal}): what this run created may still be there"
                    )));
                }
                progress.phase(&format!("{signal}: stopping; a second signal ends the program at once"));
            }
        }
    }
}

async fn stress(
    args: &StressArgs,
    mut stopped: watch::Receiver<bool>,
    progress: &Progress,
) -> Result<(), Failure> {
    let names = Names { database: args.database.clone(), container: args.container.clone(), run: run_id() };
    // No database and no container is created before the connection exists, so a signal may cancel
    // the connecting.
    let connected = tokio::select! {
        connected = Target::connect(&args.account, names, args.throughput) => connected,
        _ = stopped.wait_for(|is_stopped| *is_stopped) => return Ok(()),
    };
    let mut target = connected?;
    let mut rows = Vec::new();
    let measured = measure(args, &mut target, &mut rows, &mut stopped, progress).await;
    // The result is printed before the removal, because the removal may take long or fail.
    let printed = match measured.is_ok() || !rows.is_empty() {
        true => print_result(args, &target, &rows, *stopped.borrow()),
        false => Ok(()),
    };
    let removed = target.remove(&rows, progress).await;
    let failures = [measured, printed, removed, refuse_failures(&rows)];
    let mut failures = failures.into_iter().filter_map(Result::err);
    let Some(first) = failures.next() else { return Ok(()) };
    for failure in failures {
        // The exit code is that of the first failure, which is reported last.
        let _ = failure.report();
    }
    Err(first)
}

/// Prepares the container and measures one row after the other, until a signal.
async fn measure(
    args: &StressArgs,
    target: &mut Target,
    rows: &mut Vec<Row>,
    stopped: &mut watch::Receiver<bool>,
    progress: &Progress,
) -> Result<(), Failure> {
    progress.phase(&format!("target: {}{}", target.description(), target.source()));
    target.prepare(args.throughput).await?;
    let load = load(args);
    for concurrency in &args.concurrency {
        if *stopped.borrow() {
            break;
        }
        let prefix = target.instance_prefix(rows.len());
        rows.push(row::measure(target, prefix, *concurrency, load, stopped, progress).await?);
    }
    Ok(())
}

fn load(args: &StressArgs) -> Load {
    let duration = match args.orchestrations {
        None => Some(args.duration.unwrap_or(DURATION_DEFAULT)),
        Some(_) => args.duration,
    };
    Load {
        duration,
        orchestrations: args.orchestrations,
        at_once: args.at_once,
        activities: args.activities,
        activity_time: args.activity_time,
        timeout: args.timeout,
    }
}

fn print_result(
    args: &StressArgs,
    target: &Target,
    rows: &[Row],
    is_interrupted: bool,
) -> Result<(), Failure> {
    let report = Report::new(target, &load(args), rows, is_interrupted);
    print(&match args.output {
        Output::Table => report.table(),
        Output::Json => report.json()?,
    })
}

/// The failure of a run in which orchestrations failed, with the first reasons.
fn refuse_failures(rows: &[Row]) -> Result<(), Failure> {
    let failed: u64 = rows.iter().map(|row| row.failed).sum();
    if failed == 0 {
        return Ok(());
    }
    let ended = failed + rows.iter().map(|row| row.completed).sum::<u64>();
    let reasons: String =
        rows.iter().flat_map(|row| &row.errors).map(|error| format!("\n  {error}")).collect();
    Err(Failure::runtime(format!(
        "{failed} of {ended} orchestrations failed. The first ones of each row:{reasons}"
    )))
}

/// A random name for this run, so that two runs never use the same container.
fn run_id() -> String {
    // The standard library seeds each hash state from the system's random numbers.
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_names_out_of_bounds_are_refused() {
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("1440m"), Ok(TIME_MAX));
        assert_eq!(activity_time("0ms"), Ok(Duration::ZERO));
        for bad in
            ["", "10", "s", "1.5s", "0s", "1441m", "-1s", "99999999999999999999s", "18446744073709551615m"]
        {
            assert!(time(bad).is_err(), "{bad}");
        }
        assert!(activity_time("61s").is_err());
        assert_eq!(resource_name("load test"), Ok("load test".to_owned()));
        for bad in ["", "a/b", "a#", "a?", "a\\b", "a\n", "a ", &"x".repeat(256)] {
            assert!(resource_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn two_runs_have_different_names() {
        assert_ne!(run_id(), run_id());
    }
}
