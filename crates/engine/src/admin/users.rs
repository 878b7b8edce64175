//! Users of a database and their permissions. A permission names a container or a part of it. A
//! client with the token of the permission may use only that container or part.
//!
//! Users and permissions are records and not part of the catalog. A user is stored by its id, a
//! permission by the number of its user and its own id, so that a user can be renamed.

mod read;

use bytes::Bytes;
use perihelion_model::etag;
use perihelion_model::json::{self, Object, Style, Value};
use perihelion_model::resource_id::{DatabaseRid, UserRid};
use perihelion_wire::status;

pub(crate) use self::read::{access, access_entry, access_records, permissions_of_user, record_by_rid};
use super::change_catalog;
use super::permissions::{self, CONTAINER_MEMBER};
use crate::catalog::resource_name;
use crate::charge;
use crate::keys::{self, OwnedKeyRange};
use crate::refusal::{Layer, Refusal};
use crate::transaction::Transaction;

/// The most users of a database.
const USERS_MAX: usize = 10_000;
/// The most permissions of a user. A request with a token scans them to find the permission of the
/// token.
const PERMISSIONS_MAX: usize = 1_000;
/// The most users and permissions of a database together. Deleting the database removes all of them
/// in one commit, and copying the catalog reads all of them into memory.
const ACCESS_MAX: usize = 20_000;

/// The most bytes of the stored text of a user, which is little more than an id of up to 255
/// characters.
const USER_BYTES_MAX: usize = 4 * 1024;
/// The most bytes of the stored text of a permission. Its link of three ids has up to 3 KiB, its
/// own id 1 KiB and its partition key 2 KiB.
const PERMISSION_BYTES_MAX: usize = 8 * 1024;

/// The members that the server sets. A client may send them back with a body that it read; they are
/// ignored.
const SYSTEM_MEMBERS: [&str; 7] =
    ["_rid", "_self", "_etag", "_ts", "_permissions", "_token", CONTAINER_MEMBER];

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

    fn bytes_max(&self) -> usize {
        match self {
            AccessFeed::Users(_) => USER_BYTES_MAX,
            AccessFeed::Permissions { .. } => PERMISSION_BYTES_MAX,
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

/// Writes a user or a permission. An entry that exists must have the etag `if_match`. Returns the
/// body, and whether the entry is new.
pub(crate) fn put_access(
    transaction: &mut Transaction<'_>,
    feed: &AccessFeed,
    write: &AccessWrite,
    if_match: Option<&str>,
    body: Object,
) -> Result<(Value, bool), Refusal> {
    feed.check_parent(transaction)?;
    let id = resource_name(&body)?;
    let body = members_to_store(transaction, feed, body)?;
    let old_id = match write {
        AccessWrite::Replace(old) => old.as_str(),
        AccessWrite::Create | AccessWrite::Upsert => &id,
    };
    let old = read_body(transaction.get(&feed.key(old_id))?);
    if let Some(old) = &old
        && *write != AccessWrite::Create
    {
        check_etag(old, if_match)?;
    }
    let is_taken = match write {
        AccessWrite::Create => old.is_some(),
        AccessWrite::Upsert => false,
        AccessWrite::Replace(_) if old.is_none() => return Err(Refusal::no_such_resource()),
        AccessWrite::Replace(old_id) => *old_id != id && transaction.get(&feed.key(&id))?.is_some(),
    };
    if is_taken {
        return Err(Refusal::resource_exists().with_charge(charge::CONFLICT));
    }
    if old.is_none() {
        check_quotas(transaction, feed)?;
    }
    if let AccessWrite::Replace(old_id) = write {
        transaction.remove(feed.key(old_id));
    }
    let old_rid = old.as_ref().and_then(|old| text(old, "_rid")).map(str::to_owned);
    let record = add_system_members(transaction, feed, old_rid, body);
    transaction.put_record(feed.key(&id), &record);
    Ok((permissions::without_container(record), old.is_none()))
}

/// Refuses a new user or permission if its feed or its database is full.
fn check_quotas(transaction: &Transaction<'_>, feed: &AccessFeed) -> Result<(), Refusal> {
    let refuse = |message| Err(Refusal::new(status::FORBIDDEN, Layer::Backend, message));
    if transaction.count(&feed.key_range(), feed.quota())? >= feed.quota() {
        return refuse(format!("The quota of {} entries of this kind is used up.", feed.quota()));
    }
    let database = feed.database().0;
    let mut count = 0;
    for prefix in [keys::user_prefix(database), keys::database_permission_prefix(database)] {
        count += transaction.count(&OwnedKeyRange::prefix(&prefix), ACCESS_MAX)?;
    }
    if count >= ACCESS_MAX {
        return refuse(format!(
            "The database has {ACCESS_MAX} users and permissions, which is the most. Delete some of them first."
        ));
    }
    Ok(())
}

/// The members of a new body that are stored: those of the client, and the container of a
/// permission.
fn members_to_store(
    transaction: &Transaction<'_>,
    feed: &AccessFeed,
    mut body: Object,
) -> Result<Object, Refusal> {
    body.retain(|name| !SYSTEM_MEMBERS.contains(&name));
    if let AccessFeed::Permissions { user, .. } = feed {
        permissions::check(&body)?;
        let container = permissions::container_of(&transaction.catalog, user.database, &body)?;
        if let Some(container) = container {
            body.set(CONTAINER_MEMBER, container.rid_text.as_str().into());
        }
    }
    let record = json::to_text(&Value::Object(body.clone()), Style::Point);
    if record.len() > feed.bytes_max() { Err(Refusal::too_large()) } else { Ok(body) }
}

/// Refuses a change if `if_match` does not match the etag of the entry. The check runs in the
/// writer, so that of two changes under the same etag only one succeeds.
fn check_etag(old: &Value, if_match: Option<&str>) -> Result<(), Refusal> {
    match if_match {
        Some(condition) if !etag::matches(condition, text(old, "_etag").unwrap_or_default()) => {
            Err(Refusal::precondition_failed().with_charge(charge::PRECONDITION_FAILED))
        }
        _ => Ok(()),
    }
}

/// Adds the members that the server sets. An entry that is replaced keeps its `_rid`.
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

/// Deletes a user with its permissions, or a permission, if it has the etag `if_match`.
pub(crate) fn delete_access(
    transaction: &mut Transaction<'_>,
    feed: &AccessFeed,
    id: &str,
    if_match: Option<&str>,
) -> Result<(), Refusal> {
    feed.check_parent(transaction)?;
    let body = read_body(transaction.get(&feed.key(id))?).ok_or_else(Refusal::no_such_resource)?;
    check_etag(&body, if_match)?;
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

fn read_body(record: Option<Bytes>) -> Option<Value> {
    record.and_then(|record| json::parse(&record).ok())
}

fn text<'a>(body: &'a Value, name: &str) -> Option<&'a str> {
    body.get(name).and_then(Value::as_str)
}

#[cfg(test)]
mod tests;
