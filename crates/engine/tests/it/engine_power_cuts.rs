//! Power cuts under the whole engine: item writes and atomic batches on a
//! simulated disk that loses, reorders and tears what was not synced.
//!
//! Each history is a disk that lives through many cuts. In each life several
//! clients write at once, so that writes share commits, partitions are split,
//! and indexes are kept up, until the power fails; that may be while the
//! engine opens, too. The next life must hold everything acknowledged and of
//! each write in flight all or nothing, and documents, ids, lists, change
//! feed, indexes and counters must agree ([`agreement`]).
//!
//! `ENGINE_POWER_CUTS=1000000 cargo test --release -p perihelion-engine
//! engine_power` runs as many as one likes; `ENGINE_POWER_CUTS_SEED` picks
//! other histories. Who shares a commit with whom is up to the writer's
//! thread, so a seed tells the story but not each of its words.

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

/// Cuts in one history; then a new disk, so that creation is cut as well.
const CUTS_PER_DISK: u64 = 25;

/// Operations a disk may do before the cut: some twenty commits.
const OPERATIONS_MAX: u64 = 350;

/// About what a disk does while a store is opened and repaired; one cut in six
/// strikes within it.
const OPENING_OPERATIONS: u64 = 10;

/// Writers at once, as many as one commit is to hold now and then.
const WRITERS_MAX: u64 = 6;

const BATCH_OPERATIONS_MAX: u64 = 5;

const RANGES_MAX: usize = 5;

/// Mostly within one page of the file, sometimes over several.
const PADDING_MAX: u64 = 1500;

/// More rounds of writes than a disk has operations: each takes one at least.
const ROUNDS_MAX: u64 = OPERATIONS_MAX + 1;

/// What a run saw. An honest disk leaves `violations` empty.
#[derive(Debug, Default)]
struct Tally {
    cuts: u64,
    /// Of these, cuts before the engine was open.
    cuts_opening: u64,
    acknowledged: u64,
    in_doubt: u64,
    landed: u64,
    violations: Vec<String>,
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// One write: an operation, or several as an atomic batch.
type Write = Vec<Operation>;

/// How a life ended, if not by a violation.
enum End {
    /// The power failed while the engine was opened or its container made.
    Opening,
    Writing,
}

struct History {
    disk: SimDisk,
    workload: Workload,
    model: Model,
    /// What was sent and refused for lack of power.
    in_doubt: Vec<Write>,
    /// The newest LSN that was acknowledged in each range that ever was.
    lsns: BTreeMap<RangeId, u64>,
    /// Whether the container and its indexes are known to be there.
    is_set_up: bool,
}

impl History {
    fn new(seed: u64, lies_one_in: u64) -> History {
        History {
            disk: SimDisk::new(seed).lying_one_in(lies_one_in),
            workload: Workload::new(!seed, PADDING_MAX),
            model: Model::default(),
            in_doubt: Vec::new(),
            lsns: BTreeMap::new(),
            is_set_up: false,
        }
    }

    /// Opens, checks, writes until the lights go out.
    async fn live_until_the_cut(&mut self, tally: &mut Tally) -> Result<End, String> {
        let most = if self.workload.random.one_in(6) { OPENING_OPERATIONS } else { OPERATIONS_MAX };
        self.disk.cut_power_after(self.workload.random.below(most));
        let engine = match self.open() {
            Ok(engine) => Arc::new(engine),
            Err(_) if !self.disk.has_power() => return Ok(End::Opening),
            Err(error) => return Err(format!("unopenable: {error}")),
        };
        let end = match self.set_up(&engine).await {
            Ok(()) => self.check_and_write(&engine, tally).await,
            Err(_) if !self.disk.has_power() => Ok(End::Opening),
            Err(refusal) => Err(format!("not set up: {} {}", refusal.status, refusal.message)),
        };
        Arc::into_inner(engine).expect("nobody else has the engine").close();
        end
    }

    fn open(&self) -> Result<Engine, String> {
        let store = DiskStore::with_backend(self.disk.clone()).map_err(|error| error.to_string())?;
        let clock = Clock::from_fn(|| std::time::Duration::from_secs(1_700_000_000));
        let options = EngineOptions::default().with_partitions(2).with_clock(clock);
        Engine::open(store, options).map_err(|error| error.to_string())
    }

    /// Makes the container and its indexes, as far as an earlier life did not.
    async fn set_up(&mut self, engine: &Engine) -> Result<(), Refusal> {
        if self.is_set_up {
            return Ok(());
        }
        let made = match container(engine) {
            Ok(container) => container,
            Err(_) => create(engine, false).await?,
        };
        for scope in [IndexScope::Partition, IndexScope::Range] {
            engine.build_index(&made, shape(scope, &["b"])).await?;
        }
        // An index whose making was cut is finished in the background.
        engine.maintain().await?;
        self.is_set_up = true;
        Ok(())
    }

    async fn check_and_write(&mut self, engine: &Arc<Engine>, tally: &mut Tally) -> Result<End, String> {
        self.settle(engine, tally)?;
        self.check_lsns(engine)?;
        agreement::check(engine, &self.model, 3 + self.workload.random.below(40) as usize)?;
        check_index(engine)?;
        for _ in 0..ROUNDS_MAX {
            self.write_round(engine, tally).await?;
            if !self.disk.has_power() {
                return check_refuses_writes(engine).await.map(|()| End::Writing);
            }
        }
        Err("more commits than disk operations: they were acknowledged without a sync".to_owned())
    }

    /// Finds out what became of the writes in flight: each whole or not at all.
    fn settle(&mut self, engine: &Engine, tally: &mut Tally) -> Result<(), String> {
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
            let is_after = keys.iter().zip(&found).all(|(key, found)| {
                let expected = after.documents.get(*key).map(|document| &document.body);
                found.as_ref().map(|document| &document.body) == expected
            });
            let lsns: BTreeSet<u64> = found.iter().flatten().map(|document| document.lsn).collect();
            if !is_after || lsns.len() > 1 {
                return Err(format!("half a write at LSNs {lsns:?}: {keys:?}"));
            }
            tally.landed += 1;
            for (operation, document) in write.into_iter().zip(found) {
                match document {
                    Some(document) => drop(self.model.documents.insert(operation.key, document)),
                    None => drop(self.model.documents.remove(&operation.key)),
                }
            }
        }
        Ok(())
    }

    /// No partition stands before an LSN that was acknowledged in it, or in
    /// one that it was split from.
    fn check_lsns(&self, engine: &Engine) -> Result<(), String> {
        let container = container(engine)?;
        let state = engine.state(&container).map_err(|refusal| refusal.message)?;
        for range in &container.ranges {
            let line = range.parents.iter().chain([&range.id]);
            let seen = line.filter_map(|id| self.lsns.get(id)).max().copied().unwrap_or_default();
            let lsn = state.lsn(range.id);
            if lsn < seen {
                return Err(format!("range {} is at LSN {lsn}, but {seen} was acknowledged", range.id));
            }
        }
        Ok(())
    }

    /// Several writes at once, to different documents.
    async fn write_round(&mut self, engine: &Arc<Engine>, tally: &mut Tally) -> Result<(), String> {
        let container = container(engine)?;
        if container.ranges.len() < RANGES_MAX && self.workload.random.one_in(60) {
            let range = self.workload.random.below(container.ranges.len() as u64) as usize;
            // Whether it happened is plain to see in the next catalog.
            let _ = engine.split(&container, container.ranges[range].id).await;
        }
        let mut running = JoinSet::new();
        for write in self.random_writes() {
            let (engine, container) = (Arc::clone(engine), Arc::clone(&container));
            running.spawn(async move {
                let answers = perform(&engine, &container, &write).await;
                (write, answers)
            });
        }
        while let Some(done) = running.join_next().await {
            let (write, answers) = done.map_err(|error| format!("a writer panicked: {error}"))?;
            match answers {
                Ok(answers) => {
                    self.acknowledge(&write, &answers)?;
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

    fn random_writes(&mut self) -> Vec<Write> {
        let mut taken: BTreeSet<Key> = BTreeSet::new();
        let mut writes = Vec::new();
        for _ in 0..1 + self.workload.random.below(WRITERS_MAX) {
            let partition = self.workload.partition();
            let is_batch = self.workload.random.one_in(2);
            let wanted = if is_batch { 1 + self.workload.random.below(BATCH_OPERATIONS_MAX) } else { 1 };
            let keys: Vec<Key> = (0..wanted).map(|_| self.workload.key_in(&partition)).collect();
            let keys = keys.into_iter().filter(|key| taken.insert(key.clone())).collect::<Vec<_>>();
            let write: Write = keys.into_iter().map(|key| self.workload.change(&self.model, key)).collect();
            if !write.is_empty() {
                writes.push(write);
            }
        }
        writes
    }

    fn acknowledge(&mut self, write: &Write, answers: &[ItemOutcome]) -> Result<(), String> {
        let expected = self.model.perform_batch(write, true, false);
        let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
        if statuses != expected {
            return Err(format!("{write:?} gave {statuses:?}, not {expected:?}"));
        }
        for (operation, answer) in write.iter().zip(answers) {
            self.model.learn(&operation.key, answer);
            let newest = self.lsns.entry(answer.position.range).or_default();
            *newest = answer.position.lsn.max(*newest);
        }
        Ok(())
    }
}

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
    let done = engine.batch(container, to_batch(container, scope, write, true, false)).await?;
    done.results.into_iter().collect()
}

/// After a commit that failed nothing may be acknowledged any more. When it was
/// a checkpoint that met the cut, the next commit is the one that fails, with
/// 500; so it takes two writes, to a document that never was, to be sure.
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

/// The queries that [`agreement`] makes by order go by the index.
fn check_index(engine: &Engine) -> Result<(), String> {
    let container = container(engine)?;
    for scope in [QueryScope::Ranges(Vec::new()), QueryScope::Partition(target(&container, "p0")?)] {
        let text = "SELECT c.pk, c.id, c.b FROM c ORDER BY c.b";
        if !agreement::query(engine, &container, text, &scope, 10)?.used_index {
            return Err(format!("an index is not used in {scope:?}"));
        }
    }
    Ok(())
}

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
            match runtime.block_on(history.live_until_the_cut(&mut tally)) {
                Ok(End::Opening) => tally.cuts_opening += 1,
                Ok(End::Writing) => {}
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

/// Enough for a story, not for a page of documents.
const VIOLATION_CHARACTERS_MAX: usize = 600;

#[test]
fn engine_power_cuts_lose_nothing_acknowledged() {
    let (cuts, seed) = (setting("ENGINE_POWER_CUTS", 600), setting("ENGINE_POWER_CUTS_SEED", 1));
    let tally = run(cuts, seed, 0);
    println!("seed {seed}: {tally:?}");
    assert!(tally.violations.is_empty(), "seed {seed}: {:#?}", tally.violations);
    assert!(tally.acknowledged > 4 * cuts, "seed {seed}: the cuts left no room for writes");
    assert!(tally.in_doubt > cuts / 2 && tally.landed > 0, "seed {seed}: the cuts struck an idle engine");
    assert!(tally.cuts_opening > 0, "seed {seed}: no cut struck while opening");
}

#[test]
fn a_disk_that_lies_about_syncs_is_caught_under_the_engine() {
    let tally = run(60, 7, 7);
    println!("{tally:?}");
    assert!(!tally.violations.is_empty(), "the checker did not notice a lying disk");
}
