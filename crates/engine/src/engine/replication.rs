//! The engine as one of several regions: reading its outbox, applying the
//! outboxes of other regions, and copying the catalog of another region.

use std::sync::Arc;

use tokio::sync::watch;

use super::Engine;
use crate::admin;
use crate::catalog::{Catalog, Container};
use crate::documents::{self, Applied};
use crate::keys::{self, RangeId};
use crate::maintenance;
use crate::refusal::Refusal;
use crate::region::{RegionId, Replica};
use crate::replication::{self, OutboxEntry, Role};

impl Engine {
    /// The region of this engine; `None` if the account has only one region.
    pub fn replica(&self) -> Option<Replica> {
        self.store.replication().map(|replication| replication.replica)
    }

    /// Sets the role of this region, without waiting for the writes that were accepted under the
    /// old role. An account with one region has no roles.
    pub fn assign_role(&self, role: Role) {
        if let Some(replication) = self.store.replication() {
            replication.set_role(role);
        }
    }

    /// Sets the role of this region. When this returns `Ok`, every write that was
    /// accepted under the old role is in the outbox. After a refusal the role is set too, but writes
    /// under the old role may still be on their way.
    pub async fn set_role(&self, role: Role) -> Result<(), Refusal> {
        self.assign_role(role);
        // Jobs run one after the other. When this job is done, all jobs that ran under
        // the old role are committed.
        self.store.write(|_| Ok(())).await
    }

    /// Watches the number of the last durable entry of the outbox. `None` if the
    /// account has only one region.
    pub fn watch_outbox_end(&self) -> Option<watch::Receiver<u64>> {
        self.store.replication().map(|replication| replication.outbox_end.subscribe())
    }

    /// Watches the number of commits that applied entries of other regions. `None`
    /// if the account has only one region.
    pub fn watch_applied_commits(&self) -> Option<watch::Receiver<u64>> {
        self.store.replication().map(|replication| replication.applied_commits.subscribe())
    }

    /// The outbox entries after the number `after` and up to the number `to`, as many as fit a
    /// page.
    pub fn outbox(&self, after: u64, to: u64) -> Result<Vec<OutboxEntry>, Refusal> {
        replication::read_outbox(&*self.store.view()?, after, to)
    }

    /// Removes the outbox entries up to the number `to`, which every other region has
    /// applied. One call removes a limited number of entries. Returns the number up to which
    /// all entries are removed.
    pub async fn trim_outbox(&self, to: u64) -> Result<u64, Refusal> {
        let trimmed_up_to =
            self.store.write(move |transaction| replication::trim_outbox(transaction, to)).await?;
        if let Some(replication) = self.store.replication() {
            replication.set_trimmed_up_to(trimmed_up_to);
        }
        Ok(trimmed_up_to)
    }

    /// How far the outbox of `source` is applied here: the number of the last
    /// applied entry, 0 if none is applied. All entries before it are applied too.
    pub fn applied_up_to(&self, source: RegionId) -> Result<u64, Refusal> {
        Ok(documents::decode_applied_up_to(self.store.view()?.get(&keys::applied_up_to(source.0))?))
    }

    /// Applies entries of another region's outbox, in one commit, up to the first entry
    /// that must wait for writes of a third region.
    pub async fn apply(&self, source: RegionId, entries: Vec<OutboxEntry>) -> Result<Applied, Refusal> {
        let applied =
            self.store.write(move |transaction| documents::apply(transaction, source, &entries)).await?;
        if applied.new_entries > 0
            && let Some(replication) = self.store.replication()
        {
            replication.applied_commits.send_modify(|count| *count += 1);
        }
        Ok(applied)
    }

    /// Copies the catalog of another region to this region: databases,
    /// containers, ranges, offers, scripts, users and permissions. A second copy changes
    /// nothing.
    pub async fn copy_catalog_from(&self, source: &Engine) -> Result<(), Refusal> {
        let catalog = source.catalog();
        let view = source.store.view()?;
        let mut records = admin::script_records(&*view, &catalog)?;
        records.extend(admin::access_records(&*view, &catalog)?);
        drop(view);
        self.store.write(move |transaction| admin::copy_catalog(transaction, &catalog, records)).await?;
        self.backlog.wake();
        Ok(())
    }

    /// Whether this region has the catalog of another region. Scripts, users, permissions
    /// and indexes are not compared.
    pub fn has_same_catalog_as(&self, other: &Catalog) -> bool {
        admin::is_same_catalog(&self.catalog(), other)
    }

    /// The ranges (physical partitions) that are too large. With several regions
    /// maintenance does not split them. The owner of the engines splits them in the
    /// catalog region and copies its catalog to the other regions.
    pub fn oversized_ranges(&self) -> Vec<(Arc<Container>, RangeId)> {
        maintenance::oversized_ranges(&self.store, self.options.partition_bytes_max)
    }

    /// Reads a short text that the owner of the engine stored with
    /// [`Engine::set_named_value`], for example the name of the write region.
    pub fn named_value(&self, name: &str) -> Result<Option<String>, Refusal> {
        let text = self.store.view()?.get(&keys::named_value(name))?;
        Ok(text.map(|text| String::from_utf8_lossy(&text).into_owned()))
    }

    /// Stores a short text under a name, next to the data.
    pub async fn set_named_value(&self, name: &str, text: &str) -> Result<(), Refusal> {
        self.set_named_values(&[(name, text)]).await
    }

    /// Stores short texts, each under its name, in one commit.
    pub async fn set_named_values(&self, texts: &[(&str, &str)]) -> Result<(), Refusal> {
        let entry = |(name, text): &(&str, &str)| (keys::named_value(name), text.as_bytes().to_vec());
        let entries: Vec<_> = texts.iter().map(entry).collect();
        self.store
            .write(move |transaction| {
                for (key, text) in entries {
                    transaction.put(key, text);
                }
                Ok(())
            })
            .await
    }
}
