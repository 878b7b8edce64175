//! Options: the values that a program passes to the provider. They decide nothing.

pub(crate) mod config;
pub(crate) mod listing;
pub(crate) mod retention;
