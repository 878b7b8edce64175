//! Operations: what a caller asks of the service. An operation has a verb, a
//! target and the partitions it goes to. It also says whether it may be repeated when its
//! answer is lost.
//!
//! The pipeline does not change an [`Operation`]. Endpoint, session token and
//! signature, which may differ from attempt to attempt, are not part of it.

mod target;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use perihelion_model::partition_key::{EffectiveRange, PartitionKey};
use perihelion_wire::headers;
use perihelion_wire::transaction::IdempotencyToken;

use crate::region::Region;

pub use target::{Link, Target};

/// One operation.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The verb: what the operation does.
    pub verb: Verb,
    /// The resource.
    pub target: Target,
    /// The partitions that the operation goes to.
    pub scope: Scope,
    /// Headers in addition to those of verb, scope and options. They replace headers of
    /// the same name.
    pub headers: HeaderMap,
    /// The body; empty for none.
    pub body: Bytes,
    /// Whether the operation may be sent again when its answer was lost.
    pub idempotency: Idempotency,
    /// The value that shows whether the write was applied, when its answer was lost.
    pub witness: Option<Witness>,
    /// The region that gave the continuation of a change feed
    /// ([`Response::region`](crate::Response::region)). Where every region takes writes, the
    /// continuation is valid only in that region. The operation then goes to no other region.
    pub continuation_region: Option<Region>,
    /// The facts about a distributed transaction that the pipeline needs; `None` for all other
    /// operations.
    pub transaction: Option<TransactionFacts>,
}

/// The facts about a distributed transaction that the pipeline needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionFacts {
    /// The idempotency token of the first attempt. When the service has aborted the transaction
    /// and says that it may be repeated, the next attempt has the token's successor.
    pub token: IdempotencyToken,
    /// The number of operations. A complete answer has one result for each.
    pub operations: usize,
    /// Whether this is a write whose token may have been used before. If so, the outcome is
    /// unknown until the service decides it.
    pub is_replay: bool,
}

/// The verb of an operation: what the operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Reads one resource.
    Read,
    /// Creates a resource that must not exist.
    Create,
    /// Creates or replaces a document.
    Upsert,
    /// Replaces a resource that must exist.
    Replace,
    /// Deletes a resource.
    Delete,
    /// Changes parts of a document.
    Patch,
    /// Runs a query.
    Query,
    /// Asks the service for the plan of a query over several partitions.
    QueryPlan,
    /// Lists the children of a resource.
    ReadFeed,
    /// Reads the change feed of a container.
    ChangeFeed,
    /// Runs several writes and reads of one partition atomically.
    Batch,
    /// Commits a distributed transaction: writes of several partitions and containers, all of
    /// them or none.
    WriteTransaction,
    /// Reads documents of several partitions and containers from one snapshot.
    ReadTransaction,
}

impl Verb {
    /// Whether the operation only reads, so that it may be repeated.
    pub fn is_read(self) -> bool {
        match self {
            Verb::Read
            | Verb::Query
            | Verb::QueryPlan
            | Verb::ReadFeed
            | Verb::ChangeFeed
            | Verb::ReadTransaction => true,
            Verb::Create
            | Verb::Upsert
            | Verb::Replace
            | Verb::Delete
            | Verb::Patch
            | Verb::Batch
            | Verb::WriteTransaction => false,
        }
    }

    /// Whether the operation is a distributed transaction. Transactions have retry rules of their
    /// own, and always go to the account's write region, even those that only read.
    pub fn is_transaction(self) -> bool {
        matches!(self, Verb::WriteTransaction | Verb::ReadTransaction)
    }

    /// The HTTP method.
    pub fn method(self) -> Method {
        match self {
            Verb::Read | Verb::ReadFeed | Verb::ChangeFeed => Method::GET,
            Verb::Create
            | Verb::Upsert
            | Verb::Query
            | Verb::QueryPlan
            | Verb::Batch
            | Verb::WriteTransaction
            | Verb::ReadTransaction => Method::POST,
            Verb::Replace => Method::PUT,
            Verb::Delete => Method::DELETE,
            Verb::Patch => Method::PATCH,
        }
    }

    /// The name of the verb, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Read => "read",
            Verb::Create => "create",
            Verb::Upsert => "upsert",
            Verb::Replace => "replace",
            Verb::Delete => "delete",
            Verb::Patch => "patch",
            Verb::Query => "query",
            Verb::QueryPlan => "query_plan",
            Verb::ReadFeed => "read_feed",
            Verb::ChangeFeed => "change_feed",
            Verb::Batch => "batch",
            Verb::WriteTransaction => "write_transaction",
            Verb::ReadTransaction => "read_transaction",
        }
    }
}

/// The kind of a resource. The signature, the default options, retries and hedging
/// depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResourceKind {
    /// The account itself.
    Account,
    /// Databases.
    Database,
    /// Containers.
    Container,
    /// Documents. Documents and distributed transactions are the data plane, all other kinds
    /// are metadata.
    Item,
    /// Partition key ranges.
    Range,
    /// Offers: provisioned throughput.
    Offer,
    /// Distributed transactions.
    Transaction,
}

impl ResourceKind {
    /// The resource type that is signed.
    pub fn signing_type(self) -> &'static str {
        match self {
            // The SDKs sign a transaction without a type and without a link.
            ResourceKind::Account | ResourceKind::Transaction => "",
            ResourceKind::Database => "dbs",
            ResourceKind::Container => "colls",
            ResourceKind::Item => "docs",
            ResourceKind::Range => "pkranges",
            ResourceKind::Offer => "offers",
        }
    }
}

/// The partitions that an operation goes to.
#[derive(Debug, Clone)]
pub enum Scope {
    /// The resource is not partitioned.
    Unpartitioned,
    /// One logical partition (or, for queries, a prefix of a hierarchical key).
    Key(KeyScope),
    /// One physical partition.
    Range(Arc<str>),
    /// A part of one physical partition.
    Slice(Arc<str>, EffectiveRange),
    /// All partitions. The gateway of the service runs the query on each partition.
    Everywhere,
}

/// A partition key and its header.
#[derive(Debug, Clone)]
pub struct KeyScope {
    /// The key.
    pub key: PartitionKey,
    /// `x-ms-documentdb-partitionkey`.
    pub header: HeaderValue,
}

/// Idempotency: whether an operation may be sent again when its answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Idempotency {
    /// The operation may be sent again, because applying it twice changes nothing:
    /// reads, unconditional upserts, replaces and deletes, and patches that only set
    /// values.
    Idempotent,
    /// The operation may be sent again, because the service checks a condition (the id must be
    /// new, the etag must match) and refuses the second of two attempts: creates and writes with
    /// `If-Match`. When the second attempt is refused (409, 412, 404), the first attempt may be
    /// the reason. There is one exception: a created document that another client has deleted
    /// meanwhile is created again, unless the operation has a [`Witness`] that the deletion does
    /// not remove.
    Conditional,
    /// The operation must not be sent again, because the service may apply both
    /// attempts: increments, and batches without a condition.
    NotIdempotent,
}

/// A witness: a value that only this write can have left behind. A read of the
/// value shows whether the write was applied. If it was applied, the document `id` in the
/// operation's partition has `value` at `pointer`.
///
/// Later writes must keep the value. A member that the next writer overwrites
/// cannot be a witness: if both writes were applied, the first write would be reported
/// as refused or as ambiguous.
#[derive(Debug, Clone)]
pub struct Witness {
    /// The document to read.
    pub id: String,
    /// The place of the value in the document: a JSON pointer (RFC 6901).
    pub pointer: String,
    /// A value that no other write stores at `pointer`.
    pub value: serde_json::Value,
}

impl Operation {
    /// An operation with the default [`Idempotency`] of its verb and no extra headers.
    pub fn new(verb: Verb, target: Target, scope: Scope, body: Bytes) -> Self {
        let idempotency = match verb {
            Verb::Create => Idempotency::Conditional,
            Verb::Patch | Verb::Batch => Idempotency::NotIdempotent,
            Verb::Read
            | Verb::Upsert
            | Verb::Replace
            | Verb::Delete
            | Verb::Query
            | Verb::QueryPlan
            | Verb::ReadFeed
            | Verb::ChangeFeed
            // The service answers a repeated token as it answered the first request.
            | Verb::WriteTransaction
            | Verb::ReadTransaction => Idempotency::Idempotent,
        };
        Operation {
            verb,
            target,
            scope,
            headers: HeaderMap::new(),
            body,
            idempotency,
            witness: None,
            continuation_region: None,
            transaction: None,
        }
    }

    /// Makes the operation conditional: the resource must have this etag. The service then
    /// applies a write at most once. The etag `*` matches every version, so it does not change
    /// whether the operation may be repeated.
    pub fn with_if_match(mut self, etag: HeaderValue) -> Self {
        if !self.verb.is_read() && etag != "*" {
            self.idempotency = Idempotency::Conditional;
        }
        self.headers.insert(headers::IF_MATCH, etag);
        self
    }

    /// Adds a header. It replaces a header of the same name.
    pub fn with_header(mut self, name: http::HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Sets whether the operation may be sent again when its answer was lost.
    pub fn with_idempotency(mut self, idempotency: Idempotency) -> Self {
        self.idempotency = idempotency;
        self
    }

    /// Sets the witness that shows whether a lost write was applied.
    pub fn with_witness(mut self, witness: Witness) -> Self {
        self.witness = Some(witness);
        self
    }

    /// Sets the region that gave the continuation of a change feed.
    pub fn with_continuation_region(mut self, region: Region) -> Self {
        self.continuation_region = Some(region);
        self
    }

    /// Sets the facts about a distributed transaction.
    pub fn with_transaction(mut self, facts: TransactionFacts) -> Self {
        self.transaction = Some(facts);
        self
    }

    /// Whether the operation is on documents, and not on metadata. Distributed transactions are
    /// on documents.
    pub fn is_data_plane(&self) -> bool {
        matches!(self.target.kind, ResourceKind::Item | ResourceKind::Transaction)
    }
}

impl KeyScope {
    /// The scope of a key. Makes the header of the key.
    pub fn new(key: PartitionKey) -> Self {
        // The text becomes the header without a copy, and clones of the header share it.
        let header = HeaderValue::from_maybe_shared(Bytes::from(escape_non_ascii(key.to_header())))
            .expect("control characters are escaped by JSON");
        KeyScope { key, header }
    }
}

/// Writes characters that are not printable ASCII as `\uXXXX`, because headers are
/// ASCII. The JSON value stays the same.
fn escape_non_ascii(text: String) -> String {
    use std::fmt::Write;
    if text.bytes().all(|byte| (0x20..0x7F).contains(&byte)) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if (' '..='~').contains(&letter) {
            escaped.push(letter);
        } else {
            let mut units = [0; 2];
            for unit in letter.encode_utf16(&mut units) {
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_header_is_ascii() {
        let key = PartitionKey::from_header("[\"Zoë\", 1, true]").unwrap();
        assert_eq!(KeyScope::new(key).header.to_str().unwrap(), "[\"Zo\\u00eb\",1,true]");
    }
}
