//! Commands that change databases, containers, indexes, offers, scripts, users, permissions
//! and ranges.
//!
//! Each command writes its records and puts a new catalog into the transaction.
//! The writer publishes that catalog when the records are durable. Scripts, users and
//! permissions are not part of the catalog, so the commands on them only write records and
//! counters. In names, `access` means users and permissions.

mod containers;
mod copy_catalog;
mod databases;
mod indexes;
mod offers;
mod permissions;
mod scripts;
mod split;
mod users;

use std::sync::Arc;

use perihelion_model::etag;

pub(crate) use self::containers::{create_container, delete_container, replace_container, start_version_log};
pub(crate) use self::copy_catalog::{copy_catalog, is_same_catalog};
pub(crate) use self::databases::{create_database, delete_database};
pub(crate) use self::indexes::{
    add_index, finish_index, finish_purge, has_removable_indexes, remove_retired_indexes,
};
pub(crate) use self::offers::replace_offer;
pub use self::permissions::StoredPermission;
pub(crate) use self::permissions::permission_of;
pub use self::scripts::ScriptKind;
pub(crate) use self::scripts::{delete_script, put_script, script, script_id, script_records, scripts};
pub(crate) use self::split::split;
pub use self::users::{AccessFeed, AccessWrite};
pub(crate) use self::users::{
    access, access_entry, access_records, delete_access, permissions_of_user, put_access, record_by_rid,
};
use crate::catalog::{Catalog, Container};
use crate::keys;
use crate::transaction::Transaction;

/// The etag and timestamp of a change of the catalog.
struct Revision {
    etag: String,
    timestamp: u64,
}

/// Changes the catalog: raises the account's LSN, lets `change` edit a copy of the
/// catalog, writes the account's counters, and puts the copy into the transaction.
/// Returns the result of `change`.
fn change_catalog<T>(
    transaction: &mut Transaction<'_>,
    change: impl FnOnce(&mut Transaction<'_>, &mut Catalog, &Revision) -> T,
) -> T {
    let mut catalog = Catalog::clone(&transaction.catalog);
    catalog.account.lsn += 1;
    let revision =
        Revision { etag: etag::etag(catalog.account.lsn, transaction.now), timestamp: transaction.now };
    let result = change(transaction, &mut catalog, &revision);
    transaction.put_record(keys::account(), &catalog.account.to_record());
    transaction.catalog = Arc::new(catalog);
    result
}

/// Changes one container of the catalog. Returns the container after the change.
fn update_container(
    transaction: &mut Transaction<'_>,
    old: &Arc<Container>,
    change: impl FnOnce(&mut Container, &Revision),
) -> Arc<Container> {
    change_catalog(transaction, |transaction, catalog, revision| {
        let mut container = Container::clone(old);
        change(&mut container, revision);
        put_container(transaction, catalog, container.clone());
        Arc::new(container)
    })
}

/// Writes a container's record and puts the container into the catalog.
fn put_container(transaction: &mut Transaction<'_>, catalog: &mut Catalog, container: Container) {
    transaction.put_record(keys::container(container.number()), &container.to_record());
    catalog.put_container(container);
}
