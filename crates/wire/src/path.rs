//! Request paths, read once into what they address.
//!
//! A path names a resource (`/dbs/d/colls/c/docs/x`) or a feed of them
//! (`/dbs/d/colls/c/docs`). Whether a segment is a name or a `_rid` cannot be
//! seen here, so segments are kept as sent, decoded; the engine looks for the
//! name first and the `_rid` second. What is authorised and what is routed are
//! the same parsed value: a decoded segment never holds a slash, so no two
//! paths share a signing link and a type.

use std::borrow::Cow;

/// The longest path that is read. An item id has at most 1,023 bytes, each of
/// the names above it 255 characters of up to four bytes; all of it three times
/// as long when percent-encoded.
pub const PATH_BYTES_MAX: usize = 16 * 1024;

/// The longest decoded segment: the service's limit on an item id.
pub const SEGMENT_BYTES_MAX: usize = 1023;

/// What a request path addresses. Ids are decoded and may be names or `_rid`s.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
    /// `/`
    Account,
    /// `/dbs`
    Databases,
    Database {
        database: String,
    },
    Users {
        database: String,
    },
    User {
        database: String,
        user: String,
    },
    Permissions {
        database: String,
        user: String,
    },
    Permission {
        database: String,
        user: String,
        permission: String,
    },
    /// `/dbs/{}/colls`
    Containers {
        database: String,
    },
    Container {
        database: String,
        container: String,
    },
    /// `/dbs/{}/colls/{}/docs`: create, upsert, query, batch, read feed, change feed.
    Documents {
        database: String,
        container: String,
    },
    Document {
        database: String,
        container: String,
        document: String,
    },
    Attachments {
        database: String,
        container: String,
        document: String,
    },
    Attachment {
        database: String,
        container: String,
        document: String,
        attachment: String,
    },
    PartitionKeyRanges {
        database: String,
        container: String,
    },
    StoredProcedures {
        database: String,
        container: String,
    },
    StoredProcedure {
        database: String,
        container: String,
        procedure: String,
    },
    Triggers {
        database: String,
        container: String,
    },
    Trigger {
        database: String,
        container: String,
        trigger: String,
    },
    UserDefinedFunctions {
        database: String,
        container: String,
    },
    UserDefinedFunction {
        database: String,
        container: String,
        function: String,
    },
    Conflicts {
        database: String,
        container: String,
    },
    Conflict {
        database: String,
        container: String,
        conflict: String,
    },
    /// `/dbs/{}/colls/{}/operations/partitionkeydelete`
    PartitionKeyDelete {
        database: String,
        container: String,
    },
    /// `/offers`
    Offers,
    Offer {
        offer: String,
    },
    /// `/operations/dtc`
    DistributedTransactions,
}

/// The path addresses nothing the service knows. Its answer is 400, not 404.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadPath;

impl BadPath {
    /// The service's text for the body of the 400.
    pub const MESSAGE: &'static str = "Request url is invalid.";
}

impl std::fmt::Display for BadPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(Self::MESSAGE)
    }
}

impl std::error::Error for BadPath {}

/// Reads a request path (without its query part). One trailing slash is
/// accepted, as the Python SDK sends it; empty segments are not.
pub fn parse(path: &str) -> Result<Resource, BadPath> {
    if path.len() > PATH_BYTES_MAX {
        return Err(BadPath);
    }
    if path == "/" {
        return Ok(Resource::Account);
    }
    let mut segments = Vec::with_capacity(SEGMENTS_MAX);
    for segment in trimmed(path)?.split('/') {
        if segments.len() == SEGMENTS_MAX {
            return Err(BadPath);
        }
        segments.push(decode_segment(segment)?);
    }
    let kinds: Vec<&str> = segments.iter().map(|segment| segment.as_ref()).collect();
    classify(&kinds).ok_or(BadPath)
}

/// `dbs/{}/colls/{}/docs/{}/attachments/{}` is the longest path there is.
const SEGMENTS_MAX: usize = 8;

/// The path without its leading slash and one trailing slash.
fn trimmed(path: &str) -> Result<&str, BadPath> {
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

fn classify(segments: &[&str]) -> Option<Resource> {
    let own = |text: &str| text.to_owned();
    Some(match *segments {
        ["dbs"] => Resource::Databases,
        ["dbs", database] => Resource::Database { database: own(database) },
        ["dbs", database, "users"] => Resource::Users { database: own(database) },
        ["dbs", database, "users", user] => Resource::User { database: own(database), user: own(user) },
        ["dbs", database, "users", user, "permissions"] => {
            Resource::Permissions { database: own(database), user: own(user) }
        }
        ["dbs", database, "users", user, "permissions", permission] => {
            Resource::Permission { database: own(database), user: own(user), permission: own(permission) }
        }
        ["dbs", database, "colls"] => Resource::Containers { database: own(database) },
        ["dbs", database, "colls", container, ref rest @ ..] => {
            return classify_in_container(own(database), own(container), rest);
        }
        ["offers"] => Resource::Offers,
        ["offers", offer] => Resource::Offer { offer: own(offer) },
        ["operations", "dtc"] => Resource::DistributedTransactions,
        _ => return None,
    })
}

fn classify_in_container(database: String, container: String, rest: &[&str]) -> Option<Resource> {
    let own = |text: &str| text.to_owned();
    Some(match *rest {
        [] => Resource::Container { database, container },
        ["docs"] => Resource::Documents { database, container },
        ["docs", document] => Resource::Document { database, container, document: own(document) },
        ["docs", document, "attachments"] => {
            Resource::Attachments { database, container, document: own(document) }
        }
        ["docs", document, "attachments", attachment] => {
            let (document, attachment) = (own(document), own(attachment));
            Resource::Attachment { database, container, document, attachment }
        }
        ["pkranges"] => Resource::PartitionKeyRanges { database, container },
        ["sprocs"] => Resource::StoredProcedures { database, container },
        ["sprocs", procedure] => Resource::StoredProcedure { database, container, procedure: own(procedure) },
        ["triggers"] => Resource::Triggers { database, container },
        ["triggers", trigger] => Resource::Trigger { database, container, trigger: own(trigger) },
        ["udfs"] => Resource::UserDefinedFunctions { database, container },
        ["udfs", function] => Resource::UserDefinedFunction { database, container, function: own(function) },
        ["conflicts"] => Resource::Conflicts { database, container },
        ["conflicts", conflict] => Resource::Conflict { database, container, conflict: own(conflict) },
        ["operations", "partitionkeydelete"] => Resource::PartitionKeyDelete { database, container },
        _ => return None,
    })
}

impl Resource {
    /// The resource type under the signature, e.g. `docs`.
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

    /// A second type that some client signs this resource with: the JavaScript
    /// SDK signs the deletion of a partition key as a POST to the container.
    /// No other request has that signature.
    pub fn other_signing_type(&self) -> Option<&'static str> {
        matches!(self, Resource::PartitionKeyDelete { .. }).then_some("colls")
    }

    /// The database that the path lies in, if any.
    pub fn database(&self) -> Option<&str> {
        self.segments().get(1).copied().filter(|_| self.is_in_database())
    }

    /// The database and the container that the path lies in, if any.
    pub fn container(&self) -> Option<(&str, &str)> {
        match *self.segments() {
            ["dbs", database, "colls", container, ..] => Some((database, container)),
            _ => None,
        }
    }

    /// Whether the path is a feed: a list, or the place to POST a new member.
    pub fn is_feed(&self) -> bool {
        !matches!(self, Resource::Account) && self.segments().len() % 2 == 1
            || matches!(self, Resource::PartitionKeyDelete { .. } | Resource::DistributedTransactions)
    }

    /// The link that a client signs: the resource itself, or a feed's parent.
    /// Names keep their case; a resource addressed by `_rid` is signed by that
    /// `_rid` alone, in lower case, and so is an offer.
    pub fn signing_link(&self) -> String {
        let segments = self.segments();
        let signed = self.signed_segments(&segments);
        match signed.last() {
            Some(leaf) if self.is_by_rid() => leaf.to_ascii_lowercase(),
            _ => signed.join("/"),
        }
    }

    /// Every link that a known client may have signed for this path, the most
    /// likely first. All of them name this resource and no other: the name
    /// link; the path as sent, still percent-encoded; for `_rid`s the leaf
    /// alone (Python, Rust, .NET) or the whole link (JavaScript), as sent and
    /// in lower case.
    pub fn signing_links(&self, path: &str) -> Vec<String> {
        let segments = self.segments();
        let signed = self.signed_segments(&segments);
        let mut links = vec![self.signing_link()];
        let mut offer = |link: String| {
            if !links.contains(&link) {
                links.push(link);
            }
        };
        offer(signed.join("/"));
        let raw: Vec<&str> = trimmed(path).unwrap_or_default().split('/').take(signed.len()).collect();
        if raw.len() == signed.len() {
            offer(raw.join("/"));
        }
        if self.is_by_rid() {
            offer(signed.join("/").to_ascii_lowercase());
            offer(signed.last().copied().unwrap_or_default().to_owned());
        }
        links
    }

    /// The part of the path that is signed: all of it, or a feed's parent.
    fn signed_segments<'a, 's>(&self, segments: &'s [&'a str]) -> &'s [&'a str] {
        match self {
            Resource::DistributedTransactions => &[],
            Resource::PartitionKeyDelete { .. } => &segments[..segments.len() - 2],
            _ if self.is_feed() => &segments[..segments.len() - 1],
            _ => segments,
        }
    }

    /// Whether the path is addressed by `_rid`. The service decides by the
    /// database alone: four bytes in base64 are eight characters.
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

    /// The decoded segments of the path, the inverse of `classify`.
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
            Resource::Container { database, container } => in_container(database, container, &[]),
            Resource::Documents { database, container } => in_container(database, container, &["docs"]),
            Resource::Document { database, container, document } => {
                in_container(database, container, &["docs", document])
            }
            Resource::Attachments { database, container, document } => {
                in_container(database, container, &["docs", document, "attachments"])
            }
            Resource::Attachment { database, container, document, attachment } => {
                in_container(database, container, &["docs", document, "attachments", attachment])
            }
            Resource::PartitionKeyRanges { database, container } => {
                in_container(database, container, &["pkranges"])
            }
            Resource::StoredProcedures { database, container } => {
                in_container(database, container, &["sprocs"])
            }
            Resource::StoredProcedure { database, container, procedure } => {
                in_container(database, container, &["sprocs", procedure])
            }
            Resource::Triggers { database, container } => in_container(database, container, &["triggers"]),
            Resource::Trigger { database, container, trigger } => {
                in_container(database, container, &["triggers", trigger])
            }
            Resource::UserDefinedFunctions { database, container } => {
                in_container(database, container, &["udfs"])
            }
            Resource::UserDefinedFunction { database, container, function } => {
                in_container(database, container, &["udfs", function])
            }
            Resource::Conflicts { database, container } => in_container(database, container, &["conflicts"]),
            Resource::Conflict { database, container, conflict } => {
                in_container(database, container, &["conflicts", conflict])
            }
            Resource::PartitionKeyDelete { database, container } => {
                in_container(database, container, &["operations", "partitionkeydelete"])
            }
            Resource::Offers => vec!["offers"],
            Resource::Offer { offer } => vec!["offers", offer],
            Resource::DistributedTransactions => vec!["operations", "dtc"],
        }
    }
}

fn in_container<'a>(database: &'a str, container: &'a str, rest: &[&'a str]) -> Vec<&'a str> {
    let mut segments = vec!["dbs", database, "colls", container];
    segments.extend_from_slice(rest);
    segments
}

/// Whether a database id has the form of a `_rid`, e.g. `q5ZfAA==`.
fn looks_like_database_rid(id: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'/');
    id.len() == 8 && id.ends_with("==") && id.bytes().take(6).all(is_digit)
}

/// Decodes `%xx` and nothing else (a plus sign stays). `None` when an escape
/// is cut short or the bytes are not UTF-8.
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
mod tests {
    use super::*;

    /// The path is read as a resource with this type, whose accepted signing
    /// links are these, and which is made of the decoded path's segments.
    fn check(path: &str, resource_type: &str, links: &[&str]) -> Resource {
        let resource = parse(path).unwrap_or_else(|_| panic!("{path} is refused"));
        assert_eq!(resource.resource_type(), resource_type, "{path}");
        assert_eq!(resource.signing_links(path), links, "{path}");
        assert_eq!(resource.signing_link(), links[0], "{path}");
        let decoded = percent_decode(path).unwrap();
        assert_eq!(resource.segments().join("/"), decoded.trim_matches('/'), "{path}");
        resource
    }

    #[test]
    fn feeds_are_signed_by_their_parent() {
        assert_eq!(check("/", "", &[""]), Resource::Account);
        assert_eq!(check("/dbs", "dbs", &[""]), Resource::Databases);
        check("/dbs/", "dbs", &[""]);
        check("/dbs/D/colls", "colls", &["dbs/D"]);
        check("/dbs/D/users", "users", &["dbs/D"]);
        check("/dbs/D/users/U/permissions", "permissions", &["dbs/D/users/U"]);
        check("/dbs/D/colls/C/docs", "docs", &["dbs/D/colls/C"]);
        check("/dbs/D/colls/C/docs/x/attachments", "attachments", &["dbs/D/colls/C/docs/x"]);
        check("/dbs/D/colls/C/pkranges/", "pkranges", &["dbs/D/colls/C"]);
        check("/dbs/D/colls/C/sprocs", "sprocs", &["dbs/D/colls/C"]);
        check("/dbs/D/colls/C/triggers", "triggers", &["dbs/D/colls/C"]);
        check("/dbs/D/colls/C/udfs", "udfs", &["dbs/D/colls/C"]);
        check("/dbs/D/colls/C/conflicts", "conflicts", &["dbs/D/colls/C"]);
        check("/dbs/D/colls/C/operations/partitionkeydelete", "partitionkey", &["dbs/D/colls/C"]);
        check("/offers", "offers", &[""]);
        check("/operations/dtc", "distributedtransactionbatch", &[""]);
    }

    #[test]
    fn resources_are_signed_by_their_own_link() {
        check("/dbs/D", "dbs", &["dbs/D"]);
        check("/dbs/D/users/U", "users", &["dbs/D/users/U"]);
        check("/dbs/D/users/U/permissions/P", "permissions", &["dbs/D/users/U/permissions/P"]);
        check("/dbs/D/colls/C/", "colls", &["dbs/D/colls/C"]);
        check("/dbs/D/colls/C/docs/X", "docs", &["dbs/D/colls/C/docs/X"]);
        check("/dbs/D/colls/C/sprocs/S", "sprocs", &["dbs/D/colls/C/sprocs/S"]);
        check("/dbs/D/colls/C/triggers/T", "triggers", &["dbs/D/colls/C/triggers/T"]);
        check("/dbs/D/colls/C/udfs/F", "udfs", &["dbs/D/colls/C/udfs/F"]);
        check("/dbs/D/colls/C/conflicts/K", "conflicts", &["dbs/D/colls/C/conflicts/K"]);
        check("/dbs/D/colls/C/docs/X/attachments/A", "attachments", &["dbs/D/colls/C/docs/X/attachments/A"]);
    }

    #[test]
    fn names_are_decoded_and_may_be_signed_either_way() {
        let resource = check(
            "/dbs/D/colls/C/docs/h%C3%A9llo%20+%25",
            "docs",
            &["dbs/D/colls/C/docs/héllo +%", "dbs/D/colls/C/docs/h%C3%A9llo%20+%25"],
        );
        let Resource::Document { document, .. } = &resource else { panic!("{resource:?}") };
        assert_eq!(document, "héllo +%");
        check("/dbs/a%20b/colls/C/docs", "docs", &["dbs/a b/colls/C", "dbs/a%20b/colls/C"]);
    }

    #[test]
    fn rids_are_signed_by_the_leaf_in_lower_case() {
        check(
            "/dbs/q5ZfAA==/colls/q5ZfAL-Rc0A=",
            "colls",
            &[
                "q5zfal-rc0a=",
                "dbs/q5ZfAA==/colls/q5ZfAL-Rc0A=",
                "dbs/q5zfaa==/colls/q5zfal-rc0a=",
                "q5ZfAL-Rc0A=",
            ],
        );
        let links = ["q5zfaa==", "dbs/q5ZfAA==", "dbs/q5zfaa==", "q5ZfAA=="];
        check("/dbs/q5ZfAA==/colls", "colls", &links);
        check("/offers/Ab1C", "offers", &["ab1c", "offers/Ab1C", "offers/ab1c", "Ab1C"]);
    }

    #[test]
    fn containers_and_databases_can_be_asked_for() {
        let resource = parse("/dbs/D/colls/C/docs/X").unwrap();
        assert_eq!(resource.database(), Some("D"));
        assert_eq!(resource.container(), Some(("D", "C")));
        assert_eq!(parse("/dbs/D/users").unwrap().container(), None);
        assert_eq!(parse("/offers/O").unwrap().database(), None);
        assert_eq!(parse("/operations/dtc").unwrap().database(), None);
        assert!(parse("/dbs").unwrap().is_feed());
        assert!(!parse("/").unwrap().is_feed());
        assert!(!parse("/dbs/D").unwrap().is_feed());
    }

    #[test]
    fn other_paths_are_refused() {
        let long = format!("/dbs/{}", "a".repeat(SEGMENT_BYTES_MAX + 1));
        let huge = "/a".repeat(PATH_BYTES_MAX);
        for path in [
            "",
            "dbs",
            "*",
            "//",
            "/nope",
            "/dbs//colls",
            "//dbs",
            "/dbs/d//",
            "/dbs/d/nope",
            "/dbs/d/colls/c/nope",
            "/dbs/d/colls/c/docs/x/y",
            "/dbs/d/colls/c/docs/x/attachments/a/b",
            "/dbs/d/colls/c/operations",
            "/dbs/d/colls/c/operations/other",
            "/offers/o/p",
            "/operations",
            "/dbs/a%2Fb",
            "/dbs/a%2",
            "/dbs/a%zz",
            "/dbs/%ff",
            "/dbs/%",
            &long,
            &huge,
        ] {
            assert_eq!(parse(path), Err(BadPath), "{path}");
        }
    }
}
