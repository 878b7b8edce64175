//! Creating, replacing and deleting containers.

use std::sync::Arc;

use perihelion_model::etag;
use perihelion_model::partition_key::EffectiveRange;
use perihelion_model::resource_id::ContainerRid;

use super::indexes::{add_declared_indexes, check_declared_indexes, retire_undeclared_indexes};
use super::offers::{
    ChosenThroughput, THROUGHPUT_DEFAULT, add_offer, check_throughput, drop_offer, initial_partitions,
};
use super::{change_catalog, put_container, update_container};
use crate::catalog::{
    Catalog, Container, IndexedPaths, ParsedDefinition, PartitionRange, Throughput, check_replacement,
    check_search_policies, self_link,
};
use crate::charge;
use crate::keys;
use crate::refusal::Refusal;
use crate::state::ContainerState;
use crate::transaction::Transaction;

/// Creates a container with at least `partitions` physical partitions. If `throughput` is `None`,
/// the container uses the throughput of its database. If the database has no offer either, the
/// container gets an offer with the default throughput.
pub(crate) fn create_container(
    transaction: &mut Transaction<'_>,
    database: &str,
    parsed: ParsedDefinition,
    throughput: Option<Throughput>,
    partitions: u32,
) -> Result<Arc<Container>, Refusal> {
    check_throughput(throughput)?;
    check_search_policies(&parsed.definition)?;
    let database = transaction.catalog.database(database).cloned().ok_or_else(Refusal::no_such_resource)?;
    if transaction.catalog.containers_of(database.rid).any(|container| container.name == parsed.name) {
        return Err(Refusal::resource_exists());
    }
    Ok(change_catalog(transaction, |transaction, catalog, revision| {
        let number = catalog.account.container_next;
        catalog.account.container_next += 1;
        let version = parsed.partition_key.version;
        let partitions = partitions.max(throughput.map_or(1, initial_partitions));
        let ranges = EffectiveRange::whole().split_evenly(partitions, version).into_iter();
        let ranges: Vec<PartitionRange> = (0..)
            .zip(ranges)
            .map(|(id, keys)| PartitionRange { id, segment: id, keys, parents: Vec::new() })
            .collect();
        let rid = ContainerRid { database: database.rid, number };
        let mut container = Container {
            rid,
            rid_text: rid.to_text(),
            self_link: self_link(rid),
            name: parsed.name,
            partition_key: parsed.partition_key,
            unique_keys: parsed.unique_keys,
            default_ttl: parsed.default_ttl,
            computed: parsed.computed,
            etag: revision.etag.clone(),
            timestamp: revision.timestamp,
            range_next: ranges.len() as u32,
            ranges,
            indexes: Vec::new(),
            index_purges: Vec::new(),
            index_next: 0,
            logs_versions: false,
            lsn_first: catalog.account.lsn_first(transaction.now_milliseconds),
            indexed_paths: IndexedPaths::new(parsed.definition.get("indexingPolicy")),
            definition: parsed.definition,
        };
        // The container is empty, so its declared indexes are complete.
        add_declared_indexes(&mut container, true);
        let range_ids = container.ranges.iter().map(|range| range.id);
        let state = ContainerState::new(range_ids, transaction.replica, container.lsn_first);
        transaction.put_state(number, &state);
        let is_shared = throughput.is_none() && catalog.offer_for(&database.rid.to_text()).is_some();
        if !is_shared {
            let (link, rid) = (container.self_link.clone(), container.rid_text.clone());
            let default = ChosenThroughput { throughput: THROUGHPUT_DEFAULT, is_default: true };
            let throughput = throughput.map_or(default, ChosenThroughput::from);
            add_offer(transaction, catalog, revision, throughput, link, rid);
        }
        put_container(transaction, catalog, container.clone());
        Arc::new(container)
    }))
}

/// Replaces the definition of a container, if it has the etag `if_match`.
pub(crate) fn replace_container(
    transaction: &mut Transaction<'_>,
    old: &Arc<Container>,
    parsed: ParsedDefinition,
    if_match: Option<&str>,
) -> Result<Arc<Container>, Refusal> {
    let old = transaction.current(old)?;
    check_etag(&old, if_match)?;
    check_search_policies(&parsed.definition)?;
    check_replacement(&old, &parsed)?;
    check_declared_indexes(&old, &parsed.definition)?;
    let has_new_ttl = parsed.default_ttl != old.default_ttl;
    let new = update_container(transaction, &old, |container, revision| {
        container.indexed_paths = IndexedPaths::new(parsed.definition.get("indexingPolicy"));
        container.definition = parsed.definition;
        // The hash version cannot change: the stored documents depend on it.
        if let Some(key) = old.definition.get("partitionKey") {
            container.definition.set("partitionKey", key.clone());
        }
        container.default_ttl = parsed.default_ttl;
        container.computed = parsed.computed;
        container.etag = revision.etag.clone();
        container.timestamp = revision.timestamp;
        add_declared_indexes(container, false);
        retire_undeclared_indexes(container, revision.timestamp);
    });
    if has_new_ttl {
        // Reads use the new TTL at once; maintenance updates the expiry list.
        transaction.put(keys::pending_expiry_update(new.number()), new.etag.clone());
    }
    Ok(new)
}

/// Deletes a container, if it has the etag `if_match`.
pub(crate) fn delete_container(
    transaction: &mut Transaction<'_>,
    container: &Arc<Container>,
    if_match: Option<&str>,
) -> Result<(), Refusal> {
    let container = transaction.current(container)?;
    check_etag(&container, if_match)?;
    change_catalog(transaction, |transaction, catalog, _| drop_container(transaction, catalog, &container));
    Ok(())
}

/// Refuses a change if `if_match` does not match the container's etag. The check runs in the
/// writer, so that of two changes under the same etag only one succeeds.
fn check_etag(container: &Container, if_match: Option<&str>) -> Result<(), Refusal> {
    match if_match {
        Some(condition) if !etag::matches(condition, &container.etag) => {
            Err(Refusal::precondition_failed().with_charge(charge::PRECONDITION_FAILED))
        }
        _ => Ok(()),
    }
}

/// Starts the version log of a container: from now on every change of a document is logged, for the
/// full-fidelity change feed.
pub(crate) fn start_version_log(
    transaction: &mut Transaction<'_>,
    container: &Arc<Container>,
) -> Result<(), Refusal> {
    let container = transaction.current(container)?;
    if !container.logs_versions {
        update_container(transaction, &container, |container, _| container.logs_versions = true);
    }
    Ok(())
}

/// Removes a container, its counters and its offer. Maintenance purges its documents
/// and scripts later, in small jobs.
pub(super) fn drop_container(
    transaction: &mut Transaction<'_>,
    catalog: &mut Catalog,
    container: &Container,
) {
    let ranges = transaction.state(container.number()).map(|state| state.ranges).unwrap_or_default();
    let lsn_last = ranges.iter().map(|range| range.lsn).max().unwrap_or_default();
    catalog.account.lsn_floor = catalog.account.lsn_floor.max(lsn_last + 1);
    catalog.remove_container(container.number());
    transaction.remove(keys::container(container.number()));
    transaction.remove(keys::container_state(container.number()));
    transaction.remove(keys::pending_expiry_update(container.number()));
    transaction.put(keys::pending_purge(container.number()), Vec::new());
    drop_offer(transaction, catalog, &container.rid_text);
}
