//! The names of the headers that the service and its clients exchange.
//!
//! The names are constants, so that a misspelt name does not compile. They are in lower
//! case, as the crate `http` and HTTP/2 require. Where clients use two
//! spellings, both are here and the comment says which client sends which.

use http::HeaderName;

/// Declares the constants of the header names, each beside its text.
macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $(
            #[doc = concat!("`", $text, "`")]
            #[doc = ""]
            $(#[$doc])*
            pub const $name: HeaderName = HeaderName::from_static($text);
        )*

        /// The text of every name declared here.
        #[cfg(test)]
        const TEXTS: &[&str] = &[$($text),*];
    };
}

names! {
    // Requests of all kinds.
    AUTHORIZATION = "authorization";
    /// The signed date. When it is absent, `DATE` is the signed date.
    MS_DATE = "x-ms-date";
    DATE = "date";
    /// The REST API version, e.g. `2018-12-31`.
    VERSION = "x-ms-version";
    HOST = "host";
    USER_AGENT = "user-agent";
    ACCEPT = "accept";
    ACCEPT_ENCODING = "accept-encoding";
    CONTENT_TYPE = "content-type";
    CONTENT_LENGTH = "content-length";
    CONTENT_ENCODING = "content-encoding";
    /// `return=minimal` asks for no body after a write.
    PREFER = "prefer";
    IF_MATCH = "if-match";
    IF_NONE_MATCH = "if-none-match";
    IF_MODIFIED_SINCE = "if-modified-since";
    /// `Incremental feed` or `Full-Fidelity Feed`: the request reads a change feed.
    /// Clients send `Incremental feed` also when they read the ranges of a container.
    A_IM = "a-im";
    /// The intended method, when the client can only send POST.
    HTTP_METHOD_OVERRIDE = "x-http-method";

    // Items and their partition keys.
    PARTITION_KEY = "x-ms-documentdb-partitionkey";
    IS_UPSERT = "x-ms-documentdb-is-upsert";
    /// The `_rid` of the container that the client means. When the container has another
    /// `_rid`, the service answers 400/1024.
    INTENDED_COLLECTION_RID = "x-ms-cosmos-intended-collection-rid";
    INDEXING_DIRECTIVE = "x-ms-indexing-directive";
    PRE_TRIGGER_INCLUDE = "x-ms-documentdb-pre-trigger-include";
    POST_TRIGGER_INCLUDE = "x-ms-documentdb-post-trigger-include";

    // Consistency, routing, formats, and what the client says about itself.
    CONSISTENCY_LEVEL = "x-ms-consistency-level";
    SESSION_TOKEN = "x-ms-session-token";
    ALLOW_TENTATIVE_WRITES = "x-ms-cosmos-allow-tentative-writes";
    PRIORITY_LEVEL = "x-ms-cosmos-priority-level";
    THROUGHPUT_BUCKET = "x-ms-cosmos-throughput-bucket";
    DEDICATED_GATEWAY_MAX_AGE = "x-ms-dedicatedgateway-max-age";
    DEDICATED_GATEWAY_BYPASS_CACHE = "x-ms-dedicatedgateway-bypass-cache";
    /// `JsonText`, `CosmosBinary`, `HybridRow`: the formats that the client accepts.
    SUPPORTED_SERIALIZATION_FORMATS = "x-ms-cosmos-supported-serialization-formats";
    CONTENT_SERIALIZATION_FORMAT = "x-ms-documentdb-content-serialization-format";
    USE_THIN_CLIENT = "x-ms-cosmos-use-thinclient";
    SDK_SUPPORTED_CAPABILITIES = "x-ms-cosmos-sdk-supportedcapabilities";
    CLIENT_ID = "x-ms-client-id";
    CLIENT_REQUEST_ID = "x-ms-client-request-id";
    RETURN_CLIENT_REQUEST_ID = "x-ms-return-client-request-id";
    CORRELATED_ACTIVITY_ID = "x-ms-cosmos-correlated-activityid";
    PROXY_OPERATION_TYPE = "x-ms-thinclient-proxy-operation-type";
    PROXY_RESOURCE_TYPE = "x-ms-thinclient-proxy-resource-type";
    NO_RETRY_ON_449 = "x-ms-noretry-449";
    EXCLUDED_LOCATIONS = "x-ms-cosmos-excluded-locations";
    HUB_REGION_PROCESSING_ONLY = "x-ms-cosmos-hub-region-processing-only";
    /// How fresh a read has to be, such as `LatestCommitted` or `GlobalStrong`.
    READ_CONSISTENCY_STRATEGY = "x-ms-cosmos-read-consistency-strategy";

    // Databases, containers and their throughput.
    OFFER_THROUGHPUT = "x-ms-offer-throughput";
    OFFER_AUTOPILOT_SETTINGS = "x-ms-cosmos-offer-autopilot-settings";
    MIGRATE_OFFER_TO_AUTOPILOT = "x-ms-cosmos-migrate-offer-to-autopilot";
    MIGRATE_OFFER_TO_MANUAL = "x-ms-cosmos-migrate-offer-to-manual-throughput";
    OFFER_REPLACE_PENDING = "x-ms-offer-replace-pending";
    POPULATE_QUOTA_INFO = "x-ms-documentdb-populatequotainfo";
    POPULATE_PARTITION_STATISTICS = "x-ms-documentdb-populatepartitionstatistics";
    RESOURCE_TOKEN_EXPIRY_SECONDS = "x-ms-documentdb-expiry-seconds";

    // Feeds and queries.
    MAX_ITEM_COUNT = "x-ms-max-item-count";
    CONTINUATION = "x-ms-continuation";
    /// Marks a POST as a query (Python, JavaScript, .NET, Rust).
    IS_QUERY = "x-ms-documentdb-isquery";
    /// Marks a POST as a query (Go).
    IS_QUERY_GO = "x-ms-documentdb-query";
    QUERY_VERSION = "x-ms-cosmos-query-version";
    ENABLE_CROSS_PARTITION = "x-ms-documentdb-query-enablecrosspartition";
    ENABLE_SCAN_IN_QUERY = "x-ms-documentdb-query-enable-scan";
    ENABLE_LOW_PRECISION_ORDER_BY = "x-ms-documentdb-query-enable-low-precision-order-by";
    IS_CONTINUATION_EXPECTED = "x-ms-documentdb-query-iscontinuationexpected";
    PARALLELIZE_CROSS_PARTITION = "x-ms-documentdb-query-parallelizecrosspartitionquery";
    POPULATE_QUERY_METRICS = "x-ms-documentdb-populatequerymetrics";
    POPULATE_INDEX_METRICS = "x-ms-cosmos-populateindexmetrics";
    POPULATE_QUERY_ADVICE = "x-ms-cosmos-populatequeryadvice";
    OPTIMISTIC_DIRECT_EXECUTE = "x-ms-cosmos-query-optimisticdirectexecute";
    CONTINUATION_LIMIT_KB = "x-ms-documentdb-responsecontinuationtokenlimitinkb";
    IS_QUERY_PLAN_REQUEST = "x-ms-cosmos-is-query-plan-request";
    SUPPORTED_QUERY_FEATURES = "x-ms-cosmos-supported-query-features";
    PARTITION_KEY_RANGE_ID = "x-ms-documentdb-partitionkeyrangeid";
    /// `EffectivePartitionKeyRange` when `START_EPK` and `END_EPK` bound what the request reads.
    READ_KEY_TYPE = "x-ms-read-key-type";
    START_EPK = "x-ms-start-epk";
    END_EPK = "x-ms-end-epk";
    START_ID = "x-ms-start-id";
    END_ID = "x-ms-end-id";
    ENUMERATION_DIRECTION = "x-ms-enumeration-direction";
    CHANGE_FEED_WIRE_FORMAT_VERSION = "x-ms-cosmos-changefeed-wire-format-version";
    CHANGE_FEED_START_FULL_FIDELITY = "x-ms-cosmos-start-full-fidelity-if-none-match";

    // Batches.
    IS_BATCH_REQUEST = "x-ms-cosmos-is-batch-request";
    BATCH_ATOMIC = "x-ms-cosmos-batch-atomic";
    BATCH_ORDERED = "x-ms-cosmos-batch-ordered";
    BATCH_CONTINUE_ON_ERROR = "x-ms-cosmos-batch-continue-on-error";

    // Distributed transactions.
    /// The idempotency token, by the name that the published SDKs send, on reads too.
    IDEMPOTENCY_TOKEN = "x-ms-cosmos-idempotency-token";
    /// The idempotency token, by its name in an early design document of the vendor.
    IDEMPOTENCY_TOKEN_SPEC = "x-ms-idempotency-token";
    OPERATION_TYPE = "x-ms-cosmos-operation-type";
    RESOURCE_TYPE = "x-ms-cosmos-resource-type";
    /// Why a transaction was refused. Only our server sends this header. The reason cannot be in
    /// the body, because the answer to a refused transaction must have no body.
    REASON = "x-perihelion-reason";

    // Scripts.
    SCRIPT_ENABLE_LOGGING = "x-ms-documentdb-script-enable-logging";
    SCRIPT_LOG_RESULTS = "x-ms-documentdb-script-log-results";

    // Responses.
    ETAG = "etag";
    SERVER = "server";
    CACHE_CONTROL = "cache-control";
    PRAGMA = "pragma";
    LOCATION = "location";
    CONTENT_LOCATION = "content-location";
    LAST_MODIFIED = "last-modified";
    RETRY_AFTER = "retry-after";
    STRICT_TRANSPORT_SECURITY = "strict-transport-security";
    ACTIVITY_ID = "x-ms-activity-id";
    REQUEST_CHARGE = "x-ms-request-charge";
    SUBSTATUS = "x-ms-substatus";
    RETRY_AFTER_MS = "x-ms-retry-after-ms";
    REQUEST_DURATION_MS = "x-ms-request-duration-ms";
    REQUEST_VALIDATION_FAILURE = "x-ms-request-validation-failure";
    GATEWAY_VERSION = "x-ms-gatewayversion";
    SERVICE_VERSION = "x-ms-serviceversion";
    SCHEMA_VERSION = "x-ms-schemaversion";
    TRANSPORT_REQUEST_ID = "x-ms-transport-request-id";
    /// The path of the parent, with names: for an item `dbs/d/colls/c`. Clients store the
    /// session token under this path.
    ALT_CONTENT_PATH = "x-ms-alt-content-path";
    /// The `_rid` of the parent.
    CONTENT_PATH = "x-ms-content-path";
    RESOURCE_QUOTA = "x-ms-resource-quota";
    RESOURCE_USAGE = "x-ms-resource-usage";
    LAST_STATE_CHANGE_UTC = "x-ms-last-state-change-utc";
    ITEM_COUNT = "x-ms-item-count";
    /// The largest document that the container accepts, in bytes.
    MAX_CONTENT_LENGTH = "x-ms-cosmos-max-content-length";
    /// `true` when the container shares its database's throughput.
    SHARE_THROUGHPUT = "x-ms-share-throughput";
    LSN = "lsn";
    ITEM_LSN = "x-ms-item-lsn";
    LOCAL_LSN = "x-ms-cosmos-llsn";
    ITEM_LOCAL_LSN = "x-ms-cosmos-item-llsn";
    QUORUM_ACKED_LSN = "x-ms-quorum-acked-lsn";
    QUORUM_ACKED_LOCAL_LSN = "x-ms-cosmos-quorum-acked-llsn";
    GLOBAL_COMMITTED_LSN = "x-ms-global-committed-lsn";
    NUMBER_OF_READ_REGIONS = "x-ms-number-of-read-regions";
    CURRENT_WRITE_QUORUM = "x-ms-current-write-quorum";
    CURRENT_REPLICA_SET_SIZE = "x-ms-current-replica-set-size";
    XP_ROLE = "x-ms-xp-role";
    INTERNAL_PARTITION_ID = "x-ms-cosmos-internal-partition-id";
    PHYSICAL_PARTITION_ID = "x-ms-cosmos-physical-partition-id";
    QUERY_EXECUTION_INFO = "x-ms-cosmos-query-execution-info";
    QUERY_METRICS = "x-ms-documentdb-query-metrics";
    INDEX_UTILIZATION = "x-ms-cosmos-index-utilization";
    INDEX_TRANSFORMATION_PROGRESS = "x-ms-documentdb-collection-index-transformation-progress";
    QUERY_ADVICE = "x-ms-cosmos-query-advice";
    COLLECTION_PARTITION_INDEX = "collection-partition-index";
    COLLECTION_SERVICE_INDEX = "collection-service-index";
}

#[cfg(test)]
mod tests {
    use super::TEXTS;

    #[test]
    fn every_name_is_declared_once() {
        let mut seen = std::collections::HashSet::new();
        for name in TEXTS {
            assert!(seen.insert(name), "{name} is declared twice");
        }
    }
}
