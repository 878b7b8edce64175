//! Optimistic turns and cached states (tiers T1 and T2). First every case of `holes` runs
//! with the highest tier for each fetch, also for those that look once and otherwise lock
//! durably. Then come the cases that only these tiers can get wrong.

use std::collections::BTreeSet;
use std::time::Duration;

use duroxide::providers::{Provider, SessionFetchConfig, TagFilter, WorkItem};
use duroxide_cdb::{CommitTier, CosmosDBProvider, CosmosDBProviderConfig};
use perihelion_client::Credential;

use super::keeps_by;
use crate::cases::steps::{
    LOCK, QUIET, SHORT_LOCK, Turn, WAIT_MAX, ack, admin, begin, begin_with, done, enqueue, look, raised,
    special_work, start, take, take_for, until, within, work,
};
use crate::cases::world::{CaseFailure, Opening, Outcome, World, ensure};

/// Opens a provider that uses the highest tier for every fetch.
fn optimistic(config: CosmosDBProviderConfig) -> Opening {
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

macro_rules! tests {
    ($($module:ident :: $case:ident : $verdict:ident $words:literal,)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                keeps_by(optimistic, crate::cases::$module::$case).await;
            }
        )+
    };
}

crate::cases::each_case!(tests);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_makes_a_lock_in_memory_durable() {
    keeps_by(optimistic, async |world: World| {
        let (holder, other) = (world.provider().await?, world.provider().await?);
        begin(&holder, "order").await?;
        enqueue(&holder, raised("order", "1")).await?;
        let taken = take_for(&holder, SHORT_LOCK).await?;
        holder.renew_orchestration_item_lock(&taken.token, LOCK).await?;
        let early = within(SHORT_LOCK + QUIET, async || look(&other, LOCK).await).await?;
        ensure!(early.is_none(), "a lock that was renewed is not seen by others");
        ack(&holder, &taken.token, Turn::of("order", 2)).await?;
        Ok(())
    })
    .await;
}

/// Two processes take the same turn, because no lock is written: one commit succeeds, the
/// other fails, and the message is consumed once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_optimistic_turns_is_committed() {
    keeps_by(optimistic, async |world: World| {
        let (first, second) = (world.provider().await?, world.provider().await?);
        begin(&first, "order").await?;
        enqueue(&first, raised("order", "1")).await?;
        let one = take(&first).await?;
        let two = until(async || look(&second, LOCK).await).await?;
        let committed = ack(&first, &one.token, Turn::of("order", 2)).await;
        if let Some(two) = two {
            let lost = ack(&second, &two.token, Turn::of("order", 2)).await;
            ensure!(committed.is_ok() != lost.is_ok(), "{committed:?} {lost:?}");
            let lost = committed.err().or(lost.err());
            ensure!(lost.is_some_and(|error| !error.is_retryable()), "a lost turn is not for another try");
        }
        ensure!(second.read("order").await?.len() == 2, "one turn is recorded");
        let again = within(QUIET, async || look(&second, LOCK).await).await?;
        ensure!(again.is_none(), "the message was consumed once");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_of_another_node_keeps_its_place_before_a_local_one() {
    keeps_by(optimistic, async |world: World| {
        let (here, there) = (world.provider().await?, world.provider().await?);
        begin(&here, "order").await?;
        enqueue(&there, raised("order", "first")).await?;
        enqueue(&here, raised("order", "second")).await?;
        let taken = take(&here).await?;
        let expected = [raised("order", "first"), raised("order", "second")];
        ensure!(taken.item.messages == expected, "{:?}", taken.item.messages);
        Ok(())
    })
    .await;
}

/// A turn from a cached state that another process has replaced: the turn is lost, and the
/// next fetch reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_turn_on_an_old_state_is_lost() {
    keeps_by(optimistic, async |world: World| {
        let (here, there) = (world.provider().await?, world.provider().await?);
        let works = vec![work("order", 1)];
        begin_with(&here, "order", Turn { works, ..Turn::of("order", 1) }).await?;
        enqueue(&there, raised("order", "foreign")).await?;
        let foreign = take(&there).await?;
        ack(&there, &foreign.token, Turn::of("order", 2)).await?;
        let (_, token, _) = crate::cases::steps::take_work(&here, LOCK).await?;
        here.ack_work_item(&token, Some(done("order", 1))).await?;
        let (mut event, mut rounds) = (2, 0);
        loop {
            let taken = take(&here).await?;
            ensure!(taken.item.messages == [done("order", 1)], "{:?}", taken.item.messages);
            event = event.max(taken.item.history.len() as u64 + 1);
            match ack(&here, &taken.token, Turn::of("order", event)).await {
                Ok(()) => break,
                Err(error) => ensure!(rounds == 0, "the second attempt failed too: {error}"),
            }
            rounds += 1;
        }
        let ids: Vec<u64> = there.read("order").await?.iter().map(duroxide::Event::event_id).collect();
        ensure!(ids == [1, 2, 3], "{ids:?}");
        Ok(())
    })
    .await;
}

/// Activities are dispatched to waiting workers, some of which are gone by then. Their
/// activities go to the next worker without waiting for a lock to expire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_activity_dispatched_to_a_gone_worker_goes_to_the_next() {
    const ROUNDS: u64 = 20;
    keeps_by(optimistic, async |world: World| {
        let provider = world.provider().await?;
        begin(&provider, "order").await?;
        let mut ran = BTreeSet::new();
        let mut claim = world.pass("replace_item", 1).await?;
        for round in 1..=ROUNDS {
            if world.was_applied(claim).await? {
                claim = world.pass("replace_item", 1).await?;
            }
            let waiting = provider.clone();
            let worker = tokio::spawn(async move {
                waiting.fetch_work_item(LOCK, WAIT_MAX, None, &TagFilter::default()).await.map(drop)
            });
            enqueue(&provider, raised("order", "go on")).await?;
            let taken = take(&provider).await?;
            let works = vec![work("order", round)];
            let leaving = provider.clone();
            let turn = Turn { works, ..Turn::of("order", round + 1) };
            let acked = tokio::spawn(async move { ack(&leaving, &taken.token, turn).await });
            // At varying times: a quick worker has received the activity and is gone.
            if round % 2 == 0 {
                tokio::time::sleep(Duration::from_micros(200 * round)).await;
            }
            worker.abort();
            let is_taken = worker.await.is_ok();
            acked.await??;
            if is_taken {
                continue;
            }
            let next = within(WAIT_MAX, async || {
                provider.fetch_work_item(LOCK, Duration::ZERO, None, &TagFilter::default()).await
            });
            let Some((WorkItem::ActivityExecute { id, .. }, token, _)) = next.await? else {
                // A late worker fetched it and was aborted half way: its lock has to
                // expire.
                ensure!(
                    world.was_applied(claim).await?,
                    "round {round}: the activity waits for a lock to run out"
                );
                break;
            };
            ensure!(id == round && ran.insert(id), "{id} in round {round}");
            provider.ack_work_item(&token, None).await?;
        }
        ensure!(!ran.is_empty(), "no worker was gone in time");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_activity_of_a_foreign_session_is_not_dispatched_directly() {
    let worker = |owner: &str| SessionFetchConfig { owner_id: owner.to_owned(), lock_timeout: LOCK };
    keeps_by(optimistic, async |world: World| {
        let (here, there) = (world.provider().await?, world.provider().await?);
        let works = vec![special_work("order", 1, Some("printer"), None)];
        begin_with(&here, "order", Turn { works, ..Turn::of("order", 1) }).await?;
        let (owner, other) = (worker("owner"), worker("other"));
        let owned = until(async || {
            there.fetch_work_item(LOCK, Duration::ZERO, Some(&owner), &TagFilter::default()).await
        });
        ensure!(owned.await?.is_some(), "the session has its first activity");
        let waiting = here.clone();
        let waits = tokio::spawn(async move {
            waiting.fetch_work_item(LOCK, QUIET, Some(&other), &TagFilter::default()).await
        });
        enqueue(&here, raised("order", "go on")).await?;
        let taken = take(&here).await?;
        let works = vec![special_work("order", 2, Some("printer"), None)];
        ack(&here, &taken.token, Turn { works, ..Turn::of("order", 2) }).await?;
        let found = waits.await??;
        ensure!(found.is_none(), "a worker got an activity of a session that it does not own");
        let found = until(async || {
            there.fetch_work_item(LOCK, Duration::ZERO, Some(&owner), &TagFilter::default()).await
        });
        ensure!(found.await?.is_some(), "the owner did not get the activity");
        Ok(())
    })
    .await;
}

/// A commit takes longer than the lease of the waiting worker. The worker still gets the
/// whole lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_begins_with_the_attempt_that_was_committed() {
    const LEASE: Duration = Duration::from_millis(1500);
    keeps_by(optimistic, async |world: World| {
        let provider = world.provider().await?;
        begin(&provider, "order").await?;
        let waiting = provider.clone();
        let waits = tokio::spawn(async move {
            waiting.fetch_work_item(LEASE, WAIT_MAX, None, &TagFilter::default()).await
        });
        enqueue(&provider, raised("order", "go on")).await?;
        let taken = take(&provider).await?;
        for _ in 0..4 {
            world.hold("batch", LEASE / 3).await?;
            world.refuse("batch", 1, 503).await?;
        }
        let works = vec![work("order", 1)];
        ack(&provider, &taken.token, Turn { works, ..Turn::of("order", 2) }).await?;
        let Some((_, token, attempts)) = waits.await?? else {
            return Err(CaseFailure("the activity was not handed over".to_owned()));
        };
        tokio::time::sleep(LEASE / 3).await;
        let acked = provider.ack_work_item(&token, Some(done("order", 1))).await;
        ensure!(acked.is_ok(), "attempt {attempts}: the lease was nearly over: {acked:?}");
        Ok(())
    })
    .await;
}

/// A start is taken without a read although the instance exists: the commit fails, and
/// the next fetch reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_optimistic_start_of_an_existing_instance_is_read_again() {
    keeps_by(optimistic, async |world: World| {
        let (here, there) = (world.provider().await?, world.provider().await?);
        begin(&there, "order").await?;
        enqueue(&here, start("order")).await?;
        let outcome: Outcome = async {
            let taken = take(&here).await?;
            ack(&here, &taken.token, Turn::of("order", 2)).await?;
            Ok(())
        }
        .await;
        if outcome.is_err() {
            let taken = take(&here).await?;
            ensure!(taken.item.history.len() == 1, "the fetch did not return the existing history");
            ack(&here, &taken.token, Turn::of("order", 2)).await?;
        }
        ensure!(there.read("order").await?.len() == 2, "both turns are recorded");
        ensure!(admin(&there)?.list_instances().await? == ["order"], "more than one instance");
        Ok(())
    })
    .await;
}
