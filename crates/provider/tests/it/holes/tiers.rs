//! Optimistic turns and cached states: the commit tiers `Optimistic` and `Cached`. First
//! every case of `holes` runs with the highest tier for each fetch, even for short polls,
//! which lock durably by default. Then come the cases that only these tiers can get wrong.
//!
//! The steps of the cases are in `interop/holes/cases/steps.rs`. `Turn::of(instance, id)` is a
//! turn that records the event with this id. `QUIET` is how long a case watches that
//! something does not happen, `WAIT_MAX` how long it waits for something that must happen.

use std::collections::BTreeSet;
use std::time::Duration;

use duroxide::providers::{Provider, SessionFetchConfig, TagFilter, WorkItem};
use duroxide_cdb::{CommitTier, CosmosDBProvider, CosmosDBProviderConfig};
use perihelion_client::Credential;

use super::run_case_with;
use crate::cases::steps::{
    LOCK, QUIET, SHORT_LOCK, Turn, WAIT_MAX, ack, activity, activity_with, admin, begin_instance,
    begin_instance_with, completion, enqueue, external_event, fetch, fetch_now, fetch_with_lock, poll,
    poll_for, start,
};
use crate::cases::world::{CaseFailure, Opening, Outcome, World, ensure};

/// Opens a provider that uses the highest tier for every fetch.
fn open_optimistic(config: CosmosDBProviderConfig) -> Opening {
    Box::pin(async move {
        let credential = Credential::key(&config.key).expect("a key");
        CosmosDBProvider::builder()
            .with_credential(&config.endpoint, credential)
            .with_database(config.database)
            .with_container(config.container)
            .with_reconciler(config.reconciler_interval, config.reconciler_age_threshold)
            .with_commit_tier(CommitTier::Cached)
            .with_commit_tier_for_short_polls()
            .open()
            .await
    })
}

/// Makes a test of each case. `$verdict` and `$words` are about the published crate and are not used.
macro_rules! tests {
    ($($module:ident :: $case:ident : $verdict:ident $words:literal,)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                run_case_with(open_optimistic, crate::cases::$module::$case).await;
            }
        )+
    };
}

crate::cases::each_case!(tests);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_makes_a_lock_in_memory_durable() {
    run_case_with(open_optimistic, async |world: World| {
        let (holder, other) = (world.provider().await?, world.provider().await?);
        begin_instance(&holder, "order").await?;
        enqueue(&holder, external_event("order", "1")).await?;
        let taken = fetch_with_lock(&holder, SHORT_LOCK).await?;
        holder.renew_orchestration_item_lock(&taken.token, LOCK).await?;
        let early = poll_for(SHORT_LOCK + QUIET, async || fetch_now(&other, LOCK).await).await?;
        ensure!(early.is_none(), "another process took the instance, although its lock was renewed");
        ack(&holder, &taken.token, Turn::of("order", 2)).await?;
        Ok(())
    })
    .await;
}

/// Two processes take the same turn, because no lock is written: one commit succeeds, the
/// other fails, and the message is consumed once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_optimistic_turns_is_committed() {
    run_case_with(open_optimistic, async |world: World| {
        let (first, second) = (world.provider().await?, world.provider().await?);
        begin_instance(&first, "order").await?;
        enqueue(&first, external_event("order", "1")).await?;
        let one = fetch(&first).await?;
        let two = poll(async || fetch_now(&second, LOCK).await).await?;
        let first_ack = ack(&first, &one.token, Turn::of("order", 2)).await;
        if let Some(two) = two {
            let second_ack = ack(&second, &two.token, Turn::of("order", 2)).await;
            ensure!(first_ack.is_ok() != second_ack.is_ok(), "{first_ack:?} {second_ack:?}");
            let lost = first_ack.err().or(second_ack.err());
            ensure!(lost.is_some_and(|error| !error.is_retryable()), "the error of a lost turn is retryable");
        }
        ensure!(second.read("order").await?.len() == 2, "not exactly one of the two turns is recorded");
        let again = poll_for(QUIET, async || fetch_now(&second, LOCK).await).await?;
        ensure!(again.is_none(), "the message is delivered again");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_of_another_process_keeps_its_place_before_a_local_one() {
    run_case_with(open_optimistic, async |world: World| {
        let (local, remote) = (world.provider().await?, world.provider().await?);
        begin_instance(&local, "order").await?;
        enqueue(&remote, external_event("order", "first")).await?;
        enqueue(&local, external_event("order", "second")).await?;
        let taken = fetch(&local).await?;
        let expected = [external_event("order", "first"), external_event("order", "second")];
        ensure!(taken.item.messages == expected, "{:?}", taken.item.messages);
        Ok(())
    })
    .await;
}

/// A turn from a cached state that another process has replaced: the turn is lost, and the
/// next fetch reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_turn_on_an_old_state_is_lost() {
    run_case_with(open_optimistic, async |world: World| {
        let (local, remote) = (world.provider().await?, world.provider().await?);
        let activities = vec![activity("order", 1)];
        begin_instance_with(&local, "order", Turn { activities, ..Turn::of("order", 1) }).await?;
        enqueue(&remote, external_event("order", "foreign")).await?;
        let foreign = fetch(&remote).await?;
        ack(&remote, &foreign.token, Turn::of("order", 2)).await?;
        let (_, token, _) = crate::cases::steps::fetch_work(&local, LOCK).await?;
        local.ack_work_item(&token, Some(completion("order", 1))).await?;
        let (mut event, mut rounds) = (2, 0);
        loop {
            let taken = fetch(&local).await?;
            ensure!(taken.item.messages == [completion("order", 1)], "{:?}", taken.item.messages);
            event = event.max(taken.item.history.len() as u64 + 1);
            match ack(&local, &taken.token, Turn::of("order", event)).await {
                Ok(()) => break,
                Err(error) => ensure!(rounds == 0, "the second attempt failed too: {error}"),
            }
            rounds += 1;
        }
        let ids: Vec<u64> = remote.read("order").await?.iter().map(duroxide::Event::event_id).collect();
        ensure!(ids == [1, 2, 3], "{ids:?}");
        Ok(())
    })
    .await;
}

/// The commit of a turn gives an activity to a waiting worker, which may have stopped by then. The
/// activity goes to the next worker without waiting for a lock to expire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_activity_dispatched_to_a_stopped_worker_goes_to_the_next_worker() {
    const ROUNDS: u64 = 20;
    run_case_with(open_optimistic, async |world: World| {
        let provider = world.provider().await?;
        begin_instance(&provider, "order").await?;
        let mut delivered = BTreeSet::new();
        // A rule without an effect. `was_applied` tells whether a worker has written a lock
        // since the rule was added.
        let mut claim_rule = world.let_pass("patch_item", 1).await?;
        for round in 1..=ROUNDS {
            if world.was_applied(claim_rule).await? {
                claim_rule = world.let_pass("patch_item", 1).await?;
            }
            let waiting = provider.clone();
            let worker = tokio::spawn(async move {
                waiting.fetch_work_item(LOCK, WAIT_MAX, None, &TagFilter::default()).await.map(drop)
            });
            enqueue(&provider, external_event("order", "go on")).await?;
            let taken = fetch(&provider).await?;
            let activities = vec![activity("order", round)];
            let acking = provider.clone();
            let turn = Turn { activities, ..Turn::of("order", round + 1) };
            let acked = tokio::spawn(async move { ack(&acking, &taken.token, turn).await });
            // The worker is aborted at varying times, sometimes after it received the activity.
            if round % 2 == 0 {
                tokio::time::sleep(Duration::from_micros(200 * round)).await;
            }
            worker.abort();
            let has_worker_ended = worker.await.is_ok();
            acked.await??;
            if has_worker_ended {
                continue;
            }
            let next = poll_for(WAIT_MAX, async || {
                provider.fetch_work_item(LOCK, Duration::ZERO, None, &TagFilter::default()).await
            });
            let Some((WorkItem::ActivityExecute { id, .. }, token, _)) = next.await? else {
                // The worker locked the activity itself and was aborted before it returned:
                // that lock has to expire.
                ensure!(
                    world.was_applied(claim_rule).await?,
                    "round {round}: the activity waits until a lock expires"
                );
                break;
            };
            ensure!(id == round && delivered.insert(id), "{id} in round {round}");
            provider.ack_work_item(&token, None).await?;
        }
        ensure!(!delivered.is_empty(), "no worker had stopped when its activity came");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_activity_of_a_foreign_session_is_not_dispatched_directly() {
    let worker = |owner: &str| SessionFetchConfig { owner_id: owner.to_owned(), lock_timeout: LOCK };
    run_case_with(open_optimistic, async |world: World| {
        let (local, remote) = (world.provider().await?, world.provider().await?);
        let activities = vec![activity_with("order", 1, Some("printer"), None)];
        begin_instance_with(&local, "order", Turn { activities, ..Turn::of("order", 1) }).await?;
        let (owner, other) = (worker("owner"), worker("other"));
        let owned = poll(async || {
            remote.fetch_work_item(LOCK, Duration::ZERO, Some(&owner), &TagFilter::default()).await
        });
        ensure!(owned.await?.is_some(), "the first worker did not get the activity of the session");
        let waiting = local.clone();
        let waiting_fetch = tokio::spawn(async move {
            waiting.fetch_work_item(LOCK, QUIET, Some(&other), &TagFilter::default()).await
        });
        enqueue(&local, external_event("order", "go on")).await?;
        let taken = fetch(&local).await?;
        let activities = vec![activity_with("order", 2, Some("printer"), None)];
        ack(&local, &taken.token, Turn { activities, ..Turn::of("order", 2) }).await?;
        let found = waiting_fetch.await??;
        ensure!(found.is_none(), "a worker got an activity of a session that it does not own");
        let found = poll(async || {
            remote.fetch_work_item(LOCK, Duration::ZERO, Some(&owner), &TagFilter::default()).await
        });
        ensure!(found.await?.is_some(), "the owner did not get the activity");
        Ok(())
    })
    .await;
}

/// The *lease* is the lock timeout of the waiting worker. The commit takes longer than that. The
/// worker still gets the whole lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_begins_with_the_attempt_that_was_committed() {
    const LEASE: Duration = Duration::from_millis(1500);
    run_case_with(open_optimistic, async |world: World| {
        let provider = world.provider().await?;
        begin_instance(&provider, "order").await?;
        let waiting = provider.clone();
        let waiting_fetch = tokio::spawn(async move {
            waiting.fetch_work_item(LEASE, WAIT_MAX, None, &TagFilter::default()).await
        });
        enqueue(&provider, external_event("order", "go on")).await?;
        let taken = fetch(&provider).await?;
        for _ in 0..4 {
            world.delay("batch", LEASE / 3).await?;
            world.refuse("batch", 1, 503).await?;
        }
        let activities = vec![activity("order", 1)];
        ack(&provider, &taken.token, Turn { activities, ..Turn::of("order", 2) }).await?;
        let Some((_, token, attempts)) = waiting_fetch.await?? else {
            return Err(CaseFailure("the waiting worker did not get the activity".to_owned()));
        };
        tokio::time::sleep(LEASE / 3).await;
        let acked = provider.ack_work_item(&token, Some(completion("order", 1))).await;
        ensure!(acked.is_ok(), "attempt {attempts}: the lease had expired: {acked:?}");
        Ok(())
    })
    .await;
}

/// A start is taken without a read although the instance exists: the commit fails, and
/// the next fetch reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_optimistic_start_of_an_existing_instance_is_read_again() {
    run_case_with(open_optimistic, async |world: World| {
        let (local, remote) = (world.provider().await?, world.provider().await?);
        begin_instance(&remote, "order").await?;
        enqueue(&local, start("order")).await?;
        let outcome: Outcome = async {
            let taken = fetch(&local).await?;
            ack(&local, &taken.token, Turn::of("order", 2)).await?;
            Ok(())
        }
        .await;
        if outcome.is_err() {
            let taken = fetch(&local).await?;
            ensure!(taken.item.history.len() == 1, "the fetch did not return the existing history");
            ack(&local, &taken.token, Turn::of("order", 2)).await?;
        }
        ensure!(remote.read("order").await?.len() == 2, "not exactly two turns are recorded");
        ensure!(admin(&remote)?.list_instances().await? == ["order"], "more than one instance");
        Ok(())
    })
    .await;
}
