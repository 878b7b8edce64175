//! A fault run: everything is drawn from a seed, so the same seed repeats a run exactly in a
//! new process.
//!
//! A run has two phases. In the first phase, requests fail, are late and overtake each other.
//! Processes crash, shut down and start again. Clocks are set, and partitions and regions fail and
//! move. Instances are deleted while they run. No work has to be finished in this phase. In
//! the second phase, the *calm*, nothing fails, and all workflows must end. Then the checkers look at
//! the evidence of the run.

pub mod draw;
pub mod fleet;
pub mod storm;
pub mod user;
pub mod worker;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Once, PoisonError};
use std::time::Duration;

use duroxide_cdb::CosmosDBProvider;
use http::Method;
use perihelion_server::{EmbeddedOptions, RegionNames};
use perihelion_testkit::regions::{EAST, WEST};
use tokio::sync::Notify;

use crate::activity_log::ActivityLog;
use crate::checkers::growth::IdleProcess;
use crate::checkers::{self, Evidence, Violation, liveness};
use crate::fault_plan::FaultPlan;
use crate::fault_run::draw::{Draw, Incident, Size};
use crate::fault_run::fleet::{OldProcesses, Release};
use crate::fault_run::user::Calm;
use crate::planted::{Bug, Planted};
use crate::process::{CONTAINER, DATABASE, Handoff, open_provider_with_retries};
use crate::process_run::Role;
use crate::weather::Weather;
use crate::world::{self, World, WorldOptions};
use crate::write_log;

/// The limit of the second phase. In this time the workflows have to end, and their leftover
/// documents have to be cleaned up. With retention, a tree of instances has to be deleted even if
/// its deletion was put off for ten minutes. The last minute is for the idle time and for reading the
/// evidence.
const CALM_TIME_LIMIT: Duration = Duration::from_secs(
    liveness::ENDED_WITHIN.as_secs() + user::SETTLED_WITH_RETENTION_WITHIN.as_secs() + 60,
);

/// How long the first process of an earlier version may take to create the container.
const CREATED_WITHIN: Duration = Duration::from_secs(10);

/// The name of an upgrade in the table of faults.
const UPGRADE: &str = "program of an earlier version replaced";

/// The time that the world simulates at once. The harness notices the end of a phase at most
/// this late.
const WINDOW: Duration = Duration::from_millis(250);

/// The most requests of an idle process in a minute for heartbeats and the reconciler.
const IDLE_REQUESTS_PER_MINUTE: u64 = 60;

/// The most requests of an idle process in a minute for the polls of one partition. The process polls
/// about every two seconds, with one query for each group of adjacent slices that it owns. With three
/// processes there are mostly one to four groups, and seldom six.
const IDLE_REQUESTS_PER_PARTITION: u64 = 100;

/// Once a minute the runtime of a process counts instances and queues: four queries of each
/// partition, some of them twice. The count may fall into the idle time.
const COUNTING_REQUESTS_PER_PARTITION: u64 = 16;

/// The result of a run.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    pub violations: Vec<Violation>,
    /// The hash of all requests and answers.
    pub hash: u64,
    pub requests: u64,
    /// How often each fault was injected, by its name.
    pub faults: BTreeMap<&'static str, u64>,
    /// Virtual time of the run.
    pub virtual_time: Duration,
    /// The time from the start to the end of each workflow, in sum.
    pub workflow_time: Duration,
    /// The number of workflows that ended or were deleted.
    pub workflows: u64,
}

/// Simulates the run of this seed, and checks it. If a bug is planted, the caller checks that a
/// checker has found it.
pub fn run(seed: u64, size: Size, bug: Option<Bug>) -> Outcome {
    begin_steady_clock();
    let draw = draw::draw(seed, size, bug);
    let account =
        EmbeddedOptions::default().with_partitions(draw.partitions).with_throughput(draw.throughput);
    let account = match draw.replication_delay {
        None => account,
        Some(delay) => account
            .with_regions(RegionNames::new([WEST, EAST]).expect("two names"))
            .with_replication_delay(delay),
    };
    let options = WorldOptions { account: Some(account), window: WINDOW, ..WorldOptions::default() };
    let run = || world::simulate_with(seed, options, move |world| simulate(world, draw, bug));
    // A panic is a violation of its seed, and not the end of the program.
    std::panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        let text = "a task has panicked: see the text above".to_owned();
        Outcome { violations: vec![Violation { checker: "liveness", text }], ..Outcome::default() }
    })
}

/// The provider's steady clock begins with the wall clock of the first provider of the whole
/// program. That first provider is opened here, at the beginning of virtual time. So the steady
/// clock begins at the same time in every run, whatever ran before.
fn begin_steady_clock() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        world::simulate(0, 1, |world| {
            let opened = Handoff::empty();
            let program_opened = opened.clone();
            let program: world::Program = Arc::new(move |connection| {
                let opened = program_opened.clone();
                Box::pin(async move {
                    drop(open_provider_with_retries(&connection, Default::default()).await);
                    opened.put(());
                })
            });
            world.add_host(Role::Faultless, 0, Duration::ZERO, program);
            world.run(Duration::from_secs(10), |_| opened.has_value());
        });
    });
}

/// A worker's host, as the schedule of faults sees it.
struct WorkerHost {
    index: usize,
    stop: Arc<Notify>,
    provider: Handoff<CosmosDBProvider>,
    release: Release,
}

impl WorkerHost {
    /// Replaces the program if it is of the earlier version. Returns whether it was.
    fn upgrade(&self) -> bool {
        let was_old = self.release.upgrade();
        // A process that has not opened its provider opens it as one of the new version.
        if was_old && self.provider.has_value() {
            self.stop.notify_one();
        }
        was_old
    }
}

/// Adds the hosts of the workers. If there are workers of an earlier version, the first of them creates
/// the container, and the other workers start after that.
fn add_workers(
    world: &mut World,
    draw: &Draw,
    bug: Option<Bug>,
    old: &OldProcesses,
) -> (Vec<WorkerHost>, ActivityLog) {
    let activity_log =
        if bug == Some(Bug::RunWithoutLock) { ActivityLog::doubled() } else { ActivityLog::default() };
    let mut hosts = Vec::new();
    for (settings, clock_skew_ms) in draw.workers.iter().zip(&draw.clock_skew_ms) {
        let is_old = hosts.len() < draw.old_workers;
        let shared = worker::Shared {
            activity_log: activity_log.clone(),
            opened: Handoff::empty(),
            stop: Arc::new(Notify::new()),
            release: Release::new(is_old, old),
            keeps_turn: bug == Some(Bug::TurnKept),
        };
        let (stop, provider, release) =
            (Arc::clone(&shared.stop), shared.opened.clone(), shared.release.clone());
        let program = worker::program(settings.clone(), shared);
        let index = world.add_host(Role::Worker, *clock_skew_ms, draw.restart_after, program);
        if is_old && hosts.is_empty() {
            world.run(CREATED_WITHIN, |_| provider.has_value());
        }
        hosts.push(WorkerHost { index, stop, provider, release });
    }
    (hosts, activity_log)
}

fn simulate(world: &mut World, draw: Draw, bug: Option<Bug>) -> Outcome {
    let old_processes = OldProcesses::default();
    let (hosts, activity_log) = add_workers(world, &draw, bug, &old_processes);
    let (calm, evidence) = (Arc::new(Calm::default()), Handoff::empty());
    let has_retention = draw.retention.finished_for.is_some();
    let plan = user::Plan {
        scenarios: draw.scenarios.clone(),
        storms: draw.storms.clone(),
        has_retention,
        cross_instance: draw.user_cross_instance,
        is_throttled: draw.throughput.is_some(),
    };
    let program = user::program(plan, &calm, &evidence);
    world.add_host(Role::User, 0, draw.restart_after, program);
    if let Some(bug) = bug {
        world.network().plant(Planted::new(bug));
    }
    world.network().set_plan(FaultPlan::Random(Box::new(draw.faults)));
    world.network().set_weather(Weather { episodes: draw.episodes, rng: draw.rng });
    let mut faults = BTreeMap::<&'static str, u64>::new();
    let is_idle = |_: &mut World| calm.is_idle.load(Ordering::SeqCst);
    for (at, incident) in draw.incidents.iter().filter(|(at, _)| *at < draw.faults_until) {
        if world.run(at.saturating_sub(world.elapsed()), is_idle) {
            break;
        }
        if let Some(name) = inject_incident(world, &hosts, incident) {
            *faults.entry(name).or_default() += 1;
        }
    }
    if !is_idle(world) {
        world.run(draw.faults_until.saturating_sub(world.elapsed()), is_idle);
    }
    end_faults(world, draw.replication_delay.is_some());
    let upgraded = hosts.iter().filter(|host| host.upgrade()).count() as u64;
    if upgraded > 0 {
        *faults.entry(UPGRADE).or_default() += upgraded;
    }
    let calm_from = world.elapsed();
    calm.begin(calm_from);
    world.run(CALM_TIME_LIMIT, |_| evidence.has_value());

    let mut evidence: Evidence = evidence.take().unwrap_or_default();
    evidence.has_retention = has_retention;
    evidence.runs = activity_log.run_times();
    evidence.old_processes = old_processes.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let network = Arc::clone(world.network());
    let served = network.served_in_order();
    evidence.idle = idle_processes(world, &hosts, draw.partitions);
    let mut violations = Vec::new();
    match write_log::writes(&served) {
        Ok(writes) => evidence.writes = writes,
        Err(text) => violations.push(Violation { checker: "fences", text }),
    }
    violations.extend(checkers::check_all(&evidence));
    if !violations.is_empty() && std::env::var_os("SIMULATION_STORY").is_some() {
        eprintln!("{}", network.log_around(Some(0), usize::MAX / 8));
    }
    faults.extend(network.faults_by_name());
    if draw.throughput.is_some() {
        faults.insert("429 of the engine's throttle", network.throttled_count());
    }
    let (workflows, workflow_time) = workflow_time(&evidence);
    Outcome {
        violations,
        hash: network.hash(),
        requests: network.request_count(),
        faults,
        virtual_time: world.elapsed(),
        workflow_time,
        workflows,
    }
}

/// Makes an incident happen. Returns its name in the table of faults; `None` if it cannot happen now.
fn inject_incident(world: &mut World, hosts: &[WorkerHost], incident: &Incident) -> Option<&'static str> {
    Some(match incident {
        Incident::Crash(worker) => {
            world.kill(hosts[*worker].index);
            "crash"
        }
        Incident::Shutdown(worker) => {
            // A process that has not opened its provider yet does not stop.
            if !hosts[*worker].provider.has_value() {
                return None;
            }
            hosts[*worker].stop.notify_one();
            "graceful shutdown"
        }
        Incident::ClockStep(worker, clock_skew_ms) => {
            world.set_clock_skew_ms(hosts[*worker].index, *clock_skew_ms);
            if *clock_skew_ms < 0 { "clock set back" } else { "clock set forward" }
        }
        Incident::Split(range) => {
            let body = format!(
                "{{\"database\":\"{DATABASE}\",\"container\":\"{CONTAINER}\",\"range\":\"{range}\"}}"
            );
            world.manage(Method::POST, "split", body);
            "partition split"
        }
        Incident::PartitionTrouble { name, rule } => {
            world.manage(Method::POST, "faults", rule.clone());
            name
        }
        Incident::PartitionRecovered => {
            world.manage(Method::DELETE, "faults", String::new());
            "partition recovered"
        }
        Incident::Upgrade(worker) => {
            // The worker has the new version already.
            if !hosts[*worker].upgrade() {
                return None;
            }
            UPGRADE
        }
        Incident::Failover(region) => {
            world.manage(Method::POST, "regions/write", format!("{{\"region\":\"{region}\"}}"));
            "write region moved"
        }
        Incident::RegionDown(region) => {
            world.manage(Method::POST, "regions/offline", format!("{{\"region\":\"{region}\"}}"));
            "region down"
        }
        Incident::RegionUp(region) => {
            world.manage(Method::POST, "regions/online", format!("{{\"region\":\"{region}\"}}"));
            "region up again"
        }
    })
}

/// Ends all faults. Clocks that are wrong stay wrong.
fn end_faults(world: &World, has_regions: bool) {
    world.network().set_plan(FaultPlan::None);
    world.network().set_weather(Weather::default());
    world.manage(Method::DELETE, "faults", String::new());
    if has_regions {
        for region in [WEST, EAST] {
            world.manage(Method::POST, "regions/online", format!("{{\"region\":\"{region}\"}}"));
        }
    }
}

/// The requests of the workers in the last [`user::IDLE_TIME`] of the run, and their oldest outboxes and
/// the sizes of their memory at its end.
fn idle_processes(world: &World, hosts: &[WorkerHost], partitions: u32) -> Vec<IdleProcess> {
    let since = world.elapsed().saturating_sub(user::IDLE_TIME);
    let counts = world.network().requests_since(since);
    // A split may have made one more partition.
    let partitions = u64::from(partitions + 1);
    let per_minute = IDLE_REQUESTS_PER_MINUTE + IDLE_REQUESTS_PER_PARTITION * partitions;
    let requests_max =
        per_minute * user::IDLE_TIME.as_secs() / 60 + COUNTING_REQUESTS_PER_PARTITION * partitions;
    let mut idle = Vec::new();
    for host in hosts {
        let prefix = format!("Worker{}.", host.index);
        let requests =
            counts.iter().filter(|(name, _)| name.starts_with(&prefix)).map(|(_, count)| count).sum();
        let provider = host.provider.take();
        let metrics = provider.as_ref().map(CosmosDBProvider::metrics);
        idle.push(IdleProcess {
            name: format!("Worker{}", host.index),
            requests,
            requests_max,
            outbox_age_ms: metrics.and_then(|metrics| metrics.outbox_age_ms),
            memory: provider.map(|provider| provider.memory_sizes()).unwrap_or_default(),
        });
    }
    idle
}

/// The number of instances that ran, and the sum of the times from their first commit to their
/// last.
fn workflow_time(evidence: &Evidence) -> (u64, Duration) {
    // The time of the first and of the last commit, by partition.
    let mut spans = BTreeMap::<&str, (u64, u64)>::new();
    for write in evidence.writes.iter().filter(|write| write.id == crate::stored::STATE_ID) {
        let span = spans.entry(&write.partition).or_insert((write.at_ms, write.at_ms));
        if write.body["type"] == "history" {
            span.1 = write.at_ms;
        }
    }
    let sum = spans.values().map(|(first, last)| Duration::from_millis(last.saturating_sub(*first))).sum();
    (spans.len() as u64, sum)
}
