//! Reading users and permissions: a whole feed, or one entry by its id or its `_rid`.

use std::ops::ControlFlow;

use bytes::Bytes;
use perihelion_model::json::{self, Value};
use perihelion_model::resource_id::{DatabaseRid, UserRid};

use super::{AccessFeed, read_body, text};
use crate::admin::permissions;
use crate::catalog::Catalog;
use crate::keys::{self, OwnedKeyRange};
use crate::refusal::Refusal;
use crate::storage::{Direction, View};

/// The bodies of all users of a database, or of all permissions of a user.
pub(crate) fn access(view: &dyn View, feed: &AccessFeed) -> Result<Vec<Value>, Refusal> {
    let mut bodies = Vec::new();
    view.scan(feed.key_range().as_range(), Direction::Forward, &mut |_, record| {
        bodies.extend(json::parse(record).ok().map(permissions::without_container));
        ControlFlow::Continue(())
    })?;
    Ok(bodies)
}

/// The body of the entry with this id.
pub(crate) fn access_entry(view: &dyn View, feed: &AccessFeed, id: &str) -> Result<Option<Value>, Refusal> {
    Ok(read_body(view.get(&feed.key(id))?).map(permissions::without_container))
}

/// The record of the entry with this `_rid`. The scan ends at this entry.
pub(crate) fn record_by_rid(view: &dyn View, feed: &AccessFeed, rid: &str) -> Result<Option<Value>, Refusal> {
    let mut found = None;
    view.scan(feed.key_range().as_range(), Direction::Forward, &mut |_, record| {
        found = json::parse(record).ok().filter(|record| text(record, "_rid") == Some(rid));
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found)
}

/// The feed of a user's permissions. `name_or_rid` is the `_rid` of the user if `is_rid` is true, and
/// otherwise the user's id.
pub(crate) fn permissions_of_user(
    view: &dyn View,
    database: DatabaseRid,
    name_or_rid: &str,
    is_rid: bool,
) -> Result<AccessFeed, Refusal> {
    let found = if is_rid {
        record_by_rid(view, &AccessFeed::Users(database), name_or_rid)?
    } else {
        read_body(view.get(&keys::user(database.0, name_or_rid))?)
    };
    let feed = found.and_then(|body| {
        let user = UserRid::parse(text(&body, "_rid")?)?;
        Some(AccessFeed::Permissions { user, name: text(&body, "id")?.to_owned() })
    });
    feed.ok_or_else(Refusal::no_such_resource)
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
            ControlFlow::Continue(())
        })?;
    }
    Ok(records)
}
