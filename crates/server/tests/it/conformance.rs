//! The real service's behaviour as data, run against our server.

mod case;
mod judge;
mod play;
mod service_cases;
mod variables;
