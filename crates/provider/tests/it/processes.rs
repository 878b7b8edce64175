//! Several processes on one container, over the wire: they share work, come and
//! go, and one is killed under load. The processes are children of the test. Each child is
//! this test binary, started again. The server runs in the parent.
//!
//! The tests wait for events: an activity begins in another process, a job is completed. On a busy
//! machine an event may be late, so only [`fleet::PROGRESS_TIMEOUT`] without any event fails a test. The
//! times are printed.

mod child;
mod fleet;
mod watch;

use std::time::Duration;

use child::{Role, Version};
use fleet::Fleet;
use futures_util::future::join_all;
use perihelion_server::{AccountOptions, ServerOptions};

/// The lock timeout of children that may be killed: their work waits until the lock expires.
const SHORT_LOCK: Duration = Duration::from_secs(2);

/// The lock timeout of children that are not killed: long enough for a busy machine.
const LONG_LOCK: Duration = Duration::from_secs(20);

/// A process counts as busy for half a minute after its start. The others learn that it is no
/// longer busy from its next heartbeat.
const IDLE_AFTER: Duration = Duration::from_secs(60);

/// How long the requests of idle processes are counted.
const IDLE_FOR: Duration = Duration::from_secs(48);

/// A test runs its jobs at most this many times, until each process has run some of them.
const ROUNDS_MAX: usize = 4;

/// The shortest time between two starts of jobs.
const PACE: Duration = Duration::from_millis(40);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_share_work_and_complete_each_job_once() {
    check_sharing(2, 60).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_processes_share_work_and_complete_each_job_once() {
    check_sharing(5, 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_processes_is_killed_under_load_and_the_other_continues() {
    kill_one_of(2, 90).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_five_processes_is_killed_under_load_and_the_others_continue() {
    kill_one_of(5, 90).await;
}

/// A process with other numbers of dispatchers joins. A process that has only workers, all of them
/// for one tag, serves that tag and shuts down, and another such process takes its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_with_different_dispatchers_and_tagged_workers_join_and_leave() {
    let mut fleet = Fleet::open(LONG_LOCK).await;
    fleet.start_child(Role { orchestrators: 2, workers: 2, tag: None }).await;
    let load = fleet.run_jobs("gpu", 0..20, PACE);
    let tagged = fleet.start_child(Role { orchestrators: 0, workers: 1, tag: Some("gpu".to_owned()) }).await;
    fleet.start_child(Role { orchestrators: 1, workers: 4, tag: None }).await;
    println!("{:?}", load.await);
    fleet.shut_down_child(tagged).await;
    // The second activity of each job, `/b`, needs the tag.
    let before = fleet.activity_log().runs_of(tagged);
    assert!(!before.is_empty() && before.iter().all(|run| run.ends_with("/b")), "{before:?}");

    let load = fleet.run_jobs("gpu", 20..30, PACE);
    // The second activities wait for a worker of their tag.
    fleet.activity_log().wait_for_start("gpu-00029/a").await;
    let next = fleet.start_child(Role { orchestrators: 0, workers: 2, tag: Some("gpu".to_owned()) }).await;
    let watch = load.await;
    assert_eq!(fleet.activity_log().runs_of(tagged), before, "a process that has left still runs activities");
    assert_eq!(fleet.activity_log().runs_of(next).len(), watch.completed());
    fleet.check_every_job_completed_once(true).await;
    fleet.close().await;
}

/// A process of the version before and a process of this version share a container. Both run jobs,
/// and each job is completed once. The container gets the new layout version after the old process
/// has shut down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the version before: cargo xtask test --only versions"]
async fn two_versions_of_the_provider_share_a_container() {
    let role = || Role { orchestrators: 2, workers: 2, tag: None };
    let mut fleet = Fleet::open(LONG_LOCK).await;
    fleet.forget_layout_version().await;
    let old = fleet.start_child_of(Version::Before, role()).await;
    fleet.start_child(role()).await;
    let watch = fleet.run_jobs("any", 0..60, PACE).await;
    let shares = fleet.activity_log().shares();
    println!("two versions: {watch:?}, activities run by each: {shares:?}");
    assert_eq!(shares.len(), 2, "both versions run activities: {shares:?}");
    fleet.check_every_job_completed_once(true).await;
    assert_eq!(fleet.layout_version().await, None, "the old process cannot read the new version");
    fleet.shut_down_child(old).await;
    fleet.run_jobs("any", 60..80, PACE).await;
    fleet.check_every_job_completed_once(true).await;
    let deadline = tokio::time::Instant::now() + fleet::PROGRESS_TIMEOUT;
    while fleet.layout_version().await.is_none() {
        assert!(tokio::time::Instant::now() < deadline, "the layout version is not raised");
        tokio::time::sleep(PACE).await;
    }
    assert_eq!(fleet.layout_version().await, Some(3));
    fleet.close().await;
}

/// Counts the requests of idle processes on the server, for several numbers of partitions and
/// processes. The processes were started a minute ago, so none counts as busy any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes two minutes: cargo test -p duroxide-cdb --test it idle_processes -- --ignored --nocapture"]
async fn idle_processes_send_few_requests() {
    let sizes = [(1, 1), (1, 4), (16, 1), (16, 4)];
    let measured = sizes.map(|(partitions, processes)| async move {
        let account = AccountOptions { partitions, ..AccountOptions::default() };
        let options = ServerOptions { account, management: true, ..ServerOptions::default() };
        let mut fleet = Fleet::open_on(options, LONG_LOCK).await;
        for _ in 0..processes {
            fleet.start_child(Role { orchestrators: 2, workers: 2, tag: None }).await;
        }
        tokio::time::sleep(IDLE_AFTER).await;
        let per_second = fleet.requests_per_second(IDLE_FOR).await;
        fleet.close().await;
        per_second
    });
    for ((partitions, processes), per_second) in sizes.into_iter().zip(join_all(measured).await) {
        // The figures of *Idling* in `docs/provider.md`.
        let limit = 0.6 * f64::from(partitions) + 0.3 * f64::from(processes);
        println!(
            "{partitions} partitions, {processes} processes: {per_second:.2} requests/s, limit {limit:.1}"
        );
        assert!(per_second > 0.1 && per_second <= limit, "{partitions} x {processes}: {per_second:.2}");
    }
}

async fn check_sharing(count: usize, jobs: usize) {
    let mut fleet = Fleet::open(LONG_LOCK).await;
    for _ in 0..count {
        fleet.start_child(Role { orchestrators: 2, workers: 2, tag: None }).await;
    }
    let watch = fleet.run_jobs("any", 0..jobs, PACE).await;
    // On a busy machine, one of the processes may not have got any processor time by then.
    for round in 1..ROUNDS_MAX {
        if fleet.activity_log().shares().len() == count {
            break;
        }
        fleet.run_jobs("any", round * jobs..(round + 1) * jobs, PACE).await;
    }
    let shares = fleet.activity_log().shares();
    println!("{count} processes: {watch:?}, activities run by each: {shares:?}");
    assert_eq!(shares.len(), count, "every process runs activities: {shares:?}");
    fleet.check_every_job_completed_once(true).await;
    fleet.close().await;
}

async fn kill_one_of(count: usize, jobs: usize) {
    let mut fleet = Fleet::open(SHORT_LOCK).await;
    for _ in 0..count {
        fleet.start_child(Role { orchestrators: 2, workers: 2, tag: None }).await;
    }
    let load = fleet.run_jobs("any", 0..jobs, PACE);
    // The victim runs an activity at that moment, and others are queued.
    let (victim, killed_at) = fleet.kill_process_of("any-00030/a").await;
    fleet.activity_log().wait_for_next_start_except(victim).await;
    let watch = load.await;
    let delay = watch.completion_of_jobs_before(killed_at).saturating_duration_since(killed_at);
    println!(
        "{count} processes, one killed: {watch:?}; its work was completed {delay:?} after the kill; {:?}",
        fleet.activity_log().shares()
    );
    assert_eq!(watch.completed(), jobs, "the others complete all jobs: {watch:?}");
    fleet.check_every_job_completed_once(false).await;
    fleet.close().await;
}
