//! The engine's commands on databases, containers, offers and scripts.

use std::sync::Arc;

use perihelion_model::json::{Object, Value};

use super::Engine;
use crate::admin::{self, ScriptKind};
use crate::catalog::{Container, Database, Offer, ParsedDefinition, Throughput};
use crate::keys::RangeId;
use crate::refusal::Refusal;

impl Engine {
    /// Creates a database.
    pub async fn create_database(
        &self,
        body: Object,
        throughput: Option<Throughput>,
    ) -> Result<Arc<Database>, Refusal> {
        self.store.write(move |transaction| admin::create_database(transaction, &body, throughput)).await
    }

    /// Deletes a database and its containers. Their documents are purged by
    /// maintenance.
    pub async fn delete_database(&self, name_or_rid: &str) -> Result<(), Refusal> {
        let name = name_or_rid.to_owned();
        self.store.write(move |transaction| admin::delete_database(transaction, &name)).await?;
        self.backlog.wake();
        Ok(())
    }

    /// Creates a container.
    pub async fn create_container(
        &self,
        database: &str,
        definition: ParsedDefinition,
        throughput: Option<Throughput>,
    ) -> Result<Arc<Container>, Refusal> {
        let (database, partitions) = (database.to_owned(), self.options.partitions);
        self.store
            .write(move |transaction| {
                admin::create_container(transaction, &database, definition, throughput, partitions)
            })
            .await
    }

    /// Replaces the definition of a container, if it has the etag `if_match` (an etag or `*`;
    /// `None` for any).
    pub async fn replace_container(
        &self,
        container: &Arc<Container>,
        definition: ParsedDefinition,
        if_match: Option<String>,
    ) -> Result<Arc<Container>, Refusal> {
        let container = Arc::clone(container);
        let changed = self
            .store
            .write(move |transaction| {
                admin::replace_container(transaction, &container, definition, if_match.as_deref())
            })
            .await?;
        self.backlog.wake();
        Ok(changed)
    }

    /// Deletes a container, if it has the etag `if_match` (an etag or `*`; `None` for any). Its
    /// documents are purged by maintenance.
    pub async fn delete_container(
        &self,
        container: &Arc<Container>,
        if_match: Option<String>,
    ) -> Result<(), Refusal> {
        let container = Arc::clone(container);
        self.store
            .write(move |transaction| admin::delete_container(transaction, &container, if_match.as_deref()))
            .await?;
        self.backlog.wake();
        Ok(())
    }

    /// Replaces the throughput of an offer.
    pub async fn replace_offer(&self, rid: &str, throughput: Throughput) -> Result<Arc<Offer>, Refusal> {
        let rid = rid.to_owned();
        self.store.write(move |transaction| admin::replace_offer(transaction, &rid, throughput)).await
    }

    /// Starts the version log of a container. The log must be started before the change feed
    /// is read in the mode "all versions and deletes".
    pub async fn start_version_log(&self, container: &Arc<Container>) -> Result<(), Refusal> {
        if container.logs_versions {
            return Ok(());
        }
        let container = Arc::clone(container);
        self.store.write(move |transaction| admin::start_version_log(transaction, &container)).await
    }

    /// Splits a physical partition; returns the ids of its children.
    pub async fn split(&self, container: &Arc<Container>, range: RangeId) -> Result<[RangeId; 2], Refusal> {
        let container = Arc::clone(container);
        self.store.write(move |transaction| admin::split(transaction, &container, range)).await
    }

    /// Creates a script, or replaces the script with the id `replaces`. The body of a replacement
    /// must have the same id.
    pub async fn put_script(
        &self,
        container: &Arc<Container>,
        kind: ScriptKind,
        replaces: Option<String>,
        body: Object,
    ) -> Result<Value, Refusal> {
        let container = Arc::clone(container);
        self.store
            .write(move |transaction| {
                admin::put_script(transaction, &container, kind, replaces.as_deref(), body)
            })
            .await
    }

    /// Deletes a script.
    pub async fn delete_script(
        &self,
        container: &Arc<Container>,
        kind: ScriptKind,
        id: &str,
    ) -> Result<(), Refusal> {
        let (container, id) = (Arc::clone(container), id.to_owned());
        self.store.write(move |transaction| admin::delete_script(transaction, &container, kind, &id)).await
    }

    /// Reads a script.
    pub fn script(&self, container: &Container, kind: ScriptKind, id: &str) -> Result<Value, Refusal> {
        admin::script(&*self.store.view()?, container, kind, id)
    }

    /// The id of the script with this `_rid`.
    pub fn script_id(&self, container: &Container, kind: ScriptKind, rid: &str) -> Result<String, Refusal> {
        admin::script_id(&*self.store.view()?, container, kind, rid)
    }

    /// Reads all scripts of one kind.
    pub fn scripts(&self, container: &Container, kind: ScriptKind) -> Result<Vec<Value>, Refusal> {
        admin::scripts(&*self.store.view()?, container, kind)
    }
}
