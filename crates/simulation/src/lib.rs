//! Nothing is here: this crate is its tests, `tests/it/`.
//!
//! They run duroxide's runtime, our provider, driver, server and engine in one
//! thread under a virtual clock, and let every request fail in every way. It is
//! a crate of its own because it replaces two functions of libc in its test
//! binary, which no other test should have to live with.
