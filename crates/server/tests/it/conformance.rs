//! The recorded behaviour of the service, run against this server.

mod case;
mod judge;
mod play;
mod service_cases;
mod variables;
