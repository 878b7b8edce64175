//! Draws a run from its seed: processes, partitions, workflows, deletions, and a schedule of
//! faults in virtual time.

use std::time::Duration;

use duroxide_cdb::{CommitTier, CrossInstance, RetentionOptions};
use perihelion_testkit::regions::{EAST, WEST};

use crate::fault::Fault;
use crate::fault_plan::RandomFaults;
use crate::fault_run::fleet;
use crate::fault_run::storm::{self, Storm};
use crate::fault_run::worker::WorkerSettings;
use crate::planted::Bug;
use crate::scenarios::{FAN_OUT, SMALL, STAGED, Scenario};
use crate::weather::{Episode, Scope, Trouble};
use crate::workflows::Registered;

/// The longest episode that affects a user. A user's call is tried again for 20 seconds.
const USER_EPISODE_MAX_MS: u64 = 5000;

/// The time between the beginnings of two episodes that affect a user.
const USER_EPISODE_INTERVAL: Duration = Duration::from_secs(15);

/// The longest episode that affects workers only: longer than most locks.
const WORKER_EPISODE_MAX_MS: u64 = 15_000;

/// The number of attempts after which a turn or an activity is poison. The number is large,
/// because locks expire in episodes.
const ATTEMPTS_MAX: u32 = 1000;

/// The largest step of a clock, in milliseconds.
const CLOCK_STEP_MAX_MS: i64 = 240_000;

/// Gives `draw_cross_instance` other random numbers than the rest of the run.
const CROSS_INSTANCE_SALT: u64 = 0x6474_635f_6472_6177;

/// How large the runs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Up to six processes and a minute of faults.
    Full,
    /// Up to three processes and 20 seconds of faults.
    Quick,
}

/// Something that happens at one moment and affects more than a single request.
#[derive(Debug, Clone, PartialEq)]
pub enum Incident {
    /// The process of a worker is killed.
    Crash(usize),
    /// The process of a worker shuts down and is started again.
    Shutdown(usize),
    /// The clock of a worker's host is set to be this many milliseconds ahead.
    ClockStep(usize, i64),
    /// A physical partition is split, by the id of its range.
    Split(u32),
    /// A physical partition is in trouble from now on: a fault rule of the server.
    PartitionTrouble { name: &'static str, rule: String },
    /// The trouble of the partition ends.
    PartitionRecovered,
    /// The program of a worker of the earlier version is replaced by the new one.
    Upgrade(usize),
    /// The write region moves to this region.
    Failover(&'static str),
    /// A region is not reachable for its clients.
    RegionDown(&'static str),
    /// The region is reachable again.
    RegionUp(&'static str),
}

/// Everything that is drawn for a run.
#[derive(Debug)]
pub struct Draw {
    /// Physical partitions of the container.
    pub partitions: u32,
    /// The delay between two regions; `None` if the account has one region.
    pub replication_delay: Option<Duration>,
    /// The request units per second of the container until the faults end; `None` for no limit.
    pub throughput: Option<u32>,
    pub workers: Vec<WorkerSettings>,
    /// The number of workers that begin with a process of an earlier layout version. They are the first
    /// of `workers`.
    pub old_workers: usize,
    /// How the user deletes an instance with all its children: in two phases, or by a transaction.
    pub user_cross_instance: CrossInstance,
    /// How far each worker's clock is ahead at first, in milliseconds.
    pub clock_skew_ms: Vec<i64>,
    /// The time from the end of a process to its next start on the same host.
    pub restart_after: Duration,
    pub retention: RetentionOptions,
    /// Faults of single requests.
    pub faults: RandomFaults,
    pub episodes: Vec<Episode>,
    /// In the order of time.
    pub incidents: Vec<(Duration, Incident)>,
    /// The end of all faults.
    pub faults_until: Duration,
    /// Each scenario with the time of its beginning.
    pub scenarios: Vec<(Scenario, Duration)>,
    /// Storms of deletions.
    pub storms: Vec<Storm>,
    /// Draws what episodes do to single requests.
    pub rng: fastrand::Rng,
}

/// Draws the run with this seed.
pub fn draw(seed: u64, size: Size, bug: Option<Bug>) -> Draw {
    let mut draw = draw_faulty_run(seed, size);
    // The planted bugs change outboxes and batches, so they need runs without transactions.
    if bug.is_none() {
        draw_cross_instance(seed, &mut draw);
    }
    // Of the planted bugs, only `UnfencedMessage` needs different registries. It changes patches of messages,
    // and only a process that cannot run the workflow of a message sends such patches.
    let draws_registries = bug.is_none() || bug == Some(Bug::UnfencedMessage);
    fleet::draw(seed, draws_registries, &mut draw);
    draw
}

/// Draws processes, workflows, deletions and faults.
fn draw_faulty_run(seed: u64, size: Size) -> Draw {
    let mut rng = fastrand::Rng::with_seed(seed);
    let is_full = size == Size::Full;
    let faults_until = Duration::from_millis(rng.u64(if is_full { 15_000..60_000 } else { 8_000..20_000 }));
    let worker_count = rng.usize(1..=if is_full { 6 } else { 3 });
    let partitions = rng.u32(1..=4);
    let has_regions = rng.u8(..5) == 0;
    let retention = match rng.u8(..4) {
        0 => RetentionOptions::new().with_finished_for(Duration::from_secs(rng.u64(20..60))),
        _ => RetentionOptions::new(),
    };
    let begin = |rng: &mut fastrand::Rng| faults_until.mul_f64(rng.f64() * 0.8);
    let mut scenarios = Vec::new();
    for _ in 0..rng.usize(if is_full { 3..=8 } else { 2..=4 }) {
        // The two scenarios with many requests are rare.
        let scenario = match rng.u8(..90) {
            0 => STAGED,
            1..=3 => FAN_OUT,
            _ => SMALL[rng.usize(..SMALL.len())],
        };
        scenarios.push((scenario, begin(&mut rng)));
    }
    // The reads of the scenario `stats` need its instance, which retention may have deleted. With
    // several regions they may be stale: the user's client did not write what it reads.
    let is_readable = retention.finished_for.is_none() && !has_regions;
    scenarios.retain(|(scenario, _)| scenario.name != "stats" || is_readable);
    let storms = (0..rng.usize(0..=2)).map(|_| storm::draw(&mut rng, faults_until)).collect();
    let skew_max_ms = [0, 0, 800, 60_000][rng.usize(..4)];
    let workers: Vec<WorkerSettings> =
        (0..worker_count).map(|_| draw_worker(&mut rng, retention, has_regions)).collect();
    Draw {
        partitions,
        throughput: None,
        old_workers: 0,
        replication_delay: has_regions.then(|| Duration::from_millis(rng.u64(0..800))),
        clock_skew_ms: (0..worker_count).map(|_| rng.i64(-skew_max_ms..=skew_max_ms)).collect(),
        restart_after: Duration::from_millis(rng.u64(0..4000)),
        retention,
        faults: draw_faults(&mut rng),
        episodes: draw_episodes(&mut rng, worker_count, faults_until),
        incidents: draw_incidents(&mut rng, worker_count, partitions, has_regions, faults_until),
        workers,
        user_cross_instance: CrossInstance::Outbox,
        faults_until,
        scenarios,
        storms,
        rng: rng.fork(),
    }
}

/// Draws the settings of one worker. The commit tiers and lock times of the workers of one
/// container may differ.
fn draw_worker(rng: &mut fastrand::Rng, retention: RetentionOptions, has_regions: bool) -> WorkerSettings {
    let tiers = [CommitTier::Durable, CommitTier::Optimistic, CommitTier::Cached, CommitTier::Cached];
    WorkerSettings {
        tier: tiers[rng.usize(..tiers.len())],
        // Drawn afterwards: see `draw_cross_instance`.
        cross_instance: CrossInstance::Outbox,
        dispatchers: rng.usize(1..=3),
        activity_workers: rng.usize(1..=3),
        attempts_max: ATTEMPTS_MAX,
        lock_timeout: Duration::from_secs([4, 4, 10, 30][rng.usize(..4)]),
        retention,
        // Reads in another region than the writes may be stale.
        reads_in: (has_regions && rng.bool()).then_some(EAST),
        registered: Registered::default(),
    }
}

/// Draws which workers commit by distributed transactions (none, all, or some of them), and whether
/// the user deletes by transactions. This is drawn apart from the rest, so that a seed draws the
/// same run with and without transactions.
fn draw_cross_instance(seed: u64, draw: &mut Draw) {
    let mut rng = fastrand::Rng::with_seed(seed ^ CROSS_INSTANCE_SALT);
    let modes = [CrossInstance::Outbox, CrossInstance::Auto, CrossInstance::Transaction];
    let common_mode = modes[rng.usize(..modes.len())];
    let is_mixed = rng.bool();
    draw.user_cross_instance = modes[rng.usize(..modes.len())];
    for worker in &mut draw.workers {
        worker.cross_instance = if is_mixed { modes[rng.usize(..modes.len())] } else { common_mode };
    }
}

/// Draws the faults of single requests.
fn draw_faults(rng: &mut fastrand::Rng) -> RandomFaults {
    let faults: Vec<Fault> = Fault::RANDOM.into_iter().filter(|_| rng.bool()).collect();
    RandomFaults {
        faults,
        // From 10 % down to 0.16 %, and each order of magnitude is equally likely.
        fault_rate: 10f64.powf(-1.0 - 1.8 * rng.f64()),
        repeat_rate: rng.f64() * 0.9,
        has_worker_failed: false,
        latency_max_ms: [0, 2, 10, 40][rng.usize(..4)],
        slow_tail: (0.02 * rng.f64(), rng.u64(100..15_000)),
        rng: rng.fork(),
    }
}

fn draw_episodes(rng: &mut fastrand::Rng, workers: usize, faults_until: Duration) -> Vec<Episode> {
    let mut episodes = Vec::new();
    // Episodes that affect the user, too, are short and come one after the other.
    let mut from = Duration::from_millis(rng.u64(500..15_000));
    while from < faults_until {
        if rng.bool() {
            let until = from + Duration::from_millis(rng.u64(500..USER_EPISODE_MAX_MS));
            let trouble = draw_trouble(rng);
            episodes.push(Episode { trouble, scope: Scope::All, from, until });
        }
        from += USER_EPISODE_INTERVAL;
    }
    for _ in 0..rng.usize(0..=4) {
        let from = faults_until.mul_f64(rng.f64());
        let until = from + Duration::from_millis(rng.u64(1000..WORKER_EPISODE_MAX_MS));
        let scope = match rng.bool() {
            true => Scope::Workers,
            false => Scope::Host(format!("Worker{}", rng.usize(..workers))),
        };
        let trouble = if rng.u8(..8) == 0 { Trouble::CutOff } else { draw_trouble(rng) };
        episodes.push(Episode { trouble, scope, from, until: until.min(faults_until) });
    }
    episodes
}

fn draw_trouble(rng: &mut fastrand::Rng) -> Trouble {
    match rng.u8(..8) {
        0 => Trouble::Outage,
        1 => Trouble::Throttling(rng.u64(500..5000)),
        2 => Trouble::WritesForbidden,
        3 => Trouble::AccountMoved,
        4 => Trouble::StaleReplicas,
        5 => Trouble::KeyReplaced,
        6 => Trouble::Losses,
        _ => Trouble::Delays(rng.u64(100..5000)),
    }
}

fn draw_incidents(
    rng: &mut fastrand::Rng,
    workers: usize,
    partitions: u32,
    has_regions: bool,
    faults_until: Duration,
) -> Vec<(Duration, Incident)> {
    let mut incidents = Vec::new();
    let moment = |rng: &mut fastrand::Rng| faults_until.mul_f64(rng.f64());
    for _ in 0..rng.usize(0..=4) {
        incidents.push((moment(rng), Incident::Crash(rng.usize(..workers))));
    }
    for _ in 0..rng.usize(0..=2) {
        incidents.push((moment(rng), Incident::Shutdown(rng.usize(..workers))));
    }
    for _ in 0..rng.usize(0..=2) {
        let step_ms = rng.i64(-CLOCK_STEP_MAX_MS..=CLOCK_STEP_MAX_MS);
        incidents.push((moment(rng), Incident::ClockStep(rng.usize(..workers), step_ms)));
    }
    if rng.u8(..3) == 0 {
        incidents.push((moment(rng), Incident::Split(rng.u32(..partitions))));
    }
    if rng.u8(..3) == 0 {
        let from = moment(rng);
        let until = from + Duration::from_millis(rng.u64(500..USER_EPISODE_MAX_MS));
        let range = rng.u32(..partitions);
        let (name, trouble) = match rng.u8(..3) {
            0 => ("partition slow", format!("\"delayMs\":{}", rng.u64(200..3000))),
            1 => ("partition failing", "\"status\":503".to_owned()),
            _ => (
                "partition throttled",
                format!("\"status\":429,\"subStatus\":3200,\"retryAfterMs\":{}", rng.u64(200..3000)),
            ),
        };
        let rule = format!("{{\"range\":\"{range}\",{trouble}}}");
        incidents.push((from, Incident::PartitionTrouble { name, rule }));
        incidents.push((until, Incident::PartitionRecovered));
    }
    if has_regions {
        for (number, _) in (0..rng.usize(1..=3)).enumerate() {
            let region = if number % 2 == 0 { EAST } else { WEST };
            incidents
                .push((faults_until.mul_f64((number as f64 + rng.f64()) / 3.0), Incident::Failover(region)));
        }
        if rng.u8(..3) == 0 {
            let (from, region) = (moment(rng), if rng.bool() { EAST } else { WEST });
            incidents.push((from, Incident::RegionDown(region)));
            incidents.push((from + Duration::from_millis(rng.u64(500..4000)), Incident::RegionUp(region)));
        }
    }
    incidents.sort_by_key(|(at, _)| *at);
    incidents
}
