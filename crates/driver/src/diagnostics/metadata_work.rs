//! Reads of metadata that an operation waited for.

use std::time::Duration;

/// A read of metadata that an operation waited for. Other operations may have shared it, so
/// its requests and their charge are not in the operation's diagnostics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetadataWork {
    /// The kind of metadata that was read.
    pub kind: MetadataKind,
    /// When the operation began to wait, counted from the start of the operation.
    pub started_after: Duration,
    /// How long the operation waited.
    pub elapsed: Duration,
}

/// The kind of metadata that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetadataKind {
    /// The account: its regions.
    Account,
    /// A container: its properties and its ranges.
    Container,
}

impl MetadataKind {
    /// The name in JSON and logs.
    pub fn name(self) -> &'static str {
        match self {
            MetadataKind::Account => "account",
            MetadataKind::Container => "container",
        }
    }
}
