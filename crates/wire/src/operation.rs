//! The kind of a request, found from its resource, its method and its headers. Counters and
//! fault rules use it. The fault rules of the server and of the driver have the same names for
//! the kinds.

use http::{HeaderMap, HeaderName, Method};

use crate::headers;
use crate::path::Resource;

macro_rules! operations {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// The kind of a request. The verb matters only for documents: any verb on a database
        /// is `Database`, any verb on a container is `Container`, and so on.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum OperationKind { $(
            #[doc = concat!("`", $name, "`")]
            $variant
        ),* }

        impl OperationKind {
            /// All kinds.
            pub const ALL: &[OperationKind] = &[$(OperationKind::$variant),*];

            /// The name of the kind in fault rules and counters.
            pub fn name(self) -> &'static str {
                match self { $(OperationKind::$variant => $name),* }
            }
        }
    };
}

operations! {
    CreateItem = "create_item",
    UpsertItem = "upsert_item",
    ReadItem = "read_item",
    ReplaceItem = "replace_item",
    PatchItem = "patch_item",
    DeleteItem = "delete_item",
    DeletePartition = "delete_partition",
    Batch = "batch",
    Transaction = "transaction",
    Query = "query",
    QueryPlan = "query_plan",
    ReadFeed = "read_feed",
    ChangeFeed = "change_feed",
    ReadRanges = "read_ranges",
    ReadAccount = "read_account",
    Database = "database",
    Container = "container",
    Offer = "offer",
    Other = "other",
}

impl OperationKind {
    /// The kind of this name.
    pub fn parse(name: &str) -> Option<Self> {
        OperationKind::ALL.iter().copied().find(|operation| operation.name() == name)
    }

    /// Whether the operation writes documents. A batch and a distributed transaction count as
    /// writes, although all their operations may be reads.
    pub fn writes_documents(self) -> bool {
        match self {
            OperationKind::CreateItem
            | OperationKind::UpsertItem
            | OperationKind::ReplaceItem
            | OperationKind::PatchItem
            | OperationKind::DeleteItem
            | OperationKind::DeletePartition
            | OperationKind::Batch
            | OperationKind::Transaction => true,
            OperationKind::ReadItem
            | OperationKind::Query
            | OperationKind::QueryPlan
            | OperationKind::ReadFeed
            | OperationKind::ChangeFeed
            | OperationKind::ReadRanges
            | OperationKind::ReadAccount
            | OperationKind::Database
            | OperationKind::Container
            | OperationKind::Offer
            | OperationKind::Other => false,
        }
    }

    /// The kind of a request.
    pub fn of(resource: &Resource, method: &Method, headers: &HeaderMap) -> Self {
        match resource {
            Resource::Account => OperationKind::ReadAccount,
            Resource::Databases | Resource::Database { .. } => OperationKind::Database,
            Resource::Containers { .. } | Resource::Container { .. } => OperationKind::Container,
            Resource::PartitionKeyRanges { .. } => OperationKind::ReadRanges,
            Resource::Offers | Resource::Offer { .. } => OperationKind::Offer,
            Resource::Documents { .. } => OperationKind::of_documents(method, headers),
            Resource::PartitionKeyDelete { .. } => OperationKind::DeletePartition,
            Resource::DistributedTransactions => OperationKind::Transaction,
            Resource::Document { .. } => match *method {
                Method::GET => OperationKind::ReadItem,
                Method::PUT => OperationKind::ReplaceItem,
                Method::PATCH => OperationKind::PatchItem,
                Method::DELETE => OperationKind::DeleteItem,
                _ => OperationKind::Other,
            },
            _ => OperationKind::Other,
        }
    }

    fn of_documents(method: &Method, headers: &HeaderMap) -> Self {
        match *method {
            Method::GET if headers.contains_key(&headers::A_IM) => OperationKind::ChangeFeed,
            Method::GET => OperationKind::ReadFeed,
            Method::POST if flag(headers, &headers::IS_BATCH_REQUEST) => OperationKind::Batch,
            Method::POST if flag(headers, &headers::IS_QUERY_PLAN_REQUEST) => OperationKind::QueryPlan,
            Method::POST if is_query(headers) => OperationKind::Query,
            Method::POST if flag(headers, &headers::IS_UPSERT) => OperationKind::UpsertItem,
            Method::POST => OperationKind::CreateItem,
            _ => OperationKind::Other,
        }
    }
}

/// Whether a header is true. SDKs write `True`, `true` and `1`.
pub fn flag(headers: &HeaderMap, name: &HeaderName) -> bool {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1")
}

/// Whether the body of a request is a query and not a document. The content type decides, not
/// the query header (`docs/cosmos.md`, items).
pub fn is_query(headers: &HeaderMap) -> bool {
    let content_type = headers.get(headers::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.is_some_and(|content_type| {
        content_type.starts_with("application/query+json") || content_type.starts_with("application/sql")
    })
}
