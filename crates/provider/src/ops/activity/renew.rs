//! `renew_work_item_lock`. A renewal never shortens a lock, and an expired lock is not
//! renewed. Transient failures are retried until the lock expires, because the runtime
//! cancels a running activity when a renewal fails.
//!
//! After a renewal that failed, this process treats the lock as lost, even if it has not expired.
//! The reason: the runtime cancels the activity and acks it without a completion. If that ack
//! deleted the activity, its instance would wait for the completion forever. Instead the ack is
//! refused, and a worker runs the activity again when the lock has expired.
//!
//! A renewal does not wait for an ack or an abandon of the same activity: an ack renews the
//! lock itself (`held_lock::renew_during`).

use std::time::Duration;

use tokio::time::Instant;

use crate::documents::lock_token::LockToken;
use crate::failure::Failure;
use crate::ops::activity::{ATTEMPTS_MAX, held_lock, sessions};
use crate::ops::core::Core;
use crate::process::lock_table::LockedActivity;
use crate::store::{ConflictBudget, SharedDocument};

pub(crate) async fn run(core: &Core, token: &str, extend_for: Duration) -> Result<(), Failure> {
    let (token, held) = held_lock::find(core, token).await?;
    let Ok(mut held) = held.try_lock() else { return Ok(()) };
    let renewed = renew(core, &token, &mut held, extend_for).await;
    if renewed.is_err() {
        held.until = Instant::now();
    }
    renewed
}

async fn renew(
    core: &Core,
    token: &LockToken,
    held: &mut LockedActivity,
    extend_for: Duration,
) -> Result<(), Failure> {
    let mut budget = ConflictBudget::new(SharedDocument::Activity(&token.id), ATTEMPTS_MAX);
    loop {
        budget.spend()?;
        if held_lock::renew(core, held, extend_for).await? {
            let session = held.activity.value.session_id.as_deref();
            sessions::record_use(core, session).await;
            return Ok(());
        }
        held_lock::refresh(core, token, held).await?;
    }
}
