//! Users of a database and their permissions. A permission names a container or a part of
//! it, and a client that has its token may use that and nothing else.
//!
//! Both are records and not part of the catalog. A user is stored by its id, a permission by
//! the number of its user and its own id, so that a user can be renamed.

use bytes::Bytes;
use perihelion_model::json::{self, Object, Value};
use perihelion_model::partition_key::PartitionKey;
use perihelion_model::resource_id::{DatabaseRid, UserRid};
use perihelion_wire::status;

use super::change_catalog;
use crate::catalog::{Catalog, resource_name};
use crate::charge;
use crate::keys::{self, OwnedKeyRange};
use crate::refusal::{Layer, Refusal};
use crate::storage::{Direction, View};
use crate::transaction::Transaction;

/// The most users of a database: a deleted database removes them in one commit.
const USERS_MAX: usize = 10_000;
/// The most permissions of a user: the permission of a token is found among them.
const PERMISSIONS_MAX: usize = 1_000;

/// The members that the server sets. A client may send those of the body that it read.
const SYSTEM_MEMBERS: [&str; 6] = ["_rid", "_self", "_etag", "_ts", "_permissions", "_token"];

/// The users of a database, or the permissions of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessFeed {
    /// The users of a database.
    Users(DatabaseRid),
    /// The permissions of a user.
    Permissions {
        /// The `_rid` of the user.
        user: UserRid,
        /// The id of the user.
        name: String,
    },
}

/// How a user or a permission is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessWrite {
    /// The id must be free.
    Create,
    /// The id may exist.
    Upsert,
    /// The entry with this id is replaced. The new body may have another id.
    Replace(String),
}

impl AccessFeed {
    fn database(&self) -> DatabaseRid {
        match self {
            AccessFeed::Users(database) => *database,
            AccessFeed::Permissions { user, .. } => user.database,
        }
    }

    fn key(&self, id: &str) -> Vec<u8> {
        match self {
            AccessFeed::Users(database) => keys::user(database.0, id),
            AccessFeed::Permissions { user, .. } => keys::permission(user.database.0, user.number, id),
        }
    }

    fn key_range(&self) -> OwnedKeyRange {
        OwnedKeyRange::prefix(&match self {
            AccessFeed::Users(database) => keys::user_prefix(database.0),
            AccessFeed::Permissions { user, .. } => keys::permission_prefix(user.database.0, user.number),
        })
    }

    fn quota(&self) -> usize {
        match self {
            AccessFeed::Users(_) => USERS_MAX,
            AccessFeed::Permissions { .. } => PERMISSIONS_MAX,
        }
    }

    /// Refuses a command on the users of a deleted database, or on the permissions of a deleted
    /// user.
    fn check_parent(&self, transaction: &Transaction<'_>) -> Result<(), Refusal> {
        let database = self.database();
        let exists = match self {
            AccessFeed::Users(_) => transaction.catalog.databases.values().any(|one| one.rid == database),
            AccessFeed::Permissions { user, name } => {
                let record = transaction.get(&keys::user(database.0, name))?;
                let body = record.and_then(|record| json::parse(&record).ok());
                body.is_some_and(|body| text(&body, "_rid") == Some(&user.to_text()))
            }
        };
        if exists { Ok(()) } else { Err(Refusal::no_such_resource()) }
    }
}

/// Writes a user or a permission. Returns its body, and whether it is new.
pub(crate) fn put_access(
    transaction: &mut Transaction<'_>,
    feed: &AccessFeed,
    write: &AccessWrite,
    mut body: Object,
) -> Result<(Value, bool), Refusal> {
    feed.check_parent(transaction)?;
    let id = resource_name(&body)?;
    if matches!(feed, AccessFeed::Permissions { .. }) {
        check_permission(&body)?;
    }
    let old_id = match write {
        AccessWrite::Replace(old) => old.as_str(),
        AccessWrite::Create | AccessWrite::Upsert => &id,
    };
    let old = read_body(transaction.get(&feed.key(old_id))?);
    let is_taken = match write {
        AccessWrite::Create => old.is_some(),
        AccessWrite::Upsert => false,
        AccessWrite::Replace(_) if old.is_none() => return Err(Refusal::no_such_resource()),
        AccessWrite::Replace(old_id) => *old_id != id && transaction.get(&feed.key(&id))?.is_some(),
    };
    if is_taken {
        return Err(Refusal::resource_exists().with_charge(charge::CONFLICT));
    }
    if old.is_none() && transaction.entries(&feed.key_range(), feed.quota())?.len() >= feed.quota() {
        let message = format!("The quota of {} entries of this kind is used up.", feed.quota());
        return Err(Refusal::new(status::FORBIDDEN, Layer::Backend, message));
    }
    if let AccessWrite::Replace(old_id) = write {
        transaction.remove(feed.key(old_id));
    }
    body.retain(|name| !SYSTEM_MEMBERS.contains(&name));
    let old_rid = old.as_ref().and_then(|old| text(old, "_rid")).map(str::to_owned);
    let body = add_system_members(transaction, feed, old_rid, body);
    transaction.put_record(feed.key(&id), &body);
    Ok((body, old.is_none()))
}

/// Adds the members of the server. An entry that is replaced keeps its `_rid`.
fn add_system_members(
    transaction: &mut Transaction<'_>,
    feed: &AccessFeed,
    old_rid: Option<String>,
    mut body: Object,
) -> Value {
    change_catalog(transaction, |_, catalog, revision| {
        let rid = old_rid.unwrap_or_else(|| {
            let number = catalog.account.user_next;
            catalog.account.user_next += 1;
            match feed {
                AccessFeed::Users(database) => UserRid { database: *database, number }.to_text(),
                AccessFeed::Permissions { user, .. } => user.permission(number),
            }
        });
        let database = feed.database().to_text();
        let link = match feed {
            AccessFeed::Users(_) => format!("dbs/{database}/users/{rid}/"),
            AccessFeed::Permissions { user, .. } => {
                format!("dbs/{database}/users/{}/permissions/{rid}/", user.to_text())
            }
        };
        body.set("_rid", rid.into());
        body.set("_self", link.into());
        body.set("_etag", revision.etag.as_str().into());
        if matches!(feed, AccessFeed::Users(_)) {
            body.set("_permissions", "permissions/".into());
        }
        body.set("_ts", revision.timestamp.into());
    });
    Value::Object(body)
}

/// Checks the members of a permission.
fn check_permission(body: &Object) -> Result<(), Refusal> {
    let mode = body.get("permissionMode").and_then(Value::as_str);
    let is_mode = mode.is_some_and(|mode| ["all", "read"].iter().any(|one| one.eq_ignore_ascii_case(mode)));
    let has_resource = body.get("resource").and_then(Value::as_str).is_some_and(|link| !link.is_empty());
    let is_key = match body.get("resourcePartitionKey") {
        None | Some(Value::Null) => true,
        Some(key) => PartitionKey::from_json(key).is_some_and(|key| !key.values.is_empty()),
    };
    if is_mode && has_resource && is_key { Ok(()) } else { Err(Refusal::invalid_input()) }
}

/// Deletes a user with its permissions, or a permission.
pub(crate) fn delete_access(
    transaction: &mut Transaction<'_>,
    feed: &AccessFeed,
    id: &str,
) -> Result<(), Refusal> {
    feed.check_parent(transaction)?;
    let body = read_body(transaction.get(&feed.key(id))?).ok_or_else(Refusal::no_such_resource)?;
    transaction.remove(feed.key(id));
    if matches!(feed, AccessFeed::Users(_))
        && let Some(user) = text(&body, "_rid").and_then(UserRid::parse)
    {
        remove_prefix(transaction, &keys::permission_prefix(user.database.0, user.number))?;
    }
    Ok(())
}

/// Deletes all users and permissions of a database.
pub(super) fn delete_access_of(
    transaction: &mut Transaction<'_>,
    database: DatabaseRid,
) -> Result<(), Refusal> {
    remove_prefix(transaction, &keys::user_prefix(database.0))?;
    remove_prefix(transaction, &keys::database_permission_prefix(database.0))
}

fn remove_prefix(transaction: &mut Transaction<'_>, prefix: &[u8]) -> Result<(), Refusal> {
    for (key, _) in transaction.entries(&OwnedKeyRange::prefix(prefix), usize::MAX)? {
        transaction.remove(key);
    }
    Ok(())
}

/// The bodies of all users of a database, or of all permissions of a user.
pub(crate) fn access(view: &dyn View, feed: &AccessFeed) -> Result<Vec<Value>, Refusal> {
    let mut bodies = Vec::new();
    view.scan(feed.key_range().as_range(), Direction::Forward, &mut |_, record| {
        bodies.extend(json::parse(record).ok());
        std::ops::ControlFlow::Continue(())
    })?;
    Ok(bodies)
}

/// The permissions of a user: a feed for the other functions. `name_or_rid` is the `_rid` of
/// the user if the path of the request consists of `_rid`s.
pub(crate) fn user_of(
    view: &dyn View,
    database: DatabaseRid,
    name_or_rid: &str,
    is_rid: bool,
) -> Result<AccessFeed, Refusal> {
    let found = if is_rid {
        let users = access(view, &AccessFeed::Users(database))?;
        users.into_iter().find(|user| text(user, "_rid") == Some(name_or_rid))
    } else {
        read_body(view.get(&keys::user(database.0, name_or_rid))?)
    };
    let feed = found.and_then(|body| {
        let user = UserRid::parse(text(&body, "_rid")?)?;
        Some(AccessFeed::Permissions { user, name: text(&body, "id")?.to_owned() })
    });
    feed.ok_or_else(Refusal::no_such_resource)
}

/// The permission with this `_rid`; `None` if it was deleted.
pub(crate) fn permission_of(view: &dyn View, rid: &str) -> Result<Option<Value>, Refusal> {
    let Some(user) = UserRid::of_permission(rid) else { return Ok(None) };
    let permissions = access(view, &AccessFeed::Permissions { user, name: String::new() })?;
    Ok(permissions.into_iter().find(|permission| text(permission, "_rid") == Some(rid)))
}

/// The keys and records of all users and permissions of the databases in a catalog, in the
/// order of the keys.
pub(crate) fn access_records(view: &dyn View, catalog: &Catalog) -> Result<Vec<(Vec<u8>, Bytes)>, Refusal> {
    let mut records = Vec::new();
    for prefix in [keys::all_users_prefix(), keys::all_permissions_prefix()] {
        view.scan(OwnedKeyRange::prefix(&prefix).as_range(), Direction::Forward, &mut |key, record| {
            let database = keys::parse_database(key).map(DatabaseRid);
            if catalog.databases.values().any(|one| Some(one.rid) == database) {
                records.push((key.to_vec(), Bytes::copy_from_slice(record)));
            }
            std::ops::ControlFlow::Continue(())
        })?;
    }
    Ok(records)
}

fn read_body(record: Option<Bytes>) -> Option<Value> {
    record.and_then(|record| json::parse(&record).ok())
}

fn text<'a>(body: &'a Value, name: &str) -> Option<&'a str> {
    body.get(name).and_then(Value::as_str)
}
