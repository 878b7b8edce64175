//! Retries: what to do after an attempt has ended.
//!
//! Everything here is pure: no clock, no randomness, no I/O.
//!
//! - `findings`, `rules`: what the end of an attempt means, and the rule for it. A new retry
//!   rule is written there, and nowhere else in this crate.
//! - `transaction`: the rules of distributed transactions, and their evaluation
//! - `evaluate`: applies a rule within the operation's limits and budgets
//! - `verdict`: the inputs of an evaluation and its result
//! - `effects`: changes to shared state that follow from an attempt
//! - `backoff`: how long to wait before a retry
//! - `throttle`: retries of throttled requests, inside one attempt

#![deny(clippy::wildcard_enum_match_arm, clippy::match_wildcard_for_single_variants)]

mod backoff;
mod effects;
mod evaluate;
mod findings;
mod rules;
pub(super) mod throttle;
mod transaction;
mod verdict;

pub(super) use effects::{Effect, Effects};
pub(super) use evaluate::{evaluate, may_have_applied, reads_witness_before_retry};
pub(super) use transaction::{Results, TransactionEnding, TransactionProfile, evaluate_transaction};
pub(super) use verdict::{Budgets, Ending, Limits, OperationProfile, PartitionWriteRegion, Regions, Verdict};
