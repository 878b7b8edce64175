//! `Call`: one authenticated request, with methods that read its headers and
//! body.

use bytes::Bytes;
use http::header::HeaderName;
use http::{HeaderMap, Method};
use perihelion_engine::{ApiVersion, BatchScope, Container, Precondition, RangeId, Refusal};
use perihelion_model::json::{self, Object, Value};
use perihelion_model::partition_key::{EffectiveKey, EffectiveRange, PartitionKey};
use perihelion_model::session_token::{self, SessionToken};
use perihelion_wire::path::Resource;
use perihelion_wire::{binary_json, headers, operation, status};

use crate::long_reads::Connection;
use crate::net::Scheme;

/// One authenticated request.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) resource: Resource,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) scheme: Scheme,
    pub(crate) connection: Connection,
}

/// The first API version with hierarchical partition keys.
const HIERARCHICAL_KEYS_SINCE: &str = "2020-07-15";
/// The most rows of a page when the client sends no number or the number 0.
const PAGE_ROWS_DEFAULT: usize = 1000;

impl Call {
    pub(crate) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Whether a header is true. SDKs write `True`, `true` and `1`.
    pub(crate) fn flag(&self, name: &HeaderName) -> bool {
        operation::flag(&self.headers, name)
    }

    /// The client's API version: `Old` is before hierarchical partition keys. A client
    /// that sends no version header is `Current`.
    pub(crate) fn api_version(&self) -> ApiVersion {
        match self.header(&headers::VERSION) {
            Some(version) if version < HIERARCHICAL_KEYS_SINCE => ApiVersion::Old,
            _ => ApiVersion::Current,
        }
    }

    /// The address that the client used, such as `http://host:port`. Without a `Host`
    /// header the host is `localhost`.
    pub(crate) fn endpoint(&self) -> String {
        let host = self.header(&headers::HOST).unwrap_or("localhost");
        format!("{}://{host}", self.scheme.as_str())
    }

    /// Whether the body is a query and not a document. The content type decides, not
    /// the query header (`docs/cosmos.md`, items).
    pub(crate) fn is_query(&self) -> bool {
        operation::is_query(&self.headers)
    }

    /// Whether a write is to be answered without a body.
    pub(crate) fn wants_minimal(&self) -> bool {
        self.header(&headers::PREFER).is_some_and(|prefer| prefer.contains("return=minimal"))
    }

    pub(crate) fn precondition(&self) -> Precondition {
        let text = |name| self.header(name).map(str::to_owned);
        Precondition { if_match: text(&headers::IF_MATCH), if_none_match: text(&headers::IF_NONE_MATCH) }
    }

    /// The session tokens of the request; empty without the header.
    pub(crate) fn session(&self) -> Result<Vec<SessionToken>, Refusal> {
        match self.header(&headers::SESSION_TOKEN) {
            None | Some("") => Ok(Vec::new()),
            Some(text) => session_token::parse(text).ok_or_else(|| {
                Refusal::gateway(status::BAD_REQUEST, "The session token provided is invalid.")
            }),
        }
    }

    /// The partition key in the header; `None` without the header and for `[]`.
    pub(crate) fn partition_key(&self) -> Result<Option<PartitionKey>, Refusal> {
        match self.headers.get(&headers::PARTITION_KEY) {
            None => Ok(None),
            // Clients also send raw UTF-8, which `to_str` would refuse.
            Some(value) => std::str::from_utf8(value.as_bytes())
                .ok()
                .and_then(PartitionKey::from_header)
                .map(|key| Some(key).filter(|key| !key.values.is_empty()))
                .ok_or_else(|| {
                    Refusal::gateway(status::BAD_REQUEST, "Partition key provided in the header is invalid: it must be a JSON array of scalars.")
                }),
        }
    }

    /// The partition key in the header. Without the header the request is refused, and so is `[]`, a key
    /// without levels.
    pub(crate) fn required_partition_key(&self) -> Result<PartitionKey, Refusal> {
        match self.partition_key()? {
            Some(key) => Ok(key),
            None if self.headers.contains_key(&headers::PARTITION_KEY) => {
                Err(Refusal::partition_key_of_other_levels(&PartitionKey::default()))
            }
            None => Err(Refusal::partition_key_missing()),
        }
    }

    /// The range that the header names, as `0` or `rid,0`; `None` without the header. A
    /// range that the container does not have is refused.
    pub(crate) fn range(&self, container: &Container) -> Result<Option<RangeId>, Refusal> {
        let Some(text) = self.header(&headers::PARTITION_KEY_RANGE_ID) else { return Ok(None) };
        let id = text.rsplit(',').next().unwrap_or(text).trim();
        let id: RangeId = id.parse().map_err(|_| {
            Refusal::gateway(
                status::BAD_REQUEST,
                "The x-ms-documentdb-partitionkeyrangeid header is not a range id.",
            )
        })?;
        // A range that was split or never existed: the client's list of ranges is stale.
        container.range(id).map(|range| Some(range.id)).ok_or_else(Refusal::range_gone)
    }

    /// The effective keys from `x-ms-start-epk` to `x-ms-end-epk`; `None` when both headers
    /// are missing. If only one of them is missing, the interval reaches to the start or the end
    /// of the key space.
    pub(crate) fn effective_keys(&self) -> Result<Option<EffectiveRange>, Refusal> {
        let key = |name| match self.header(name) {
            None => Ok(None),
            Some(text) => EffectiveKey::from_hex(text).map(Some).ok_or_else(|| {
                Refusal::gateway(
                    status::BAD_REQUEST,
                    "An effective partition key header is not hexadecimal text.",
                )
            }),
        };
        Ok(match (key(&headers::START_EPK)?, key(&headers::END_EPK)?) {
            (None, None) => None,
            (min, max) => Some(EffectiveRange {
                min: min.unwrap_or_default(),
                max: max.unwrap_or_else(EffectiveKey::max),
            }),
        })
    }

    /// The scope of a batch: the partition key, or, for a bulk request without a key, the
    /// range.
    pub(crate) fn batch_scope(&self, container: &Container) -> Result<BatchScope, Refusal> {
        match (self.partition_key()?, self.range(container)?) {
            (Some(key), _) => Ok(BatchScope::Partition(key)),
            (None, Some(range)) => Ok(BatchScope::Range(range)),
            (None, None) => Err(Refusal::partition_key_missing()),
        }
    }

    /// The most rows of a page. Without the header, and for 0, it is
    /// [`PAGE_ROWS_DEFAULT`]. The value -1 means all rows.
    pub(crate) fn page_rows(&self) -> Result<usize, Refusal> {
        match self.header(&headers::MAX_ITEM_COUNT) {
            None | Some("") => Ok(PAGE_ROWS_DEFAULT),
            Some(text) => match text.trim().parse::<i64>() {
                Ok(0) => Ok(PAGE_ROWS_DEFAULT),
                Ok(-1) => Ok(usize::MAX),
                Ok(rows) if rows > 0 => Ok(usize::try_from(rows).unwrap_or(usize::MAX)),
                _ => Err(Refusal::gateway(
                    status::BAD_REQUEST,
                    format!("The value '{text}' specified for the header 'x-ms-max-item-count' is invalid."),
                )),
            },
        }
    }

    pub(crate) fn continuation(&self) -> Option<String> {
        self.header(&headers::CONTINUATION).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    /// The body as JSON. The body may have the text form or the binary form.
    pub(crate) fn json(&self) -> Result<Value, Refusal> {
        parse_body(&self.body, 0)
    }

    /// The body as JSON. Each of its documents may be inside `levels` arrays and objects. These do not
    /// count as levels of the document.
    pub(crate) fn envelope(&self, levels: usize) -> Result<Value, Refusal> {
        parse_body(&self.body, levels)
    }

    /// The body as a JSON object.
    pub(crate) fn object(&self) -> Result<Object, Refusal> {
        match self.json()? {
            Value::Object(object) => Ok(object),
            _ => Err(Refusal::invalid_input()),
        }
    }
}

fn parse_body(body: &[u8], levels: usize) -> Result<Value, Refusal> {
    let value = if binary_json::is_binary(body) {
        // A binary value may nest deeper than the text parser can read back.
        let depth_max = json::DEPTH_MAX + levels;
        binary_json::decode(body).ok().filter(|value| binary_json::depth(value) <= depth_max)
    } else {
        json::parse_envelope(body, levels).ok()
    };
    value.ok_or_else(|| Refusal::invalid_payload().with_charge(perihelion_engine::charge::BAD_DOCUMENT))
}
