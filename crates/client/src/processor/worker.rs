//! The worker of one lease: reads the changes of its range, gives them to the handler, and
//! stores the position. It runs until the processor stops, another instance gets the lease, or
//! the range is split.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::sleep;

use super::handler::{ChangeHandler, ProcessorEvent, ReleaseReason, report};
use super::handler_task::HandlerTask;
use super::lease::Lease;
use super::lease_keeper::{LeaseKeeper, LeaseLost};
use super::{Shared, StopStage};
use crate::change_feed::{ChangeFeed, ChangePage};
use crate::{ChangeFeedOptions, Error, FeedRange};

type Feed = ChangeFeed<Box<RawValue>>;

/// How a wait of a worker ended.
enum Wake<T> {
    /// The awaited future has ended.
    Ended(T),
    /// The processor stops.
    Stop,
}

/// One lease and its feed.
struct Worker<'a, H> {
    shared: &'a Arc<Shared<H>>,
    range: FeedRange,
    keeper: LeaseKeeper,
    feed: Feed,
    stop: watch::Receiver<StopStage>,
}

/// Processes the changes of a lease until this instance gives up or loses the lease. Returns
/// whether the leases should be looked at again at once.
pub(super) async fn run<H: ChangeHandler>(shared: &Arc<Shared<H>>, lease: Lease) -> bool {
    let Ok(range) = lease.range.parse::<FeedRange>() else {
        let error = Error::answer(format!("lease `{}` has no valid range: delete it", lease.id));
        report(&shared.handler, ProcessorEvent::RequestFailed { range: None, error });
        return false;
    };
    let keeper = match LeaseKeeper::take(&shared.store, lease, &shared.options).await {
        Ok(Some(keeper)) => keeper,
        Ok(None) => return false,
        Err(error) => {
            report(&shared.handler, ProcessorEvent::RequestFailed { range: Some(range), error });
            return false;
        }
    };
    report(&shared.handler, ProcessorEvent::Acquired { range: range.clone() });
    let options =
        ChangeFeedOptions::resume(&keeper.lease.token).with_max_items(shared.options.page_items_max);
    let feed = Feed::new(shared.container.handle(), shared.mode(), options);
    let mut worker = Worker { shared, range: range.clone(), keeper, feed, stop: shared.stop.subscribe() };
    let reason = worker.process().await.unwrap_or(ReleaseReason::Lost);
    report(&shared.handler, ProcessorEvent::Released { range, reason });
    reason == ReleaseReason::Split
}

impl<H: ChangeHandler> Worker<'_, H> {
    async fn process(&mut self) -> Result<ReleaseReason, LeaseLost> {
        loop {
            if *self.stop.borrow() != StopStage::Running {
                self.keeper.give_up().await?;
                return Ok(ReleaseReason::Stopped);
            }
            if self.keeper.wanted_by().is_some() {
                self.keeper.give_up().await?;
                return Ok(ReleaseReason::HandedOver);
            }
            let page =
                renewing_lease(&mut self.keeper, &mut self.stop, StopStage::Stopping, self.feed.next_page());
            match page.await? {
                Wake::Stop => continue,
                Wake::Ended(Ok(Some(page))) => {
                    // The feed is already past the page. When the page was not processed, the loop
                    // gives the lease up and ends, so the position of the feed is stored nowhere.
                    if !self.process_page(page).await? {
                        continue;
                    }
                }
                Wake::Ended(Ok(None)) => self.wait_for_changes().await?,
                Wake::Ended(Err(error)) => self.report_and_wait(error).await?,
            }
            // The feed has several parts after the physical partition was split. The leases of some
            // parts may exist already, and other instances may own them soon. So no page is read
            // before this lease is split too.
            while self.feed.part_count() > 1 && *self.stop.borrow() == StopStage::Running {
                if self.split().await? {
                    return Ok(ReleaseReason::Split);
                }
            }
        }
    }

    /// Gives a page to the handler until the page is processed, and stores the position after the
    /// page. Returns `false` when the processor stops before the page is processed, or when the page
    /// fails and another instance wants the lease.
    async fn process_page(&mut self, page: ChangePage<Box<RawValue>>) -> Result<bool, LeaseLost> {
        let shared = self.shared;
        let range = page.range().unwrap_or(&self.range).clone();
        let documents = Arc::new(page.items);
        loop {
            self.keeper.renew_if_due().await?;
            let mut processing = HandlerTask::start(shared, &range, &documents);
            let processed =
                renewing_lease(&mut self.keeper, &mut self.stop, StopStage::Aborting, &mut processing).await;
            if !matches!(processed, Ok(Wake::Ended(_))) {
                // The handler must end first. Otherwise this instance could give up the lease, or take
                // it again, while the handler still runs.
                tokio::select! {
                    biased;
                    () = processing.cancel() => {}
                    _lost = self.keeper.renew_until_lost() => processing.cancel().await,
                }
            }
            let processed = processed?;
            // The lease is renewed while the handler runs, unless no thread was free for that.
            if let Some(expired_since) = self.keeper.expired_since() {
                let range = range.clone();
                report(&shared.handler, ProcessorEvent::HandlerBlocked { range, expired_since });
            }
            match processed {
                Wake::Stop => return Ok(false),
                Wake::Ended(Ok(())) => break,
                Wake::Ended(Err(error)) => {
                    let range = range.clone();
                    report(&shared.handler, ProcessorEvent::HandlerFailed { range, error });
                    let wait = sleep(shared.options.retry_wait);
                    let waited =
                        renewing_lease(&mut self.keeper, &mut self.stop, StopStage::Stopping, wait).await?;
                    // Another instance may be able to process the page.
                    if matches!(waited, Wake::Stop) || self.keeper.wanted_by().is_some() {
                        return Ok(false);
                    }
                }
            }
        }
        // After a split, the leases of the parts store the position.
        if self.feed.part_count() <= 1 {
            self.keeper.checkpoint(&self.feed.token()).await?;
        }
        Ok(true)
    }

    async fn wait_for_changes(&mut self) -> Result<(), LeaseLost> {
        if self.feed.part_count() > 1 {
            return Ok(());
        }
        let wait = sleep(self.shared.options.poll_interval);
        renewing_lease(&mut self.keeper, &mut self.stop, StopStage::Stopping, wait).await.map(drop)
    }

    /// Reports a failed request, and waits before the next one.
    async fn report_and_wait(&mut self, error: Error) -> Result<(), LeaseLost> {
        let range = Some(self.range.clone());
        report(&self.shared.handler, ProcessorEvent::RequestFailed { range, error });
        let wait = sleep(self.shared.options.retry_wait);
        renewing_lease(&mut self.keeper, &mut self.stop, StopStage::Stopping, wait).await.map(drop)
    }

    /// Replaces the lease by one lease for each part of the range. A crash during the split
    /// leaves the old lease and some new leases: changes then come twice, and the next owner of the
    /// old lease completes the split. Returns whether the split is complete.
    async fn split(&mut self) -> Result<bool, LeaseLost> {
        let store = &self.shared.store;
        let parts = self.feed.parts();
        let creating = async {
            for (range, token) in parts {
                store.create_if_missing(&range, token, Some(&store.instance)).await?;
            }
            Ok(())
        };
        let created: Result<(), Error> =
            match renewing_lease(&mut self.keeper, &mut self.stop, StopStage::Aborting, creating).await? {
                Wake::Ended(created) => created,
                Wake::Stop => return Ok(false),
            };
        let deleted = match created {
            Ok(()) => self.keeper.delete().await,
            Err(error) => Err(error),
        };
        match deleted {
            Ok(()) => Ok(true),
            Err(error) => self.report_and_wait(error).await.map(|()| false),
        }
    }
}

/// Runs a future while the lease is renewed. Ends early when the lease is lost, or when the
/// processor has reached `stage` of its stop.
async fn renewing_lease<F: Future>(
    keeper: &mut LeaseKeeper,
    stop: &mut watch::Receiver<StopStage>,
    stage: StopStage,
    future: F,
) -> Result<Wake<F::Output>, LeaseLost> {
    let future = pin!(future);
    let stopping = async {
        // When the sender was dropped, the supervisor has ended, and this task is cancelled.
        if stop.wait_for(|reached| *reached >= stage).await.is_err() {
            pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        ended = future => Ok(Wake::Ended(ended)),
        lost = keeper.renew_until_lost() => Err(lost),
        () = stopping => Ok(Wake::Stop),
    }
}
