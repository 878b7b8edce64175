//! The provider as a program on duroxide 0.1.29 sees it. One lock file holds one
//! 0.1 version of duroxide, and the product's has the newest, so this workspace
//! has its own. There is nothing here but tests, and most of them are the
//! provider's own files, included by path: what passes there passes here.
//!
//! The traits are the same from 0.1.29 to 0.1.32; only fields of `WorkItem`
//! came. The provider reads those by pattern and never makes one, so that one
//! source serves all versions without a feature or a build script: a program's
//! own lock file decides.
