//! The fetch loop of both queues, instances and activities. It starts the polls that are due, and
//! takes work from the hints. If there is none, it waits for a hint or the next poll, until it has
//! work or its time is over. A fetch with a short timeout does not wait: it polls and looks once.

use std::future::Future;
use std::time::Duration;

use tokio::sync::Notify;

use crate::documents::stamp::Stamp;
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::wait::FetchWait;
use crate::process::interest::Ticket;

/// The most polls of a fetch that looks once. It usually ends sooner: a poll reports only work
/// that is not in the hints yet.
const POLLS_MAX: usize = 8;

/// The longest time that a fetch waits before it fails because this process may not work on the
/// container.
const REFUSAL_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Fails if this process may not work on the container any more. The runtime logs such a failure and
/// fetches again at once, so a fetch with a long timeout waits first.
pub(crate) async fn check_container(core: &Core, poll_timeout: Duration) -> Result<(), Failure> {
    let checked = core.store.check_may_take_work().await;
    if checked.is_err() {
        tokio::time::sleep(poll_timeout.min(REFUSAL_PAUSE_MAX)).await;
    }
    checked
}

/// One of the two queues, for one fetch.
pub(crate) trait Queue {
    /// The result of the fetch.
    type Item;
    /// The result of `begin_wait`. It exists while the fetch waits.
    type WaitGuard;

    /// Notified when the hints may have new work.
    fn wake(&self) -> &Notify;

    /// Locks the first work in the hints that this fetch can get, or takes work that was
    /// locked for this fetch before. `None` if there is no such work.
    fn take(&self) -> impl Future<Output = Result<Option<Self::Item>, Failure>> + Send;

    /// When the next work in the hints can be taken; `None` if the hints have no work for
    /// this fetch.
    fn next_hint_at(&self) -> Option<Stamp>;

    /// Called when the fetch begins to wait. The guard is dropped when the wait ends.
    fn begin_wait(&self) -> Self::WaitGuard;
}

/// Fetches from a queue. `None` if the fetch has no work when its time is over.
pub(crate) async fn run<Q: Queue>(
    core: &Core,
    queue: &Q,
    ticket: &Ticket<'_>,
    wait: FetchWait,
) -> Result<Option<Q::Item>, Failure> {
    loop {
        core.store.check_may_take_work().await?;
        let woken = queue.wake().notified();
        tokio::pin!(woken);
        woken.as_mut().enable();
        match try_take(core, queue, ticket).await {
            Ok(Some(found)) => {
                core.poller.record_taken(&core.membership, ticket.interest());
                return Ok(Some(found));
            }
            Ok(None) => {}
            Err(failure) => {
                wait.pause_after(failure, &core.outage_notice).await?;
                continue;
            }
        }
        if wait.is_over() {
            return Ok(None);
        }
        let until = wait.next_attempt_at(&core.clock, queue.next_hint_at(), core.poller.next_poll_at(ticket));
        let _guard = queue.begin_wait();
        let _ = tokio::time::timeout_at(until, woken).await;
    }
}

/// Starts the polls that are due, and takes work from the hints. A poll that finds work later
/// wakes the fetch. A fetch that looks once (an eager fetch) waits for its polls instead: it polls and
/// tries again, until a poll finds nothing new or [`POLLS_MAX`] polls were made.
async fn try_take<Q: Queue>(core: &Core, queue: &Q, ticket: &Ticket<'_>) -> Result<Option<Q::Item>, Failure> {
    if !ticket.is_eager() {
        core.poller.start_due(core, ticket).await;
        return queue.take().await;
    }
    for _ in 0..POLLS_MAX {
        if let Some(found) = queue.take().await? {
            return Ok(Some(found));
        }
        if !core.poller.poll_all(core, ticket).await? {
            return Ok(None);
        }
    }
    queue.take().await
}
