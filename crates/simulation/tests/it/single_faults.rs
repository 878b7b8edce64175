//! Every request of a small scenario fails in many ways, one fault per run. A first run
//! without faults counts the requests of the scenario. Then each fault of each request has a
//! run of its own. In large scenarios only some requests fail.

use std::time::{Duration, Instant};

use duroxide_cdb::{CommitTier, CrossInstance, ProviderMetrics};

use perihelion_simulation::activity_log::ActivityLog;
use perihelion_simulation::audit::audit;
use perihelion_simulation::fault::Fault;
use perihelion_simulation::fault_plan::FaultPlan;
use perihelion_simulation::fences;
use perihelion_simulation::process::{Handoff, Settings, User, worker_program};
use perihelion_simulation::process_run::Role;
use perihelion_simulation::scenarios::{FAN_OUT, SMALL, STAGED, Scenario, by_name, wait_until_ended};
use perihelion_simulation::world::{self, Program};
use perihelion_simulation::write_log::{self, LoggedWrite, WriteKind};

/// The limit of a run's virtual time: enough for four locks to expire one after the other,
/// and for a run of the reconciler.
const TIME_LIMIT: Duration = Duration::from_secs(180);

/// The time from the kill of a process to its restart.
const RESTART_AFTER: Duration = Duration::from_millis(300);

/// The time after the end of the workflows in which requests still count and can fail.
const AFTERMATH: Duration = Duration::from_millis(600);

/// The most failing runs whose problems and requests are printed.
const SHOWN_RUNS_MAX: usize = 3;

/// The number of requests that are printed before the request that failed. Three times as
/// many are printed from there on.
const LOG_LINES: usize = 12;

struct Outcome {
    /// The sender's role of each request that can fail.
    request_roles: Vec<Role>,
    problems: Vec<String>,
    /// How many distributed transactions were carried out.
    transactions: usize,
    /// How many outboxes were created.
    outboxes: usize,
    /// The requests around the fault; empty if there are no problems.
    log: String,
}

/// The workers of a run.
#[derive(Debug, Clone, Copy)]
struct Workers {
    tier: CommitTier,
    /// How the provider of each worker sends messages between instances.
    cross_instance: &'static [CrossInstance],
}

/// One worker that uses the outbox.
const OUTBOX: &[CrossInstance] = &[CrossInstance::Outbox];

/// One worker that uses transactions.
const TRANSACTION: &[CrossInstance] = &[CrossInstance::Transaction];

/// Two workers of one container: the first uses transactions, the second uses the outbox.
const MIXED: &[CrossInstance] = &[CrossInstance::Transaction, CrossInstance::Outbox];

/// Runs a scenario with these workers. `fault_at` is the number of the request that fails, and its
/// fault.
fn run(scenario: Scenario, workers: Workers, fault_at: Option<(u64, Fault)>) -> Outcome {
    world::simulate(1, 1, |world| {
        let activity_log = ActivityLog::default();
        let providers: Vec<Handoff<_>> = workers.cross_instance.iter().map(|_| Handoff::empty()).collect();
        for (cross_instance, provider) in workers.cross_instance.iter().zip(&providers) {
            let settings =
                Settings { tier: workers.tier, cross_instance: *cross_instance, ..Settings::default() };
            let program = worker_program(settings, activity_log.clone(), provider);
            world.add_host(Role::Worker, 0, RESTART_AFTER, program);
        }
        let (roles, result) = (Handoff::empty(), Handoff::empty());
        world.add_host(
            Role::User,
            0,
            RESTART_AFTER,
            user_program(scenario, FaultPlan::one(fault_at), 0, &activity_log, &roles, &result),
        );
        let is_done = world.run(TIME_LIMIT, |_| result.has_value());
        let mut problems = match result.take() {
            Some(problems) => problems,
            None if is_done => Vec::new(),
            None => vec![format!("the run hangs; activities ran: {:?}", activity_log.runs())],
        };
        // With several workers, calls may fail: when a request of one worker is lost, another worker
        // may take its work.
        if world.network().kills() == 0
            && let [provider] = &providers[..]
            && let Some(provider) = provider.take()
        {
            problems.extend(failed_calls(scenario, &provider.metrics()));
        }
        let served = world.network().served_in_order();
        problems.extend(fences::check(&served));
        let writes = write_log::writes(&served).unwrap_or_else(|error| panic!("{error}"));
        let transactions =
            served.iter().filter(|request| write_log::is_transaction(request) && request.status == 200);
        let is_outbox = |write: &&LoggedWrite| write.id.starts_with("o:") && write.kind == WriteKind::Create;
        let (transactions, outboxes) = (transactions.count(), writes.iter().filter(is_outbox).count());
        let log = match problems.is_empty() {
            true => String::new(),
            false => world.network().log_around(fault_at.map(|(index, _)| index), LOG_LINES),
        };
        let request_roles = roles.take().unwrap_or_default();
        Outcome { request_roles, problems, transactions, outboxes, log }
    })
}

/// Calls of the runtime that failed although they must succeed. They must succeed because no
/// process was killed, so no lock was lost, and because the provider retries. In scenarios
/// that cancel an activity, the activity loses its lock, so calls for it may fail.
fn failed_calls(scenario: Scenario, metrics: &ProviderMetrics) -> Vec<String> {
    let must_succeed: &[&str] = match scenario.name {
        "race" | "cancel" => &["ack_orchestration_item"],
        _ => &["ack_orchestration_item", "ack_work_item", "renew_work_item_lock", "read"],
    };
    let count = |method: &str| metrics.methods.get(method).map_or(0, |metrics| metrics.failures);
    let failed = must_succeed.iter().filter(|method| count(method) > 0);
    failed.map(|method| format!("{method} failed {} times", count(method))).collect()
}

/// The user's program: sets the fault plan, runs the scenario, waits until its workflows have
/// ended, and audits. An activity may run `extra_runs_max` times more than it was scheduled,
/// and once more for each kill. `roles` gets the sender's role of each request that can fail.
/// `result` gets the problems.
pub(crate) fn user_program(
    scenario: Scenario,
    plan: FaultPlan,
    extra_runs_max: u32,
    activity_log: &ActivityLog,
    roles: &Handoff<Vec<Role>>,
    result: &Handoff<Vec<String>>,
) -> Program {
    let (activity_log, roles, result) = (activity_log.clone(), roles.clone(), result.clone());
    std::sync::Arc::new(move |connection| {
        let (activity_log, roles, result, plan) =
            (activity_log.clone(), roles.clone(), result.clone(), plan.clone());
        Box::pin(async move {
            let user = User::open(connection).await;
            let network = std::sync::Arc::clone(&user.connection.transport.network);
            network.set_plan(plan);
            let problems = match (scenario.run)(&user, scenario.name.to_owned()).await {
                Ok(endings) => {
                    wait_until_ended(&user, &endings).await;
                    // Requests that are sent in the background after the end can fail, too.
                    tokio::time::sleep(network.cut_off_remaining() + AFTERMATH).await;
                    roles.put(network.request_roles());
                    audit(&user, &activity_log, &endings, network.kills().saturating_add(extra_runs_max))
                        .await
                }
                Err(problem) => vec![problem],
            };
            result.put(problems);
        })
    })
}

/// Lets each chosen request of a scenario fail: in many ways with the default commit tier, in
/// few ways with the durable tier.
fn check(scenario: Scenario, is_chosen: impl Fn(u64) -> bool) {
    check_workers(scenario, in_tier(CommitTier::default()), &is_chosen, Fault::many_for_request);
    check_workers(scenario, in_tier(CommitTier::Durable), &is_chosen, Fault::few_for_request);
}

/// One worker that uses the outbox and this commit tier.
fn in_tier(tier: CommitTier) -> Workers {
    Workers { tier, cross_instance: OUTBOX }
}

/// Lets each chosen request of a scenario fail with each of the faults that `faults` returns
/// for its number, one fault per run.
fn check_workers(
    scenario: Scenario,
    workers: Workers,
    is_chosen: impl Fn(u64) -> bool,
    faults: impl Fn(u64) -> Vec<Fault>,
) {
    let begun = Instant::now();
    let without_faults = run(scenario, workers, None);
    assert!(
        without_faults.problems.is_empty(),
        "{} without faults: {:#?}\n{}",
        scenario.name,
        without_faults.problems,
        without_faults.log
    );
    check_cross_instance(&without_faults, workers);
    let (mut failed, mut runs) = (Vec::new(), 0);
    for (index, role) in (0..).zip(&without_faults.request_roles).filter(|(index, _)| is_chosen(*index)) {
        for fault in faults(index).into_iter().filter(|fault| fault.applies_to(*role)) {
            let outcome = run(scenario, workers, Some((index, fault)));
            runs += 1;
            if !outcome.problems.is_empty() {
                failed.push((index, fault, outcome));
            }
        }
    }
    let (name, took) = (scenario.name, begun.elapsed());
    println!("{name}, {workers:?}: {} requests, {runs} runs, {took:?}", without_faults.request_roles.len());
    assert!(runs > 0, "{name}, {workers:?}: no request was chosen, so nothing was tested");
    for (index, fault, outcome) in failed.iter().take(SHOWN_RUNS_MAX) {
        eprintln!(
            "{name}, {workers:?}, request {index} {fault:?}:\n  {}\n{}",
            outcome.problems.join("\n  "),
            outcome.log
        );
    }
    let names: Vec<String> = failed.iter().map(|(index, fault, _)| format!("{index} {fault:?}")).collect();
    assert!(failed.is_empty(), "{name}, {workers:?}: {} of {runs} runs fail: {names:?}", failed.len());
}

/// Without faults, workers that use transactions create no outbox, and workers that use the outbox
/// send no transaction.
fn check_cross_instance(without_faults: &Outcome, workers: Workers) {
    let Outcome { transactions, outboxes, .. } = without_faults;
    match workers.cross_instance {
        TRANSACTION => assert!(
            *transactions > 0 && *outboxes == 0,
            "{transactions} transactions and {outboxes} outboxes"
        ),
        OUTBOX => assert_eq!(*transactions, 0),
        _ => assert!(*transactions > 0, "no worker has used a transaction"),
    }
}

/// Makes a test for each small scenario, and the list `COVERED` of their names.
macro_rules! every_request {
    ($($test:ident: $scenario:literal,)*) => {
        const COVERED: &[&str] = &[$($scenario),*];
        $(#[test]
        fn $test() {
            check(by_name($scenario), |_| true);
        })*
    };
}

every_request! {
    every_request_of_a_chain_may_fail: "chain",
    every_request_around_a_timer_may_fail: "timer",
    every_request_of_retries_may_fail: "retry",
    every_request_of_a_parent_and_its_children_may_fail: "parent",
    every_request_of_a_detached_start_may_fail: "detach",
    every_request_around_an_external_event_may_fail: "approval",
    every_request_of_a_queue_may_fail: "inbox",
    every_request_of_three_executions_may_fail: "eternal",
    every_request_of_a_race_may_fail: "race",
    every_request_of_a_session_may_fail: "session",
    every_request_of_a_slow_activity_may_fail: "slow",
    every_request_of_a_cancellation_may_fail: "cancel",
    every_request_of_a_client_that_reads_may_fail: "stats",
}

/// The outage is longer than the driver retries, so the provider must retry. No call of the
/// runtime may fail.
#[test]
fn the_provider_retries_through_an_outage_of_seconds() {
    for tier in [CommitTier::default(), CommitTier::Durable] {
        check_workers(by_name("chain"), in_tier(tier), |_| true, |_| vec![Fault::LongOutage]);
    }
}

#[test]
fn every_small_scenario_has_its_test() {
    assert_eq!(SMALL.map(|scenario| scenario.name), *COVERED);
}

/// The first 14 requests fail (the bundle is unpacked by then), and after that every 29th:
/// the activities are all alike.
#[test]
fn requests_of_a_fan_out_may_fail() {
    check(FAN_OUT, |index| index < 14 || index % 29 == 0);
}

/// Only the requests that stage and commit the turn fail, and only in one or two ways, because
/// runs with megabytes are slow.
#[test]
fn requests_of_a_staged_turn_may_fail() {
    let is_chosen = |index| (8..22).contains(&index);
    check_workers(STAGED, in_tier(CommitTier::default()), is_chosen, |_| {
        vec![Fault::LostAnswer, Fault::Kill]
    });
    check_workers(STAGED, in_tier(CommitTier::Durable), is_chosen, |_| vec![Fault::Kill]);
}

/// The scenarios with messages between instances: starts and results of children, and a detached
/// start. They also run with workers that use transactions.
const BETWEEN_INSTANCES: [&str; 2] = ["parent", "detach"];

#[test]
fn every_request_may_fail_with_transactions() {
    for name in BETWEEN_INSTANCES {
        let workers = |tier| Workers { tier, cross_instance: TRANSACTION };
        check_workers(by_name(name), workers(CommitTier::default()), |_| true, Fault::many_for_request);
        check_workers(by_name(name), workers(CommitTier::Durable), |_| true, Fault::few_for_request);
    }
}

#[test]
fn every_request_may_fail_with_transactions_in_one_of_two_processes() {
    for name in BETWEEN_INSTANCES {
        let workers = Workers { tier: CommitTier::default(), cross_instance: MIXED };
        check_workers(by_name(name), workers, |_| true, Fault::few_for_request);
    }
}

/// The outage is longer than the driver retries a transaction.
#[test]
fn transactions_are_retried_through_an_outage_of_seconds() {
    let workers = Workers { tier: CommitTier::default(), cross_instance: TRANSACTION };
    check_workers(by_name("parent"), workers, |_| true, |_| vec![Fault::LongOutage]);
}
