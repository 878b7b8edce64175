//! Refusals: the status, sub-status and message with which the service refuses
//! an operation, and the layer of the service that refuses it.
//!
//! The layer shows in the answer: in the headers for charge and session token, and in
//! the spelling of the body (docs/cosmos.md).

use perihelion_model::partition_key::PartitionKey;
use perihelion_wire::status::{self, Status};

use crate::state::Position;
use crate::storage::StoreError;

/// A refused operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// The HTTP status code.
    pub status: u16,
    /// The sub-status, if the answer has one.
    pub sub_status: Option<u32>,
    /// The layer of the service that refuses.
    pub layer: Layer,
    /// A sentence: the service's own sentence, if the service has one for this case. For query errors
    /// the message is the JSON that the body embeds.
    pub message: String,
    /// Request units.
    pub charge: f64,
    /// The position of the range, for the session token. `None` if the engine did not
    /// determine the position; the server then uses a default.
    pub position: Option<Position>,
    /// How long a throttled client should wait, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// The query plan that `CROSS_PARTITION_QUERY_NOT_SERVABLE` carries.
    pub plan: Option<Box<str>>,
}

/// The layer of the service that refuses. It decides the headers and the spelling
/// of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// The gateway: authentication, URL, syntax, plan. No charge, no session
    /// token.
    Gateway,
    /// The gateway, with a body in the backend's spelling. No charge, no session token.
    GatewayErrors,
    /// The backend: `Message: {"Errors":["..."]}`.
    Backend,
    /// The backend, before anything was charged: a session token, but no charge. The body
    /// is the backend's.
    BackendUncharged,
    /// The query compiler: `Message: {"errors":[...]}`, where the message is
    /// already JSON. The gateway compiles, so there is no charge.
    QueryCompiler,
    /// The backend for a query that failed while it ran: the compiler's body, with
    /// a charge.
    QueryRuntime,
    /// The backend, about one document, with a plain sentence: not found, conflict,
    /// precondition.
    Document,
}

const NO_SUCH_RESOURCE: &str = "Resource Not Found. Learn more: https://aka.ms/cosmosdb-tsg-not-found";
const NO_SUCH_DOCUMENT: &str = "Entity with the specified id does not exist in the system.";
const DOCUMENT_EXISTS: &str = "Entity with the specified id already exists in the system.";
const RESOURCE_EXISTS: &str = "Resource with specified id, name, or unique index already exists.";
const PRECONDITION: &str =
    "Operation cannot be performed because one of the specified precondition is not met.";

/// The least ceiling of an autoscale throughput, in request units per second.
pub(crate) const AUTOSCALE_MIN: u64 = 1_000;

/// How long a client should wait when the disk is full.
const FULL_DISK_RETRY_MS: u64 = 1000;

impl Refusal {
    /// A refusal without charge.
    pub fn new(status: impl Into<Status>, layer: Layer, message: impl Into<String>) -> Self {
        let status = status.into();
        Refusal {
            status: status.code,
            sub_status: (status.sub != 0).then_some(status.sub),
            layer,
            message: message.into(),
            charge: 0.0,
            position: None,
            retry_after_ms: None,
            plan: None,
        }
    }

    /// Sets the charge.
    pub fn with_charge(mut self, charge: f64) -> Self {
        self.charge = charge;
        self
    }

    /// Sets the position, unless it is set already.
    pub fn at(mut self, position: Position) -> Self {
        self.position.get_or_insert(position);
        self
    }

    /// A refusal of the gateway.
    pub fn gateway(status: impl Into<Status>, message: impl Into<String>) -> Self {
        Refusal::new(status, Layer::Gateway, message)
    }

    /// The request is not acceptable.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Refusal::new(status::BAD_REQUEST, Layer::Backend, message)
    }

    /// The database, container, offer, script, user or permission does not exist.
    pub fn no_such_resource() -> Self {
        Refusal::new(status::NOT_FOUND, Layer::Backend, NO_SUCH_RESOURCE)
    }

    /// The document does not exist.
    pub fn no_such_document() -> Self {
        Refusal::new(status::NOT_FOUND, Layer::Document, NO_SUCH_DOCUMENT)
    }

    /// The id or unique key of a document exists already.
    pub fn document_exists() -> Self {
        Refusal::new(status::CONFLICT, Layer::Document, DOCUMENT_EXISTS)
    }

    /// The id of a database, container, script, user or permission exists already.
    pub fn resource_exists() -> Self {
        Refusal::new(status::CONFLICT, Layer::Backend, RESOURCE_EXISTS)
    }

    /// The etag of a precondition does not match.
    pub fn precondition_failed() -> Self {
        Refusal::new(status::PRECONDITION_FAILED, Layer::Document, PRECONDITION)
    }

    /// The document does not meet the condition of a patch.
    pub fn patch_condition_not_met() -> Self {
        Refusal::new(status::PATCH_CONDITION_NOT_MET, Layer::Document, PRECONDITION)
    }

    /// The body cannot be read.
    pub fn invalid_payload() -> Self {
        Refusal::bad_request("The request payload is invalid. Ensure to provide a valid request payload.")
    }

    /// A value of the request is not acceptable.
    pub fn invalid_input() -> Self {
        Refusal::bad_request("One of the specified inputs is invalid")
    }

    /// The id of a resource is empty or too long.
    pub fn invalid_name(name: &str, characters_max: usize) -> Self {
        Refusal::bad_request(format!(
            "The input name '{name}' is invalid. Ensure to provide a unique non-empty string less than '{characters_max}' characters."
        ))
    }

    /// The ceiling of autoscale is below the service's minimum.
    pub fn autoscale_too_small(requested: impl std::fmt::Display) -> Self {
        Refusal::bad_request(format!(
            "Requested throughput {requested} is less than required minimum throughput {AUTOSCALE_MIN}."
        ))
    }

    /// The document is larger than the service accepts.
    pub fn too_large() -> Self {
        Refusal::gateway(status::TOO_LARGE, "Request size is too large")
    }

    /// A request, or an operation of a batch, has no partition key.
    pub fn partition_key_missing() -> Self {
        // The doubled article is the service's own.
        Refusal::new(
            status::PARTITION_KEY_MISMATCH,
            Layer::Backend,
            "The partition key supplied in x-ms-partitionkey header has fewer components than defined in the the collection.",
        )
    }

    /// A partition key has another number of levels than the container's; an empty key has none.
    pub fn partition_key_of_other_levels(key: &PartitionKey) -> Self {
        let message = if key.values.is_empty() {
            format!("Partition key [{}] is invalid.", key.to_header())
        } else {
            "Partition key provided either doesn't correspond to definition in the collection or doesn't match partition key field values specified in the document.".to_owned()
        };
        Refusal::new(status::PARTITION_KEY_MISMATCH, Layer::Backend, message)
    }

    /// The partition key of the request differs from that of the document.
    pub fn partition_key_mismatch() -> Self {
        Refusal::new(
            status::PARTITION_KEY_MISMATCH,
            Layer::Backend,
            "PartitionKey extracted from document doesn't match the one specified in the header.",
        )
    }

    /// The physical partition was split, does not exist, or does not hold the key.
    pub fn range_gone() -> Self {
        Refusal::new(
            status::PARTITION_KEY_RANGE_GONE,
            Layer::Backend,
            "The requested resource is no longer available at the server.",
        )
    }

    /// This region has not applied the writes of the session token.
    pub fn session_not_available() -> Self {
        Refusal::new(
            status::READ_SESSION_NOT_AVAILABLE,
            Layer::Backend,
            "The read session is not available for the input session token.",
        )
    }

    /// This region does not take writes.
    pub fn write_forbidden() -> Self {
        Refusal::new(
            status::WRITE_FORBIDDEN,
            Layer::BackendUncharged,
            "The requested operation cannot be performed at this region",
        )
    }

    /// The outbox is full: another region has not applied it for too long.
    pub fn replication_behind() -> Self {
        Refusal::new(
            status::SERVICE_UNAVAILABLE,
            Layer::BackendUncharged,
            "Another region has not applied the writes of this region for too long; heal its replication and try again.",
        )
    }

    /// This region has not copied the catalog that a write of another region belongs to.
    pub fn catalog_behind() -> Self {
        Refusal::new(
            status::SERVICE_UNAVAILABLE,
            Layer::BackendUncharged,
            "This region does not know the container or range of another region's write yet; copy the catalog first.",
        )
    }

    /// The request rate is above the throughput.
    pub fn throttled(retry_after_ms: u64) -> Self {
        let mut refusal = Refusal::new(status::TOO_MANY_REQUESTS,
            Layer::Backend,
            "Request rate is large. More Request Units may be needed, so no changes were made. Please retry this request later. Learn more: http://aka.ms/cosmosdb-error-429",
        )
        // The charge of a throttled request, as recorded from the service.
        .with_charge(0.38);
        refusal.retry_after_ms = Some(retry_after_ms);
        refusal
    }

    /// The store failed; a write may or may not have happened. Logs the error.
    pub fn storage(error: &StoreError) -> Self {
        tracing::error!(%error, "storage failed");
        Refusal::new(
            status::INTERNAL_SERVER_ERROR,
            Layer::Backend,
            "The storage of this server failed; see its log.",
        )
    }

    /// The disk has no room for a write, which was not performed. The client may try again
    /// later. Logs the error.
    pub fn storage_full(error: &StoreError) -> Self {
        tracing::error!(%error, "the disk is full");
        let mut refusal = Refusal::new(
            status::SERVICE_UNAVAILABLE,
            Layer::Backend,
            "The disk of this server is full, so it takes no writes; try again later.",
        );
        refusal.retry_after_ms = Some(FULL_DISK_RETRY_MS);
        refusal
    }

    /// An operation failed because of a defect of this program. Nothing was written.
    pub fn failed_job() -> Self {
        Refusal::new(
            status::INTERNAL_SERVER_ERROR,
            Layer::Backend,
            "The operation failed inside this server, and changed nothing; see its log.",
        )
    }

    /// The writer takes no more jobs: the server is stopping, or a commit has failed.
    pub fn stopping() -> Self {
        Refusal::new(
            status::SERVICE_UNAVAILABLE,
            Layer::Backend,
            "The server is stopping, or its storage failed; try again on another connection, or see its log.",
        )
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Refusal::storage(&error)
    }
}
