//! This crate has only tests, `tests/it/`: duroxide's validation suite for
//! providers, run on `duroxide-cdb`.
//!
//! There are many of these tests, and many of them only wait. So they are a crate of their own,
//! compiled without optimisation and separately from the provider's other tests.
