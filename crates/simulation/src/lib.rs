//! This crate is its tests, `tests/it/`.
//!
//! They run duroxide's runtime, the provider, the driver, the server and the
//! engine in one thread and in virtual time, and let every request fail in every
//! way. The tests are a crate of their own because they replace two functions of
//! libc in their binary, which other tests should not depend on.
