//! Why the database says no: a status, a sub-status, the service's sentence,
//! and which layer of the service would have said it.
//!
//! The layer matters because it shows in the answer: a gateway refusal has no
//! charge and no session token, a backend one has both, and the three body
//! spellings differ (`docs/cosmos.md`, answers).

use crate::state::Position;

/// A refused operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    pub status: u16,
    pub sub_status: Option<u32>,
    pub layer: Layer,
    /// The service's sentence, or for query errors the embedded JSON.
    pub message: String,
    pub charge: f64,
    /// Where the operation was refused, for the session token.
    pub position: Option<Position>,
    pub retry_after_ms: Option<u64>,
    /// The query plan that a 400/1004 carries.
    pub plan: Option<Box<str>>,
}

/// Who refused, which decides headers and the spelling of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// Auth, URL, syntax, plan: no charge, no session token.
    Gateway,
    /// The gateway, in the backend's spelling.
    GatewayErrors,
    /// `Message: {"Errors":["..."]}`.
    Backend,
    /// The same, before anything was charged.
    BackendUncharged,
    /// `Message: {"errors":[...]}` with the message already JSON; the gateway
    /// compiles, so no charge.
    QueryCompiler,
    /// The same body from the backend: a query that failed while it ran.
    QueryRuntime,
    /// A plain sentence: document not found, conflict, precondition.
    Document,
}

/// Sub-statuses, each number once.
pub mod sub_status {
    pub const WRITE_FORBIDDEN: u32 = 3;
    pub const PARTITION_KEY_MISMATCH: u32 = 1001;
    pub const READ_SESSION_NOT_AVAILABLE: u32 = 1002;
    pub const CROSS_PARTITION_QUERY_NOT_SERVABLE: u32 = 1004;
    pub const PARTITION_KEY_RANGE_GONE: u32 = 1002;
    pub const COLLECTION_RID_MISMATCH: u32 = 1024;
    pub const REQUEST_RATE_TOO_LARGE: u32 = 3200;
}

pub(crate) const NO_SUCH_RESOURCE: &str =
    "Resource Not Found. Learn more: https://aka.ms/cosmosdb-tsg-not-found";
pub(crate) const NO_SUCH_DOCUMENT: &str = "Entity with the specified id does not exist in the system.";
const DOCUMENT_EXISTS: &str = "Entity with the specified id already exists in the system.";
const RESOURCE_EXISTS: &str = "Resource with specified id, name, or unique index already exists.";
const PRECONDITION: &str =
    "Operation cannot be performed because one of the specified precondition is not met.";

impl Refusal {
    pub fn new(status: u16, layer: Layer, message: impl Into<String>) -> Self {
        Refusal {
            status,
            sub_status: None,
            layer,
            message: message.into(),
            charge: 0.0,
            position: None,
            retry_after_ms: None,
            plan: None,
        }
    }

    pub fn with_sub_status(mut self, sub_status: u32) -> Self {
        self.sub_status = Some(sub_status);
        self
    }

    pub fn with_charge(mut self, charge: f64) -> Self {
        self.charge = charge;
        self
    }

    pub fn at(mut self, position: Position) -> Self {
        self.position.get_or_insert(position);
        self
    }

    pub fn gateway(status: u16, message: impl Into<String>) -> Self {
        Refusal::new(status, Layer::Gateway, message)
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Refusal::new(400, Layer::Backend, message)
    }

    pub fn no_such_resource() -> Self {
        Refusal::new(404, Layer::Backend, NO_SUCH_RESOURCE)
    }

    pub fn no_such_document() -> Self {
        Refusal::new(404, Layer::Document, NO_SUCH_DOCUMENT)
    }

    pub fn document_exists() -> Self {
        Refusal::new(409, Layer::Document, DOCUMENT_EXISTS)
    }

    pub fn resource_exists() -> Self {
        Refusal::new(409, Layer::Backend, RESOURCE_EXISTS)
    }

    pub fn precondition_failed() -> Self {
        Refusal::new(412, Layer::Document, PRECONDITION)
    }

    pub fn invalid_payload() -> Self {
        Refusal::bad_request("The request payload is invalid. Ensure to provide a valid request payload.")
    }

    pub fn invalid_input() -> Self {
        Refusal::bad_request("One of the specified inputs is invalid")
    }

    pub fn too_large() -> Self {
        Refusal::gateway(413, "Request size is too large")
    }

    pub fn partition_key_missing() -> Self {
        // The doubled article is the service's own.
        Refusal::bad_request(
            "The partition key supplied in x-ms-partitionkey header has fewer components than defined in the the collection.",
        )
        .with_sub_status(sub_status::PARTITION_KEY_MISMATCH)
    }

    pub fn partition_key_mismatch() -> Self {
        Refusal::bad_request(
            "PartitionKey extracted from document doesn't match the one specified in the header.",
        )
        .with_sub_status(sub_status::PARTITION_KEY_MISMATCH)
    }

    pub fn range_gone() -> Self {
        Refusal::new(410, Layer::Backend, "The requested resource is no longer available at the server.")
            .with_sub_status(sub_status::PARTITION_KEY_RANGE_GONE)
    }

    pub fn session_not_available() -> Self {
        Refusal::new(404, Layer::Backend, "The read session is not available for the input session token.")
            .with_sub_status(sub_status::READ_SESSION_NOT_AVAILABLE)
    }

    /// This region does not take writes.
    pub fn write_forbidden() -> Self {
        Refusal::new(
            403,
            Layer::BackendUncharged,
            "The requested operation cannot be performed at this region",
        )
        .with_sub_status(sub_status::WRITE_FORBIDDEN)
    }

    /// So much waits for other regions that no more is taken in.
    pub fn replication_behind() -> Self {
        Refusal::new(
            503,
            Layer::BackendUncharged,
            "Another region has not applied the writes of this one for too long; heal its replication and try again.",
        )
    }

    pub fn throttled(retry_after_ms: u64) -> Self {
        let mut refusal = Refusal::new(
            429,
            Layer::Backend,
            "Request rate is large. More Request Units may be needed, so no changes were made. Please retry this request later. Learn more: http://aka.ms/cosmosdb-error-429",
        )
        .with_sub_status(sub_status::REQUEST_RATE_TOO_LARGE)
        // What a throttled request cost when it was recorded.
        .with_charge(0.38);
        refusal.retry_after_ms = Some(retry_after_ms);
        refusal
    }

    /// The store failed; what was asked may or may not have happened.
    pub fn storage(error: &crate::storage::StoreError) -> Self {
        tracing::error!(%error, "storage failed");
        Refusal::new(500, Layer::Backend, "The storage of this server failed; see its log.")
    }

    /// The writer is gone: the server is stopping.
    pub fn stopping() -> Self {
        Refusal::new(503, Layer::Backend, "The server is stopping; try again on another connection.")
    }
}

impl From<crate::storage::StoreError> for Refusal {
    fn from(error: crate::storage::StoreError) -> Self {
        Refusal::storage(&error)
    }
}
