//! Answers that the official SDKs' own test suites expect of the service.

mod containers;
mod items;
mod pages;
mod permissions;
mod pinned_keys;
mod query_reports;
mod refusals;
mod throughput;
mod users;
