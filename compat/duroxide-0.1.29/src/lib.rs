//! Tests of the provider on duroxide 0.1.29. A lock file can have only one 0.1 version of
//! duroxide, and that of the repository's workspace has the newest. So these tests are a
//! workspace of their own. Most of them are files of `crates/validations` and of the
//! provider's tests, included by path.
//!
//! The traits are the same from 0.1.29 to 0.1.32; later versions only added fields to
//! `WorkItem`. The provider never creates a `WorkItem` variant with such fields and
//! ignores them in patterns. So one source serves all versions without a feature or a
//! build script, and the lock file of a program decides which version it uses.
