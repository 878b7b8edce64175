//! The provider against everything it must run against unchanged: the engine
//! in this process, in memory and on disk, our server over the wire, and the
//! server with containers of four physical partitions. `validations` is
//! duroxide's own suite, whole; `workflow` drives the real runtime through a
//! restart. One binary, so that it links once.

mod operating;
mod place;
mod validations;
mod workflow;
