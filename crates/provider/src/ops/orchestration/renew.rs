//! `renew_orchestration_item_lock`. A renewal never shortens a lock. Transient
//! failures are retried until the lock expires.
//!
//! While an ack or an abandon of the same turn runs, a renewal does nothing and succeeds at once: an
//! ack renews the lock itself (`held_lock::renew_during`), and an abandon ends it.

use std::time::Duration;

use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::orchestration::held_lock::{self, Renewal};
use crate::store::{ConflictBudget, SharedDocument};

/// The most attempts. An attempt fails if another writer changes the state under the lock.
const ATTEMPTS_MAX: usize = 16;

pub(crate) async fn run(core: &Core, token: &str, extend_for: Duration) -> Result<(), Failure> {
    let (token, held) = held_lock::find(core, token).await?;
    let Ok(mut held) = held.try_lock() else { return Ok(()) };
    let mut budget = ConflictBudget::new(SharedDocument::State(&token.instance), ATTEMPTS_MAX);
    loop {
        budget.spend()?;
        match held_lock::renew(core, &token, &mut held, extend_for).await? {
            Renewal::Renewed => return Ok(()),
            Renewal::Stale => held_lock::refresh(core, &token, &mut held).await?,
        }
    }
}
