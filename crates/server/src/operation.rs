//! `Operation`: the kind of a request, for counters and for fault rules.

use http::Method;
use perihelion_wire::headers;
use perihelion_wire::path::Resource;

use crate::call::Call;

macro_rules! operations {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// The kinds of request that are counted and can be made to fail.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) enum Operation { $($variant),* }

        impl Operation {
            pub(crate) const ALL: &[Operation] = &[$(Operation::$variant),*];

            pub(crate) fn name(self) -> &'static str {
                match self { $(Operation::$variant => $name),* }
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

impl Operation {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Operation::ALL.iter().copied().find(|operation| operation.name() == name)
    }

    /// Whether the operation writes documents. A batch counts as a write, although it may
    /// only read.
    pub(crate) fn writes_documents(self) -> bool {
        match self {
            Operation::CreateItem
            | Operation::UpsertItem
            | Operation::ReplaceItem
            | Operation::PatchItem
            | Operation::DeleteItem
            | Operation::DeletePartition
            | Operation::Batch => true,
            Operation::ReadItem
            | Operation::Query
            | Operation::QueryPlan
            | Operation::ReadFeed
            | Operation::ChangeFeed
            | Operation::ReadRanges
            | Operation::ReadAccount
            | Operation::Database
            | Operation::Container
            | Operation::Offer
            | Operation::Other => false,
        }
    }

    /// The operation of a call. The verb matters only for documents: any verb on a
    /// database is `Database`, any verb on a container is `Container`, and so on.
    pub(crate) fn of(call: &Call) -> Self {
        match &call.resource {
            Resource::Account => Operation::ReadAccount,
            Resource::Databases | Resource::Database { .. } => Operation::Database,
            Resource::Containers { .. } | Resource::Container { .. } => Operation::Container,
            Resource::PartitionKeyRanges { .. } => Operation::ReadRanges,
            Resource::Offers | Resource::Offer { .. } => Operation::Offer,
            Resource::Documents { .. } => Operation::of_documents(call),
            Resource::PartitionKeyDelete { .. } => Operation::DeletePartition,
            Resource::Document { .. } => match call.method {
                Method::GET => Operation::ReadItem,
                Method::PUT => Operation::ReplaceItem,
                Method::PATCH => Operation::PatchItem,
                Method::DELETE => Operation::DeleteItem,
                _ => Operation::Other,
            },
            _ => Operation::Other,
        }
    }

    fn of_documents(call: &Call) -> Self {
        match call.method {
            Method::GET if call.headers.contains_key(&headers::A_IM) => Operation::ChangeFeed,
            Method::GET => Operation::ReadFeed,
            Method::POST if call.flag(&headers::IS_BATCH_REQUEST) => Operation::Batch,
            Method::POST if call.flag(&headers::IS_QUERY_PLAN_REQUEST) => Operation::QueryPlan,
            Method::POST if call.is_query() => Operation::Query,
            Method::POST if call.flag(&headers::IS_UPSERT) => Operation::UpsertItem,
            Method::POST => Operation::CreateItem,
            _ => Operation::Other,
        }
    }
}
