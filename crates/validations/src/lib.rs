//! This crate has only tests, `tests/it/`: duroxide's validation suite for
//! providers, run on `duroxide-cdb`.
//!
//! The tests are a separate crate, so that they are compiled without optimisation and
//! separately from the provider's other tests: there are many of them, and many wait.
