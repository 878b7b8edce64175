//! Distributed transactions on the wire: the request to `POST /operations/dtc` and its answer.
//!
//! Two forms of the request exist. The published SDKs send names and `_rid`s, and say in the
//! header `x-ms-cosmos-operation-type` whether the transaction reads or writes. An early design
//! document of the vendor has other member names and only `_rid`s, and says in the body whether
//! the transaction reads or writes. [`TransactionRequest::parse`] reads both. [`print_answer`]
//! prints the answer, which is the same for both.
//!
//! An answer with results of the operations has a body. Every other answer of the endpoint has
//! none: clients tell the two apart by the body.

mod answer;
mod fingerprint;
mod request;

use std::fmt;

pub use self::answer::{
    AnswerMembers, DIAGNOSTIC_CHARACTERS_MAX, FAST_RESPONSE_MODE, OperationResult, STANDARD_RESPONSE_MODE,
    in_fast_mode, print_answer, status_of_read_transaction,
};
pub use self::fingerprint::{Fingerprint, fingerprint, request_fingerprint};
pub use self::request::{
    BadTransaction, ContainerReference, TransactionLimits, TransactionOperation, TransactionRequest,
};

/// The value of `x-ms-cosmos-operation-type` for a transaction that writes.
pub const WRITE_OPERATION_TYPE: &str = "CommitDistributedTransaction";
/// The value of `x-ms-cosmos-operation-type` for a transaction that reads.
pub const READ_OPERATION_TYPE: &str = "Read";
/// The value of `x-ms-cosmos-resource-type`.
pub const RESOURCE_TYPE: &str = "DistributedTransactionBatch";

/// The most operations of a transaction. The limit of the service is not published; this is
/// the number in the requirement documents of the .NET SDK.
pub const OPERATIONS_MAX: usize = 100;
/// The most bytes of the body of a transaction. This number is in the requirement documents of the
/// .NET SDK too.
pub const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Whether a transaction reads or writes. No transaction does both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionKind {
    /// All operations write: all of them are applied, or none.
    Write,
    /// All operations are point reads, from one snapshot.
    Read,
}

/// The verb of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionVerb {
    /// Stores a new document.
    Create,
    /// Stores a document over an existing one.
    Replace,
    /// Stores a document, new or over an existing one.
    Upsert,
    /// Removes a document.
    Delete,
    /// Changes some paths of a document.
    Patch,
    /// Reads a document.
    Read,
}

impl TransactionVerb {
    const ALL: [(TransactionVerb, &'static str); 6] = [
        (TransactionVerb::Create, "Create"),
        (TransactionVerb::Replace, "Replace"),
        (TransactionVerb::Upsert, "Upsert"),
        (TransactionVerb::Delete, "Delete"),
        (TransactionVerb::Patch, "Patch"),
        (TransactionVerb::Read, "Read"),
    ];

    /// The verb of this `operationType`.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, text)| *text == name).map(|(verb, _)| *verb)
    }

    /// The `operationType` of this verb.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(verb, _)| *verb == self).map_or("", |(_, text)| text)
    }

    /// The kind of the transactions that may have this verb.
    pub fn kind(self) -> TransactionKind {
        match self {
            TransactionVerb::Read => TransactionKind::Read,
            TransactionVerb::Create
            | TransactionVerb::Replace
            | TransactionVerb::Upsert
            | TransactionVerb::Delete
            | TransactionVerb::Patch => TransactionKind::Write,
        }
    }
}

/// The idempotency token of a write transaction: a UUID that the client makes. A second request
/// with the same token and the same body gets the answer of the first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdempotencyToken(u128);

impl IdempotencyToken {
    /// Makes a token from the bits of a UUID.
    pub fn from_bits(bits: u128) -> Self {
        IdempotencyToken(bits)
    }

    /// Parses a UUID of 32 hexadecimal digits in any letter case. Hyphens stand where a UUID
    /// has them, or nowhere.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let is_hyphen = |index: usize| matches!(index, 8 | 13 | 18 | 23);
        let digits: Vec<u8> = match bytes.len() {
            32 => bytes.to_vec(),
            36 if (0..36).all(|index| is_hyphen(index) == (bytes[index] == b'-')) => {
                bytes.iter().copied().filter(|byte| *byte != b'-').collect()
            }
            _ => return None,
        };
        digits
            .iter()
            .try_fold(0, |bits: u128, byte| Some((bits << 4) | u128::from((*byte as char).to_digit(16)?)))
            .map(IdempotencyToken)
    }

    /// The sixteen bytes of the UUID.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The token of these sixteen bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        IdempotencyToken(u128::from_be_bytes(bytes))
    }
}

/// The UUID in lower case, with hyphens.
impl fmt::Display for IdempotencyToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            bits >> 96,
            (bits >> 80) & 0xFFFF,
            (bits >> 64) & 0xFFFF,
            (bits >> 48) & 0xFFFF,
            bits & 0xFFFF_FFFF_FFFF
        )
    }
}

impl fmt::Debug for IdempotencyToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdempotencyToken({self})")
    }
}

#[cfg(test)]
mod tests;
