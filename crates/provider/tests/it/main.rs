//! Tests of the provider: on the engine in this process and on our server over a socket, with
//! one physical partition and with four. `holes` has cases, most of which the published crate
//! gets wrong; `workflow` drives the real runtime through a restart; `samples` runs the
//! examples. All tests are one binary, so that it links once. duroxide's own validation suite
//! is in `crates/validations`.

#[path = "../../../../interop/holes/cases/all.rs"]
mod cases;
mod cost;
mod cross_instance;
mod fan_out;
mod holes;
mod migration;
mod operating;
mod polling;
mod processes;
mod samples;
mod scale;
mod workflow;
