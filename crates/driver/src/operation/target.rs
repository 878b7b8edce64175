//! The resource of an operation: the path that is sent, and the resource link that
//! is signed. Path and link are built from names. When no name has to be escaped, the
//! link of a document is its path without the first slash.

use std::sync::Arc;

use http::uri::PathAndQuery;

use super::ResourceKind;
use crate::metadata::Container;
use crate::path::{percent_encode, to_path};

/// The resource of an operation.
#[derive(Debug, Clone)]
pub struct Target {
    /// The kind of the resource.
    pub kind: ResourceKind,
    /// The path, percent-encoded.
    pub path: PathAndQuery,
    /// The resource link that is signed: the path without its first slash and
    /// without escapes, or the link of the parent when the path is a feed. The link of
    /// one offer is its id in lower case.
    pub link: Link,
    /// The container, for operations on its documents and ranges.
    pub container: Option<Arc<Container>>,
}

/// The resource link that is signed.
#[derive(Debug, Clone)]
pub enum Link {
    /// The path without its first slash: no name in it has to be escaped.
    Path,
    /// The link of the container, for the feeds of its documents and ranges.
    Container,
    /// Any other text.
    Text(Arc<str>),
}

impl Target {
    /// The account: `/`.
    pub fn account() -> Self {
        Target::with_link(ResourceKind::Account, PathAndQuery::from_static("/"), "")
    }

    /// The feed of databases.
    pub fn databases() -> Self {
        Target::with_link(ResourceKind::Database, PathAndQuery::from_static("/dbs"), "")
    }

    /// One database.
    pub fn database(database: &str) -> Self {
        let path = to_path(format!("/dbs/{}", percent_encode(database)));
        Target::with_link(ResourceKind::Database, path, &format!("dbs/{database}"))
    }

    /// The feed of a database's containers.
    pub fn containers(database: &str) -> Self {
        let path = to_path(format!("/dbs/{}/colls", percent_encode(database)));
        Target::with_link(ResourceKind::Container, path, &format!("dbs/{database}"))
    }

    /// A container itself.
    pub fn container(container: &Container) -> Self {
        Target::with_link(ResourceKind::Container, to_path(container.path()), container.link())
    }

    /// The feed of all offers.
    pub fn offers() -> Self {
        Target::with_link(ResourceKind::Offer, PathAndQuery::from_static("/offers"), "")
    }

    /// One offer. Only its id is signed, in lower case.
    pub fn offer(id: &str) -> Self {
        let path = to_path(format!("/offers/{}", percent_encode(id)));
        Target::with_link(ResourceKind::Offer, path, &id.to_ascii_lowercase())
    }

    /// The feed of a container's documents, for creates, upserts, queries, batches and
    /// the change feed.
    pub fn items(container: &Arc<Container>) -> Self {
        Target {
            kind: ResourceKind::Item,
            path: container.items_path().clone(),
            link: Link::Container,
            container: Some(Arc::clone(container)),
        }
    }

    /// One document.
    pub fn item(container: &Arc<Container>, id: &str) -> Self {
        let encoded = percent_encode(id);
        let prefix = container.items_path().as_str();
        let mut text = String::with_capacity(prefix.len() + 1 + encoded.len());
        text.push_str(prefix);
        text.push('/');
        text.push_str(&encoded);
        let is_plain = matches!(encoded, std::borrow::Cow::Borrowed(_)) && container.is_plain();
        let link =
            if is_plain { Link::Path } else { Link::Text(format!("{}/docs/{id}", container.link()).into()) };
        Target { kind: ResourceKind::Item, path: to_path(text), link, container: Some(Arc::clone(container)) }
    }

    /// The feed of a container's partition key ranges.
    pub fn ranges(container: &Arc<Container>) -> Self {
        Target {
            kind: ResourceKind::Range,
            path: to_path(format!("{}/pkranges", container.path())),
            link: Link::Container,
            container: Some(Arc::clone(container)),
        }
    }

    /// The endpoint of distributed transactions. Nothing of its path is signed.
    pub fn transactions() -> Self {
        Target::with_link(ResourceKind::Transaction, PathAndQuery::from_static("/operations/dtc"), "")
    }

    fn with_link(kind: ResourceKind, path: PathAndQuery, link: &str) -> Self {
        Target { kind, path, link: Link::Text(link.into()), container: None }
    }

    /// The text of the link.
    pub fn signing_link(&self) -> &str {
        match (&self.link, &self.container) {
            (Link::Text(text), _) => text,
            (Link::Container, Some(container)) => container.link(),
            (Link::Path | Link::Container, _) => self.path.as_str().trim_start_matches('/'),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_name_is_signed_as_its_path() {
        let container = Container::new("shop", "orders");
        let target = Target::item(&container, "a-1");
        assert_eq!(target.path.as_str(), "/dbs/shop/colls/orders/docs/a-1");
        assert_eq!(target.signing_link(), "dbs/shop/colls/orders/docs/a-1");
        assert!(matches!(target.link, Link::Path));
    }

    #[test]
    fn an_escaped_name_is_signed_unescaped() {
        let container = Container::new("my shop", "orders");
        let target = Target::item(&container, "ä/1");
        assert_eq!(target.path.as_str(), "/dbs/my%20shop/colls/orders/docs/%C3%A4%2F1");
        assert_eq!(target.signing_link(), "dbs/my shop/colls/orders/docs/ä/1");
        assert_eq!(Target::items(&container).signing_link(), "dbs/my shop/colls/orders");
    }
}
