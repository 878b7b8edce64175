//! The options and the result of `CosmosDBProvider::list`.
//!
//! The server applies the filters and stops when the page is full. Filters by status, by
//! parent and by the lower limit of a time use an index. Other filters are applied to the
//! documents that the index finds, so a page with few matches among many instances costs
//! more.
//!
//! Pending instances come last. They are found among the queued messages: with many messages
//! in the queues, their pages cost more.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest, Sha256};

use crate::failure::Failure;

/// The default page size.
const PAGE_SIZE_DEFAULT: u32 = 50;

/// The largest page size. The service may end a page earlier, because the bytes of a response
/// are limited too.
pub(crate) const PAGE_SIZE_MAX: u32 = 1000;

/// The status of an instance whose start is queued and that has not run yet.
pub(crate) const PENDING: &str = "Pending";

/// The filters and the order of [`CosmosDBProvider::list`](crate::CosmosDBProvider::list).
/// All given filters must match. Times are milliseconds since 1970.
///
/// ```
/// use duroxide_cdb::{ListOptions, ListOrder};
///
/// let failed = ListOptions::new().with_status("Failed").with_order(ListOrder::RecentFirst).with_page_size(20);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ListOptions {
    /// Only instances with this status: `Running`, `Completed`, `Failed`, `ContinuedAsNew`, or
    /// `Pending` for instances whose start is queued and that have not run yet.
    pub status: Option<String>,
    /// Only instances of this orchestration.
    pub name: Option<String>,
    /// Only instances of orchestrations whose name has this prefix.
    pub name_prefix: Option<String>,
    /// Only instances of this version of their orchestration.
    pub version: Option<String>,
    /// Only children of this instance.
    pub parent: Option<String>,
    /// Only the instance with this id.
    pub id: Option<String>,
    /// Only instances whose id has this prefix.
    pub id_prefix: Option<String>,
    /// Only instances whose custom status contains this text. A custom status that is too large
    /// for a row never matches.
    pub custom_status: Option<String>,
    /// Only instances created at this time or later.
    pub created_from: Option<u64>,
    /// Only instances created before this time.
    pub created_before: Option<u64>,
    /// Only instances last updated at this time or later.
    pub updated_from: Option<u64>,
    /// Only instances last updated before this time.
    pub updated_before: Option<u64>,
    /// The order.
    pub order: ListOrder,
    /// Whether rows include the outputs. The length of an output is always included.
    pub with_output: bool,
    /// The page size; 50 by default. Values outside 1 to 1,000 are cut to that range.
    #[serde(skip)]
    pub page_size: Option<u32>,
    /// Continues after a page: its [`ListPage::continuation`].
    #[serde(skip)]
    pub continuation: Option<String>,
}

/// The order of a listing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum ListOrder {
    /// The order of storage. A caller that reads all pages sees every instance that
    /// exists during the whole listing.
    #[default]
    Stored,
    /// The instance that was written last comes first. Times of writes are compared in whole
    /// seconds, and writing a lock counts as a write. An instance that is written between two
    /// pages moves to the front, so later pages do not have it.
    RecentFirst,
}

/// One page of instances.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ListPage {
    /// At most as many instances as the page size. There may be fewer although more pages
    /// follow.
    pub instances: Vec<ListedInstance>,
    /// Where the next page begins; `None` on the last page.
    pub continuation: Option<String>,
}

/// A row of a listing. Times are milliseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all(deserialize = "camelCase"))]
#[non_exhaustive]
pub struct ListedInstance {
    /// The id of the instance.
    pub instance_id: String,
    /// The orchestration.
    #[serde(default)]
    pub name: String,
    /// The orchestration's version.
    #[serde(default)]
    pub version: String,
    /// `Running`, `Completed`, `Failed`, `ContinuedAsNew` or `Pending`.
    pub status: String,
    /// When the instance was created, which is when its first turn was committed. For a pending
    /// instance: when its start was enqueued, or becomes due.
    pub created_at: u64,
    /// When the last turn was committed, or events were last appended.
    pub updated_at: u64,
    /// When the current execution ended; `None` while it runs.
    #[serde(default)]
    pub completed_at: Option<u64>,
    /// The number of the current execution.
    #[serde(rename(deserialize = "execution"))]
    pub execution_id: u64,
    /// The parent instance.
    #[serde(default)]
    pub parent_instance_id: Option<String>,
    /// The custom status; `None` if there is none or it is too large for a row.
    #[serde(default)]
    pub custom_status: Option<String>,
    /// The length of the output or error in characters; in bytes when it is too large for a
    /// row; `None` when there is none.
    #[serde(default)]
    pub output_length: Option<u64>,
    /// The output or error, if asked for and not too large for a row.
    /// `get_instance_info` returns it whole.
    #[serde(default)]
    pub output: Option<String>,
    /// What the instance has cost, in hundredths of a request unit, as far as it is stored:
    /// [`CosmosDBProvider::cost`](crate::CosmosDBProvider::cost) says what is counted.
    #[serde(default, deserialize_with = "number_or_zero")]
    pub charge_centi_ru: u64,
    /// How often a process has taken the start of a pending instance without running it: the process
    /// has not registered this version of the orchestration, or the process has ended. 0 for other
    /// instances.
    #[serde(default, skip_deserializing)]
    pub start_attempts: u32,
}

/// Reads a number; 0 if it is not a whole number. A bad charge must not fail a whole page.
fn number_or_zero<'de, D: Deserializer<'de>>(stored: D) -> Result<u64, D::Error> {
    Ok(serde_json::Value::deserialize(stored)?.as_u64().unwrap_or_default())
}

impl ListOptions {
    /// All instances, 50 per page.
    pub fn new() -> Self {
        ListOptions::default()
    }

    /// Only instances with this status.
    pub fn with_status(mut self, status: impl Into<String>) -> Self {
        self.status = Some(status.into());
        self
    }

    /// Only instances of this orchestration.
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Only instances of orchestrations whose name has this prefix.
    pub fn with_name_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.name_prefix = Some(prefix.into());
        self
    }

    /// Only instances of this version of their orchestration.
    pub fn with_version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// Only the instance with this id.
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Only instances whose custom status contains this text.
    pub fn with_custom_status(mut self, text: impl Into<String>) -> Self {
        self.custom_status = Some(text.into());
        self
    }

    /// Only children of this instance.
    pub fn with_parent(mut self, parent: impl Into<String>) -> Self {
        self.parent = Some(parent.into());
        self
    }

    /// Only instances whose id has this prefix.
    pub fn with_id_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.id_prefix = Some(prefix.into());
        self
    }

    /// Only instances created in this range of milliseconds since 1970.
    pub fn with_created(mut self, range: std::ops::Range<u64>) -> Self {
        (self.created_from, self.created_before) = (Some(range.start), Some(range.end));
        self
    }

    /// Only instances last updated in this range of milliseconds since 1970.
    pub fn with_updated(mut self, range: std::ops::Range<u64>) -> Self {
        (self.updated_from, self.updated_before) = (Some(range.start), Some(range.end));
        self
    }

    /// The order.
    pub fn with_order(mut self, order: ListOrder) -> Self {
        self.order = order;
        self
    }

    /// Whether rows include the outputs.
    pub fn with_output(mut self, is_wanted: bool) -> Self {
        self.with_output = is_wanted;
        self
    }

    /// The page size.
    pub fn with_page_size(mut self, size: u32) -> Self {
        self.page_size = Some(size);
        self
    }

    /// Continues after a page of a listing with the same options. Only the page size may
    /// differ.
    pub fn with_continuation(mut self, token: impl Into<String>) -> Self {
        self.continuation = Some(token.into());
        self
    }

    pub(crate) fn page_size(&self) -> u32 {
        self.page_size.unwrap_or(PAGE_SIZE_DEFAULT).clamp(1, PAGE_SIZE_MAX)
    }

    /// A hash of all options except the page size and the continuation. A continuation is
    /// valid only for listings with the same hash.
    fn fingerprint(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        URL_SAFE_NO_PAD.encode(&Sha256::digest(text)[..9])
    }

    /// The continuation that the caller gets.
    pub(crate) fn wrap_continuation(&self, position: &Position) -> String {
        let position = match position {
            Position::Existing(continuation) => continuation.clone().unwrap_or_default(),
            Position::Pending(continuation) => {
                format!("{PENDING_PREFIX}{}", continuation.as_deref().unwrap_or_default())
            }
        };
        let json = serde_json::to_vec(&(self.fingerprint(), position)).unwrap_or_default();
        format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(json))
    }

    /// Where the page begins. Refuses a continuation of a listing with another `fingerprint`.
    pub(crate) fn position(&self) -> Result<Position, Failure> {
        let Some(token) = &self.continuation else {
            let is_pending = self.status.as_deref() == Some(PENDING);
            return Ok(if is_pending { Position::Pending(None) } else { Position::Existing(None) });
        };
        let json = token.strip_prefix(TOKEN_PREFIX).and_then(|token| URL_SAFE_NO_PAD.decode(token).ok());
        let decoded = json.and_then(|json| serde_json::from_slice::<(String, String)>(&json).ok());
        match decoded {
            None => Err(Failure::Refused("the continuation was not returned by `list`".to_owned())),
            Some((fingerprint, _)) if fingerprint != self.fingerprint() => Err(Failure::Refused(
                "the continuation belongs to a listing with other filters: start this one without a continuation"
                    .to_owned(),
            )),
            Some((_, continuation)) => Ok(match continuation.strip_prefix(PENDING_PREFIX) {
                Some(continuation) => {
                    Position::Pending(Some(continuation.to_owned()).filter(|text| !text.is_empty()))
                }
                None => Position::Existing(Some(continuation)),
            }),
        }
    }
}

/// Where a page begins: among the existing instances, or among the pending ones, which come
/// after them. Each variant holds the service's continuation; `None` at the beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Position {
    Existing(Option<String>),
    Pending(Option<String>),
}

/// In a continuation, a position among the pending instances begins with this. No continuation of
/// the service begins with it.
const PENDING_PREFIX: &str = "pending:";

/// The beginning of a continuation: its format and version.
const TOKEN_PREFIX: &str = "l1.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continuation_is_valid_for_its_own_listing_only() {
        let failed = ListOptions::new().with_status("Failed").with_page_size(7);
        for position in [
            Position::Existing(Some("{\"service\":\"says\"}".to_owned())),
            Position::Pending(None),
            Position::Pending(Some("{}".to_owned())),
        ] {
            let token = failed.wrap_continuation(&position);
            let next = failed.clone().with_continuation(token.as_str()).with_page_size(100);
            assert_eq!(next.position().unwrap(), position);
        }
        let token = failed.wrap_continuation(&Position::Pending(None));
        assert_eq!(failed.position().unwrap(), Position::Existing(None));
        assert_eq!(ListOptions::new().with_status(PENDING).position().unwrap(), Position::Pending(None));
        for other in
            [ListOptions::new(), ListOptions::new().with_status("Running"), failed.clone().with_name("x")]
        {
            assert!(matches!(other.with_continuation(token.as_str()).position(), Err(Failure::Refused(_))));
        }
        for bad in ["", "l1.", "l1.!!!", "l2.e30", &token[..token.len() - 3]] {
            assert!(failed.clone().with_continuation(bad).position().is_err(), "{bad}");
        }
    }
}
