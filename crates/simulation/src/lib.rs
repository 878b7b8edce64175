//! This crate has tests only, in `tests/it/`.
//!
//! The tests run duroxide's runtime, the provider, the driver, the server and the
//! engine in one thread and in virtual time, and inject faults into requests. The
//! tests are a crate of their own because their binary replaces two functions of
//! libc. Other tests should not depend on the replacements.
