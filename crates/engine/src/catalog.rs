//! The catalog: every database, container and offer, as one immutable value.
//!
//! A request looks up its container in one snapshot of the catalog. A command that
//! changes the catalog makes a new one, which is published whole when its records are
//! durable. Only the group-commit writer publishes a catalog.

mod account;
mod container;
mod database;
mod definition;
mod indexed_paths;
mod new_definition;
mod offer;
mod record;
mod search_policies;

use std::collections::BTreeMap;
use std::sync::Arc;

use perihelion_model::json::{self, Value};
use perihelion_model::resource_id::{ContainerRid, DatabaseRid};

use crate::keys::{self, ContainerNumber, OwnedKeyRange};
use crate::storage::{Direction, StoreError, StoreErrorKind, View};

pub(crate) use self::account::{AccountCounters, LAYOUT, LAYOUT_MEMBER};
pub(crate) use self::container::self_link;
pub use self::container::{Container, PartitionRange};
pub use self::database::Database;
pub use self::definition::{ApiVersion, ParsedDefinition};
pub(crate) use self::definition::{check_replacement, resource_name};
pub(crate) use self::indexed_paths::{IndexedPaths, SYSTEM_MEMBERS};
pub use self::offer::{Offer, Throughput};
pub(crate) use self::search_policies::check as check_search_policies;

/// The databases, containers and offers of the account.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    /// The databases by name.
    pub databases: BTreeMap<String, Arc<Database>>,
    containers: BTreeMap<ContainerNumber, Arc<Container>>,
    /// The numbers of the containers, by the database's number and then by the container's
    /// name.
    names: BTreeMap<u32, BTreeMap<String, ContainerNumber>>,
    /// The offers by number.
    pub offers: BTreeMap<u32, Arc<Offer>>,
    /// The account's counters.
    pub account: AccountCounters,
}

impl Catalog {
    /// Reads the catalog from a store.
    pub fn load(view: &dyn View) -> Result<Self, StoreError> {
        let mut catalog = Catalog::default();
        if let Some(record) = view.get(&keys::account())? {
            catalog.account = AccountCounters::from_record(&parse(&record)?).ok_or_else(damaged)?;
        }
        for record in records(view, &keys::database_prefix())? {
            let database = Database::from_record(&record).ok_or_else(damaged)?;
            catalog.databases.insert(database.name.clone(), Arc::new(database));
        }
        for record in records(view, &keys::container_prefix())? {
            let container = Container::from_record(&record).ok_or_else(damaged)?;
            catalog.put_container(container);
        }
        for record in records(view, &keys::offer_prefix())? {
            let offer = Offer::from_record(&record).ok_or_else(damaged)?;
            catalog.offers.insert(offer.number, Arc::new(offer));
        }
        Ok(catalog)
    }

    /// A database by its name or, if no database has that name, by its `_rid`.
    pub fn database(&self, name_or_rid: &str) -> Option<&Arc<Database>> {
        self.databases.get(name_or_rid).or_else(|| {
            let rid = DatabaseRid::parse(name_or_rid)?;
            self.databases.values().find(|database| database.rid == rid)
        })
    }

    /// Whether a path that begins with this database consists of `_rid`s. It does if `database` is
    /// the `_rid` of a database and not the name of one. As in the service, the database decides for
    /// the whole path. So an id that looks like a `_rid` is still an id.
    pub fn is_rid_path(&self, database: &str) -> bool {
        !self.databases.contains_key(database) && self.database(database).is_some()
    }

    /// A container by its name and the name of its database, or by its `_rid` and the `_rid`
    /// of its database.
    pub fn container(&self, database: &str, name_or_rid: &str) -> Option<&Arc<Container>> {
        let rid = self.database(database)?.rid;
        if self.is_rid_path(database) {
            self.container_by_rid(rid, name_or_rid)
        } else {
            self.container_by_name(rid, name_or_rid)
        }
    }

    /// A container of a database by its name.
    pub fn container_by_name(&self, database: DatabaseRid, name: &str) -> Option<&Arc<Container>> {
        self.containers.get(self.names.get(&database.0)?.get(name)?)
    }

    /// A container of a database by its `_rid`.
    pub fn container_by_rid(&self, database: DatabaseRid, rid: &str) -> Option<&Arc<Container>> {
        let rid = ContainerRid::parse(rid).filter(|rid| rid.database == database)?;
        self.containers.get(&rid.number)
    }

    /// A container by its number.
    pub fn container_by_number(&self, number: ContainerNumber) -> Option<&Arc<Container>> {
        self.containers.get(&number)
    }

    /// All containers, in the order of their numbers.
    pub fn containers(&self) -> impl Iterator<Item = &Arc<Container>> {
        self.containers.values()
    }

    /// The containers of a database, in the order of their names.
    pub fn containers_of(&self, database: DatabaseRid) -> impl Iterator<Item = &Arc<Container>> {
        let names = self.names.get(&database.0).into_iter().flat_map(BTreeMap::values);
        names.filter_map(|number| self.containers.get(number))
    }

    /// Adds a container, or replaces the container with its number.
    pub(crate) fn put_container(&mut self, container: Container) {
        let names = self.names.entry(container.rid.database.0).or_default();
        names.insert(container.name.clone(), container.rid.number);
        self.containers.insert(container.rid.number, Arc::new(container));
    }

    pub(crate) fn remove_container(&mut self, number: ContainerNumber) {
        if let Some(container) = self.containers.remove(&number)
            && let Some(names) = self.names.get_mut(&container.rid.database.0)
        {
            names.remove(&container.name);
        }
    }

    /// The offer of the database or container with this `_rid`.
    pub fn offer_for(&self, resource_rid: &str) -> Option<&Arc<Offer>> {
        self.offers.values().find(|offer| offer.resource_rid == resource_rid)
    }

    /// An offer by its `_rid`.
    pub fn offer(&self, rid: &str) -> Option<&Arc<Offer>> {
        self.offers.values().find(|offer| offer.rid() == rid)
    }
}

/// The records whose keys have this prefix, as JSON.
fn records(view: &dyn View, prefix: &[u8]) -> Result<Vec<Value>, StoreError> {
    let mut records = Vec::new();
    let mut failure = None;
    view.scan(
        OwnedKeyRange::prefix(prefix).as_range(),
        Direction::Forward,
        &mut |_, value| match parse(value) {
            Ok(record) => {
                records.push(record);
                std::ops::ControlFlow::Continue(())
            }
            Err(error) => {
                failure = Some(error);
                std::ops::ControlFlow::Break(())
            }
        },
    )?;
    failure.map_or(Ok(records), Err)
}

fn parse(record: &[u8]) -> Result<Value, StoreError> {
    json::parse(record).map_err(|_| damaged())
}

fn damaged() -> StoreError {
    StoreError {
        kind: StoreErrorKind::Damaged,
        message: "the catalog in the data directory cannot be read: restore a copy of the directory, or start with a new one"
            .to_owned(),
    }
}
