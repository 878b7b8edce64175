//! `fetch_work_item`: the next activity that this worker may have, from hints
//! or from a poll. Taking it is one conditional write of its document; if it
//! belongs to a session, the session is claimed first.

use std::time::Duration;

use duroxide::providers::{SessionFetchConfig, TagFilter, WorkItem};
use perihelion_client::Query;
use serde_json::Value;
use tokio::time::Instant;

use crate::clock::{Stamp, ends_ms, wall_ms};
use crate::documents::{Activity, Versioned};
use crate::failure::Failure;
use crate::held::{self, Offered, Work};
use crate::hub::Claimant;
use crate::inner::Inner;
use crate::ops::patience::{POLL_INTERVAL, Patience};
use crate::ops::sessions::{self, Claimed};
use crate::store::{quiet, versioned};
use crate::token::{Kind, Token, nonce};

/// Candidates of one poll.
const POLL_ROWS: u32 = 32;

/// Sessions of others that a poll is told to leave out.
const EXCLUDED_MAX: usize = 256;

/// Pages of candidates that one fetch looks through.
const ROUNDS_MAX: usize = 8;

pub(crate) type Fetched = Option<(WorkItem, String, u32)>;

pub(crate) async fn run(
    inner: &Inner,
    lock_timeout: Duration,
    poll_timeout: Duration,
    session: Option<&SessionFetchConfig>,
    tags: &TagFilter,
) -> Result<Fetched, Failure> {
    if matches!(tags, TagFilter::None) {
        return Ok(None);
    }
    let patience = Patience::new(inner, poll_timeout);
    let claimant = Claimant { tags, owner: session.map(|session| session.owner_id.as_str()) };
    let queue = &inner.hub.works;
    loop {
        let woken = queue.wake.notified();
        tokio::pin!(woken);
        woken.as_mut().enable();
        match look(inner, lock_timeout, session, &claimant, !patience.is_long()).await {
            Ok(Some(found)) => return Ok(Some(found)),
            Ok(None) => {}
            Err(failure) => {
                patience.outlast(failure).await?;
                continue;
            }
        }
        if patience.is_over() {
            return Ok(None);
        }
        let now = inner.clock.stamp();
        let hinted = queue.quietly(|hints| hints.next(now, &claimant));
        let _ = tokio::time::timeout_at(patience.next_look(hinted), woken).await;
    }
}

async fn look(
    inner: &Inner,
    lock_timeout: Duration,
    session: Option<&SessionFetchConfig>,
    claimant: &Claimant<'_>,
    is_poll_due: bool,
) -> Result<Fetched, Failure> {
    for _ in 0..ROUNDS_MAX {
        loop {
            let now = inner.clock.stamp();
            let Some(offer) = inner.hub.works.quietly(|hints| hints.take(now, claimant)) else { break };
            if let Some(found) = take(inner, offer, lock_timeout, session).await? {
                return Ok(Some(found));
            }
        }
        if !poll(inner, claimant, is_poll_due).await? {
            break;
        }
    }
    Ok(None)
}

/// Takes an activity that is on offer, unless another has it, or its session.
async fn take(
    inner: &Inner,
    (mut activity, etag): Offered,
    lock_timeout: Duration,
    session: Option<&SessionFetchConfig>,
) -> Result<Fetched, Failure> {
    let Ok(item) = serde_json::from_str::<WorkItem>(&activity.item) else {
        tracing::error!(instance = activity.instance_id, id = activity.id, "an activity is unreadable");
        return Ok(None);
    };
    let claimed = match (&activity.session_id, session) {
        (Some(id), Some(config)) => match sessions::claim(inner, id, config).await? {
            Claimed::Ours(undo) => Some(undo),
            Claimed::Foreign => {
                inner.hub.works.quietly(|hints| hints.offer((activity, etag)));
                return Ok(None);
            }
        },
        (Some(_), None) => return Ok(None),
        (None, _) => None,
    };
    let nonce = nonce();
    activity.attempt_count = activity.attempt_count.saturating_add(1);
    activity.lock = Some(nonce.clone());
    // The lease begins now, not when the fetch did.
    let until = ends_ms(wall_ms(), lock_timeout);
    activity.visible_at = Stamp::at_ms(until);
    let options = quiet().with_witness(activity.id.as_str(), "/lock", nonce.as_str());
    match inner.store.put(&activity.instance_id, &activity.id, &activity, &etag, options).await {
        Ok(etag) => Ok(Some(taken(inner, activity, etag, item, nonce, until))),
        Err(Failure::Storage(error)) if error.is_precondition_failed() || error.is_not_found() => {
            if let Some(undo) = claimed {
                sessions::release(inner, undo).await;
            }
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

fn taken(
    inner: &Inner,
    activity: Activity,
    etag: perihelion_client::Etag,
    item: WorkItem,
    nonce: String,
    until: u64,
) -> (WorkItem, String, u32) {
    let execution = match &item {
        WorkItem::ActivityExecute { execution_id, .. } => *execution_id,
        _ => 0,
    };
    let token = Token {
        kind: Kind::Work,
        instance: activity.instance_id.clone(),
        incarnation: activity.inc.clone().unwrap_or_default(),
        execution,
        nonce,
        id: activity.id.clone(),
    };
    let attempts = activity.attempt_count;
    // Should the lock run out, it is on offer again.
    inner.hub.works.quietly(|hints| hints.offer((activity.clone(), etag.clone())));
    let work =
        Work { activity: Versioned { value: activity, etag }, until: held::deadline(until, wall_ms()) };
    inner.works.insert(&token.nonce, work);
    (item, token.write(), attempts)
}

/// Asks storage for activities that this claimant may have; whether there are
/// any. Unless it is due, at most once per interval and process.
async fn poll(inner: &Inner, claimant: &Claimant<'_>, is_due: bool) -> Result<bool, Failure> {
    let queue = &inner.hub.works;
    let asked = format!("{:?} {}", claimant.tags, claimant.owner.is_some());
    let mut polls = queue.polls.lock().await;
    polls.retain(|_, last| last.elapsed() < POLL_INTERVAL);
    if !is_due && polls.contains_key(&asked) {
        return Ok(false);
    }
    let now = inner.clock.stamp();
    let (tagged, tags) = match claimant.tags {
        TagFilter::Any => ("true", Vec::new()),
        TagFilter::DefaultOnly => ("NOT IS_DEFINED(c.tag)", Vec::new()),
        TagFilter::Tags(tags) => ("ARRAY_CONTAINS(@tags, c.tag)", tags.iter().cloned().collect()),
        TagFilter::DefaultAnd(tags) => {
            ("(NOT IS_DEFINED(c.tag) OR ARRAY_CONTAINS(@tags, c.tag))", tags.iter().cloned().collect())
        }
        TagFilter::None => return Ok(false),
    };
    let (in_session, foreign) = match claimant.owner {
        None => ("NOT IS_DEFINED(c.sessionId)", Vec::new()),
        Some(owner) => (
            "(NOT IS_DEFINED(c.sessionId) OR NOT ARRAY_CONTAINS(@foreign, c.sessionId))",
            queue.quietly(|hints| hints.foreign_to(owner, now, EXCLUDED_MAX)),
        ),
    };
    let text = format!(
        "SELECT TOP {POLL_ROWS} * FROM c WHERE c.type = 'worker_queue' AND c.visibleAt <= @now AND \
         {tagged} AND {in_session} ORDER BY c.visibleAt"
    );
    let query = Query::new(text)
        .with_parameter("@now", now.0)
        .with_parameter("@tags", tags)
        .with_parameter("@foreign", foreign);
    let rows: Vec<Value> = inner.store.rows(query).await?;
    polls.insert(asked, Instant::now());
    drop(polls);
    let mut is_any = false;
    queue.quietly(|hints| {
        for row in rows {
            match versioned::<Activity>(row) {
                Ok(Versioned { value, etag }) => {
                    is_any = true;
                    hints.offer((value, etag));
                }
                Err(failure) => tracing::error!(?failure, "an activity is unreadable"),
            }
        }
    });
    Ok(is_any)
}
