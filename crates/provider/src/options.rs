//! The options that a program passes to the provider: configuration, cross-instance messages,
//! listing and its filter language, retention. Also the results of the methods for tools.

pub(crate) mod check;
pub(crate) mod config;
pub(crate) mod cross_instance;
pub(crate) mod filter;
pub(crate) mod inspection;
pub(crate) mod listing;
pub(crate) mod retention;
