//! Databases, containers and offers: create, replace, delete.
//!
//! Each verb writes its records and puts a new catalog into the transaction,
//! which the writer publishes when the records are durable.

use std::sync::Arc;

use perihelion_model::etag;
use perihelion_model::json::{self, Object, Style, Value};
use perihelion_model::partition_key::EffectiveRange;
use perihelion_model::resource_id::{ContainerRid, DatabaseRid};

use crate::catalog::{Catalog, Database, Offer, Throughput};
use crate::container::{
    Container, ParsedDefinition, PartitionRange, check_replacement, resource_name, self_link,
};
use crate::index::{self, Column, IndexDefinition, IndexScope};
use crate::indexed::IndexedPaths;
use crate::keys;
use crate::refusal::Refusal;
use crate::state::ContainerState;
use crate::transaction::Transaction;

/// Bounds of an offer, as the service documents them.
const THROUGHPUT_MIN: u64 = 100;
const THROUGHPUT_MAX: u64 = 1_000_000;
/// Indexes a container may have; each costs every write.
pub const INDEXES_MAX: usize = 32;

impl Transaction<'_> {
    /// Changes the catalog: bumps the account's LSN, lets `change` edit the
    /// catalog, and writes the counters.
    fn change_catalog<T>(&mut self, change: impl FnOnce(&mut Self, &mut Catalog, &Moment) -> T) -> T {
        let mut catalog = Catalog::clone(&self.catalog);
        catalog.account.lsn += 1;
        let moment = Moment { etag: etag::etag(catalog.account.lsn, self.now), timestamp: self.now };
        let changed = change(self, &mut catalog, &moment);
        self.put_record(keys::account(), &catalog.account.to_record());
        self.catalog = Arc::new(catalog);
        changed
    }

    pub(crate) fn put_record(&mut self, key: Vec<u8>, record: &Value) {
        self.put(key, json::to_text(record, Style::Point));
    }
}

/// When a resource changed, and the etag of that change.
struct Moment {
    etag: String,
    timestamp: u64,
}

pub fn create_database(
    transaction: &mut Transaction<'_>,
    body: &Object,
    throughput: Option<Throughput>,
) -> Result<Arc<Database>, Refusal> {
    let name = resource_name(body)?;
    check_throughput(throughput)?;
    if transaction.catalog.databases.contains_key(&name) {
        return Err(Refusal::resource_exists().with_charge(1.24));
    }
    Ok(transaction.change_catalog(|transaction, catalog, moment| {
        let rid = DatabaseRid(catalog.account.database_next);
        catalog.account.database_next += 1;
        let database =
            Arc::new(Database { rid, name, etag: moment.etag.clone(), timestamp: moment.timestamp });
        transaction.put_record(keys::database(rid.0), &database.to_record());
        catalog.databases.insert(database.name.clone(), Arc::clone(&database));
        if let Some(throughput) = throughput {
            add_offer(transaction, catalog, moment, throughput, database.self_link(), rid.to_text());
        }
        database
    }))
}

pub fn delete_database(transaction: &mut Transaction<'_>, name_or_rid: &str) -> Result<(), Refusal> {
    let database =
        transaction.catalog.database(name_or_rid).cloned().ok_or_else(Refusal::no_such_resource)?;
    transaction.change_catalog(|transaction, catalog, _| {
        let containers: Vec<Arc<Container>> = catalog.containers_of(database.rid).cloned().collect();
        for container in containers {
            drop_container(transaction, catalog, &container);
        }
        catalog.databases.remove(&database.name);
        transaction.remove(keys::database(database.rid.0));
        drop_offer(transaction, catalog, &database.rid.to_text());
    });
    Ok(())
}

/// What one physical partition serves at most in a second: a container that
/// asks for more begins with several.
const PARTITION_UNITS_MAX: u64 = 10_000;

fn partitions_for(throughput: Option<Throughput>) -> u32 {
    let units = throughput.map_or(0, Throughput::request_units);
    u32::try_from(units.div_ceil(PARTITION_UNITS_MAX)).unwrap_or(u32::MAX).max(1)
}

pub fn create_container(
    transaction: &mut Transaction<'_>,
    database: &str,
    parsed: ParsedDefinition,
    throughput: Option<Throughput>,
    partitions: u32,
) -> Result<Arc<Container>, Refusal> {
    check_throughput(throughput)?;
    let database = transaction.catalog.database(database).cloned().ok_or_else(Refusal::no_such_resource)?;
    if transaction.catalog.containers_of(database.rid).any(|container| container.name == parsed.name) {
        return Err(Refusal::resource_exists());
    }
    Ok(transaction.change_catalog(|transaction, catalog, moment| {
        let number = catalog.account.container_next;
        catalog.account.container_next += 1;
        let version = parsed.partition_key.version;
        let partitions = partitions.max(partitions_for(throughput));
        let ranges = EffectiveRange::whole().split_evenly(partitions, version).into_iter();
        let ranges: Vec<PartitionRange> = (0..)
            .zip(ranges)
            .map(|(id, range)| PartitionRange { id, segment: id, range, parents: Vec::new() })
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
            etag: moment.etag.clone(),
            timestamp: moment.timestamp,
            range_next: ranges.len() as u32,
            ranges,
            indexes: Vec::new(),
            index_next: 0,
            logs_versions: false,
            indexed: IndexedPaths::new(parsed.definition.get("indexingPolicy")),
            definition: parsed.definition,
        };
        // The container is empty, so its declared indexes are complete.
        add_declared_indexes(&mut container, true);
        let range_ids = container.ranges.iter().map(|range| range.id);
        transaction.put_state(number, &ContainerState::new(range_ids, transaction.replica));
        transaction.put_record(keys::container(number), &container.to_record());
        if let Some(throughput) = throughput {
            let (link, rid) = (container.self_link.clone(), container.rid_text.clone());
            add_offer(transaction, catalog, moment, throughput, link, rid);
        }
        catalog.put_container(container.clone());
        Arc::new(container)
    }))
}

pub fn replace_container(
    transaction: &mut Transaction<'_>,
    old: &Arc<Container>,
    parsed: ParsedDefinition,
) -> Result<Arc<Container>, Refusal> {
    let old = current(transaction, old)?;
    check_replacement(&old, &parsed)?;
    if parsed.default_ttl != old.default_ttl {
        // Reads mind the new value at once; maintenance redoes the expiry list.
        transaction.put(keys::retimed(old.number()), Vec::new());
    }
    Ok(update_container(transaction, &old, |container, moment| {
        container.indexed = IndexedPaths::new(parsed.definition.get("indexingPolicy"));
        container.definition = parsed.definition;
        // The hash version belongs to the data and is kept.
        if let Some(key) = old.definition.get("partitionKey") {
            container.definition.set("partitionKey", key.clone());
        }
        container.default_ttl = parsed.default_ttl;
        container.etag = moment.etag.clone();
        container.timestamp = moment.timestamp;
        add_declared_indexes(container, false);
    }))
}

pub fn delete_container(
    transaction: &mut Transaction<'_>,
    container: &Arc<Container>,
) -> Result<(), Refusal> {
    let container = current(transaction, container)?;
    transaction.change_catalog(|transaction, catalog, _| drop_container(transaction, catalog, &container));
    Ok(())
}

pub fn replace_offer(
    transaction: &mut Transaction<'_>,
    rid: &str,
    throughput: Throughput,
) -> Result<Arc<Offer>, Refusal> {
    check_throughput(Some(throughput))?;
    let offer = transaction.catalog.offer(rid).cloned().ok_or_else(Refusal::no_such_resource)?;
    Ok(transaction.change_catalog(|transaction, catalog, moment| {
        let offer = Arc::new(Offer {
            throughput,
            throughput_max_ever: offer.throughput_max_ever.max(throughput.request_units()),
            etag: moment.etag.clone(),
            timestamp: moment.timestamp,
            ..Offer::clone(&offer)
        });
        transaction.put_record(keys::offer(offer.number), &offer.to_record());
        catalog.offers.insert(offer.number, Arc::clone(&offer));
        offer
    }))
}

/// Registers an index that is to be filled; `None` when there is one already
/// or no room for more.
pub fn add_index(
    transaction: &mut Transaction<'_>,
    container: &Arc<Container>,
    scope: IndexScope,
    columns: Vec<Column>,
) -> Result<Option<u16>, Refusal> {
    let container = current(transaction, container)?;
    let exists = container.indexes.iter().any(|index| index.scope == scope && index.columns == columns);
    if exists || container.indexes.len() >= INDEXES_MAX {
        return Ok(None);
    }
    let id = container.index_next;
    update_container(transaction, &container, |container, _| push_index(container, scope, columns, false));
    Ok(Some(id))
}

/// Marks an index as complete.
pub fn finish_index(
    transaction: &mut Transaction<'_>,
    container: &Arc<Container>,
    id: u16,
) -> Result<(), Refusal> {
    let container = current(transaction, container)?;
    update_container(transaction, &container, |container, _| {
        if let Some(index) = container.indexes.iter_mut().find(|index| index.id == id) {
            index.is_ready = true;
        }
    });
    Ok(())
}

/// Turns the version log on.
pub fn log_versions(transaction: &mut Transaction<'_>, container: &Arc<Container>) -> Result<(), Refusal> {
    let container = current(transaction, container)?;
    if !container.logs_versions {
        update_container(transaction, &container, |container, _| container.logs_versions = true);
    }
    Ok(())
}

/// The container as this transaction sees it; gone when it was deleted.
pub fn current(transaction: &Transaction<'_>, container: &Container) -> Result<Arc<Container>, Refusal> {
    transaction.catalog.container_by_number(container.number()).cloned().ok_or_else(Refusal::no_such_resource)
}

/// Publishes a changed container.
pub(crate) fn put_container(transaction: &mut Transaction<'_>, container: Container) -> Arc<Container> {
    transaction.change_catalog(|transaction, catalog, _| {
        transaction.put_record(keys::container(container.number()), &container.to_record());
        catalog.put_container(container.clone());
        Arc::new(container)
    })
}

fn update_container(
    transaction: &mut Transaction<'_>,
    old: &Arc<Container>,
    change: impl FnOnce(&mut Container, &Moment),
) -> Arc<Container> {
    transaction.change_catalog(|transaction, catalog, moment| {
        let mut container = Container::clone(old);
        change(&mut container, moment);
        transaction.put_record(keys::container(container.number()), &container.to_record());
        catalog.put_container(container.clone());
        Arc::new(container)
    })
}

pub(crate) fn add_declared_indexes(container: &mut Container, is_ready: bool) {
    let policy = container.definition.get("indexingPolicy").cloned().unwrap_or(Value::Null);
    for (scope, columns) in index::declared(&policy) {
        let exists = container.indexes.iter().any(|index| index.scope == scope && index.columns == columns);
        if !exists && container.indexes.len() < INDEXES_MAX {
            push_index(container, scope, columns, is_ready);
        }
    }
}

fn push_index(container: &mut Container, scope: IndexScope, columns: Vec<Column>, is_ready: bool) {
    container.indexes.push(IndexDefinition { id: container.index_next, scope, columns, is_ready });
    container.index_next += 1;
}

/// Takes a container out of the catalog at once; its documents are purged
/// later, in pieces, by maintenance.
pub(crate) fn drop_container(
    transaction: &mut Transaction<'_>,
    catalog: &mut Catalog,
    container: &Container,
) {
    catalog.remove_container(container.number());
    transaction.remove(keys::container(container.number()));
    transaction.remove(keys::state(container.number()));
    transaction.remove(keys::retimed(container.number()));
    transaction.put(keys::doomed(container.number()), Vec::new());
    drop_offer(transaction, catalog, &container.rid_text);
}

fn add_offer(
    transaction: &mut Transaction<'_>,
    catalog: &mut Catalog,
    moment: &Moment,
    throughput: Throughput,
    resource: String,
    resource_rid: String,
) {
    let number = catalog.account.offer_next;
    catalog.account.offer_next += 1;
    let offer = Offer {
        number,
        resource,
        resource_rid,
        throughput,
        throughput_max_ever: throughput.request_units(),
        etag: moment.etag.clone(),
        timestamp: moment.timestamp,
    };
    transaction.put_record(keys::offer(number), &offer.to_record());
    catalog.offers.insert(number, Arc::new(offer));
}

fn drop_offer(transaction: &mut Transaction<'_>, catalog: &mut Catalog, resource_rid: &str) {
    if let Some(offer) = catalog.offer_for(resource_rid).cloned() {
        catalog.offers.remove(&offer.number);
        transaction.remove(keys::offer(offer.number));
    }
}

fn check_throughput(throughput: Option<Throughput>) -> Result<(), Refusal> {
    let Some(throughput) = throughput else { return Ok(()) };
    let units = throughput.request_units();
    if (THROUGHPUT_MIN..=THROUGHPUT_MAX).contains(&units) && units.is_multiple_of(100) {
        return Ok(());
    }
    Err(Refusal::bad_request(format!(
        "The offer should have valid throughput values between {THROUGHPUT_MIN} and {THROUGHPUT_MAX} inclusive in increments of 100."
    )))
}
