//! Request paths, parsed into the resource that they address.
//!
//! A path addresses a resource (`/dbs/d/colls/c/docs/x`) or a feed of resources
//! (`/dbs/d/colls/c/docs`). A path does not show whether a segment is a name or
//! a `_rid`, so the segments are only decoded; the server finds out when it looks the
//! resource up. Authorization and routing use the same parsed value. A decoded segment
//! never contains a slash, so no two resources that are addressed by name have the same
//! signing link and type.

use std::borrow::Cow;

/// The longest path that is parsed. An item id has at most 1,023 bytes. Each of the two
/// names before the id has at most 255 characters of up to four bytes. Percent-encoding
/// makes the path three times as long: about 9 KiB, so this limit leaves room.
pub const PATH_BYTES_MAX: usize = 16 * 1024;

/// The longest decoded segment, in bytes: the service's limit on an item id.
pub const SEGMENT_BYTES_MAX: usize = 1023;

/// What a request path addresses. The fields are the decoded segments, each a
/// name or a `_rid`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are what their names say")]
pub enum Resource {
    /// `/`
    Account,
    /// `/dbs`
    Databases,
    /// `/dbs/{}`
    Database { database: String },
    /// `/dbs/{}/users`
    Users { database: String },
    /// `/dbs/{}/users/{}`
    User { database: String, user: String },
    /// `/dbs/{}/users/{}/permissions`
    Permissions { database: String, user: String },
    /// `/dbs/{}/users/{}/permissions/{}`
    Permission { database: String, user: String, permission: String },
    /// `/dbs/{}/colls`
    Containers { database: String },
    /// `/dbs/{}/colls/{}`
    Container { database: String, container: String },
    /// `/dbs/{}/colls/{}/docs`: create, upsert, query, batch, read feed, change feed.
    Documents { database: String, container: String },
    /// `/dbs/{}/colls/{}/docs/{}`
    Document { database: String, container: String, document: String },
    /// `/dbs/{}/colls/{}/docs/{}/attachments`
    Attachments { database: String, container: String, document: String },
    /// `/dbs/{}/colls/{}/docs/{}/attachments/{}`
    Attachment { database: String, container: String, document: String, attachment: String },
    /// `/dbs/{}/colls/{}/pkranges`
    PartitionKeyRanges { database: String, container: String },
    /// `/dbs/{}/colls/{}/sprocs`
    StoredProcedures { database: String, container: String },
    /// `/dbs/{}/colls/{}/sprocs/{}`
    StoredProcedure { database: String, container: String, procedure: String },
    /// `/dbs/{}/colls/{}/triggers`
    Triggers { database: String, container: String },
    /// `/dbs/{}/colls/{}/triggers/{}`
    Trigger { database: String, container: String, trigger: String },
    /// `/dbs/{}/colls/{}/udfs`
    UserDefinedFunctions { database: String, container: String },
    /// `/dbs/{}/colls/{}/udfs/{}`
    UserDefinedFunction { database: String, container: String, function: String },
    /// `/dbs/{}/colls/{}/conflicts`
    Conflicts { database: String, container: String },
    /// `/dbs/{}/colls/{}/conflicts/{}`
    Conflict { database: String, container: String, conflict: String },
    /// `/dbs/{}/colls/{}/operations/partitionkeydelete`
    PartitionKeyDelete { database: String, container: String },
    /// `/offers`
    Offers,
    /// `/offers/{}`
    Offer { offer: String },
    /// `/operations/dtc`
    DistributedTransactions,
}

/// The path addresses no resource of the service. The response is 400, not 404.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadPath;

impl BadPath {
    /// The service's message for the body of the response.
    pub const MESSAGE: &'static str = "Request url is invalid.";
}

impl std::fmt::Display for BadPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(Self::MESSAGE)
    }
}

impl std::error::Error for BadPath {}

/// Parses a request path (without its query part). One trailing slash is
/// accepted, because the Python SDK sends it; empty segments are not.
pub fn parse(path: &str) -> Result<Resource, BadPath> {
    if path.len() > PATH_BYTES_MAX {
        return Err(BadPath);
    }
    if path == "/" {
        return Ok(Resource::Account);
    }
    let mut segments = Vec::with_capacity(SEGMENTS_MAX);
    for segment in trim_slashes(path)?.split('/') {
        if segments.len() == SEGMENTS_MAX {
            return Err(BadPath);
        }
        segments.push(decode_segment(segment)?);
    }
    let texts: Vec<&str> = segments.iter().map(|segment| segment.as_ref()).collect();
    resource_at(&texts).ok_or(BadPath)
}

/// The longest path is `dbs/{}/colls/{}/docs/{}/attachments/{}`.
const SEGMENTS_MAX: usize = 8;

/// The path without its leading slash and one trailing slash.
fn trim_slashes(path: &str) -> Result<&str, BadPath> {
    let rest = path.strip_prefix('/').ok_or(BadPath)?;
    Ok(rest.strip_suffix('/').unwrap_or(rest))
}

fn decode_segment(segment: &str) -> Result<Cow<'_, str>, BadPath> {
    let decoded = percent_decode(segment).ok_or(BadPath)?;
    if decoded.is_empty() || decoded.len() > SEGMENT_BYTES_MAX || decoded.contains('/') {
        return Err(BadPath);
    }
    Ok(decoded)
}

fn resource_at(segments: &[&str]) -> Option<Resource> {
    let owned = |text: &str| text.to_owned();
    Some(match *segments {
        ["dbs"] => Resource::Databases,
        ["dbs", database] => Resource::Database { database: owned(database) },
        ["dbs", database, "users"] => Resource::Users { database: owned(database) },
        ["dbs", database, "users", user] => Resource::User { database: owned(database), user: owned(user) },
        ["dbs", database, "users", user, "permissions"] => {
            Resource::Permissions { database: owned(database), user: owned(user) }
        }
        ["dbs", database, "users", user, "permissions", permission] => Resource::Permission {
            database: owned(database),
            user: owned(user),
            permission: owned(permission),
        },
        ["dbs", database, "colls"] => Resource::Containers { database: owned(database) },
        ["dbs", database, "colls", container, ref rest @ ..] => {
            return resource_in_container(owned(database), owned(container), rest);
        }
        ["offers"] => Resource::Offers,
        ["offers", offer] => Resource::Offer { offer: owned(offer) },
        ["operations", "dtc"] => Resource::DistributedTransactions,
        _ => return None,
    })
}

fn resource_in_container(database: String, container: String, rest: &[&str]) -> Option<Resource> {
    let owned = |text: &str| text.to_owned();
    Some(match *rest {
        [] => Resource::Container { database, container },
        ["docs"] => Resource::Documents { database, container },
        ["docs", document] => Resource::Document { database, container, document: owned(document) },
        ["docs", document, "attachments"] => {
            Resource::Attachments { database, container, document: owned(document) }
        }
        ["docs", document, "attachments", attachment] => {
            let (document, attachment) = (owned(document), owned(attachment));
            Resource::Attachment { database, container, document, attachment }
        }
        ["pkranges"] => Resource::PartitionKeyRanges { database, container },
        ["sprocs"] => Resource::StoredProcedures { database, container },
        ["sprocs", procedure] => {
            Resource::StoredProcedure { database, container, procedure: owned(procedure) }
        }
        ["triggers"] => Resource::Triggers { database, container },
        ["triggers", trigger] => Resource::Trigger { database, container, trigger: owned(trigger) },
        ["udfs"] => Resource::UserDefinedFunctions { database, container },
        ["udfs", function] => {
            Resource::UserDefinedFunction { database, container, function: owned(function) }
        }
        ["conflicts"] => Resource::Conflicts { database, container },
        ["conflicts", conflict] => Resource::Conflict { database, container, conflict: owned(conflict) },
        ["operations", "partitionkeydelete"] => Resource::PartitionKeyDelete { database, container },
        _ => return None,
    })
}

impl Resource {
    /// The resource type for the signature, such as `docs`.
    pub fn resource_type(&self) -> &'static str {
        match self {
            Resource::Account => "",
            Resource::Databases | Resource::Database { .. } => "dbs",
            Resource::Users { .. } | Resource::User { .. } => "users",
            Resource::Permissions { .. } | Resource::Permission { .. } => "permissions",
            Resource::Containers { .. } | Resource::Container { .. } => "colls",
            Resource::Documents { .. } | Resource::Document { .. } => "docs",
            Resource::Attachments { .. } | Resource::Attachment { .. } => "attachments",
            Resource::PartitionKeyRanges { .. } => "pkranges",
            Resource::StoredProcedures { .. } | Resource::StoredProcedure { .. } => "sprocs",
            Resource::Triggers { .. } | Resource::Trigger { .. } => "triggers",
            Resource::UserDefinedFunctions { .. } | Resource::UserDefinedFunction { .. } => "udfs",
            Resource::Conflicts { .. } | Resource::Conflict { .. } => "conflicts",
            Resource::PartitionKeyDelete { .. } => "partitionkey",
            Resource::Offers | Resource::Offer { .. } => "offers",
            Resource::DistributedTransactions => "distributedtransactionbatch",
        }
    }

    /// A second type that a client may sign. The JavaScript SDK signs the deletion of
    /// a partition key as a POST to the container; the service has no such POST, so the
    /// signature fits no other valid request. The SDKs sign a distributed transaction with
    /// an empty type, like a POST to the account. The service does not have that POST either.
    pub fn other_signing_type(&self) -> Option<&'static str> {
        match self {
            Resource::PartitionKeyDelete { .. } => Some("colls"),
            Resource::DistributedTransactions => Some(""),
            _ => None,
        }
    }

    /// The database in the path, if any.
    pub fn database(&self) -> Option<&str> {
        self.segments().get(1).copied().filter(|_| self.is_in_database())
    }

    /// The database and the container in the path, if any.
    pub fn container(&self) -> Option<(&str, &str)> {
        match *self.segments() {
            ["dbs", database, "colls", container, ..] => Some((database, container)),
            _ => None,
        }
    }

    /// Whether the path addresses a feed, which is a list of resources. The paths with
    /// `operations` count as feeds, because clients sign their parent, as they do for a feed.
    pub fn is_feed(&self) -> bool {
        !matches!(self, Resource::Account) && self.segments().len() % 2 == 1
            || matches!(self, Resource::PartitionKeyDelete { .. } | Resource::DistributedTransactions)
    }

    /// The link that a client signs: the link of the resource, or of a feed's parent
    /// (empty if the parent is the account). Names keep their letter case. For a resource
    /// addressed by `_rid`, and for an offer, the link is only the last id, in lower case.
    pub fn signing_link(&self) -> String {
        let segments = self.segments();
        let signed = self.signed_segments(&segments);
        match signed.last() {
            Some(leaf) if self.is_by_rid() => leaf.to_ascii_lowercase(),
            _ => signed.join("/"),
        }
    }

    /// Every link that a known client may sign for this path. The first one is
    /// [`Resource::signing_link`], the most likely. `path` is the path as sent, from which
    /// this resource was parsed.
    ///
    /// A path of names may be signed decoded, or as sent, still percent-encoded. For a path
    /// of `_rid`s, clients sign the last id (Python, Rust, .NET) or the whole link
    /// (JavaScript), as sent or in lower case.
    pub fn signing_links(&self, path: &str) -> Vec<String> {
        let segments = self.segments();
        let signed = self.signed_segments(&segments);
        let mut links = vec![self.signing_link()];
        let mut add = |link: String| {
            if !links.contains(&link) {
                links.push(link);
            }
        };
        add(signed.join("/"));
        let raw: Vec<&str> = trim_slashes(path).unwrap_or_default().split('/').take(signed.len()).collect();
        if raw.len() == signed.len() {
            add(raw.join("/"));
        }
        if self.is_by_rid() {
            add(signed.join("/").to_ascii_lowercase());
            add(signed.last().copied().unwrap_or_default().to_owned());
        }
        links
    }

    /// The segments that are signed: the segments of the resource, or of a feed's parent.
    fn signed_segments<'a, 's>(&self, segments: &'s [&'a str]) -> &'s [&'a str] {
        match self {
            Resource::DistributedTransactions => &[],
            Resource::PartitionKeyDelete { .. } => &segments[..segments.len() - 2],
            _ if self.is_feed() => &segments[..segments.len() - 1],
            _ => segments,
        }
    }

    /// Whether the path counts as a path of `_rid`s. As in the service, the database's segment
    /// decides: it must have the form of a `_rid`. The `_rid` of a database has four bytes, which
    /// are eight characters of base64. An offer is always addressed by its `_rid`.
    fn is_by_rid(&self) -> bool {
        match self {
            Resource::Offer { .. } => true,
            _ => self.database().is_some_and(looks_like_database_rid),
        }
    }

    fn is_in_database(&self) -> bool {
        !matches!(
            self,
            Resource::Account
                | Resource::Databases
                | Resource::Offers
                | Resource::Offer { .. }
                | Resource::DistributedTransactions
        )
    }

    /// The decoded segments of the path, the inverse of `resource_at`.
    fn segments(&self) -> Vec<&str> {
        match self {
            Resource::Account => vec![],
            Resource::Databases => vec!["dbs"],
            Resource::Database { database } => vec!["dbs", database],
            Resource::Users { database } => vec!["dbs", database, "users"],
            Resource::User { database, user } => vec!["dbs", database, "users", user],
            Resource::Permissions { database, user } => vec!["dbs", database, "users", user, "permissions"],
            Resource::Permission { database, user, permission } => {
                vec!["dbs", database, "users", user, "permissions", permission]
            }
            Resource::Containers { database } => vec!["dbs", database, "colls"],
            Resource::Container { database, container } => segments_in_container(database, container, &[]),
            Resource::Documents { database, container } => {
                segments_in_container(database, container, &["docs"])
            }
            Resource::Document { database, container, document } => {
                segments_in_container(database, container, &["docs", document])
            }
            Resource::Attachments { database, container, document } => {
                segments_in_container(database, container, &["docs", document, "attachments"])
            }
            Resource::Attachment { database, container, document, attachment } => {
                segments_in_container(database, container, &["docs", document, "attachments", attachment])
            }
            Resource::PartitionKeyRanges { database, container } => {
                segments_in_container(database, container, &["pkranges"])
            }
            Resource::StoredProcedures { database, container } => {
                segments_in_container(database, container, &["sprocs"])
            }
            Resource::StoredProcedure { database, container, procedure } => {
                segments_in_container(database, container, &["sprocs", procedure])
            }
            Resource::Triggers { database, container } => {
                segments_in_container(database, container, &["triggers"])
            }
            Resource::Trigger { database, container, trigger } => {
                segments_in_container(database, container, &["triggers", trigger])
            }
            Resource::UserDefinedFunctions { database, container } => {
                segments_in_container(database, container, &["udfs"])
            }
            Resource::UserDefinedFunction { database, container, function } => {
                segments_in_container(database, container, &["udfs", function])
            }
            Resource::Conflicts { database, container } => {
                segments_in_container(database, container, &["conflicts"])
            }
            Resource::Conflict { database, container, conflict } => {
                segments_in_container(database, container, &["conflicts", conflict])
            }
            Resource::PartitionKeyDelete { database, container } => {
                segments_in_container(database, container, &["operations", "partitionkeydelete"])
            }
            Resource::Offers => vec!["offers"],
            Resource::Offer { offer } => vec!["offers", offer],
            Resource::DistributedTransactions => vec!["operations", "dtc"],
        }
    }
}

fn segments_in_container<'a>(database: &'a str, container: &'a str, rest: &[&'a str]) -> Vec<&'a str> {
    let mut segments = vec!["dbs", database, "colls", container];
    segments.extend_from_slice(rest);
    segments
}

/// Whether a database id has the form of a `_rid`, such as `q5ZfAA==`.
fn looks_like_database_rid(id: &str) -> bool {
    let is_base64_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'/');
    id.len() == 8 && id.ends_with("==") && id.bytes().take(6).all(is_base64_digit)
}

/// Decodes `%xx` (a plus sign is kept). `None` when an escape is incomplete or
/// the bytes are not UTF-8.
pub(crate) fn percent_decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let high = (rest.next()? as char).to_digit(16)?;
        let low = (rest.next()? as char).to_digit(16)?;
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests;
