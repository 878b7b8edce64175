//! Taking over the catalog of the lead region. Databases, containers, their
//! ranges, offers and scripts belong to the account, so every region has the
//! same. Indexes and sizes belong to a region and are kept.

use std::sync::Arc;

use bytes::Bytes;

use super::containers::drop_container;
use super::indexes::add_declared_indexes;
use super::put_container;
use crate::catalog::{AccountCounters, Catalog, Container};
use crate::keys::{self, RangeId, Span};
use crate::refusal::Refusal;
use crate::state::{ContainerState, RangeState};
use crate::transaction::Transaction;

/// Whether two catalogs have the same databases, offers and containers, apart
/// from what belongs to a region.
pub(crate) fn agree(ours: &Catalog, lead: &Catalog) -> bool {
    let databases = |catalog: &Catalog| -> Vec<(u32, String)> {
        catalog.databases.values().map(|database| (database.rid.0, database.etag.clone())).collect()
    };
    let offers = |catalog: &Catalog| -> Vec<(u32, String)> {
        catalog.offers.values().map(|offer| (offer.number, offer.etag.clone())).collect()
    };
    databases(ours) == databases(lead)
        && offers(ours) == offers(lead)
        && ours.containers().count() == lead.containers().count()
        && ours.containers().zip(lead.containers()).all(|(ours, lead)| is_same(ours, lead))
}

/// Whether two regions have the same version of a container. A change of the
/// definition changes the etag, a split changes the next range.
fn is_same(ours: &Container, lead: &Container) -> bool {
    ours.number() == lead.number()
        && ours.etag == lead.etag
        && ours.range_next == lead.range_next
        && ours.logs_versions == lead.logs_versions
}

pub(crate) fn adopt(
    transaction: &mut Transaction<'_>,
    lead: &Catalog,
    scripts: Vec<(Vec<u8>, Bytes)>,
) -> Result<(), Refusal> {
    adopt_scripts(transaction, scripts)?;
    if agree(&transaction.catalog, lead) {
        return Ok(());
    }
    let mut catalog = Catalog::clone(&transaction.catalog);
    adopt_databases(transaction, &mut catalog, lead);
    adopt_offers(transaction, &mut catalog, lead);
    let gone: Vec<Arc<Container>> = catalog
        .containers()
        .filter(|ours| lead.container_by_number(ours.number()).is_none())
        .cloned()
        .collect();
    for container in gone {
        drop_container(transaction, &mut catalog, &container);
    }
    for theirs in lead.containers() {
        match catalog.container_by_number(theirs.number()).cloned() {
            Some(ours) if is_same(&ours, theirs) => {}
            Some(ours) => change_container(transaction, &mut catalog, &ours, theirs)?,
            None => add_container(transaction, &mut catalog, theirs),
        }
    }
    let lsn = catalog.account.lsn.max(lead.account.lsn);
    catalog.account = AccountCounters { lsn, ..lead.account };
    transaction.put_record(keys::account(), &catalog.account.to_record());
    transaction.catalog = Arc::new(catalog);
    Ok(())
}

fn adopt_databases(transaction: &mut Transaction<'_>, catalog: &mut Catalog, lead: &Catalog) {
    for ours in catalog.databases.values() {
        transaction.remove(keys::database(ours.rid.0));
    }
    for theirs in lead.databases.values() {
        transaction.put_record(keys::database(theirs.rid.0), &theirs.to_record());
    }
    catalog.databases.clone_from(&lead.databases);
}

fn adopt_offers(transaction: &mut Transaction<'_>, catalog: &mut Catalog, lead: &Catalog) {
    for ours in catalog.offers.values() {
        transaction.remove(keys::offer(ours.number));
    }
    for theirs in lead.offers.values() {
        transaction.put_record(keys::offer(theirs.number), &theirs.to_record());
    }
    catalog.offers.clone_from(&lead.offers);
}

fn add_container(transaction: &mut Transaction<'_>, catalog: &mut Catalog, theirs: &Container) {
    let mut container = Container { indexes: Vec::new(), index_next: 0, ..theirs.clone() };
    add_declared_indexes(&mut container, true);
    let ranges = container.ranges.iter().map(|range| range.id);
    transaction.put_state(container.number(), &ContainerState::new(ranges, transaction.replica));
    put_container(transaction, catalog, container);
}

fn change_container(
    transaction: &mut Transaction<'_>,
    catalog: &mut Catalog,
    ours: &Container,
    theirs: &Container,
) -> Result<(), Refusal> {
    if ours.default_ttl != theirs.default_ttl {
        transaction.put(keys::pending_expiry_update(ours.number()), Bytes::new());
    }
    if ours.range_next != theirs.range_next {
        let mut state = transaction.state(ours.number())?;
        split_counters(&mut state, theirs);
        transaction.put_state(ours.number(), &state);
    }
    let mut container =
        Container { indexes: ours.indexes.clone(), index_next: ours.index_next, ..theirs.clone() };
    add_declared_indexes(&mut container, false);
    put_container(transaction, catalog, container);
    Ok(())
}

/// Divides the counters of each range that was split among its children.
fn split_counters(state: &mut ContainerState, container: &Container) {
    let mut ranges: Vec<RangeState> = Vec::new();
    for old in &state.ranges {
        if container.range(old.id).is_some() {
            ranges.push(*old);
            continue;
        }
        let children: Vec<RangeId> = container.ranges_of(old.id).collect();
        ranges.extend(old.shared_among(&children));
    }
    state.ranges = ranges;
}

/// Replaces all scripts if any differs: they are few and small.
fn adopt_scripts(transaction: &mut Transaction<'_>, scripts: Vec<(Vec<u8>, Bytes)>) -> Result<(), Refusal> {
    let ours = transaction.entries(&Span::prefix(&keys::all_scripts()), usize::MAX)?;
    if ours == scripts {
        return Ok(());
    }
    for (key, _) in ours {
        transaction.remove(key);
    }
    for (key, record) in scripts {
        transaction.put(key, record);
    }
    Ok(())
}
