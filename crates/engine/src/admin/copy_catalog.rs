//! Copying the catalog of another region. Databases, containers, their ranges, offers, scripts,
//! users and permissions belong to the account, so they are the same in every region. Indexes and
//! counters belong to a region. Copying the catalog keeps the indexes and counters of this region,
//! adds the indexes that a new indexing policy declares, and divides the counters of a range that
//! was split.

use std::sync::Arc;

use bytes::Bytes;

use super::containers::drop_container;
use super::indexes::{add_declared_indexes, retire_undeclared_indexes};
use super::put_container;
use crate::catalog::{AccountCounters, Catalog, Container};
use crate::keys::{self, OwnedKeyRange, RangeId};
use crate::refusal::Refusal;
use crate::state::{ContainerState, RangeState};
use crate::transaction::Transaction;

/// Whether the catalogs of two regions have the same databases, offers and containers, and will give
/// the next ones the same numbers. Only these numbers show that a container was created and deleted
/// since the last copy. Indexes are not compared.
pub(crate) fn is_same_catalog(ours: &Catalog, theirs: &Catalog) -> bool {
    let databases = |catalog: &Catalog| -> Vec<(u32, String)> {
        catalog.databases.values().map(|database| (database.rid.0, database.etag.clone())).collect()
    };
    let offers = |catalog: &Catalog| -> Vec<(u32, String)> {
        catalog.offers.values().map(|offer| (offer.number, offer.etag.clone())).collect()
    };
    let next_numbers = |catalog: &Catalog| {
        let AccountCounters { database_next, container_next, offer_next, user_next, .. } = catalog.account;
        (database_next, container_next, offer_next, user_next)
    };
    databases(ours) == databases(theirs)
        && offers(ours) == offers(theirs)
        && next_numbers(ours) == next_numbers(theirs)
        && ours.containers().count() == theirs.containers().count()
        && ours.containers().zip(theirs.containers()).all(|(ours, theirs)| is_same_version(ours, theirs))
}

/// Whether two regions have the same version of a container. A change of the
/// definition changes the etag, a split changes the id of the next range, and starting
/// the version log changes only its flag.
fn is_same_version(ours: &Container, theirs: &Container) -> bool {
    ours.number() == theirs.number()
        && ours.etag == theirs.etag
        && ours.range_next == theirs.range_next
        && ours.logs_versions == theirs.logs_versions
}

/// Makes the catalog equal to `source`, except for indexes. `records` are the keys and
/// records of the source region's scripts, users and permissions, in the order of the keys.
pub(crate) fn copy_catalog(
    transaction: &mut Transaction<'_>,
    source: &Catalog,
    records: Vec<(Vec<u8>, Bytes)>,
) -> Result<(), Refusal> {
    copy_records(transaction, records)?;
    if is_same_catalog(&transaction.catalog, source) {
        return Ok(());
    }
    let mut catalog = Catalog::clone(&transaction.catalog);
    copy_databases(transaction, &mut catalog, source);
    copy_offers(transaction, &mut catalog, source);
    let deleted: Vec<Arc<Container>> = catalog
        .containers()
        .filter(|ours| source.container_by_number(ours.number()).is_none())
        .cloned()
        .collect();
    for container in deleted {
        drop_container(transaction, &mut catalog, &container);
    }
    for theirs in source.containers() {
        match catalog.container_by_number(theirs.number()).cloned() {
            Some(ours) if is_same_version(&ours, theirs) => {}
            Some(ours) => change_container(transaction, &mut catalog, &ours, theirs)?,
            None => add_container(transaction, &mut catalog, theirs),
        }
    }
    let lsn = catalog.account.lsn.max(source.account.lsn);
    let lsn_floor = catalog.account.lsn_floor.max(source.account.lsn_floor);
    catalog.account = AccountCounters { lsn, lsn_floor, ..source.account };
    transaction.put_record(keys::account(), &catalog.account.to_record());
    transaction.catalog = Arc::new(catalog);
    Ok(())
}

fn copy_databases(transaction: &mut Transaction<'_>, catalog: &mut Catalog, source: &Catalog) {
    for ours in catalog.databases.values() {
        transaction.remove(keys::database(ours.rid.0));
    }
    for theirs in source.databases.values() {
        transaction.put_record(keys::database(theirs.rid.0), &theirs.to_record());
    }
    catalog.databases.clone_from(&source.databases);
}

fn copy_offers(transaction: &mut Transaction<'_>, catalog: &mut Catalog, source: &Catalog) {
    for ours in catalog.offers.values() {
        transaction.remove(keys::offer(ours.number));
    }
    for theirs in source.offers.values() {
        transaction.put_record(keys::offer(theirs.number), &theirs.to_record());
    }
    catalog.offers.clone_from(&source.offers);
}

/// Adds a container of the source region, without documents.
fn add_container(transaction: &mut Transaction<'_>, catalog: &mut Catalog, theirs: &Container) {
    let mut container =
        Container { indexes: Vec::new(), index_purges: Vec::new(), index_next: 0, ..theirs.clone() };
    // The container is empty here, so its declared indexes are complete.
    add_declared_indexes(&mut container, true);
    let ranges = container.ranges.iter().map(|range| range.id);
    let state = ContainerState::new(ranges, transaction.replica, container.lsn_first);
    transaction.put_state(container.number(), &state);
    put_container(transaction, catalog, container);
}

/// Replaces a container by its version in the source region. This region keeps its own
/// indexes and counters.
fn change_container(
    transaction: &mut Transaction<'_>,
    catalog: &mut Catalog,
    ours: &Container,
    theirs: &Container,
) -> Result<(), Refusal> {
    if ours.default_ttl != theirs.default_ttl {
        transaction.put(keys::pending_expiry_update(ours.number()), theirs.etag.clone());
    }
    if ours.range_next != theirs.range_next {
        let mut state = transaction.state(ours.number())?;
        split_counters(&mut state, theirs);
        transaction.put_state(ours.number(), &state);
    }
    let mut container = Container {
        indexes: ours.indexes.clone(),
        index_purges: ours.index_purges.clone(),
        index_next: ours.index_next,
        ..theirs.clone()
    };
    add_declared_indexes(&mut container, false);
    retire_undeclared_indexes(&mut container, transaction.now);
    put_container(transaction, catalog, container);
    Ok(())
}

/// Where a range was split, replaces its counters by counters of its children.
/// `container` has the ranges after the split.
fn split_counters(state: &mut ContainerState, container: &Container) {
    let mut ranges: Vec<RangeState> = Vec::new();
    for old in &state.ranges {
        if container.range(old.id).is_some() {
            ranges.push(*old);
            continue;
        }
        let children: Vec<RangeId> = container.ranges_of(old.id).collect();
        ranges.extend(old.divided_among(&children));
    }
    state.ranges = ranges;
}

/// Replaces all scripts, users and permissions in one commit, if any of them differs. One commit can
/// hold them all: a container has a limited number of scripts, and a database has a limited number of
/// users and permissions.
fn copy_records(transaction: &mut Transaction<'_>, records: Vec<(Vec<u8>, Bytes)>) -> Result<(), Refusal> {
    let mut ours = Vec::new();
    for prefix in [keys::all_scripts_prefix(), keys::all_users_prefix(), keys::all_permissions_prefix()] {
        ours.extend(transaction.entries(&OwnedKeyRange::prefix(&prefix), usize::MAX)?);
    }
    if ours == records {
        return Ok(());
    }
    for (key, _) in ours {
        transaction.remove(key);
    }
    for (key, record) in records {
        transaction.put(key, record);
    }
    Ok(())
}
