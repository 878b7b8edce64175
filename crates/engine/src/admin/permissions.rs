//! The resource that a permission names by a link: a container, or a document or script in a
//! container.
//!
//! The link may consist of names, and a container that is deleted and created again has the same
//! name. So the server stores the `_rid` of the container with the permission, in a member that
//! clients neither see nor set. If the container did not exist when the permission was written, the
//! permission grants no access.

use std::sync::Arc;

use perihelion_model::json::{Object, Value};
use perihelion_model::partition_key::PartitionKey;
use perihelion_model::resource_id::{DatabaseRid, UserRid};

use super::users::{AccessFeed, record_by_rid};
use crate::catalog::{Catalog, Container};
use crate::refusal::Refusal;
use crate::storage::View;

/// The member of a stored permission with the `_rid` of its container.
pub(super) const CONTAINER_MEMBER: &str = "_containerRid";

const OTHER_DATABASE: &str = "The resource of a permission must be in the database of its user.";

/// A permission, as it is read to authorize a request that carries the permission's token.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredPermission {
    /// The body as clients see it.
    pub body: Value,
    /// The `_rid` that the container of the permission had when the permission was written;
    /// `None` if there was no such container.
    pub container_rid: Option<String>,
}

/// Checks the members of a permission.
pub(super) fn check(body: &Object) -> Result<(), Refusal> {
    let mode = body.get("permissionMode").and_then(Value::as_str);
    let is_mode = mode.is_some_and(|mode| ["all", "read"].iter().any(|one| one.eq_ignore_ascii_case(mode)));
    let has_resource = body.get("resource").and_then(Value::as_str).is_some_and(|link| !link.is_empty());
    let is_key = match body.get("resourcePartitionKey") {
        None | Some(Value::Null) => true,
        Some(key) => PartitionKey::from_json(key).is_some_and(|key| !key.values.is_empty()),
    };
    if is_mode && has_resource && is_key { Ok(()) } else { Err(Refusal::invalid_input()) }
}

/// The container that the link of a permission names; `None` if it does not exist. A link into a
/// database other than the user's is refused.
pub(super) fn container_of<'a>(
    catalog: &'a Catalog,
    database: DatabaseRid,
    body: &Object,
) -> Result<Option<&'a Arc<Container>>, Refusal> {
    let link = body.get("resource").and_then(Value::as_str).unwrap_or_default();
    let mut segments = link.trim_matches('/').split('/');
    let (Some("dbs"), Some(name)) = (segments.next(), segments.next()) else { return Ok(None) };
    match catalog.database(name) {
        Some(named) if named.rid != database => return Err(Refusal::bad_request(OTHER_DATABASE)),
        Some(_) | None => {}
    }
    Ok(match (segments.next(), segments.next()) {
        (Some("colls"), Some(container)) => catalog.container(name, container),
        _ => None,
    })
}

/// The body of a permission as clients see it. The body of a user is returned unchanged.
pub(super) fn without_container(body: Value) -> Value {
    match body {
        Value::Object(mut body) => {
            body.remove(CONTAINER_MEMBER);
            Value::Object(body)
        }
        body => body,
    }
}

/// The permission with this `_rid`; `None` if it was deleted.
pub(crate) fn permission_of(view: &dyn View, rid: &str) -> Result<Option<StoredPermission>, Refusal> {
    let Some(user) = UserRid::of_permission(rid) else { return Ok(None) };
    let record = record_by_rid(view, &AccessFeed::Permissions { user, name: String::new() }, rid)?;
    Ok(record.map(|record| {
        let container_rid = record.get(CONTAINER_MEMBER).and_then(Value::as_str).map(str::to_owned);
        StoredPermission { body: without_container(record), container_rid }
    }))
}
