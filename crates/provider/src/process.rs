//! The memory of a provider, apart from cached states: locks that it holds, hints,
//! clock, metrics. Nothing here sends requests. All of this memory can be lost, because only stored
//! documents decide what happens.

pub(crate) mod background;
pub(crate) mod clock;
pub(crate) mod congestion;
pub(crate) mod costs;
pub(crate) mod count_cache;
pub(crate) mod failing_causes;
pub(crate) mod hints;
pub(crate) mod interest;
pub(crate) mod lock_table;
pub(crate) mod membership;
pub(crate) mod memory_size;
pub(crate) mod metrics;
pub(crate) mod notice;
pub(crate) mod repair_signal;
pub(crate) mod sequencer;
pub(crate) mod session_table;
pub(crate) mod start_checks;
pub(crate) mod transactions;
