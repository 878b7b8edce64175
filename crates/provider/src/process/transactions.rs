//! `Transactions`: whether this process commits turns as distributed transactions, and what the
//! account has said about them.
//!
//! Invariant: a refusal never stops a workflow. The turn is committed with an outbox instead, and
//! so are all turns for some time, because a refused request is a wasted one.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::lock;

/// How long no transaction is tried after the account has refused one. An account can refuse
/// for a while only: when the writes of a partition have moved to another region, or when its
/// preview was just switched on.
const REFUSED_FOR: Duration = Duration::from_secs(600);

/// How long no transaction is tried after one was throttled. Batches go on meanwhile, and their
/// own throttling is handled as always.
const THROTTLED_FOR: Duration = Duration::from_secs(60);

/// Whether turns are committed as transactions.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    /// Whether the options ask for transactions.
    is_on: bool,
    /// Until when the outbox is used, because the account has refused a transaction.
    refused_until: Mutex<Option<Instant>>,
    /// Whether the log has a line about a refusal.
    is_refusal_said: AtomicBool,
    /// Whether the log has a line about throttling.
    is_throttling_said: AtomicBool,
    /// Whether the log has a line about a turn that was too large.
    is_size_said: AtomicBool,
}

impl Transactions {
    pub(crate) fn new(is_on: bool) -> Self {
        Transactions { is_on, ..Transactions::default() }
    }

    /// Whether a commit that begins now may be a transaction.
    pub(crate) fn are_used(&self) -> bool {
        self.is_on && lock(&self.refused_until).is_none_or(|until| until <= Instant::now())
    }

    /// Records that the account has refused a transaction. The first refusal is logged.
    pub(crate) fn record_refusal(&self, reason: &dyn std::fmt::Display) {
        *lock(&self.refused_until) = Some(Instant::now() + REFUSED_FOR);
        if !self.is_refusal_said.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                %reason,
                "the account has no distributed transactions: messages to other instances go through the outbox"
            );
        }
    }

    /// Records that a transaction was throttled as a whole. The first time is logged.
    pub(crate) fn record_throttling(&self, reason: &dyn std::fmt::Display) {
        *lock(&self.refused_until) = Some(Instant::now() + THROTTLED_FOR);
        if !self.is_throttling_said.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                %reason,
                "distributed transactions are throttled: for a minute messages to other instances go through the outbox"
            );
        }
    }

    /// Records that a turn was too large for a transaction. The first one is logged.
    pub(crate) fn record_too_large(&self, instance: &str, reason: &dyn std::fmt::Display) {
        if !self.is_size_said.swap(true, Ordering::Relaxed) {
            tracing::info!(
                instance,
                %reason,
                "a turn is too large for a distributed transaction: such turns go through the outbox"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refused_transaction_is_tried_again_after_ten_minutes() {
        assert!(!Transactions::default().are_used(), "off unless it is asked for");
        let transactions = Transactions::new(true);
        assert!(transactions.are_used());
        transactions.record_refusal(&"no");
        assert!(!transactions.are_used());
        tokio::time::advance(REFUSED_FOR).await;
        assert!(transactions.are_used());
    }
}
