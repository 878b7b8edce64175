//! `renew_work_item_lock`. A renewal never shortens a lock, and an expired lock is not
//! renewed. Transient failures are retried until the lock expires, because the runtime
//! cancels a running activity when a renewal fails.
//!
//! A renewal does not wait for an ack or an abandon of the same activity: an ack renews the
//! lock itself (`held_lock::keep`).

use std::time::Duration;

use crate::failure::Failure;
use crate::ops::activity::{ATTEMPTS_MAX, held_lock, sessions};
use crate::ops::core::Core;
use crate::store::{ConflictBudget, SharedDocument};

pub(crate) async fn run(core: &Core, token: &str, extend_for: Duration) -> Result<(), Failure> {
    let (token, held) = held_lock::find(core, token).await?;
    let Ok(mut held) = held.try_lock() else { return Ok(()) };
    let mut budget = ConflictBudget::new(SharedDocument::Activity(&token.id), ATTEMPTS_MAX);
    loop {
        budget.spend()?;
        if held_lock::renew(core, &mut held, extend_for).await? {
            let session = held.activity.value.session_id.as_deref();
            sessions::record_use(&core.store, &core.clock, session).await;
            return Ok(());
        }
        held_lock::refresh(core, &token, &mut held).await?;
    }
}
