//! Hands activities that are locked already (by direct dispatch, by prefetch, or too late for their
//! worker) to the next worker of this process, and gives back those that no worker has fetched in time:
//! the worker was busy or gone. Otherwise no process could run them until their locks expire.
//!
//! One task watches these activities. It starts with the first activity, and ends when there are none.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;

use crate::ops::activity::{sessions, write_lock};
use crate::ops::core::Core;
use crate::process::hints::ReadyActivity;
use crate::store::{unless_stale, without_content};
use crate::sync::lock;

/// How long giving back takes at most.
pub(super) const GIVE_BACK_TIMEOUT: Duration = Duration::from_secs(20);

/// [`GIVE_BACK_TIMEOUT`] while the closing of the provider waits for it.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(5);

/// Hands a locked activity to the next worker of this process that may take it.
pub(crate) fn hand_over(core: &Core, ready: ReadyActivity) {
    core.hints.activities.update_and_wake(|hints| hints.add_ready(ready));
    watch(core);
}

/// Makes sure that a task watches the activities that are locked for workers.
fn watch(core: &Core) {
    let mut task = lock(&core.unfetched_watch);
    // The task of a tokio runtime that has ended is finished, too.
    match &*task {
        Some(running) if !running.is_finished() => core.unfetched_added.notify_one(),
        _ => *task = Some(tokio::spawn(run(Weak::clone(&core.this)))),
    }
}

async fn run(core: Weak<Core>) {
    loop {
        let Some(shared) = core.upgrade() else { return };
        let now_ms = shared.clock.now_ms();
        let (overdue, next_ms) = shared.hints.activities.with(|hints| hints.take_overdue_ready(now_ms));
        if !overdue.is_empty() {
            // Another task gives the activities back, because closing the provider aborts this task.
            let core = Arc::clone(&shared);
            let work = async move { give_back(&core, overdue, GIVE_BACK_TIMEOUT).await };
            shared.background.finish_late_lock(work);
        }
        let Some(next_ms) = next_ms else {
            if end(&shared) {
                return;
            }
            continue;
        };
        let wait = Duration::from_millis(next_ms.saturating_sub(shared.clock.now_ms()) + 1);
        let added = Arc::clone(&shared.unfetched_added);
        drop(shared);
        // An activity that is added meanwhile may have to be given back sooner.
        let _ = tokio::time::timeout(wait, added.notified()).await;
    }
}

/// Ends the task, unless an activity was added meanwhile.
fn end(core: &Core) -> bool {
    let mut task = lock(&core.unfetched_watch);
    let is_over = core.hints.activities.with(|hints| !hints.has_ready());
    if is_over {
        *task = None;
    }
    is_over
}

/// Gives back activities that no worker has fetched, and offers them to the next worker of this
/// process. Undoes the claims of their sessions first, so that any worker can claim the sessions. An
/// activity that is not given back within `limit` is free when its lock expires.
pub(crate) async fn give_back(core: &Core, ready: Vec<ReadyActivity>, limit: Duration) {
    if ready.is_empty() {
        return;
    }
    let instances: Vec<String> = ready.iter().map(|ready| ready.activity.instance_id.clone()).collect();
    let writes = ready.into_iter().map(|ready| async move {
        let ReadyActivity { activity, etag, session, .. } = ready;
        if let Some(session) = session {
            sessions::release(core, session).await;
        }
        let attempt = core.hints.activities.begin_lock(&activity);
        let activity = activity.without_lock();
        let options = without_content().with_witness(&activity.id, "/visibleAt", activity.visible_at.0);
        let written = unless_stale(write_lock(&core.store, &activity, &etag, options).await);
        drop(attempt);
        match written {
            Ok(Some(etag)) => {
                core.hints.activities.update_and_wake(|hints| hints.offer((activity, etag)));
                true
            }
            // The activity was cancelled, or its lock has expired and another process has it.
            Ok(None) => true,
            Err(failure) => {
                let instance = activity.instance_id;
                tracing::debug!(instance, ?failure, "a locked activity was not given back");
                false
            }
        }
    });
    let given_back = tokio::time::timeout(limit, join_all(writes)).await;
    if !given_back.is_ok_and(|written| written.into_iter().all(|is_certain| is_certain)) {
        // Some of them may be free by now. In their queue they come before rows that the polls have
        // read already, so only a poll that begins at the first row finds them.
        tracing::debug!("some locked activities may not have been given back");
        instances.iter().for_each(|instance| core.poller.read_backlog_soon(Some(instance)));
        core.poller.poll_soon();
    }
}

/// Gives back all activities that are locked for workers, when the provider is closed.
pub(crate) async fn give_back_all(core: &Core) {
    let ready = core.hints.activities.with(|hints| hints.take_all_ready());
    give_back(core, ready, CLOSING_TIMEOUT).await;
}
