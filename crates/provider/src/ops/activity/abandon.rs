//! `abandon_work_item`: the lock ends, and the activity is seen again at once,
//! in its old place, or after a delay.

use std::time::Duration;

use tokio::time::Instant;

use crate::failure::Failure;
use crate::ops::activity;
use crate::ops::core::Core;
use crate::store::{RETRY_FOR, quiet, retry_until};

/// Attempts when the document changes under the lock.
const ATTEMPTS_MAX: usize = 16;

pub(crate) async fn run(
    core: &Core,
    token: &str,
    delay: Option<Duration>,
    ignore_attempt: bool,
) -> Result<(), Failure> {
    let (token, work) = activity::ack::held(core, token).await?;
    let mut work = work.lock().await;
    let until = Instant::now() + RETRY_FOR;
    for _ in 0..ATTEMPTS_MAX {
        let mut next = work.activity.value.clone();
        next.lock = None;
        next.visible_at = match delay.filter(|delay| !delay.is_zero()) {
            Some(delay) => core.clock.stamp().after(delay),
            None => next.enq.at_once(),
        };
        if ignore_attempt {
            next.attempt_count = next.attempt_count.saturating_sub(1);
        }
        let etag = work.activity.etag.clone();
        // While it is locked it is seen at another time. Who else gives it back
        // leaves it as this does.
        let options = || quiet().with_witness(next.id.as_str(), "/visibleAt", next.visible_at.0);
        let put = || core.store.put(&next.instance_id, &next.id, &next, &etag, options());
        match retry_until(until, put).await {
            Ok(etag) => {
                core.activity_locks.remove(&token.nonce);
                core.hints.activities.tell(|hints| hints.offer((next, etag)));
                return Ok(());
            }
            Err(Failure::Storage(error)) if error.is_precondition_failed() || error.is_not_found() => {
                activity::ack::refresh(core, &token, &mut work).await?;
            }
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::Contended(format!("the activity {} keeps changing", token.id)))
}
