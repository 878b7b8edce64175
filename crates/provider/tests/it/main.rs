//! The provider against every kind of account that it must run on unchanged: the
//! engine in this process, in memory and on disk, and our server over a socket,
//! with one physical partition and with four. `holes` has what the published
//! crate gets wrong; `workflow` drives the real runtime through a restart. One
//! binary, so that it links once. duroxide's own validation suite is in
//! `crates/validations`.

#[path = "../../../../interop/holes/cases/all.rs"]
mod cases;
mod cost;
mod holes;
mod migration;
mod operating;
mod processes;
mod waiting;
mod workflow;
