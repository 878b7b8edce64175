//! Listing instances for tools: what is asked, and what one page tells.
//!
//! A page costs what a page costs, however many instances there are: the server
//! filters, and stops when the page is full. Status, parent and the times of the
//! last update are found by an index; name, prefix and time of creation are
//! looked at among those that the others leave.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::failure::Failure;

/// Instances of a page when nothing is said.
const PAGE_DEFAULT: u32 = 50;

/// Instances of a page at most: more than anyone reads, and far below what one
/// answer may weigh.
pub(crate) const PAGE_MAX: u32 = 1000;

/// What [`CosmosDBProvider::list`](crate::CosmosDBProvider::list) lists. Every
/// filter that is given must hold; times are milliseconds since 1970.
///
/// ```
/// use duroxide_cdb::{ListOptions, ListOrder};
///
/// let failed = ListOptions::new().with_status("Failed").with_order(ListOrder::RecentFirst).with_page_size(20);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ListOptions {
    /// Only those of that status: `Running`, `Completed`, `Failed`, `ContinuedAsNew`.
    pub status: Option<String>,
    /// Only those of that orchestration.
    pub name: Option<String>,
    /// Only children of that instance.
    pub parent: Option<String>,
    /// Only those whose id begins so.
    pub id_prefix: Option<String>,
    /// Only those created then or later.
    pub created_from: Option<u64>,
    /// Only those created before.
    pub created_before: Option<u64>,
    /// Only those last updated then or later.
    pub updated_from: Option<u64>,
    /// Only those last updated before.
    pub updated_before: Option<u64>,
    /// In which order.
    pub order: ListOrder,
    /// Whether rows have their outputs, and not only how long they are.
    pub with_output: bool,
    /// How many at most; without it 50, and never more than 1,000.
    #[serde(skip)]
    pub page_size: Option<u32>,
    /// Goes on where a page ended: [`ListPage::continuation`].
    #[serde(skip)]
    pub continuation: Option<String>,
}

/// In which order instances are listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum ListOrder {
    /// As they are stored: whoever reads all pages sees every instance that
    /// exists all the while.
    #[default]
    Stored,
    /// The last updated first. One that is updated between two pages moves to
    /// the front, and may be missed by whoever reads on.
    RecentFirst,
}

/// Some instances.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ListPage {
    /// No more than were asked for; there may be fewer, with more to come.
    pub instances: Vec<ListedInstance>,
    /// Where the next page begins; `None` on the last.
    pub continuation: Option<String>,
}

/// An instance in short. Times are milliseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all(deserialize = "camelCase"))]
#[non_exhaustive]
pub struct ListedInstance {
    /// Its id.
    pub instance_id: String,
    /// The orchestration.
    #[serde(default)]
    pub name: String,
    /// The orchestration's version.
    #[serde(default)]
    pub version: String,
    /// `Running`, `Completed`, `Failed` or `ContinuedAsNew`.
    pub status: String,
    /// When it was created.
    pub created_at: u64,
    /// When its last turn was committed.
    pub updated_at: u64,
    /// When its current execution ended.
    #[serde(default)]
    pub completed_at: Option<u64>,
    /// The number of its current execution.
    #[serde(rename(deserialize = "execution"))]
    pub execution_id: u64,
    /// Whose child it is.
    #[serde(default)]
    pub parent_instance_id: Option<String>,
    /// What it says of itself, unless that is too large for a row.
    #[serde(default)]
    pub custom_status: Option<String>,
    /// How many characters its output has, or its error; bytes when it is too
    /// large for a row.
    #[serde(default)]
    pub output_length: Option<u64>,
    /// Its output or error, if asked for and not too large for a row:
    /// `get_instance_info` has it whole.
    #[serde(default)]
    pub output: Option<String>,
}

impl ListOptions {
    /// Everything, 50 at a time.
    pub fn new() -> Self {
        ListOptions::default()
    }

    /// Only those of that status.
    pub fn with_status(mut self, status: impl Into<String>) -> Self {
        self.status = Some(status.into());
        self
    }

    /// Only those of that orchestration.
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Only children of that instance.
    pub fn with_parent(mut self, parent: impl Into<String>) -> Self {
        self.parent = Some(parent.into());
        self
    }

    /// Only those whose id begins so.
    pub fn with_id_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.id_prefix = Some(prefix.into());
        self
    }

    /// Only those created in these milliseconds since 1970.
    pub fn with_created(mut self, range: std::ops::Range<u64>) -> Self {
        (self.created_from, self.created_before) = (Some(range.start), Some(range.end));
        self
    }

    /// Only those last updated in these milliseconds since 1970.
    pub fn with_updated(mut self, range: std::ops::Range<u64>) -> Self {
        (self.updated_from, self.updated_before) = (Some(range.start), Some(range.end));
        self
    }

    /// In which order.
    pub fn with_order(mut self, order: ListOrder) -> Self {
        self.order = order;
        self
    }

    /// Whether rows have their outputs.
    pub fn with_output(mut self, is_wanted: bool) -> Self {
        self.with_output = is_wanted;
        self
    }

    /// How many instances a page has at most.
    pub fn with_page_size(mut self, size: u32) -> Self {
        self.page_size = Some(size);
        self
    }

    /// Goes on where a page of the same listing ended.
    pub fn with_continuation(mut self, token: impl Into<String>) -> Self {
        self.continuation = Some(token.into());
        self
    }

    pub(crate) fn page_size(&self) -> u32 {
        self.page_size.unwrap_or(PAGE_DEFAULT).clamp(1, PAGE_MAX)
    }

    /// What tells one listing from another: a token is good for its own only.
    fn fingerprint(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        URL_SAFE_NO_PAD.encode(&Sha256::digest(text)[..9])
    }

    /// The token that goes on where the service's points to.
    pub(crate) fn token(&self, place: &str) -> String {
        let json = serde_json::to_vec(&(self.fingerprint(), place)).unwrap_or_default();
        format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(json))
    }

    /// Where this listing goes on; refused when the token is another's.
    pub(crate) fn place(&self) -> Result<Option<String>, Failure> {
        let Some(token) = &self.continuation else { return Ok(None) };
        let json = token.strip_prefix(TOKEN_PREFIX).and_then(|token| URL_SAFE_NO_PAD.decode(token).ok());
        let read = json.and_then(|json| serde_json::from_slice::<(String, String)>(&json).ok());
        match read {
            None => Err(Failure::Refused("the continuation is none that `list` has given".to_owned())),
            Some((fingerprint, _)) if fingerprint != self.fingerprint() => Err(Failure::Refused(
                "the continuation belongs to a listing with other filters: begin this one without it"
                    .to_owned(),
            )),
            Some((_, place)) => Ok(Some(place)),
        }
    }
}

const TOKEN_PREFIX: &str = "l1.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_on_with_its_own_listing_only() {
        let failed = ListOptions::new().with_status("Failed").with_page_size(7);
        let token = failed.token("{\"service\":\"says\"}");
        let next = failed.clone().with_continuation(token.as_str()).with_page_size(100);
        assert_eq!(next.place().unwrap().as_deref(), Some("{\"service\":\"says\"}"));
        assert_eq!(failed.place().unwrap(), None);
        for other in
            [ListOptions::new(), ListOptions::new().with_status("Running"), failed.clone().with_name("x")]
        {
            assert!(matches!(other.with_continuation(token.as_str()).place(), Err(Failure::Refused(_))));
        }
        for bad in ["", "l1.", "l1.!!!", "l2.e30", &token[..token.len() - 3]] {
            assert!(failed.clone().with_continuation(bad).place().is_err(), "{bad}");
        }
    }
}
