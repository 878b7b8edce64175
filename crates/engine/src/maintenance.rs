//! Work that nobody waits for: expired documents, documents of deleted
//! containers, partitions that grew too large, indexes that queries wished for.
//!
//! There is no thread of its own: the engine's owner awaits
//! `Wishes::due` and calls `run_once`, and when the owner stops, so does
//! this. Everything is done in small jobs through the writer, each of which
//! leaves the database whole, so it may stop anywhere.

use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use perihelion_model::json::Value;
use tokio::sync::Notify;

use crate::container::Container;
use crate::document::StoredDocument;
use crate::index::{Column, Group, IndexScope};
use crate::items::{self, Precondition, Stamp, Target};
use crate::keys::{self, ContainerNumber, RangeId, SegmentId, Span};
use crate::refusal::Refusal;
use crate::replication::tombstones;
use crate::storage::Direction;
use crate::{Engine, Transaction, admin};

/// Keys changed per job, so that a write never waits long behind it.
pub(crate) const STEP: usize = 1000;
/// Wishes that are remembered; a wish that is dropped comes again.
const WISHES_MAX: usize = 16;

/// An index that a query would have liked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    pub scope: IndexScope,
    pub columns: Vec<Column>,
}

/// What is wanted, and a bell.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    indexes: Mutex<VecDeque<(ContainerNumber, Wish)>>,
    bell: Notify,
}

impl Wishes {
    pub(crate) fn wish(&self, container: ContainerNumber, wish: Wish) {
        let mut indexes = self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        if indexes.len() < WISHES_MAX && !indexes.contains(&(container, wish.clone())) {
            indexes.push_back((container, wish));
        }
        drop(indexes);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        self.bell.notify_one();
    }

    pub(crate) async fn due(&self, pause: Duration) {
        // Either outcome means: look.
        let _ = tokio::time::timeout(pause, self.bell.notified()).await;
    }

    fn take(&self) -> Option<(ContainerNumber, Wish)> {
        self.indexes.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// Does everything that waits.
pub(crate) async fn run_once(engine: &Engine) -> Result<(), Refusal> {
    redo_expiry_lists(engine).await?;
    if engine.may_expire() {
        remove_expired(engine).await?;
    }
    purge_deleted(engine).await?;
    if engine.replica().is_some() {
        tombstones::purge(engine).await?;
    } else {
        split_oversized(engine).await;
    }
    while let Some((container, wish)) = engine.maintenance.take() {
        build_index(engine, container, wish.scope, wish.columns).await?;
    }
    finish_indexes(engine).await
}

async fn remove_expired(engine: &Engine) -> Result<(), Refusal> {
    loop {
        let (from, to) = keys::expired_by(engine.clock().seconds());
        let mut found = Vec::new();
        engine.view()?.scan(Span::between(&from, &to).as_range(), Direction::Forward, &mut |key, _| {
            found.push(key.to_vec());
            if found.len() >= STEP { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if found.is_empty() {
            return Ok(());
        }
        let door = engine.write_door();
        engine
            .write(move |transaction| {
                door.check()?;
                for key in found {
                    expire(transaction, key)?;
                }
                Ok(())
            })
            .await?;
    }
}

fn expire(transaction: &mut Transaction<'_>, key: Vec<u8>) -> Result<(), Refusal> {
    if let Some((_, number, segment, rid)) = keys::parse_expiry(&key)
        && let Some(container) = transaction.catalog.container_by_number(number).cloned()
        && let Some(record) = transaction.get(&keys::document(number, segment, rid))?
        && let Some(document) = StoredDocument::decode(&record)
        && let Value::Object(value) = document.value()
        && let Some(partition_key) = container.partition_key.extract(&value)
        && let Some(id) = value.get("id").and_then(Value::as_str)
    {
        let target = Target::resolve(&container, partition_key)?;
        items::expire(transaction, &target, id)?;
    }
    // Whatever it pointed at, the pointer has served.
    transaction.remove(key);
    Ok(())
}

/// Deletes all documents of a logical partition, as one write.
pub(crate) fn delete_partition(transaction: &mut Transaction<'_>, target: &Target) -> Result<u64, Refusal> {
    let number = target.container.number();
    let members =
        transaction.entries(&Span::prefix(&keys::members(number, &target.partition.0)), usize::MAX)?;
    let (mut stamp, mut count) = (Stamp::default(), 0);
    for (key, _) in members {
        let Some(rid) = keys::last_u64(&key) else { continue };
        let record = transaction.get(&keys::document(number, target.range.segment, rid))?;
        let value = record.as_ref().and_then(StoredDocument::decode).map(|document| document.value());
        if let Some(id) = value.as_ref().and_then(|value| value.get("id")).and_then(Value::as_str) {
            let operation = items::ItemOperation::Delete { id: id.to_owned() };
            match items::perform(transaction, target, operation, &Precondition::default(), &mut stamp) {
                Ok(_) => count += 1,
                Err(refusal) if refusal.status == 404 => {}
                Err(refusal) => return Err(refusal),
            }
        }
    }
    Ok(count)
}

/// The container that the first key with a prefix names.
fn first_named(engine: &Engine, prefix: &[u8]) -> Result<Option<ContainerNumber>, Refusal> {
    let mut first = None;
    engine.view()?.scan(Span::prefix(prefix).as_range(), Direction::Forward, &mut |key, _| {
        first = keys::parse_container(key);
        ControlFlow::Break(())
    })?;
    Ok(first)
}

async fn redo_expiry_lists(engine: &Engine) -> Result<(), Refusal> {
    while let Some(number) = first_named(engine, &keys::all_retimed())? {
        each_step(engine, number, |transaction, container, segment, key, record| {
            let (Some(rid), Some(mut document)) = (keys::last_u64(&key), StoredDocument::decode(&record))
            else {
                return Ok(());
            };
            let expires_at = document.expiry(container.default_ttl).unwrap_or(0);
            if expires_at != document.expires_at {
                transaction.remove(keys::expiry(document.expires_at, container.number(), segment, rid));
                if expires_at != 0 {
                    transaction
                        .put(keys::expiry(expires_at, container.number(), segment, rid), bytes::Bytes::new());
                }
                document.expires_at = expires_at;
                transaction.put(key, document.encode());
            }
            Ok(())
        })
        .await?;
        engine
            .write(move |transaction| {
                transaction.remove(keys::retimed(number));
                Ok(())
            })
            .await?;
    }
    Ok(())
}

async fn purge_deleted(engine: &Engine) -> Result<(), Refusal> {
    loop {
        let doomed = first_named(engine, &keys::all_doomed())?;
        let Some(number) = doomed else { return Ok(()) };
        engine.write(move |transaction| purge_step(transaction, number)).await?;
    }
}

fn purge_step(transaction: &mut Transaction<'_>, number: ContainerNumber) -> Result<(), Refusal> {
    for prefix in keys::kinds_of_container(number) {
        let entries = transaction.entries(&Span::prefix(&prefix), STEP)?;
        if !entries.is_empty() {
            for (key, _) in entries {
                transaction.remove(key);
            }
            return Ok(());
        }
    }
    transaction.remove(keys::doomed(number));
    Ok(())
}

/// Partitions over their size, in the order of their containers.
pub(crate) fn oversized(engine: &Engine) -> Vec<(Arc<Container>, RangeId)> {
    let limit = i64::try_from(engine.options.partition_bytes_max).unwrap_or(i64::MAX);
    let mut found = Vec::new();
    for container in engine.catalog().containers() {
        let Ok(state) = engine.state(container) else { continue };
        let ranges = state.ranges.iter().filter(|range| range.bytes > limit);
        found.extend(ranges.map(|range| (Arc::clone(container), range.id)));
    }
    found
}

async fn split_oversized(engine: &Engine) {
    for (container, range) in oversized(engine) {
        match engine.split(&container, range).await {
            Ok(children) => {
                tracing::info!(container = %container.name, range, ?children, "split by size");
            }
            // A single hot key cannot be split further.
            Err(refusal) => {
                tracing::warn!(container = %container.name, range, %refusal.message, "cannot split")
            }
        }
    }
}

async fn finish_indexes(engine: &Engine) -> Result<(), Refusal> {
    let catalog = engine.catalog();
    for container in catalog.containers() {
        for index in container.indexes.iter().filter(|index| !index.is_ready) {
            fill_index(engine, container.number(), index.id).await?;
        }
    }
    Ok(())
}

/// Registers an index, fills it and marks it ready.
pub(crate) async fn build_index(
    engine: &Engine,
    number: ContainerNumber,
    scope: IndexScope,
    columns: Vec<Column>,
) -> Result<(), Refusal> {
    let catalog = engine.catalog();
    let Some(container) = catalog.container_by_number(number).cloned() else { return Ok(()) };
    let added =
        engine.write(move |transaction| admin::add_index(transaction, &container, scope, columns)).await?;
    match added {
        Some(id) => fill_index(engine, number, id).await,
        None => Ok(()),
    }
}

async fn fill_index(engine: &Engine, number: ContainerNumber, id: u16) -> Result<(), Refusal> {
    each_step(engine, number, move |transaction, container, segment, key, record| {
        let index = container.indexes.iter().find(|index| index.id == id);
        if let (Some(index), Some(rid)) = (index, keys::last_u64(&key))
            && let Some(document) = StoredDocument::decode(&record)
            && let Value::Object(value) = document.value()
            && let Some(partition_key) = container.partition_key.extract(&value)
        {
            let partition = keys::LogicalKey::of(&partition_key);
            let group = Group { partition: &partition, segment };
            let entry = index.entry(container.number(), group, &Value::Object(value), rid);
            transaction.put(entry, bytes::Bytes::new());
        }
        Ok(())
    })
    .await?;
    let catalog = engine.catalog();
    let Some(container) = catalog.container_by_number(number).cloned() else { return Ok(()) };
    engine.write(move |transaction| admin::finish_index(transaction, &container, id)).await
}

/// What is done to one document: the container as it is now, the segment, the
/// document's key and record.
trait Visit:
    Fn(&mut Transaction<'_>, &Container, SegmentId, Vec<u8>, bytes::Bytes) -> Result<(), Refusal>
{
}
impl<V: Fn(&mut Transaction<'_>, &Container, SegmentId, Vec<u8>, bytes::Bytes) -> Result<(), Refusal>> Visit
    for V
{
}

/// Visits every document of a container in small jobs. Documents never leave
/// their segment, so the segments that are there at first are all there are.
async fn each_step(
    engine: &Engine,
    number: ContainerNumber,
    visit: impl Visit + Clone + Send + 'static,
) -> Result<(), Refusal> {
    let catalog = engine.catalog();
    let Some(container) = catalog.container_by_number(number) else { return Ok(()) };
    let segments: BTreeSet<SegmentId> = container.ranges.iter().map(|range| range.segment).collect();
    for segment in segments {
        let mut cursor = keys::documents(number, segment);
        loop {
            let (container, from, visit) = (Arc::clone(container), cursor.clone(), visit.clone());
            match engine
                .write(move |transaction| step(transaction, &container, segment, &from, &visit))
                .await?
            {
                Some(next) => cursor = next,
                None => break,
            }
        }
    }
    Ok(())
}

/// Visits some documents; returns where to go on.
fn step(
    transaction: &mut Transaction<'_>,
    container: &Container,
    segment: SegmentId,
    from: &[u8],
    visit: &impl Visit,
) -> Result<Option<Vec<u8>>, Refusal> {
    let container = admin::current(transaction, container)?;
    let prefix = keys::documents(container.number(), segment);
    let entries = transaction.entries(&Span::prefix_after(&prefix, from), STEP)?;
    let last = entries.last().map(|(key, _)| key.clone());
    for (key, record) in entries {
        visit(transaction, &container, segment, key, record)?;
    }
    Ok(last)
}
