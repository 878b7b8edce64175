//! Builds the headers of one attempt. This is a pure function: `deliver` adds the
//! date, the signature and the activity id.

use http::{HeaderMap, HeaderValue};
use perihelion_wire::headers;
use perihelion_wire::transaction::{
    IdempotencyToken, READ_OPERATION_TYPE, RESOURCE_TYPE, WRITE_OPERATION_TYPE,
};

use crate::operation::{Operation, ResourceKind, Scope, Verb};
use crate::options::{ReadConsistency, Settings};

/// The version of the REST API. It is the first version with hierarchical partition keys,
/// and the version that Microsoft's SDKs send.
const VERSION: HeaderValue = HeaderValue::from_static("2020-07-15");
const TRUE: HeaderValue = HeaderValue::from_static("True");
const FALSE: HeaderValue = HeaderValue::from_static("False");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const QUERY_JSON: HeaderValue = HeaderValue::from_static("application/query+json");
const PATCH_JSON: HeaderValue = HeaderValue::from_static("application/json_patch+json");
const RETURN_MINIMAL: HeaderValue = HeaderValue::from_static("return=minimal");
const INCREMENTAL_FEED: HeaderValue = HeaderValue::from_static("Incremental Feed");
const EPK_RANGE: HeaderValue = HeaderValue::from_static("EffectivePartitionKeyRange");

/// Room for the headers of the client's operations, so that the map does not grow.
const HEADERS_CAPACITY: usize = 24;

/// The inputs of the headers, besides the operation and its settings. These inputs can differ
/// between attempts of one operation.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeaderInputs {
    /// The container's `_rid`. If the container was recreated under the same name,
    /// the service refuses the request.
    pub(crate) container_rid: Option<HeaderValue>,
    /// The session token. The answer must include the writes that the token covers.
    pub(crate) session_token: Option<HeaderValue>,
    /// Whether every region takes writes.
    pub(crate) is_multi_write: bool,
    /// Whether the answer must come from the write region, which the service's header calls
    /// the hub region.
    pub(crate) is_write_region_only: bool,
    /// The idempotency token of a distributed transaction.
    pub(crate) idempotency_token: Option<IdempotencyToken>,
}

/// The headers of one attempt, unsigned. The operation's own headers replace others of
/// the same name.
pub(crate) fn headers(
    operation: &Operation,
    header_inputs: &HeaderInputs,
    settings: &Settings,
    user_agent: &HeaderValue,
) -> HeaderMap {
    let mut map = HeaderMap::with_capacity(HEADERS_CAPACITY);
    map.insert(headers::VERSION, VERSION);
    map.insert(headers::USER_AGENT, user_agent.clone());
    map.insert(headers::ACCEPT, JSON);
    insert_verb_headers(&mut map, operation);
    if let Some(token) = header_inputs.idempotency_token {
        insert_text(&mut map, headers::IDEMPOTENCY_TOKEN, &token.to_string());
    }
    insert_scope_headers(&mut map, &operation.scope);
    if operation.is_data_plane() {
        map.insert(headers::NO_RETRY_ON_449, TRUE);
        insert_document_headers(&mut map, operation, header_inputs, settings);
        insert_chosen_headers(&mut map, operation, settings);
    }
    settings.headers.insert_into(&mut map);
    for (name, value) in &operation.headers {
        map.insert(name.clone(), value.clone());
    }
    map
}

fn insert_verb_headers(map: &mut HeaderMap, operation: &Operation) {
    match operation.verb {
        Verb::Read | Verb::Delete => {}
        Verb::Create | Verb::Replace => {
            map.insert(headers::CONTENT_TYPE, JSON);
        }
        Verb::Upsert => {
            map.insert(headers::CONTENT_TYPE, JSON);
            map.insert(headers::IS_UPSERT, TRUE);
        }
        Verb::Patch => {
            map.insert(headers::CONTENT_TYPE, PATCH_JSON);
        }
        Verb::Query => {
            map.insert(headers::CONTENT_TYPE, QUERY_JSON);
            map.insert(headers::IS_QUERY, TRUE);
        }
        Verb::QueryPlan => {
            map.insert(headers::CONTENT_TYPE, QUERY_JSON);
            map.insert(headers::IS_QUERY_PLAN_REQUEST, TRUE);
        }
        Verb::ReadFeed if operation.target.kind == ResourceKind::Range => {
            map.insert(headers::A_IM, INCREMENTAL_FEED);
        }
        Verb::ReadFeed => {}
        Verb::ChangeFeed => {
            map.insert(headers::A_IM, INCREMENTAL_FEED);
        }
        Verb::Batch => {
            map.insert(headers::CONTENT_TYPE, JSON);
            map.insert(headers::IS_BATCH_REQUEST, TRUE);
            map.insert(headers::BATCH_ATOMIC, TRUE);
            map.insert(headers::BATCH_ORDERED, TRUE);
            map.insert(headers::BATCH_CONTINUE_ON_ERROR, FALSE);
        }
        Verb::WriteTransaction => insert_transaction_headers(map, WRITE_OPERATION_TYPE),
        Verb::ReadTransaction => insert_transaction_headers(map, READ_OPERATION_TYPE),
    }
}

fn insert_transaction_headers(map: &mut HeaderMap, operation_type: &'static str) {
    map.insert(headers::CONTENT_TYPE, JSON);
    map.insert(headers::OPERATION_TYPE, HeaderValue::from_static(operation_type));
    map.insert(headers::RESOURCE_TYPE, HeaderValue::from_static(RESOURCE_TYPE));
}

fn insert_scope_headers(map: &mut HeaderMap, scope: &Scope) {
    match scope {
        Scope::Unpartitioned => {}
        Scope::Key(key) => {
            map.insert(headers::PARTITION_KEY, key.header.clone());
        }
        Scope::Range(id) => insert_text(map, headers::PARTITION_KEY_RANGE_ID, id),
        Scope::Slice(id, range) => {
            insert_text(map, headers::PARTITION_KEY_RANGE_ID, id);
            map.insert(headers::READ_KEY_TYPE, EPK_RANGE);
            insert_text(map, headers::START_EPK, &range.min.to_hex());
            insert_text(map, headers::END_EPK, &range.max.to_hex());
        }
        Scope::Everywhere => {
            map.insert(headers::ENABLE_CROSS_PARTITION, TRUE);
        }
    }
}

fn insert_document_headers(
    map: &mut HeaderMap,
    operation: &Operation,
    header_inputs: &HeaderInputs,
    settings: &Settings,
) {
    if let Some(rid) = &header_inputs.container_rid {
        map.insert(headers::INTENDED_COLLECTION_RID, rid.clone());
    }
    if let Some(token) = &header_inputs.session_token {
        map.insert(headers::SESSION_TOKEN, token.clone());
    }
    if operation.verb.is_read() {
        insert_consistency_header(map, settings.read_consistency);
        if header_inputs.is_write_region_only {
            map.insert(headers::HUB_REGION_PROCESSING_ONLY, TRUE);
        }
        return;
    }
    let may_have_content = match operation.verb {
        Verb::Delete | Verb::Batch | Verb::WriteTransaction => false,
        Verb::Create | Verb::Upsert | Verb::Replace | Verb::Patch => true,
        Verb::Read
        | Verb::Query
        | Verb::QueryPlan
        | Verb::ReadFeed
        | Verb::ChangeFeed
        | Verb::ReadTransaction => false,
    };
    if !settings.content_on_write && may_have_content {
        map.insert(headers::PREFER, RETURN_MINIMAL);
    }
    if header_inputs.is_multi_write {
        map.insert(headers::ALLOW_TENTATIVE_WRITES, TRUE);
    }
}

/// Inserts the headers of options that choose how the service treats the request.
fn insert_chosen_headers(map: &mut HeaderMap, operation: &Operation, settings: &Settings) {
    if let Some(priority) = settings.priority {
        map.insert(headers::PRIORITY_LEVEL, priority.header());
    }
    if let Some(bucket) = settings.throughput_bucket {
        map.insert(headers::THROUGHPUT_BUCKET, u16::from(bucket).into());
    }
    if !operation.verb.is_read() {
        return;
    }
    if let Some(staleness) = settings.dedicated_gateway_staleness_max {
        let milliseconds = u64::try_from(staleness.as_millis()).unwrap_or(u64::MAX);
        map.insert(headers::DEDICATED_GATEWAY_MAX_AGE, milliseconds.into());
    }
    if settings.dedicated_gateway_bypass {
        map.insert(headers::DEDICATED_GATEWAY_BYPASS_CACHE, TRUE);
    }
}

fn insert_consistency_header(map: &mut HeaderMap, consistency: ReadConsistency) {
    let (name, value) = match consistency {
        ReadConsistency::Account => return,
        ReadConsistency::Eventual => (headers::CONSISTENCY_LEVEL, "Eventual"),
        ReadConsistency::Session => (headers::CONSISTENCY_LEVEL, "Session"),
        ReadConsistency::LatestCommitted => (headers::READ_CONSISTENCY_STRATEGY, "LatestCommitted"),
        ReadConsistency::GlobalStrong => (headers::READ_CONSISTENCY_STRATEGY, "GlobalStrong"),
    };
    map.insert(name, HeaderValue::from_static(value));
}

/// Inserts a range id, a hexadecimal key or an idempotency token, which are all ASCII. A text
/// that cannot be a header is left out.
fn insert_text(map: &mut HeaderMap, name: http::HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        map.insert(name, value);
    }
}
