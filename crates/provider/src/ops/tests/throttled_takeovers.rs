//! Takeovers while requests are throttled. They wait longer then, but work must still reach a process
//! that can run it, and a timer must not fire late.

use std::time::Duration;

use duroxide::providers::{Provider, TagFilter, WorkItem};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{LOCK, NEVER, World, ack, activity_item, event, fetch_first_turn};
use crate::CosmosDBProvider;
use crate::process::membership::Rank;

/// The longest wait of a fetch.
const FETCHED_WITHIN: Duration = Duration::from_secs(200);

/// Feeds the processes with throttled operations until the returned task is aborted.
fn throttle(processes: &[CosmosDBProvider], duration: Duration) -> JoinHandle<()> {
    let cores: Vec<_> = processes.iter().map(|process| process.core.clone()).collect();
    tokio::spawn(async move {
        loop {
            cores.iter().for_each(|core| core.congestion.record(Some(duration), Instant::now()));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
}

/// Lets a process ask for help with the slice of the instance `a` until the returned task is aborted.
fn share_slice(process: &CosmosDBProvider) -> JoinHandle<()> {
    let core = process.core.clone();
    tokio::spawn(async move {
        loop {
            if let Some(slice) = core.membership.view().slice_of("a") {
                core.membership.load.share_slice(slice);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    })
}

/// Fetches activities that this process cannot run. The runtime gives back such an activity with a
/// delay, which doubles with each attempt.
async fn give_back_all(process: CosmosDBProvider) {
    let tags = TagFilter::default();
    loop {
        let fetched = process.fetch_work_item(LOCK, FETCHED_WITHIN, None, &tags).await.unwrap();
        if let Some((_, token, attempt)) = fetched {
            let delay = Duration::from_secs(1 << (attempt - 1).min(5));
            process.abandon_work_item(&token, Some(delay), false).await.unwrap();
        }
    }
}

/// The owner of a slice and its helper cannot run an activity. Under throttling they once passed it to
/// and fro until it was poisoned, and the third process, which can run it, waited longer each time.
#[tokio::test(start_paused = true)]
async fn an_activity_reaches_the_process_that_can_run_it_although_requests_are_throttled() {
    let world = World::open().await;
    let mut processes = Vec::new();
    for _ in 0..3 {
        processes.push(world.provider_with_reconciler(NEVER).await);
    }
    let tags = TagFilter::default();
    let shared = share_slice(&processes[0]);
    // Every process writes heartbeats and sees those of the others.
    let idle = |process: &CosmosDBProvider| {
        let (process, tags) = (process.clone(), tags.clone());
        async move { process.fetch_work_item(LOCK, Duration::from_secs(30), None, &tags).await.unwrap() }
    };
    let idle = futures_util::future::join_all(processes.iter().map(idle)).await;
    assert!(idle.iter().all(Option::is_none));
    let rank = |process: &CosmosDBProvider, id: u64| {
        process.core.membership.view().rank_of_activity("a", &format!("a:1:{id}"), None)
    };
    processes.sort_by_key(|process| rank(process, 1) != Rank::Owner);
    let is_wanted = |id: &u64| {
        matches!(
            [0, 1, 2].map(|index: usize| rank(&processes[index], *id)),
            [Rank::Owner, Rank::Helper, Rank::Behind(_)]
        )
    };
    let id = (1..1000).find(is_wanted).expect("an activity with these ranks");
    let throttled = throttle(&processes, Duration::from_millis(200));
    tokio::time::sleep(Duration::from_secs(3)).await;

    let begun = Instant::now();
    processes[0].enqueue_for_worker(activity_item("a", id, String::new())).await.unwrap();
    let old = [0, 1].map(|index: usize| tokio::spawn(give_back_all(processes[index].clone())));
    let fetched = processes[2].fetch_work_item(LOCK, FETCHED_WITHIN, None, &tags).await.unwrap();
    let (_, _, attempt) = fetched.expect("the activity");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(20) && attempt <= 2, "{took:?}, attempt {attempt}");
    old.iter().for_each(JoinHandle::abort);
    throttled.abort();
    shared.abort();
}

/// No process has a hint about a timer of two minutes. So the owner of its slice need not wait until
/// another process has taken it.
#[tokio::test(start_paused = true)]
async fn under_throttling_a_timer_beyond_the_horizon_fires_in_time() {
    const TIMER: Duration = Duration::from_secs(120);
    let world = World::open().await;
    let processes =
        [world.provider_with_reconciler(NEVER).await, world.provider_with_reconciler(NEVER).await];
    let token = fetch_first_turn(&processes[0], "a").await;
    let begun = Instant::now();
    let fire_at_ms = processes[0].core.clock.now_ms() + u64::try_from(TIMER.as_millis()).unwrap();
    let timer = WorkItem::TimerFired { instance: "a".into(), execution_id: 1, id: 2, fire_at_ms };
    ack(&processes[0], &token, vec![event("a", 1, String::new())], vec![], vec![timer]).await.unwrap();
    let throttled = throttle(&processes, Duration::from_secs(1));
    let [one, other] = &processes;
    let fetched = tokio::select! {
        fetched = one.fetch_orchestration_item(LOCK, FETCHED_WITHIN, None) => fetched,
        fetched = other.fetch_orchestration_item(LOCK, FETCHED_WITHIN, None) => fetched,
    };
    let (item, ..) = fetched.unwrap().expect("the timer");
    assert!(matches!(&item.messages[..], [WorkItem::TimerFired { .. }]), "{:?}", item.messages);
    let late = begun.elapsed().saturating_sub(TIMER);
    assert!(late < Duration::from_secs(3), "{late:?} late");
    throttled.abort();
}
