//! `abandon_work_item`: the lock ends, and the activity is seen again at once,
//! in its old place, or after a delay.

use std::time::Duration;

use tokio::time::Instant;

use crate::failure::Failure;
use crate::inner::Inner;
use crate::ops::ack_work;
use crate::store::{PATIENCE, patiently, quiet};

/// Attempts when the document changes under the lock.
const ATTEMPTS_MAX: usize = 16;

pub(crate) async fn run(
    inner: &Inner,
    token: &str,
    delay: Option<Duration>,
    ignore_attempt: bool,
) -> Result<(), Failure> {
    let (token, work) = ack_work::held(inner, token).await?;
    let mut work = work.lock().await;
    let until = Instant::now() + PATIENCE;
    for _ in 0..ATTEMPTS_MAX {
        let mut next = work.activity.value.clone();
        next.lock = None;
        next.visible_at = match delay.filter(|delay| !delay.is_zero()) {
            Some(delay) => inner.clock.stamp().after(delay),
            None => next.enq.at_once(),
        };
        if ignore_attempt {
            next.attempt_count = next.attempt_count.saturating_sub(1);
        }
        let etag = work.activity.etag.clone();
        // While it is locked it is seen at another time. Who else gives it back
        // leaves it as this does.
        let options = || quiet().with_witness(next.id.as_str(), "/visibleAt", next.visible_at.0);
        let put = || inner.store.put(&next.instance_id, &next.id, &next, &etag, options());
        match patiently(until, put).await {
            Ok(etag) => {
                inner.works.remove(&token.nonce);
                inner.hub.works.tell(|hints| hints.offer((next, etag)));
                return Ok(());
            }
            Err(Failure::Storage(error)) if error.is_precondition_failed() || error.is_not_found() => {
                ack_work::refresh(inner, &token, &mut work).await?;
            }
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::Contended(format!("the activity {} keeps changing", token.id)))
}
