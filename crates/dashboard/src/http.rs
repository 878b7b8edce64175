//! HTTP for the dashboard: requests as pages read them, answers with the headers that every
//! answer has, and the listener. It knows nothing of workflows.

mod answer;
mod body;
mod listener;
mod parameters;
mod peers;
mod request;
mod write_limit;

pub(crate) use answer::Answer;
pub(crate) use body::Body;
pub(crate) use listener::Listener;
pub(crate) use parameters::Parameters;
pub(crate) use peers::Peer;
pub(crate) use request::{FORM_BYTES_MAX, Request};
