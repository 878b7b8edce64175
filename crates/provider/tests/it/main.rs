//! The provider against everything it must run against unchanged: the engine
//! in this process, in memory and on disk, our server over the wire, and the
//! server with containers of four physical partitions. `validations` is
//! duroxide's own suite, whole; `holes` is what the published crate gets wrong;
//! `workflow` drives the real runtime through a restart. One binary, so that it
//! links once.

#[path = "../../../../interop/holes/cases/all.rs"]
mod cases;
mod cost;
mod holes;
mod migration;
mod operating;
mod place;
mod processes;
mod validations;
mod waiting;
mod workflow;
