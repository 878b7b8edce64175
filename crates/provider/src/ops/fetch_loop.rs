//! The fetch loop, the same for both queues: it takes work from the hints, polls if there
//! is none, and waits for a hint or the next poll, until it has work or its time is over.

use std::future::Future;

use tokio::sync::Notify;

use crate::documents::stamp::Stamp;
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::wait::FetchWait;
use crate::process::interest::Ticket;

/// The most polls before a fetch waits. Each poll leaves out work that earlier ones found.
const POLLS_MAX: usize = 8;

/// One queue, as one fetch sees it.
pub(crate) trait Queue {
    /// What the fetch returns.
    type Item;
    /// A value that exists while the fetch waits.
    type WaitGuard;

    /// Notified when hints change.
    fn wake(&self) -> &Notify;

    /// Locks the first work in the hints that this fetch may have.
    fn take(&self) -> impl Future<Output = Result<Option<Self::Item>, Failure>> + Send;

    /// When the next work in the hints can be taken.
    fn next_hint(&self) -> Option<Stamp>;

    /// Called when the fetch begins to wait. The guard is dropped when the wait ends.
    fn begin_wait(&self) -> Self::WaitGuard;
}

/// Fetches from a queue. `None` when the time is over.
pub(crate) async fn run<Q: Queue>(
    core: &Core,
    queue: &Q,
    ticket: &Ticket<'_>,
    wait: FetchWait,
) -> Result<Option<Q::Item>, Failure> {
    loop {
        let woken = queue.wake().notified();
        tokio::pin!(woken);
        woken.as_mut().enable();
        match try_take(core, queue, ticket).await {
            Ok(Some(found)) => return Ok(Some(found)),
            Ok(None) => {}
            Err(failure) => {
                wait.pause_after(failure).await?;
                continue;
            }
        }
        if wait.is_over() {
            return Ok(None);
        }
        let until = wait.next_attempt(&core.clock, queue.next_hint(), core.poller.next_poll(ticket));
        let _guard = queue.begin_wait();
        let _ = tokio::time::timeout_at(until, woken).await;
    }
}

/// Takes work from the hints. While there is none that this fetch may have, polls and
/// tries again, until a poll finds nothing new.
async fn try_take<Q: Queue>(core: &Core, queue: &Q, ticket: &Ticket<'_>) -> Result<Option<Q::Item>, Failure> {
    core.poller.poll_if_overdue(core, ticket).await;
    for _ in 0..POLLS_MAX {
        if let Some(found) = queue.take().await? {
            return Ok(Some(found));
        }
        if !core.poller.poll(core, ticket).await? {
            break;
        }
    }
    Ok(None)
}
