//! `LeaseStore`: reads and writes the lease documents of one processor. Every write of an
//! existing lease has an etag as its condition, so of two writers one wins.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::lease::{KeyKind, Lease, LeaseNames};
use super::start_plan::StartPlan;
use crate::handle::ContainerHandle;
use crate::{Container, Error, FeedRange, ItemOptions, Query};

/// The leases of one processor, for one instance.
pub(super) struct LeaseStore {
    leases: Container,
    pub(super) names: LeaseNames,
    /// The name of this instance.
    pub(super) instance: String,
    /// How many nonces this instance has made.
    writes: AtomicU64,
    /// The random part of the nonces, and of the default name of the instance.
    random: RandomState,
}

/// The outcome of a conditional write.
#[derive(Debug)]
pub(super) enum LeaseWrite {
    /// The lease as it is now.
    Written(Box<Lease>),
    /// Another writer was faster.
    Conflict,
    /// The lease was deleted.
    Gone,
}

/// The leases of a processor, as they were listed.
pub(super) struct ListedLeases {
    pub(super) leases: Vec<Lease>,
    /// One error for each document that has the id of a lease and is not a valid lease.
    pub(super) unreadable: Vec<Error>,
}

impl LeaseStore {
    /// Opens the leases of a processor. Fails when the container of leases has another
    /// partition key than `/id` or `/partitionKey`.
    pub(super) async fn open(
        container: &ContainerHandle,
        leases: &Container,
        processor: &str,
        instance: Option<String>,
    ) -> Result<Self, Error> {
        if processor.is_empty() || processor.contains(['/', '\\', '?', '#']) {
            return Err(Error::input(format!(
                "{processor:?} cannot be the name of a change feed processor: use a name without / \\ ? and #"
            )));
        }
        let rid = container.metadata().await?.rid.clone();
        let metadata = leases.handle().metadata().await?;
        let paths: Vec<&str> = metadata.partition_key.paths.iter().map(|path| path.text.as_str()).collect();
        let key_kind = match paths.as_slice() {
            ["/id"] => KeyKind::Id,
            ["/partitionKey"] => KeyKind::Processor,
            other => {
                return Err(Error::input(format!(
                    "container `{}` cannot hold leases: its partition key is {other:?}. \
                     Use a container with the partition key /id or /partitionKey",
                    leases.name()
                )));
            }
        };
        let random = RandomState::new();
        let instance =
            instance.unwrap_or_else(|| format!("instance-{:016x}", random.build_hasher().finish()));
        let names = LeaseNames::new(processor, &rid, key_kind);
        Ok(LeaseStore { leases: leases.clone(), names, instance, writes: AtomicU64::new(0), random })
    }

    /// All leases of the processor. A document that is not a lease does not block the others.
    pub(super) async fn list(&self) -> Result<ListedLeases, Error> {
        let query = Query::new("SELECT * FROM c WHERE STARTSWITH(c.id, @prefix)")
            .with_parameter("@prefix", self.names.lease_prefix());
        let query = match self.names.key_kind {
            KeyKind::Id => query,
            KeyKind::Processor => query.in_partition(self.names.processor.as_str()),
        };
        let documents: Vec<serde_json::Value> = self.leases.query(query).collect().await?;
        let mut listed = ListedLeases { leases: Vec::new(), unreadable: Vec::new() };
        for document in documents {
            let id = document["id"].as_str().unwrap_or_default().to_owned();
            match serde_json::from_value(document) {
                Ok(lease) => listed.leases.push(lease),
                Err(error) => listed.unreadable.push(Error::answer(format!(
                    "document `{id}` of container `{}` is not a valid lease: {error}. No instance \
                     processes its range: repair the document, or delete it",
                    self.leases.name()
                ))),
            }
        }
        Ok(listed)
    }

    pub(super) async fn read(&self, id: &str) -> Result<Option<Lease>, Error> {
        Ok(self.leases.find::<Lease>(self.names.key_of(id), id).await?.map(crate::Item::into_value))
    }

    /// Creates the lease of a range, unless it exists.
    pub(super) async fn create_if_missing(
        &self,
        range: &FeedRange,
        token: String,
        owner: Option<&str>,
    ) -> Result<(), Error> {
        let lease = Lease {
            id: self.names.lease_id(range),
            partition_key: self.names.processor.clone(),
            range: range.to_string(),
            owner: owner.map(str::to_owned),
            wanted_by: None,
            token,
            nonce: self.nonce(),
            etag: None,
            others: serde_json::Map::new(),
        };
        self.create(&lease.id, &serde_json::to_value(&lease).map_err(unwritable)?).await
    }

    /// Stores where the processing begins, unless another instance has stored a plan before.
    /// Returns the stored plan.
    pub(super) async fn agree_on_start(&self, proposed: StartPlan) -> Result<StartPlan, Error> {
        let id = self.names.start_id();
        let document = json!({"id": id, "partitionKey": self.names.processor, "ranges": proposed.ranges});
        self.create(&id, &document).await?;
        match self.start_plan().await? {
            Some(plan) => Ok(plan),
            None => Err(Error::answer(format!("the document `{id}` was deleted: start the processor again"))),
        }
    }

    /// Where the processing begins; `None` when no instance has decided that yet.
    pub(super) async fn start_plan(&self) -> Result<Option<StartPlan>, Error> {
        let id = self.names.start_id();
        Ok(self.leases.find::<StartPlan>(self.names.key_of(&id), &id).await?.map(crate::Item::into_value))
    }

    /// Whether an instance has noted that all leases were created.
    pub(super) async fn has_marker(&self) -> Result<bool, Error> {
        let id = self.names.marker_id();
        Ok(self.leases.find::<Value>(self.names.key_of(&id), &id).await?.is_some())
    }

    /// Notes that all leases were created.
    pub(super) async fn create_marker(&self) -> Result<(), Error> {
        let id = self.names.marker_id();
        self.create(&id, &json!({"id": id, "partitionKey": self.names.processor})).await
    }

    /// Replaces a lease, if it still has the etag with which it was read. Only the owner and an
    /// instance that becomes the owner may do so, because the lease gets a new nonce.
    pub(super) async fn replace(&self, lease: &Lease) -> Result<LeaseWrite, Error> {
        let next = Lease { nonce: self.nonce(), ..lease.clone() };
        let options = ItemOptions::new().with_witness(&next.id, "/nonce", next.nonce.as_str());
        self.replace_with(next, options).await
    }

    /// Asks the owner of a lease to hand it over to this instance. The nonce stays, because
    /// other instances see by the nonce whether the owner is alive.
    pub(super) async fn ask_for(&self, lease: &Lease) -> Result<LeaseWrite, Error> {
        let next = Lease { wanted_by: Some(self.instance.clone()), ..lease.clone() };
        self.replace_with(next, ItemOptions::new()).await
    }

    /// Notes in a lease that this instance no longer asks for it. The nonce stays.
    pub(super) async fn withdraw(&self, lease: &Lease) -> Result<LeaseWrite, Error> {
        self.replace_with(Lease { wanted_by: None, ..lease.clone() }, ItemOptions::new()).await
    }

    /// Gives a lease that this instance owns and does not process to the instance that asks for
    /// it. If no instance asks, the lease has no owner afterwards.
    pub(super) async fn give_back(&self, lease: &Lease) -> Result<LeaseWrite, Error> {
        let wanted_by = lease.wanted_by.clone().filter(|name| *name != self.instance);
        self.replace(&Lease { owner: wanted_by, wanted_by: None, ..lease.clone() }).await
    }

    async fn replace_with(&self, next: Lease, options: ItemOptions) -> Result<LeaseWrite, Error> {
        let Some(etag) = &next.etag else { return Ok(LeaseWrite::Conflict) };
        let options = options.with_if_match(etag);
        let key = self.names.key_of(&next.id);
        match self.leases.replace_with(key, &next.id, &next, &options).await {
            Ok(written) => {
                let etag = written.etag()?.clone();
                Ok(LeaseWrite::Written(Box::new(Lease { etag: Some(etag), ..next })))
            }
            Err(error) => outcome_of_failure(error),
        }
    }

    /// Deletes a lease, if it still has the etag with which it was read.
    pub(super) async fn delete(&self, lease: &Lease) -> Result<LeaseWrite, Error> {
        let Some(etag) = &lease.etag else { return Ok(LeaseWrite::Conflict) };
        let options = ItemOptions::new().with_if_match(etag);
        match self.leases.delete_with(self.names.key_of(&lease.id), &lease.id, &options).await {
            Ok(_) => Ok(LeaseWrite::Gone),
            Err(error) => outcome_of_failure(error),
        }
    }

    /// Creates a document, unless it exists. If it is not known whether the creation was applied,
    /// the document is looked for.
    async fn create(&self, id: &str, document: &Value) -> Result<(), Error> {
        match self.leases.create(self.names.key_of(id), document).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_conflict() => Ok(()),
            Err(error) if error.is_ambiguous() => {
                let found = self.leases.find::<Value>(self.names.key_of(id), id).await?;
                if found.is_some() { Ok(()) } else { Err(error) }
            }
            Err(error) => Err(error),
        }
    }

    /// A value that no other write of a lease stores.
    fn nonce(&self) -> String {
        let write = self.writes.fetch_add(1, Ordering::Relaxed);
        format!("{:016x}-{write}", self.random.hash_one(&self.instance))
    }
}

/// The outcome of a conditional write that failed with this error. Errors that say nothing about
/// the lease are returned as errors.
fn outcome_of_failure(error: Error) -> Result<LeaseWrite, Error> {
    if error.is_precondition_failed() {
        return Ok(LeaseWrite::Conflict);
    }
    // If the whole container of leases is missing, this is false, and the error stays an error.
    if error.is_document_not_found() {
        return Ok(LeaseWrite::Gone);
    }
    // The write may have been applied. Like after a conflict, the lease must be read again to
    // find out.
    if error.is_ambiguous() { Ok(LeaseWrite::Conflict) } else { Err(error) }
}

#[cold]
fn unwritable(error: serde_json::Error) -> Error {
    Error::input(format!("a lease cannot be written as JSON: {error}"))
}
