//! What a resource token permits. A permission names a resource (a container, or one document or
//! script in it), a mode (read, or all), and possibly a partition key. A request that the
//! permission does not cover is refused with 403.
//!
//! A request is refused unless a rule allows it. With any permission in a container a client
//! may read the account, the container and its ranges: SDKs read them before the first item.

use std::sync::Arc;

use http::Method;
use perihelion_engine::{Container, Refusal, StoredPermission, Target};
use perihelion_model::json::Value;
use perihelion_model::partition_key::PartitionKey;
use perihelion_wire::path::Resource;
use perihelion_wire::{headers, status};

use super::RegionService;
use crate::call::Call;
use crate::operation::{Operation, operation_of};

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
    match covering_grant(service, call, permission)? {
        Some(grant) if !grant.keeps_id(service, call)? => Err(refused()),
        Some(_) | None => Ok(()),
    }
}

/// Refuses a request that the permission does not cover, as far as the head of the request shows.
/// The body of `call` may be missing.
pub(super) fn check_head(service: &RegionService, call: &Call, permission: &str) -> Result<(), Refusal> {
    covering_grant(service, call, permission).map(drop)
}

/// The permission, if it covers the head of the request; `None` for a request that every
/// permission allows. Any other request is refused.
fn covering_grant(service: &RegionService, call: &Call, permission: &str) -> Result<Option<Grant>, Refusal> {
    let permission = service.engine.permission(permission)?.ok_or_else(refused)?;
    if call.resource == Resource::Account && call.method == Method::GET {
        return Ok(None);
    }
    let grant = Grant::of(service, &permission).ok_or_else(refused)?;
    if grant.covers(service, call)? { Ok(Some(grant)) } else { Err(refused()) }
}

fn refused() -> Refusal {
    Refusal::gateway(status::FORBIDDEN, NOT_PERMITTED)
}

impl Grant {
    /// The grant of a permission; `None` if the permission's resource does not exist, or cannot be
    /// granted. A container that was created after the permission is not the container of the
    /// permission, even if it has the same name.
    fn of(service: &RegionService, permission: &StoredPermission) -> Option<Self> {
        let StoredPermission { body, container_rid } = permission;
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        let link: Vec<&str> = text("resource")?.trim_matches('/').split('/').collect();
        let (database, container, child) = match link[..] {
            ["dbs", database, "colls", container] => (database, container, None),
            ["dbs", database, "colls", container, kind @ ("docs" | "sprocs" | "triggers" | "udfs"), id] => {
                (database, container, Some((kind.to_owned(), id.to_owned())))
            }
            _ => return None,
        };
        let catalog = service.engine.catalog();
        let found = catalog.container(database, container)?;
        if container_rid.as_ref() != Some(&found.rid_text) {
            return None;
        }
        let key = match body.get("resourcePartitionKey") {
            None | Some(Value::Null) => None,
            Some(key) => Some(PartitionKey::from_json(key)?),
        };
        Some(Grant {
            allows_writes: text("permissionMode")?.eq_ignore_ascii_case("all"),
            container: Arc::clone(found),
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
        // With a key the permission is about items, and neither containers nor scripts are items.
        if let Some(key) = &self.key
            && !(is_about_items(call) && is_within_key(call, key)?)
        {
            return Ok(false);
        }
        match &self.child {
            None => Ok(true),
            Some((kind, id)) => self.is_child(service, call, kind, id),
        }
    }

    /// Whether a request keeps the id of the one document that the permission names. A replace could
    /// give the document another id, which the permission does not cover.
    fn keeps_id(&self, service: &RegionService, call: &Call) -> Result<bool, Refusal> {
        let Resource::Document { document, .. } = &call.resource else { return Ok(true) };
        if self.child.is_none() || call.method != Method::PUT {
            return Ok(true);
        }
        let body = call.object()?;
        let new = body.get("id").and_then(Value::as_str);
        if super::items::is_rid_path(service, call) {
            let id = self.id_of(service, call, document)?;
            return Ok(id.is_some() && new == id.as_deref());
        }
        Ok(new == Some(document.as_str()))
    }

    /// The id of the document with this `_rid`, in the partition that a request addresses.
    fn id_of(&self, service: &RegionService, call: &Call, rid: &str) -> Result<Option<String>, Refusal> {
        let (Some(key), Some(rid)) = (call.partition_key()?, self.container.parse_document_rid(rid)) else {
            return Ok(None);
        };
        service.engine.id_of(&Target::resolve(&self.container, key)?, rid)
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
        // One of the two texts is the `_rid` of a document, the other is an id.
        let (rid, id) = if is_by_rid { (addressed.as_str(), id) } else { (id, addressed.as_str()) };
        let found = self.id_of(service, call, rid)?;
        Ok(found.as_deref() == Some(id))
    }
}

/// Whether a request only reads. The headers that make a POST a query count only where the route of the
/// resource evaluates them. To any other resource, a POST with these headers is a write.
fn is_read(call: &Call) -> bool {
    match call.method {
        Method::GET | Method::HEAD => true,
        Method::POST => is_query(call),
        _ => false,
    }
}

/// Whether a POST is a query or asks for the plan of a query.
fn is_query(call: &Call) -> bool {
    match call.resource {
        Resource::Documents { .. } => matches!(operation_of(call), Operation::Query | Operation::QueryPlan),
        Resource::StoredProcedures { .. }
        | Resource::Triggers { .. }
        | Resource::UserDefinedFunctions { .. }
        | Resource::Conflicts { .. } => call.is_query(),
        Resource::Account
        | Resource::Databases
        | Resource::Database { .. }
        | Resource::Users { .. }
        | Resource::User { .. }
        | Resource::Permissions { .. }
        | Resource::Permission { .. }
        | Resource::Containers { .. }
        | Resource::Container { .. }
        | Resource::Document { .. }
        | Resource::Attachments { .. }
        | Resource::Attachment { .. }
        | Resource::PartitionKeyRanges { .. }
        | Resource::StoredProcedure { .. }
        | Resource::Trigger { .. }
        | Resource::UserDefinedFunction { .. }
        | Resource::Conflict { .. }
        | Resource::PartitionKeyDelete { .. }
        | Resource::Offers
        | Resource::Offer { .. }
        | Resource::DistributedTransactions => false,
    }
}

/// Whether a request is about items or runs a procedure on them.
fn is_about_items(call: &Call) -> bool {
    match call.resource {
        Resource::Documents { .. } | Resource::Document { .. } | Resource::PartitionKeyDelete { .. } => true,
        Resource::StoredProcedure { .. } => call.method == Method::POST,
        _ => false,
    }
}

/// Whether a request reaches only documents whose partition key begins with `key`. A request with
/// headers that address ranges could reach other documents. A request for a plan reaches no
/// documents.
fn is_within_key(call: &Call, key: &PartitionKey) -> Result<bool, Refusal> {
    let by_range = [&headers::PARTITION_KEY_RANGE_ID, &headers::START_EPK, &headers::END_EPK];
    if by_range.iter().any(|name| call.headers.contains_key(*name)) {
        return Ok(false);
    }
    if operation_of(call) == Operation::QueryPlan {
        return Ok(true);
    }
    Ok(call.partition_key()?.is_some_and(|given| given.values.starts_with(&key.values)))
}
