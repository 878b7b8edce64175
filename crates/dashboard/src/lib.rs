//! The dashboard: pages in a browser for workflows and data of any Cosmos DB account.
//!
//! HTML and pictures are made here, in Rust. A browser gets pages, one style sheet and one small
//! script, and gets new versions of a page by server-sent events. Pages read through the public
//! interfaces of the provider and the client.
//!
//! Three rules hold for every page: texts from outside are escaped by the type that holds HTML
//! (`html`); a page sends a bounded number of requests, however many workflows there are; and
//! watching a page costs at most a few request units per second, however many people watch (`live`).
//! `access` says who may use the dashboard.

#![warn(missing_docs)]

mod access;
mod actions;
mod app;
mod assets;
mod bulk;
mod dashboard;
mod details;
mod draw;
mod explain;
mod failure;
mod frame;
mod history;
mod html;
mod http;
mod live;
mod metrics;
mod notices;
mod once;
mod pages;
mod samples;
mod site;
mod source;
mod text;

pub use dashboard::{Dashboard, DashboardOptions, StartError};
pub use explain::{QueryAnswer, QueryFacts};
pub use history::{event_texts, event_type};
pub use source::ReadCounters;
pub use text::cut;
