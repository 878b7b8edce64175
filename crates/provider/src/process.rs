//! The state of this process, in memory: locks it holds, hints, clock, metrics.
//! Nothing here talks to the database, and all of it can be lost: documents decide.

pub(crate) mod background;
pub(crate) mod clock;
pub(crate) mod count_cache;
pub(crate) mod hints;
pub(crate) mod interest;
pub(crate) mod lock_table;
pub(crate) mod membership;
pub(crate) mod metrics;
pub(crate) mod repair_signal;
pub(crate) mod sequencer;
pub(crate) mod session_table;
