//! `fetch_work_item`: the next activity that this worker may have, from hints
//! or from a poll. Taking it is one conditional write of its document; if it
//! belongs to a session, the session is claimed first.

use std::time::Duration;

use duroxide::providers::{SessionFetchConfig, TagFilter, WorkItem};
use perihelion_client::Etag;

use crate::documents::lock_token::{LockKind, LockToken, nonce};
use crate::documents::node::Tags;
use crate::documents::stamp::{Stamp, ends_ms};
use crate::documents::text::Text;
use crate::documents::{Activity, Versioned};
use crate::failure::Failure;
use crate::ops::activity::prefetch;
use crate::ops::activity::sessions::{self, Claimed};
use crate::ops::core::Core;
use crate::ops::orchestration::claim::set_aside;
use crate::ops::payload;
use crate::ops::wait::FetchWait;
use crate::process::hints::{Claimant, Hints, Ready};
use crate::process::interest::{Interest, Ticket};
use crate::process::lock_table::{self, LockedActivity, Offered, Worker};
use crate::store::quiet;

/// Polls of one look, each without what was found before.
const ROUNDS_MAX: usize = 8;

pub(crate) type Fetched = Option<(WorkItem, String, u32)>;

pub(crate) async fn run(
    core: &Core,
    lock_timeout: Duration,
    poll_timeout: Duration,
    session: Option<&SessionFetchConfig>,
    tags: &TagFilter,
) -> Result<Fetched, Failure> {
    if matches!(tags, TagFilter::None) {
        return Ok(None);
    }
    let wait = FetchWait::new(core, sessions::poll_timeout(core, session, poll_timeout));
    let claimant = Claimant { tags, owner: session.map(|session| session.owner_id.as_str()) };
    let queue = &core.hints.activities;
    let owner = claimant.owner.map(str::to_owned);
    let interest = Interest::Works { tags: Tags::from(tags), owner };
    let ticket = core.poller.join(&core.membership, interest, !wait.is_long());
    let asked = Asked { worker: prefetch::worker(core, tags, lock_timeout, &wait), lock_timeout, session };
    loop {
        let woken = queue.wake.notified();
        tokio::pin!(woken);
        woken.as_mut().enable();
        match look(core, &asked, &claimant, &ticket).await {
            Ok(Some(found)) => return Ok(Some(found)),
            Ok(None) => {}
            Err(failure) => {
                wait.outlast(failure).await?;
                continue;
            }
        }
        if wait.is_over() {
            return Ok(None);
        }
        let now = core.clock.stamp();
        let hinted = queue.quietly(|hints| hints.next(now, &claimant));
        let _waiting = Waiting::new(core, tags, lock_timeout);
        let _ =
            tokio::time::timeout_at(wait.next_look(&core.clock, hinted, core.poller.next(&ticket)), woken)
                .await;
    }
}

/// A worker that waits, for as long as it does.
struct Waiting<'a> {
    hints: &'a Hints,
    number: u64,
}

impl<'a> Waiting<'a> {
    fn new(core: &'a Core, tags: &TagFilter, lease: Duration) -> Self {
        let number = core.hints.activities.quietly(|hints| hints.wait(tags, lease));
        Waiting { hints: &core.hints, number }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.hints.activities.quietly(|hints| hints.leave(self.number));
    }
}

/// What a fetch asks for.
struct Asked<'a> {
    lock_timeout: Duration,
    session: Option<&'a SessionFetchConfig>,
    worker: Option<Worker>,
}

async fn look(
    core: &Core,
    asked: &Asked<'_>,
    claimant: &Claimant<'_>,
    ticket: &Ticket<'_>,
) -> Result<Fetched, Failure> {
    core.poller.glance(core, ticket).await;
    for _ in 0..ROUNDS_MAX {
        if let Some(ready) =
            core.hints.activities.quietly(|hints| hints.take_ready(core.clock.now_ms(), claimant))
        {
            return Ok(Some(handed(core, ready, asked)?));
        }
        loop {
            let now = core.clock.stamp();
            let Some(offer) = core.hints.activities.quietly(|hints| hints.take(now, claimant)) else { break };
            if let Some(found) = take(core, offer, asked).await? {
                return Ok(Some(found));
            }
        }
        if !core.poller.poll(core, ticket).await? {
            break;
        }
    }
    Ok(None)
}

/// Takes an activity that is on offer, unless another has it, or its session.
async fn take(core: &Core, offer: Offered, asked: &Asked<'_>) -> Result<Fetched, Failure> {
    let locked = lock(core, offer, asked.lock_timeout, asked.session).await?;
    Ok(locked.map(|locked| taken(core, locked, asked)))
}

/// An activity that is locked, and what it says.
pub(super) struct Locked {
    pub(super) activity: Activity,
    pub(super) etag: Etag,
    pub(super) nonce: String,
    item: WorkItem,
}

/// Locks an activity that is on offer, unless another has it, or its session.
pub(super) async fn lock(
    core: &Core,
    (mut activity, etag): Offered,
    lock_timeout: Duration,
    session: Option<&SessionFetchConfig>,
) -> Result<Option<Locked>, Failure> {
    let texts = payload::texts(&core.store, &activity.instance_id, &[&activity.item]).await?;
    // Without its parts it was completed or cancelled meanwhile.
    let Some(text) = texts.into_iter().next().flatten() else { return Ok(None) };
    let Ok(item) = serde_json::from_str::<WorkItem>(&text) else {
        set_aside(core, &activity.instance_id, &activity.id).await;
        return Ok(None);
    };
    let claimed = match (&activity.session_id, session) {
        (Some(id), Some(config)) => match sessions::claim(core, id, config).await? {
            Claimed::Ours(undo) => Some(undo),
            Claimed::Foreign => {
                core.hints.activities.quietly(|hints| hints.offer((activity, etag)));
                return Ok(None);
            }
        },
        (Some(_), None) => return Ok(None),
        (None, _) => None,
    };
    let nonce = nonce();
    activity.attempt_count = activity.attempt_count.saturating_add(1);
    let expired = activity.lock.replace(nonce.clone());
    // The lease begins now, not when the fetch did.
    activity.visible_at = Stamp::at_ms(ends_ms(core.clock.now_ms(), lock_timeout));
    let options = quiet().with_witness(activity.id.as_str(), "/lock", nonce.as_str());
    match core.store.put(&activity.instance_id, &activity.id, &activity, &etag, options).await {
        Ok(etag) => {
            if expired.is_some_and(|nonce| core.activity_locks.get(&nonce).is_none()) {
                core.metrics.stole();
            }
            Ok(Some(Locked { activity, etag, nonce, item }))
        }
        Err(Failure::Storage(error)) if error.is_precondition_failed() || error.is_not_found() => {
            if let Some(undo) = claimed {
                sessions::release(core, undo).await;
            }
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

/// Takes what is locked already: by the commit that made it, or ahead.
fn handed(core: &Core, ready: Ready, asked: &Asked<'_>) -> Result<(WorkItem, String, u32), Failure> {
    let Ready { activity, etag, nonce, .. } = ready;
    let text = match &activity.item {
        Text::Here(text) => text.as_str(),
        Text::Apart(_) => "",
    };
    let item = serde_json::from_str(text)
        .map_err(|error| Failure::Refused(format!("an activity of this process is unreadable: {error}")))?;
    Ok(taken(core, Locked { activity, etag, nonce, item }, asked))
}

fn taken(core: &Core, locked: Locked, asked: &Asked<'_>) -> (WorkItem, String, u32) {
    let Locked { activity, etag, nonce, item } = locked;
    let execution = match &item {
        WorkItem::ActivityExecute { execution_id, .. } => *execution_id,
        _ => 0,
    };
    let token = LockToken {
        kind: LockKind::Activity,
        instance: activity.instance_id.clone(),
        incarnation: activity.inc.clone().unwrap_or_default(),
        execution,
        nonce,
        id: activity.id.clone(),
    };
    let attempts = activity.attempt_count;
    // Should the lock run out, it is on offer again.
    core.hints.activities.quietly(|hints| hints.offer((activity.clone(), etag.clone())));
    let work = LockedActivity {
        until: lock_table::deadline(activity.visible_at.ms(), core.clock.now_ms()),
        activity: Versioned { value: activity, etag },
        worker: asked.worker.clone(),
    };
    core.activity_locks.insert(&token.nonce, work);
    (item, token.write(), attempts)
}
