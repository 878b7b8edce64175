//! Compares the engine with a model, in thousands of random operations per seed. The model
//! predicts each outcome, and the whole content is compared from time to time.
//!
//! Two engines perform the same operations and splits. One engine has no index, the other
//! builds indexes from time to time. Both engines must return the same rows in the same
//! order for every query, and both must agree with the [`model`].
//!
//! `MODEL_SEEDS=100 cargo test --release -p perihelion-engine the_engine_does`
//! runs more seeds; a failure names its seed and the number of the operation.

pub(crate) mod agreement;
mod concurrency;
pub(crate) mod model;
mod ordering;
pub(crate) mod workload;

use std::sync::Arc;

use perihelion_engine::storage::MemoryStore;
use perihelion_engine::{
    ApiVersion, BatchScope, Column, Container, Engine, EngineOptions, FeedMode, IndexScope, IndexShape,
    ItemOutcome, ParsedDefinition, RangeId, Refusal,
};
use perihelion_model::json::{object, parse, parse_str};

use self::agreement::{CONTAINER, DATABASE, container, feed_pages, key_of, target};
use self::model::{Event, Key, Model, Operation, own_members, to_batch};
use self::workload::Workload;
use crate::support::{self, setting};

/// The number of operations per seed.
const OPERATIONS: usize = 2000;

/// The whole content is compared once in this many operations, on average.
const CHECK_EVERY: u64 = 150;

/// The most physical partitions. Each of them makes every check longer.
const RANGES_MAX: usize = 6;

#[tokio::test]
async fn the_engine_does_what_the_model_says() {
    let (seeds, first) = (setting("MODEL_SEEDS", 3), setting("MODEL_SEED", 1));
    for seed in first..first + seeds {
        let mut trial = Trial::new(seed).await;
        for number in 0..OPERATIONS {
            if let Err(difference) = trial.step().await {
                panic!("MODEL_SEED={seed}, operation {number}: {difference}");
            }
        }
        trial
            .check()
            .await
            .unwrap_or_else(|difference| panic!("MODEL_SEED={seed}, at the end: {difference}"));
        println!("seed {seed}: {}", trial.summary());
    }
}

/// Creates the container that tests use. Creates its database first, unless the database
/// exists: a power cut may have struck after the database was created.
pub(crate) async fn create(engine: &Engine, has_unique_key: bool) -> Result<Arc<Container>, Refusal> {
    if engine.catalog().database(DATABASE).is_none() {
        engine.create_database(support::object(r#"{"id":"d"}"#), None).await?;
    }
    let mut body =
        support::object(r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#);
    if has_unique_key {
        body.set("uniqueKeyPolicy", parse_str(r#"{"uniqueKeys":[{"paths":["/u"]}]}"#).expect("JSON"));
    }
    let definition = ParsedDefinition::parse(body, ApiVersion::Current)?;
    assert_eq!((DATABASE, CONTAINER), ("d", "c"));
    engine.create_container(DATABASE, definition, None).await
}

/// An index shape from member names; a minus in front means descending.
pub(crate) fn shape(scope: IndexScope, names: &[&str]) -> IndexShape {
    let column = |name: &&str| Column {
        path: vec![name.trim_start_matches('-').to_owned()],
        is_descending: name.starts_with('-'),
    };
    IndexShape { scope, columns: names.iter().map(column).collect() }
}

/// One seed: a model, an engine without indexes and an engine with indexes.
struct Trial {
    workload: Workload,
    model: Model,
    /// The engine without indexes.
    plain: Engine,
    /// The engine with indexes.
    indexed: Engine,
    /// The number of operations, without queries.
    performed: u64,
    /// The number of operations that were refused.
    refused: u64,
    /// The number of queries.
    queries: u64,
    /// The number of queries for which the engine with indexes used an index.
    queries_by_index: u64,
}

impl Trial {
    async fn new(seed: u64) -> Trial {
        let has_unique_key = seed.is_multiple_of(2);
        let open = || {
            // The clock stands still: this test is not about time.
            let clock = perihelion_engine::Clock::from_fn(|| std::time::Duration::from_secs(1_700_000_000));
            let options = EngineOptions::default().with_partitions(2).with_clock(clock);
            Engine::open(MemoryStore::new(), options).expect("an empty store opens")
        };
        let (plain, indexed) = (open(), open());
        for engine in [&plain, &indexed] {
            let container = create(engine, has_unique_key).await.expect("a container");
            engine.start_version_log(&container).await.expect("a log of versions");
        }
        let model = Model { has_unique_key, ..Model::default() };
        let workload = Workload::new(seed, 40);
        Trial { workload, model, plain, indexed, performed: 0, refused: 0, queries: 0, queries_by_index: 0 }
    }

    fn summary(&self) -> String {
        let ranges = container(&self.plain).map_or(0, |container| container.ranges.len());
        format!(
            "{} operations, {} refused as they should, {} documents in {ranges} ranges, {} queries, {} by index",
            self.performed,
            self.refused,
            self.model.documents.len(),
            self.queries,
            self.queries_by_index
        )
    }

    async fn step(&mut self) -> Result<(), String> {
        match self.workload.random.below(40) {
            0..20 => self.single_operation().await?,
            20..30 => self.batch().await?,
            30 if self.workload.random.one_in(10) => self.split().await?,
            31 if self.workload.random.one_in(6) => self.build_index().await?,
            _ => self.query().await?,
        }
        if self.workload.random.one_in(CHECK_EVERY) {
            self.check().await?;
        }
        Ok(())
    }

    /// Counts an operation with this status.
    fn count(&mut self, status: u16) {
        self.performed += 1;
        self.refused += u64::from(status >= 400);
    }

    async fn single_operation(&mut self) -> Result<(), String> {
        let partition = self.workload.partition();
        let operation = self.workload.operation(&self.model, &partition);
        let expected = self.model.perform(&operation);
        self.count(expected);
        let outcomes = [run_one(&self.plain, &operation).await, run_one(&self.indexed, &operation).await];
        for outcome in &outcomes {
            self.compare(&operation, expected, outcome)?;
        }
        check_same_positions(&outcomes[0], &outcomes[1], &operation)
    }

    async fn batch(&mut self) -> Result<(), String> {
        let partition = self.workload.partition();
        let scope = match self.workload.random.below(3) {
            0 => BatchScope::Range(target(&container(&self.plain)?, &partition)?.range.id),
            _ => BatchScope::Partition(model::partition_key(&partition)),
        };
        let partitions = self.partitions_in_scope(&partition, &scope)?;
        let count = 1 + self.workload.random.below(6);
        let operations: Vec<Operation> = (0..count)
            .map(|_| {
                let partition = &partitions[self.workload.random.below(partitions.len() as u64) as usize];
                self.workload.operation(&self.model, partition)
            })
            .collect();
        let (is_atomic, continues) = (self.workload.random.one_in(2), self.workload.random.one_in(2));
        let expected = self.model.perform_batch(&operations, is_atomic, continues);
        for engine in [&self.plain, &self.indexed] {
            let container = container(engine)?;
            let before = lsn_of(engine, &container, &partition)?;
            let batch = to_batch(&container, scope.clone(), &operations, is_atomic, continues);
            let outcome = engine.batch(&container, batch).await.map_err(|refusal| refusal.message)?;
            let statuses: Vec<u16> = outcome.results.iter().map(status_of).collect();
            if statuses != expected {
                return Err(format!("{operations:?} atomic {is_atomic} gave {statuses:?}, not {expected:?}"));
            }
            let writes = operations.iter().zip(&statuses);
            let writes = writes.filter(|(operation, status)| operation.is_write() && **status < 300).count();
            // All writes of an atomic batch have one LSN.
            let lsns = if is_atomic { writes.min(1) } else { writes };
            let after = lsn_of(engine, &container, &partition)?;
            let claimed = outcome.position.lsn;
            if after != before + lsns as u64 || claimed != after {
                return Err(format!(
                    "{writes} writes, atomic {is_atomic}: LSN {before} became {after}, outcome {claimed}"
                ));
            }
            for (operation, result) in operations.iter().zip(&outcome.results) {
                if let Ok(item) = result
                    && operation.is_write()
                {
                    self.model.set_etag_and_lsn(&operation.key, item);
                }
            }
        }
        expected.into_iter().for_each(|status| self.count(status));
        Ok(())
    }

    /// The partition keys that a batch of this scope may use.
    fn partitions_in_scope(&self, partition: &str, scope: &BatchScope) -> Result<Vec<String>, String> {
        let BatchScope::Range(range) = scope else { return Ok(vec![partition.to_owned()]) };
        let container = container(&self.plain)?;
        let all = (0..workload::PARTITION_KEYS).map(|partition| format!("p{partition}"));
        Ok(all.filter(|key| target(&container, key).is_ok_and(|target| target.range.id == *range)).collect())
    }

    /// Compares the outcome of one operation with the model. The model takes the etag and
    /// LSN of the outcome.
    fn compare(
        &mut self,
        operation: &Operation,
        expected: u16,
        outcome: &Result<ItemOutcome, Refusal>,
    ) -> Result<(), String> {
        let status = status_of(outcome);
        if status != expected {
            return Err(format!("{operation:?} gave {status}, not {expected}"));
        }
        let Ok(outcome) = outcome else { return Ok(()) };
        if operation.is_write() {
            self.model.set_etag_and_lsn(&operation.key, outcome);
        }
        let document = self.model.documents.get(&operation.key).filter(|_| status == 200 || status == 201);
        match document {
            Some(document) if own_members(&outcome.body)? == document.body => Ok(()),
            None if outcome.body.is_empty() => Ok(()),
            _ => Err(format!("{operation:?} answered {:?}, not {document:?}", outcome.body)),
        }
    }

    /// Splits the same range of both engines.
    async fn split(&mut self) -> Result<(), String> {
        let ranges: Vec<RangeId> = container(&self.plain)?.ranges.iter().map(|range| range.id).collect();
        if ranges.len() >= RANGES_MAX {
            return Ok(());
        }
        let range = ranges[self.workload.random.below(ranges.len() as u64) as usize];
        let mut children = Vec::new();
        for engine in [&self.plain, &self.indexed] {
            let container = container(engine)?;
            children.push(engine.split(&container, range).await.map_err(|refusal| refusal.message)?);
        }
        if children[0] == children[1] { Ok(()) } else { Err(format!("the children differ: {children:?}")) }
    }

    async fn build_index(&mut self) -> Result<(), String> {
        const SHAPES: [&[&str]; 8] = [
            &["a"],
            &["b"],
            &["kind", "b"],
            &["-b", "a"],
            &["b", "-a"],
            &["kind"],
            // This index is scanned forwards for a descending order. The scan returns rows
            // with equal keys by ascending `_rid`, where the query wants descending `_rid`.
            &["-kind"],
            &["kind", "b", "a"],
        ];
        let names = SHAPES[self.workload.random.below(SHAPES.len() as u64) as usize];
        let scope = if self.workload.random.one_in(2) { IndexScope::Partition } else { IndexScope::Segment };
        let container = container(&self.indexed)?;
        let built = self.indexed.build_index(&container, shape(scope, names)).await;
        built.map_err(|refusal| refusal.message)
    }

    async fn query(&mut self) -> Result<(), String> {
        let used_index = ordering::check(&self.plain, &self.indexed, &self.model, &mut self.workload)?;
        self.queries += 1;
        self.queries_by_index += u64::from(used_index);
        Ok(())
    }

    async fn check(&mut self) -> Result<(), String> {
        let page_rows = 1 + self.workload.random.below(20) as usize;
        for engine in [&self.plain, &self.indexed] {
            agreement::check(engine, &self.model, page_rows)?;
            self.check_versions(engine, page_rows)?;
        }
        Ok(())
    }

    /// Checks that the full-fidelity feed of each range has the events of the range's
    /// partitions, in order.
    fn check_versions(&self, engine: &Engine, page_rows: usize) -> Result<(), String> {
        let container = container(engine)?;
        for range in &container.ranges {
            let pages = feed_pages(engine, &container, range, FeedMode::AllVersionsAndDeletes, page_rows)?;
            let found = pages.iter().flatten().map(|text| event_of(text)).collect::<Result<Vec<_>, _>>()?;
            let is_here = |event: &&Event| {
                target(&container, &event.key.0).is_ok_and(|target| target.range.id == range.id)
            };
            let expected: Vec<(String, Key)> = self
                .model
                .events
                .iter()
                .filter(is_here)
                .map(|event| (event.kind.to_owned(), event.key.clone()))
                .collect();
            if found != expected {
                return Err(format!("range {}: the versions are {found:?}, not {expected:?}", range.id));
            }
        }
        Ok(())
    }
}

async fn run_one(engine: &Engine, operation: &Operation) -> Result<ItemOutcome, Refusal> {
    let container = engine.catalog().container(DATABASE, CONTAINER).cloned().expect("the container");
    let key = model::partition_key(&operation.key.0);
    let precondition = operation.precondition.clone();
    engine.write_item(&container, key, operation.to_engine(&container)?, precondition).await
}

/// Checks that an operation left both engines at the same LSN and etag.
fn check_same_positions(
    one: &Result<ItemOutcome, Refusal>,
    other: &Result<ItemOutcome, Refusal>,
    operation: &Operation,
) -> Result<(), String> {
    let position = |outcome: &Result<ItemOutcome, Refusal>| match outcome {
        Ok(outcome) => (Some(outcome.position.clone()), outcome.etag.clone()),
        Err(refusal) => (refusal.position.clone(), None),
    };
    if position(one) == position(other) {
        Ok(())
    } else {
        Err(format!("{operation:?} gave {one:?} without indexes and {other:?} with indexes"))
    }
}

fn status_of(result: &Result<ItemOutcome, Refusal>) -> u16 {
    match result {
        Ok(outcome) => outcome.status,
        Err(refusal) => refusal.status,
    }
}

fn lsn_of(engine: &Engine, container: &Arc<Container>, partition: &str) -> Result<u64, String> {
    let range = target(container, partition)?.range.id;
    Ok(engine.state(container).map_err(|refusal| refusal.message)?.lsn(range))
}

/// The operation type and the key of the document, from an item of the full-fidelity feed.
fn event_of(text: &[u8]) -> Result<(String, Key), String> {
    let item = parse(text).map_err(|error| error.to_string())?;
    let kind = item.get("metadata").and_then(|metadata| metadata.get("operationType")?.as_str());
    let kind = kind.ok_or_else(|| format!("no kind: {item:?}"))?.to_owned();
    let image = if kind == "delete" { "previous" } else { "current" };
    let document = item.get(image).cloned().unwrap_or_else(|| object([]));
    Ok((kind, key_of(&document)))
}
