//! `Transactions`: whether this process commits turns as distributed transactions, and what the
//! account has said about them.
//!
//! Invariant: a refusal never stops a workflow. The turn is committed with an outbox instead. For
//! some time all other turns use the outbox too, because each refused request would be wasted.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::lock;

/// How long no transaction is tried after the account has refused one. An account may refuse
/// transactions only for a while: when the writes of a partition have moved to another region, or
/// when the preview of transactions was just switched on.
const REFUSED_FOR: Duration = Duration::from_secs(600);

/// The first pause after a throttled transaction, or after a turn whose transactions failed again and
/// again. Each further pause is twice as long, up to [`PAUSE_MAX`]. During a pause turns are committed
/// as batches, and the throttling of batches is handled as usual.
const PAUSE_MIN: Duration = Duration::from_secs(2);

/// The longest pause after throttled or failed transactions. If no transaction is throttled or fails
/// within this time after a pause, the next pause is short again.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Whether turns are committed as transactions.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    /// Whether the options ask for transactions.
    is_on: bool,
    /// The time in which the outbox is used, because transactions were refused, throttled or
    /// failing.
    pause: Mutex<Pause>,
    /// Whether the log has a line about a refusal.
    is_refusal_logged: AtomicBool,
    /// Whether the log has a line about transactions that are throttled or fail.
    is_failing_logged: AtomicBool,
    /// Whether the log has a line about a turn that was too large.
    is_size_logged: AtomicBool,
}

/// A time without transactions.
#[derive(Debug, Default)]
struct Pause {
    until: Option<Instant>,
    /// The length of the last pause after throttled or failed transactions.
    length: Duration,
}

impl Pause {
    /// Begins a pause, or makes it longer.
    fn extend(&mut self, length: Duration) {
        self.until = self.until.max(Some(Instant::now() + length));
    }

    /// Begins a pause. It is twice as long as the last pause if the last pause ended less than
    /// [`PAUSE_MAX`] ago, else [`PAUSE_MIN`]. Does nothing during a pause, because several turns that
    /// began before the pause may fail.
    fn extend_by_backoff(&mut self) {
        let now = Instant::now();
        if self.until.is_some_and(|until| now < until) {
            return;
        }
        let is_recent = self.until.is_some_and(|until| now < until + PAUSE_MAX);
        self.length = if is_recent { (self.length * 2).clamp(PAUSE_MIN, PAUSE_MAX) } else { PAUSE_MIN };
        self.extend(self.length);
    }
}

impl Transactions {
    pub(crate) fn new(is_on: bool) -> Self {
        Transactions { is_on, ..Transactions::default() }
    }

    /// Whether a commit that begins now may be a transaction.
    pub(crate) fn are_used(&self) -> bool {
        self.is_on && lock(&self.pause).until.is_none_or(|until| until <= Instant::now())
    }

    /// Records that the account has refused a transaction. The first refusal is logged.
    pub(crate) fn record_refusal(&self, reason: &dyn std::fmt::Display) {
        lock(&self.pause).extend(REFUSED_FOR);
        if !self.is_refusal_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                %reason,
                "the account refuses distributed transactions: messages to other instances go through the outbox"
            );
        }
    }

    /// Records that a transaction was throttled as a whole, or that the transactions of a turn have
    /// failed again and again. The first time is logged.
    pub(crate) fn record_failing(&self, reason: &dyn std::fmt::Display) {
        lock(&self.pause).extend_by_backoff();
        if !self.is_failing_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                %reason,
                "distributed transactions are throttled or fail: for a while messages to other instances go through \
                 the outbox"
            );
        }
    }

    /// Records that a turn was too large for a transaction. The first one is logged.
    pub(crate) fn record_too_large(&self, instance: &str, reason: &dyn std::fmt::Display) {
        if !self.is_size_logged.swap(true, Ordering::Relaxed) {
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
        assert!(!Transactions::default().are_used(), "off unless the options ask for transactions");
        let transactions = Transactions::new(true);
        assert!(transactions.are_used());
        transactions.record_refusal(&"no");
        assert!(!transactions.are_used());
        // A turn that began before is throttled: the pause does not get shorter.
        transactions.record_failing(&"throttled");
        tokio::time::advance(REFUSED_FOR - Duration::from_secs(1)).await;
        assert!(!transactions.are_used());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(transactions.are_used());
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_after_failing_transactions_grow_and_become_short_again() {
        let transactions = Transactions::new(true);
        for seconds in [2, 4, 8, 16, 32, 60, 60] {
            transactions.record_failing(&"throttled");
            transactions.record_failing(&"another turn");
            tokio::time::advance(Duration::from_secs(seconds) - Duration::from_millis(1)).await;
            assert!(!transactions.are_used(), "{seconds} s");
            tokio::time::advance(Duration::from_millis(1)).await;
            assert!(transactions.are_used(), "{seconds} s");
        }
        tokio::time::advance(PAUSE_MAX).await;
        transactions.record_failing(&"throttled");
        tokio::time::advance(PAUSE_MIN).await;
        assert!(transactions.are_used());
    }
}
