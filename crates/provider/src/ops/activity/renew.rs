//! `renew_work_item_lock`: writes a later end of the lock. A renewal never shortens a lock,
//! and an expired lock is not renewed. Transient failures are retried until the lock expires,
//! because the runtime cancels a running activity when a renewal fails.

use std::time::Duration;

use crate::documents::stamp::{Stamp, deadline_ms};
use crate::failure::Failure;
use crate::ops::activity::{ATTEMPTS_MAX, held_lock, sessions};
use crate::ops::core::Core;
use crate::ops::token_lock;
use crate::process::lock_table;
use crate::store::{ConflictBudget, SharedDocument, retry_until, unless_stale, without_content};

pub(crate) async fn run(core: &Core, token: &str, extend_for: Duration) -> Result<(), Failure> {
    let (token, held) = held_lock::find(core, token).await?;
    let mut held = held.lock().await;
    let mut budget = ConflictBudget::new(SharedDocument::Activity(&token.id), ATTEMPTS_MAX);
    loop {
        budget.spend()?;
        token_lock::check_not_expired(held.until)?;
        let mut next = held.activity.value.clone();
        let until_ms = next.visible_at.ms().max(deadline_ms(core.clock.now_ms(), extend_for));
        next.visible_at = Stamp::at_ms(until_ms);
        let etag = held.activity.etag.clone();
        let options = || without_content().with_witness(next.id.as_str(), "/visibleAt", next.visible_at.0);
        let put = || core.store.put(&next.instance_id, &next.id, &next, &etag, options());
        let Some(etag) = unless_stale(retry_until(held.until, put).await)? else {
            held_lock::refresh(core, &token, &mut held).await?;
            continue;
        };
        core.hints.activities.with(|hints| hints.offer((next.clone(), etag.clone())));
        (held.activity.value, held.activity.etag) = (next, etag);
        held.until = lock_table::deadline(until_ms, core.clock.now_ms());
        let session = held.activity.value.session_id.as_deref();
        sessions::record_use(&core.store, &core.clock, session).await;
        return Ok(());
    }
}
