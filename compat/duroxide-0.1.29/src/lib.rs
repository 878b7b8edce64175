//! The provider as a program on duroxide 0.1.29 sees it. One lock file holds one
//! 0.1 version of duroxide, and the product's has the newest, so this workspace
//! has its own. This workspace has only tests, and most of them are files of
//! `crates/validations` and of the provider's tests, included by path.
//!
//! The traits are the same from 0.1.29 to 0.1.32; later versions only added fields to
//! `WorkItem`. The provider never creates a `WorkItem` variant with such fields and
//! ignores them in patterns. So one source serves all versions without a feature or a
//! build script, and the lock file of a program decides which version it uses.
