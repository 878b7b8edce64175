//! The catalog: every database, container and offer, as one immutable value.
//!
//! Requests read one snapshot of it; a command that changes it makes a new
//! one, which is published whole once its records are durable. The single
//! writer of the published catalog is the group-commit writer.

use std::collections::BTreeMap;
use std::sync::Arc;

use perihelion_model::json::{self, Object, Value, object};
use perihelion_model::resource_id::{ContainerRid, DatabaseRid};

use crate::container::Container;
use crate::keys::{self, ContainerNumber, Span};
use crate::storage::{Direction, StoreError, StoreErrorKind, View};

/// Everything but the documents.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    pub databases: BTreeMap<String, Arc<Database>>,
    containers: BTreeMap<ContainerNumber, Arc<Container>>,
    /// By the database's number and the container's name.
    names: BTreeMap<u32, BTreeMap<String, ContainerNumber>>,
    pub offers: BTreeMap<u32, Arc<Offer>>,
    pub account: AccountCounters,
}

/// The numbers to give out next, and the write counter of the account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountCounters {
    pub database_next: u32,
    pub container_next: u32,
    pub offer_next: u32,
    /// Counts every change of the catalog: its LSN and its etags.
    pub lsn: u64,
}

impl Default for AccountCounters {
    fn default() -> Self {
        AccountCounters { database_next: 1, container_next: 1, offer_next: 1, lsn: 0 }
    }
}

#[derive(Debug, Clone)]
pub struct Database {
    pub rid: DatabaseRid,
    pub name: String,
    pub etag: String,
    pub timestamp: u64,
}

/// Throughput of a database or a container.
#[derive(Debug, Clone)]
pub struct Offer {
    pub number: u32,
    /// The `_self` of the database or container, and its `_rid`.
    pub resource: String,
    pub resource_rid: String,
    pub throughput: Throughput,
    pub throughput_max_ever: u64,
    pub etag: String,
    pub timestamp: u64,
}

/// Request units per second, fixed or up to a ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Throughput {
    Manual(u64),
    /// The increment, in per cent, is what the service would raise the ceiling
    /// by when the container splits; it is kept and told, not acted upon.
    Autoscale {
        max: u64,
        increment: Option<u64>,
    },
}

impl Catalog {
    /// Reads the catalog from a store.
    pub fn load(view: &dyn View) -> Result<Self, StoreError> {
        let mut catalog = Catalog::default();
        if let Some(record) = view.get(&keys::account())? {
            catalog.account = AccountCounters::from_record(&parse(&record)?).ok_or_else(damaged)?;
        }
        for record in records(view, &keys::databases())? {
            let database = Database::from_record(&record).ok_or_else(damaged)?;
            catalog.databases.insert(database.name.clone(), Arc::new(database));
        }
        for record in records(view, &keys::containers())? {
            let container = Container::from_record(&record).ok_or_else(damaged)?;
            catalog.put_container(container);
        }
        for record in records(view, &keys::offers())? {
            let offer = Offer::from_record(&record).ok_or_else(damaged)?;
            catalog.offers.insert(offer.number, Arc::new(offer));
        }
        Ok(catalog)
    }

    /// A database by name or, failing that, by `_rid`.
    pub fn database(&self, name_or_rid: &str) -> Option<&Arc<Database>> {
        self.databases.get(name_or_rid).or_else(|| {
            let rid = DatabaseRid::parse(name_or_rid)?;
            self.databases.values().find(|database| database.rid == rid)
        })
    }

    /// A container by name or `_rid` within a database by name or `_rid`.
    pub fn container(&self, database: &str, name_or_rid: &str) -> Option<&Arc<Container>> {
        let database = self.database(database)?;
        let named = self.names.get(&database.rid.0).and_then(|names| names.get(name_or_rid));
        match named {
            Some(number) => self.containers.get(number),
            None => {
                let rid = ContainerRid::parse(name_or_rid).filter(|rid| rid.database == database.rid)?;
                self.containers.get(&rid.number)
            }
        }
    }

    pub fn container_by_number(&self, number: ContainerNumber) -> Option<&Arc<Container>> {
        self.containers.get(&number)
    }

    pub fn containers(&self) -> impl Iterator<Item = &Arc<Container>> {
        self.containers.values()
    }

    pub fn containers_of(&self, database: DatabaseRid) -> impl Iterator<Item = &Arc<Container>> {
        let names = self.names.get(&database.0).into_iter().flat_map(BTreeMap::values);
        names.filter_map(|number| self.containers.get(number))
    }

    pub fn put_container(&mut self, container: Container) {
        let names = self.names.entry(container.rid.database.0).or_default();
        names.insert(container.name.clone(), container.rid.number);
        self.containers.insert(container.rid.number, Arc::new(container));
    }

    pub fn remove_container(&mut self, number: ContainerNumber) {
        if let Some(container) = self.containers.remove(&number)
            && let Some(names) = self.names.get_mut(&container.rid.database.0)
        {
            names.remove(&container.name);
        }
    }

    pub fn offer_for(&self, resource_rid: &str) -> Option<&Arc<Offer>> {
        self.offers.values().find(|offer| offer.resource_rid == resource_rid)
    }

    /// An offer by its `_rid`.
    pub fn offer(&self, rid: &str) -> Option<&Arc<Offer>> {
        self.offers.values().find(|offer| offer.rid() == rid)
    }
}

fn records(view: &dyn View, prefix: &[u8]) -> Result<Vec<Value>, StoreError> {
    let mut records = Vec::new();
    let mut failure = None;
    view.scan(Span::prefix(prefix).as_range(), Direction::Forward, &mut |_, value| match parse(value) {
        Ok(record) => {
            records.push(record);
            std::ops::ControlFlow::Continue(())
        }
        Err(error) => {
            failure = Some(error);
            std::ops::ControlFlow::Break(())
        }
    })?;
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

fn number(record: &Value, name: &str) -> Option<u64> {
    record.get(name)?.as_i64().and_then(|value| u64::try_from(value).ok())
}

fn text(record: &Value, name: &str) -> Option<String> {
    record.get(name)?.as_str().map(str::to_owned)
}

impl AccountCounters {
    pub fn to_record(self) -> Value {
        object([
            ("databaseNext", u64::from(self.database_next).into()),
            ("containerNext", u64::from(self.container_next).into()),
            ("offerNext", u64::from(self.offer_next).into()),
            ("lsn", self.lsn.into()),
        ])
    }

    fn from_record(record: &Value) -> Option<Self> {
        Some(AccountCounters {
            database_next: number(record, "databaseNext")? as u32,
            container_next: number(record, "containerNext")? as u32,
            offer_next: number(record, "offerNext")? as u32,
            lsn: number(record, "lsn")?,
        })
    }
}

impl Database {
    pub fn self_link(&self) -> String {
        format!("dbs/{}/", self.rid.to_text())
    }

    pub fn body(&self) -> Value {
        object([
            ("id", self.name.as_str().into()),
            ("_rid", self.rid.to_text().into()),
            ("_self", self.self_link().into()),
            ("_etag", self.etag.as_str().into()),
            ("_colls", "colls/".into()),
            ("_users", "users/".into()),
            ("_ts", self.timestamp.into()),
        ])
    }

    pub fn to_record(&self) -> Value {
        object([
            ("number", u64::from(self.rid.0).into()),
            ("name", self.name.as_str().into()),
            ("etag", self.etag.as_str().into()),
            ("timestamp", self.timestamp.into()),
        ])
    }

    fn from_record(record: &Value) -> Option<Self> {
        Some(Database {
            rid: DatabaseRid(number(record, "number")? as u32),
            name: text(record, "name")?,
            etag: text(record, "etag")?,
            timestamp: number(record, "timestamp")?,
        })
    }
}

impl Throughput {
    /// What is enforced: an autoscale offer may always reach its ceiling.
    pub fn request_units(self) -> u64 {
        match self {
            Throughput::Manual(units) | Throughput::Autoscale { max: units, .. } => units,
        }
    }

    fn to_content(self) -> Object {
        let mut content = Object::new();
        match self {
            Throughput::Manual(units) => content.set("offerThroughput", units.into()),
            Throughput::Autoscale { max, increment } => {
                // An idle autoscale container is billed a tenth of its ceiling.
                content.set("offerThroughput", (max / 10).into());
                let mut settings = Object::new();
                settings.set("maxThroughput", max.into());
                if let Some(increment) = increment {
                    let policy = object([("incrementPercent", increment.into())]);
                    settings.set("autoUpgradePolicy", object([("throughputPolicy", policy)]));
                }
                content.set("offerAutopilotSettings", Value::Object(settings));
            }
        }
        content
    }

    pub fn from_content(content: &Value) -> Option<Self> {
        match content.get("offerAutopilotSettings").and_then(Self::from_settings) {
            Some(autoscale) => Some(autoscale),
            None => number(content, "offerThroughput").map(Throughput::Manual),
        }
    }

    /// Reads autoscale settings, as they stand in an offer and in a header.
    pub fn from_settings(settings: &Value) -> Option<Self> {
        let policy = settings.get("autoUpgradePolicy").and_then(|policy| policy.get("throughputPolicy"));
        let increment = policy.and_then(|policy| number(policy, "incrementPercent"));
        Some(Throughput::Autoscale { max: number(settings, "maxThroughput")?, increment })
    }
}

impl Offer {
    /// Three bytes, four characters.
    pub fn rid(&self) -> String {
        use base64::Engine as _;
        let bytes = self.number.to_be_bytes();
        base64::engine::general_purpose::STANDARD.encode(&bytes[1..]).replace('/', "-")
    }

    pub fn body(&self) -> Value {
        let mut content = self.throughput.to_content();
        content.set("offerIsRUPerMinuteThroughputEnabled", false.into());
        content.set(
            "offerMinimumThroughputParameters",
            object([
                ("maxThroughputEverProvisioned", self.throughput_max_ever.into()),
                ("maxConsumedStorageEverInKB", 0u64.into()),
            ]),
        );
        object([
            ("resource", self.resource.as_str().into()),
            ("offerType", "Invalid".into()),
            ("offerResourceId", self.resource_rid.as_str().into()),
            ("offerVersion", "V2".into()),
            ("content", Value::Object(content)),
            ("id", self.rid().into()),
            ("_rid", self.rid().into()),
            ("_self", format!("offers/{}/", self.rid()).into()),
            ("_etag", self.etag.as_str().into()),
            ("_ts", self.timestamp.into()),
        ])
    }

    pub fn to_record(&self) -> Value {
        object([
            ("number", u64::from(self.number).into()),
            ("resource", self.resource.as_str().into()),
            ("resourceRid", self.resource_rid.as_str().into()),
            ("content", Value::Object(self.throughput.to_content())),
            ("maxEver", self.throughput_max_ever.into()),
            ("etag", self.etag.as_str().into()),
            ("timestamp", self.timestamp.into()),
        ])
    }

    fn from_record(record: &Value) -> Option<Self> {
        Some(Offer {
            number: number(record, "number")? as u32,
            resource: text(record, "resource")?,
            resource_rid: text(record, "resourceRid")?,
            throughput: Throughput::from_content(record.get("content")?)?,
            throughput_max_ever: number(record, "maxEver")?,
            etag: text(record, "etag")?,
            timestamp: number(record, "timestamp")?,
        })
    }
}
