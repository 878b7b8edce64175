//! The budget of concurrent hedges: how many alternate legs one driver may have under way at
//! once. When a region with many requests under way becomes slow, their hedges must not
//! double the load of the other regions. A request that finds the budget spent is not hedged;
//! it never waits for the budget.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most hedges at once, unless the options say otherwise. If a region answers a hedge in
/// 50 ms, this is enough for 1,280 hedges per second.
const HEDGES_MAX: u32 = 64;

/// The most primary legs that have lost and are awaited for their charge at the same time. Further
/// primary legs that lose are cancelled.
const LOSERS_MAX: usize = 256;

/// The budget of one driver.
#[derive(Debug)]
pub(crate) struct HedgeBudget {
    hedges: Arc<Semaphore>,
    hedges_max: usize,
    losers: Arc<Semaphore>,
}

/// The permission to send one hedge, or to await one losing leg. Dropping the permit gives it back
/// to the budget.
#[derive(Debug)]
pub(crate) struct HedgePermit(#[expect(dead_code, reason = "only its drop matters")] OwnedSemaphorePermit);

impl HedgeBudget {
    /// A budget of `hedges_max` concurrent hedges; `None` stands for the default.
    pub(crate) fn new(hedges_max: Option<u32>) -> Self {
        let hedges_max = hedges_max.unwrap_or(HEDGES_MAX) as usize;
        HedgeBudget {
            hedges: Arc::new(Semaphore::new(hedges_max)),
            hedges_max,
            losers: Arc::new(Semaphore::new(LOSERS_MAX)),
        }
    }

    /// A permit; `None` if the budget is spent.
    pub(crate) fn try_acquire(&self) -> Option<HedgePermit> {
        Arc::clone(&self.hedges).try_acquire_owned().ok().map(HedgePermit)
    }

    /// How many hedges are under way, and how many primary legs that have lost are awaited.
    pub(crate) fn in_use(&self) -> (usize, usize) {
        (self.hedges_max - self.hedges.available_permits(), LOSERS_MAX - self.losers.available_permits())
    }

    /// A permit to await a primary leg that has lost, for its charge. These permits have a budget of
    /// their own: a region that hangs keeps such legs waiting for seconds, and must not use up the
    /// budget of hedges.
    pub(crate) fn try_acquire_for_loser(&self) -> Option<HedgePermit> {
        Arc::clone(&self.losers).try_acquire_owned().ok().map(HedgePermit)
    }
}
