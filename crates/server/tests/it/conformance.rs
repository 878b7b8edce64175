//! Sends recorded requests to this server and compares its answers with the answers
//! of the service.

mod case;
mod judge;
mod play;
mod service_cases;
mod variables;
