//! Tests of power cuts under the whole engine: item writes and atomic batches on a
//! simulated disk that loses, reorders and tears unsynced data.
//!
//! Each history is one disk with many power cuts. Between two cuts several clients
//! write at once, so that writes share commits. Meanwhile ranges are split and indexes
//! maintained. A cut may also strike while the engine opens. After a cut the
//! engine must have every acknowledged write, and each write in flight whole or
//! not at all. Documents, ids, lists, change feed, indexes and counters must
//! agree ([`agreement`]).
//!
//! `ENGINE_POWER_CUTS=1000000 cargo test --release -p perihelion-engine
//! engine_power` runs more cuts; `ENGINE_POWER_CUTS_SEED` picks other histories.
//! The writer's thread decides which writes share a commit, so a seed does not
//! repeat a history exactly.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use perihelion_engine::storage::DiskStore;
use perihelion_engine::{
    BatchScope, Clock, Container, Engine, EngineOptions, IndexScope, ItemOutcome, QueryScope, RangeId,
    Refusal,
};
use tokio::task::JoinSet;

use crate::engine_model::agreement::{self, container, find, target};
use crate::engine_model::model::{Document, Key, Model, Operation, partition_key, to_batch};
use crate::engine_model::workload::Workload;
use crate::engine_model::{create, shape};
use crate::sim_disk::SimDisk;
use crate::support::setting;

/// Power cuts in one history. The next history begins with an empty disk, so that
/// cuts also strike while the container is created.
const CUTS_PER_DISK: u64 = 25;

/// The most disk operations before a cut: about twenty commits.
const OPERATIONS_MAX: u64 = 350;

/// About as many disk operations as it takes to open and repair a store. One cut in six
/// strikes within this number of operations.
const OPENING_OPERATIONS: u64 = 10;

/// The most concurrent writers, and so the most writes that share a commit.
const WRITERS_MAX: u64 = 6;

const BATCH_OPERATIONS_MAX: u64 = 5;

const RANGES_MAX: usize = 5;

/// The padding of a document has fewer bytes than this. Most writes fit into one page of
/// the file, some take several.
const PADDING_BYTES_MAX: u64 = 1500;

/// More rounds of writes than there can be before a cut, because each round takes at least
/// one disk operation.
const ROUNDS_MAX: u64 = OPERATIONS_MAX + 1;

/// The counts of a run. With an honest disk `violations` is empty.
#[derive(Debug, Default)]
struct Tally {
    cuts: u64,
    /// The cuts that struck before the engine was open and its container was created.
    cuts_opening: u64,
    acknowledged: u64,
    /// The writes in flight when the power failed.
    in_doubt: u64,
    /// The writes in flight that the engine had after the cut.
    in_doubt_applied: u64,
    violations: Vec<String>,
}

/// One write: an operation, or several as an atomic batch.
type Write = Vec<Operation>;

/// The work of the engine when the power failed.
enum CutDuring {
    /// Opening the store, or creating the container.
    Opening,
    /// Writing documents.
    Writing,
}

/// One disk through many power cuts, and the model of its content.
struct History {
    disk: SimDisk,
    workload: Workload,
    model: Model,
    /// The writes in flight when the power failed: each was applied or not.
    in_doubt: Vec<Write>,
    /// The newest acknowledged LSN of each range, including ranges that were split.
    lsns: BTreeMap<RangeId, u64>,
    /// Whether the container and its indexes exist.
    is_set_up: bool,
}

impl History {
    fn new(seed: u64, lies_one_in: u64) -> History {
        History {
            disk: SimDisk::new(seed).lying_one_in(lies_one_in),
            workload: Workload::new(!seed, PADDING_BYTES_MAX),
            model: Model::default(),
            in_doubt: Vec::new(),
            lsns: BTreeMap::new(),
            is_set_up: false,
        }
    }

    /// Opens the engine, checks it, and writes until the power fails.
    async fn run_until_the_cut(&mut self, tally: &mut Tally) -> Result<CutDuring, String> {
        let operations_max = if self.workload.random.one_in(6) { OPENING_OPERATIONS } else { OPERATIONS_MAX };
        self.disk.cut_power_after(self.workload.random.below(operations_max));
        let engine = match self.open() {
            Ok(engine) => Arc::new(engine),
            Err(_) if !self.disk.has_power() => return Ok(CutDuring::Opening),
            Err(error) => return Err(format!("the engine does not open: {error}")),
        };
        let end = match self.set_up(&engine).await {
            Ok(()) => self.check_and_write(&engine, tally).await,
            Err(_) if !self.disk.has_power() => Ok(CutDuring::Opening),
            Err(refusal) => {
                Err(format!("the container cannot be created: {} {}", refusal.status, refusal.message))
            }
        };
        Arc::into_inner(engine).expect("the engine has no other owner").close();
        end
    }

    fn open(&self) -> Result<Engine, String> {
        let store = DiskStore::with_backend(self.disk.clone()).map_err(|error| error.to_string())?;
        let clock = Clock::from_fn(|| std::time::Duration::from_secs(1_700_000_000));
        let options = EngineOptions::default().with_partitions(2).with_clock(clock);
        Engine::open(store, options).map_err(|error| error.to_string())
    }

    /// Creates the container and its indexes, unless they exist.
    async fn set_up(&mut self, engine: &Engine) -> Result<(), Refusal> {
        if self.is_set_up {
            return Ok(());
        }
        let test_container = match container(engine) {
            Ok(container) => container,
            Err(_) => create(engine, false).await?,
        };
        for scope in [IndexScope::Partition, IndexScope::Segment] {
            engine.build_index(&test_container, shape(scope, &["b"])).await?;
        }
        // Maintenance finishes an index whose build was interrupted by a cut.
        engine.maintain().await?;
        self.is_set_up = true;
        Ok(())
    }

    async fn check_and_write(
        &mut self,
        engine: &Arc<Engine>,
        tally: &mut Tally,
    ) -> Result<CutDuring, String> {
        self.resolve_in_doubt(engine, tally)?;
        self.check_lsns(engine)?;
        agreement::check(engine, &self.model, 3 + self.workload.random.below(40) as usize)?;
        check_index(engine)?;
        for _ in 0..ROUNDS_MAX {
            self.write_round(engine, tally).await?;
            if !self.disk.has_power() {
                return check_refuses_writes(engine).await.map(|()| CutDuring::Writing);
            }
        }
        Err("more commits than disk operations: they were acknowledged without a sync".to_owned())
    }

    /// Checks that each write in flight is there whole or not at all, and updates
    /// the model.
    fn resolve_in_doubt(&mut self, engine: &Engine, tally: &mut Tally) -> Result<(), String> {
        if self.in_doubt.is_empty() {
            return Ok(());
        }
        let container = container(engine)?;
        for write in std::mem::take(&mut self.in_doubt) {
            let keys: Vec<&Key> = write.iter().map(|operation| &operation.key).collect();
            let found = keys.iter().map(|key| find(engine, &container, key));
            let found = found.collect::<Result<Vec<Option<Document>>, String>>()?;
            let before: Vec<Option<&Document>> =
                keys.iter().map(|key| self.model.documents.get(*key)).collect();
            if found.iter().map(Option::as_ref).eq(before) {
                continue;
            }
            let mut after = self.model.clone();
            after.perform_batch(&write, true, false);
            let is_applied_whole = keys.iter().zip(&found).all(|(key, found)| {
                let expected = after.documents.get(*key).map(|document| &document.body);
                found.as_ref().map(|document| &document.body) == expected
            });
            let lsns: BTreeSet<u64> = found.iter().flatten().map(|document| document.lsn).collect();
            if !is_applied_whole || lsns.len() > 1 {
                return Err(format!("a write was applied in part, at LSNs {lsns:?}: {keys:?}"));
            }
            tally.in_doubt_applied += 1;
            for (operation, document) in write.into_iter().zip(found) {
                match document {
                    Some(document) => drop(self.model.documents.insert(operation.key, document)),
                    None => drop(self.model.documents.remove(&operation.key)),
                }
            }
        }
        Ok(())
    }

    /// Checks that no range has an LSN below an acknowledged LSN of its own or of a
    /// range that it was split from.
    fn check_lsns(&self, engine: &Engine) -> Result<(), String> {
        let container = container(engine)?;
        let state = engine.state(&container).map_err(|refusal| refusal.message)?;
        for range in &container.ranges {
            let lineage = range.parents.iter().chain([&range.id]);
            let acknowledged = lineage.filter_map(|id| self.lsns.get(id)).max().copied().unwrap_or_default();
            let lsn = state.lsn(range.id);
            if lsn < acknowledged {
                return Err(format!(
                    "range {} is at LSN {lsn}, but {acknowledged} was acknowledged",
                    range.id
                ));
            }
        }
        Ok(())
    }

    /// Sends several writes at once, to different documents; sometimes splits a
    /// range before.
    async fn write_round(&mut self, engine: &Arc<Engine>, tally: &mut Tally) -> Result<(), String> {
        let container = container(engine)?;
        if container.ranges.len() < RANGES_MAX && self.workload.random.one_in(60) {
            let range = self.workload.random.below(container.ranges.len() as u64) as usize;
            // The next round reads from the catalog whether the split succeeded.
            let _ = engine.split(&container, container.ranges[range].id).await;
        }
        let mut running = JoinSet::new();
        for write in self.random_writes() {
            let (engine, container) = (Arc::clone(engine), Arc::clone(&container));
            running.spawn(async move {
                let outcomes = perform(&engine, &container, &write).await;
                (write, outcomes)
            });
        }
        while let Some(joined) = running.join_next().await {
            let (write, outcomes) = joined.map_err(|error| format!("a writer panicked: {error}"))?;
            match outcomes {
                Ok(outcomes) => {
                    self.acknowledge(&write, &outcomes)?;
                    tally.acknowledged += 1;
                }
                Err(_) if !self.disk.has_power() => {
                    self.in_doubt.push(write);
                    tally.in_doubt += 1;
                }
                Err(refusal) => return Err(format!("{write:?} was refused: {}", refusal.message)),
            }
        }
        Ok(())
    }

    /// Single operations and batches on different documents.
    fn random_writes(&mut self) -> Vec<Write> {
        let mut used_keys: BTreeSet<Key> = BTreeSet::new();
        let mut writes = Vec::new();
        for _ in 0..1 + self.workload.random.below(WRITERS_MAX) {
            let partition = self.workload.partition();
            let is_batch = self.workload.random.one_in(2);
            let count = if is_batch { 1 + self.workload.random.below(BATCH_OPERATIONS_MAX) } else { 1 };
            let keys: Vec<Key> = (0..count).map(|_| self.workload.key_in(&partition)).collect();
            let keys = keys.into_iter().filter(|key| used_keys.insert(key.clone())).collect::<Vec<_>>();
            let write: Write = keys.into_iter().map(|key| self.workload.change(&self.model, key)).collect();
            if !write.is_empty() {
                writes.push(write);
            }
        }
        writes
    }

    /// Performs an acknowledged write on the model, and checks that the outcomes agree.
    fn acknowledge(&mut self, write: &Write, outcomes: &[ItemOutcome]) -> Result<(), String> {
        let expected = self.model.perform_batch(write, true, false);
        let statuses: Vec<u16> = outcomes.iter().map(|outcome| outcome.status).collect();
        if statuses != expected {
            return Err(format!("{write:?} gave {statuses:?}, not {expected:?}"));
        }
        for (operation, outcome) in write.iter().zip(outcomes) {
            self.model.set_etag_and_lsn(&operation.key, outcome);
            let newest = self.lsns.entry(outcome.position.range).or_default();
            *newest = outcome.position.lsn.max(*newest);
        }
        Ok(())
    }
}

/// Performs a write: one operation by itself, several as an atomic batch.
async fn perform(
    engine: &Engine,
    container: &Arc<Container>,
    write: &Write,
) -> Result<Vec<ItemOutcome>, Refusal> {
    if let [operation] = write.as_slice() {
        let key = partition_key(&operation.key.0);
        let precondition = operation.precondition.clone();
        let operation = operation.to_engine(container)?;
        return Ok(vec![engine.write_item(container, key, operation, precondition).await?]);
    }
    let scope = BatchScope::Partition(partition_key(write.first().map_or("", |first| &first.key.0)));
    let outcome = engine.batch(container, to_batch(container, scope, write, true, false)).await?;
    outcome.results.into_iter().collect()
}

/// Writes a new document twice after the cut, and checks that neither write is acknowledged.
/// If the cut struck a checkpoint, no commit has failed yet. Then the first write fails with
/// 500, and only the second is refused with 503.
async fn check_refuses_writes(engine: &Engine) -> Result<(), String> {
    let container = container(engine)?;
    let operation =
        || Workload::new(0, 1).change(&Model::default(), ("p0".to_owned(), "after the cut".to_owned()));
    for allowed in [&[500, 503][..], &[503]] {
        match perform(engine, &container, &vec![operation()]).await {
            Err(refusal) if allowed.contains(&refusal.status) => {}
            other => return Err(format!("a write without power gave {other:?}")),
        }
    }
    Ok(())
}

/// Checks that the ordered query of [`agreement`] uses the index.
fn check_index(engine: &Engine) -> Result<(), String> {
    let container = container(engine)?;
    for scope in [QueryScope::All, QueryScope::Partition(target(&container, "p0")?)] {
        let text = "SELECT c.pk, c.id, c.b FROM c ORDER BY c.b";
        if !agreement::query(engine, &container, text, &scope, 10)?.used_index {
            return Err(format!("an index is not used in {scope:?}"));
        }
    }
    Ok(())
}

/// Runs histories with `cuts` power cuts in all. The disk lies about one in `lies_one_in`
/// syncs, or never if that is 0.
fn run(cuts: u64, seed: u64, lies_one_in: u64) -> Tally {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut tally = Tally::default();
    for disk in 0.. {
        let disk_seed = seed.wrapping_mul(1_000_003).wrapping_add(disk);
        let mut history = History::new(disk_seed, lies_one_in);
        for _ in 0..CUTS_PER_DISK {
            if tally.cuts == cuts {
                return tally;
            }
            tally.cuts += 1;
            match runtime.block_on(history.run_until_the_cut(&mut tally)) {
                Ok(CutDuring::Opening) => tally.cuts_opening += 1,
                Ok(CutDuring::Writing) => {}
                Err(violation) => {
                    let violation: String = violation.chars().take(VIOLATION_CHARACTERS_MAX).collect();
                    tally.violations.push(format!("disk {disk_seed}, cut {}: {violation}", tally.cuts));
                    break;
                }
            }
            history.disk.restore_power();
        }
    }
    tally
}

/// The longest text of a violation.
const VIOLATION_CHARACTERS_MAX: usize = 600;

#[test]
fn engine_power_cuts_lose_nothing_acknowledged() {
    let (cuts, seed) = (setting("ENGINE_POWER_CUTS", 600), setting("ENGINE_POWER_CUTS_SEED", 1));
    let tally = run(cuts, seed, 0);
    println!("seed {seed}: {tally:?}");
    assert!(tally.violations.is_empty(), "seed {seed}: {:#?}", tally.violations);
    assert!(tally.acknowledged > 4 * cuts, "seed {seed}: the cuts left no room for writes");
    assert!(
        tally.in_doubt > cuts / 2 && tally.in_doubt_applied > 0,
        "seed {seed}: the cuts struck an idle engine"
    );
    assert!(tally.cuts_opening > 0, "seed {seed}: no cut struck while opening");
}

#[test]
fn the_power_cut_test_of_the_engine_notices_a_disk_that_lies_about_syncs() {
    let tally = run(60, 7, 7);
    println!("{tally:?}");
    assert!(!tally.violations.is_empty(), "the checker did not notice a lying disk");
}
