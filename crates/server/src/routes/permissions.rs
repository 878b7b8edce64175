//! What a resource token permits. A permission names a container, or a document or script in
//! it, a mode (read, or all), and possibly a partition key. A request that it does not cover is
//! refused with 403.
//!
//! A request is refused unless a rule allows it. With any permission in a container a client
//! may read the account, the container and its ranges: SDKs read them before the first item.

use std::sync::Arc;

use http::Method;
use perihelion_engine::{Container, Refusal, Target};
use perihelion_model::json::Value;
use perihelion_model::partition_key::PartitionKey;
use perihelion_wire::path::Resource;
use perihelion_wire::{headers, status};

use super::RegionService;
use crate::call::Call;

const NOT_PERMITTED: &str = "Insufficient permissions provided in the authorization header for the corresponding request. Please retry with another authorization header.";

/// A permission, with its container resolved.
struct Grant {
    allows_writes: bool,
    container: Arc<Container>,
    /// The kind and the id of the resource in the container; `None` for the whole container.
    child: Option<(String, String)>,
    /// Whether the link of the permission consists of `_rid`s.
    is_by_rid: bool,
    key: Option<PartitionKey>,
}

/// Refuses a request that the permission with this `_rid` does not cover.
pub(super) fn check(service: &RegionService, call: &Call, permission: &str) -> Result<(), Refusal> {
    let refused = || Refusal::gateway(status::FORBIDDEN, NOT_PERMITTED);
    let permission = service.engine.permission(permission)?.ok_or_else(refused)?;
    if call.resource == Resource::Account && call.method == Method::GET {
        return Ok(());
    }
    let grant = Grant::of(service, &permission).ok_or_else(refused)?;
    if grant.covers(service, call)? { Ok(()) } else { Err(refused()) }
}

impl Grant {
    /// `None` if the permission's resource does not exist, or cannot be granted.
    fn of(service: &RegionService, permission: &Value) -> Option<Self> {
        let text = |name: &str| permission.get(name).and_then(Value::as_str);
        let link: Vec<&str> = text("resource")?.trim_matches('/').split('/').collect();
        let (database, container, child) = match link[..] {
            ["dbs", database, "colls", container] => (database, container, None),
            ["dbs", database, "colls", container, kind @ ("docs" | "sprocs" | "triggers" | "udfs"), id] => {
                (database, container, Some((kind.to_owned(), id.to_owned())))
            }
            _ => return None,
        };
        let catalog = service.engine.catalog();
        let key = match permission.get("resourcePartitionKey") {
            None | Some(Value::Null) => None,
            Some(key) => Some(PartitionKey::from_json(key)?),
        };
        Some(Grant {
            allows_writes: text("permissionMode")?.eq_ignore_ascii_case("all"),
            container: catalog.container(database, container).cloned()?,
            child,
            is_by_rid: catalog.is_rid_path(database),
            key,
        })
    }

    fn covers(&self, service: &RegionService, call: &Call) -> Result<bool, Refusal> {
        let catalog = service.engine.catalog();
        let addressed =
            call.resource.container().and_then(|(database, name)| catalog.container(database, name));
        if addressed.is_none_or(|container| container.number() != self.container.number()) {
            return Ok(false);
        }
        let is_description =
            matches!(call.resource, Resource::Container { .. } | Resource::PartitionKeyRanges { .. });
        if is_description && call.method == Method::GET {
            return Ok(true);
        }
        if !self.allows_writes && !is_read(call) {
            return Ok(false);
        }
        if let Some(key) = &self.key
            && !is_within_key(call, key)?
        {
            return Ok(false);
        }
        match &self.child {
            // With a key the permission is about items, and the container is not an item.
            None => Ok(self.key.is_none() || is_about_items(call)),
            Some((kind, id)) => self.is_child(service, call, kind, id),
        }
    }

    /// Whether a request is about the one document or script of the permission.
    fn is_child(&self, service: &RegionService, call: &Call, kind: &str, id: &str) -> Result<bool, Refusal> {
        let (addressed_kind, addressed) = match &call.resource {
            Resource::Document { document, .. } => ("docs", document),
            Resource::StoredProcedure { procedure, .. } => ("sprocs", procedure),
            Resource::Trigger { trigger, .. } => ("triggers", trigger),
            Resource::UserDefinedFunction { function, .. } => ("udfs", function),
            _ => return Ok(false),
        };
        if addressed_kind != kind {
            return Ok(false);
        }
        let is_by_rid = super::items::is_rid_path(service, call);
        if is_by_rid == self.is_by_rid {
            return Ok(addressed == id);
        }
        if kind != "docs" {
            return Ok(false);
        }
        // One of the two is the `_rid` of a document, the other one an id.
        let (rid, id) = if is_by_rid { (addressed.as_str(), id) } else { (id, addressed.as_str()) };
        let Some(key) = call.partition_key()? else { return Ok(false) };
        let target = Target::resolve(&self.container, key)?;
        let found = match self.container.parse_document_rid(rid) {
            Some(rid) => service.engine.id_of(&target, rid)?,
            None => None,
        };
        Ok(found.as_deref() == Some(id))
    }
}

/// Whether a request only reads.
fn is_read(call: &Call) -> bool {
    match call.method {
        Method::GET | Method::HEAD => true,
        Method::POST => {
            let is_batch = call.flag(&headers::IS_BATCH_REQUEST);
            !is_batch && (call.is_query() || call.flag(&headers::IS_QUERY_PLAN_REQUEST))
        }
        _ => false,
    }
}

/// Whether a request is about items or runs a procedure on them.
fn is_about_items(call: &Call) -> bool {
    matches!(
        call.resource,
        Resource::Documents { .. }
            | Resource::Document { .. }
            | Resource::PartitionKeyDelete { .. }
            | Resource::StoredProcedure { .. }
    )
}

/// Whether a request reaches only documents whose partition key begins with `key`. Headers that
/// address ranges could reach others.
fn is_within_key(call: &Call, key: &PartitionKey) -> Result<bool, Refusal> {
    let by_range = [&headers::PARTITION_KEY_RANGE_ID, &headers::START_EPK, &headers::END_EPK];
    if by_range.iter().any(|name| call.headers.contains_key(*name)) {
        return Ok(false);
    }
    if call.method == Method::POST && call.flag(&headers::IS_QUERY_PLAN_REQUEST) {
        return Ok(true);
    }
    Ok(call.partition_key()?.is_some_and(|given| given.values.starts_with(&key.values)))
}
