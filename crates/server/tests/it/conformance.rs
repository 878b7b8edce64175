//! Sends recorded requests to this server and compares its answers with the answers
//! of the service.

mod case;
mod compare;
mod runner;
mod service_cases;
mod variables;
