//! `renew_work_item_lock`. A renewal never shortens a lock, and a transient failure is
//! waited out: the runtime would cancel a running activity for it.

use std::time::Duration;

use crate::documents::stamp::{Stamp, ends_ms};
use crate::failure::Failure;
use crate::ops::activity;
use crate::ops::activity::sessions;
use crate::ops::core::Core;
use crate::process::lock_table;
use crate::store::{quiet, retry_until};

/// Attempts when the document changes under the lock.
const ATTEMPTS_MAX: usize = 16;

pub(crate) async fn run(core: &Core, token: &str, extend_for: Duration) -> Result<(), Failure> {
    let (token, work) = activity::ack::held(core, token).await?;
    let mut work = work.lock().await;
    for _ in 0..ATTEMPTS_MAX {
        activity::ack::check(&work)?;
        let mut next = work.activity.value.clone();
        let until = next.visible_at.ms().max(ends_ms(core.clock.now_ms(), extend_for));
        next.visible_at = Stamp::at_ms(until);
        let etag = work.activity.etag.clone();
        let options = || quiet().with_witness(next.id.as_str(), "/visibleAt", next.visible_at.0);
        let put = || core.store.put(&next.instance_id, &next.id, &next, &etag, options());
        match retry_until(work.until, put).await {
            Ok(etag) => {
                core.hints.activities.quietly(|hints| hints.offer((next.clone(), etag.clone())));
                (work.activity.value, work.activity.etag) = (next, etag);
                work.until = lock_table::deadline(until, core.clock.now_ms());
                sessions::touch(core, work.activity.value.session_id.as_deref()).await;
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
