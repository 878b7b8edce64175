//! The engines of the differential test: with and without indexes, with one and with four
//! partitions. All of them hold the same documents.

use std::sync::Arc;

use perihelion_engine::{
    Container, Engine, EngineOptions, IndexScope, ItemOperation, NewBody, Paging, Precondition, QueryPage,
    QueryRequest, QueryScope, Target,
};
use perihelion_model::json::{Value, parse_str};
use perihelion_model::partition_key::PartitionKey;
use perihelion_query::{Now, Parameters};
use perihelion_testkit::random::Random;

use crate::engine_model::shape;
use crate::support;

/// A write of one document.
#[derive(Debug, Clone)]
pub(super) enum Write {
    /// Creates or replaces a document.
    Put(Value),
    Delete(Value),
}

pub(super) struct Engines {
    pub(super) engines: Vec<Arc<Engine>>,
}

/// A query that is read page by page.
pub(super) struct Reading {
    request: QueryRequest,
    partition: Option<PartitionKey>,
    pub(super) rows: Vec<Value>,
    pub(super) is_done: bool,
}

/// The most partitions of one container, so that splits do not slow the test down.
const RANGES_MAX: usize = 7;

impl Engines {
    /// Four engines that hold no documents. `seed` chooses the indexes.
    pub(super) async fn open(seed: u64) -> Engines {
        let mut engines = Vec::new();
        for partitions in [1, 4] {
            for is_indexed in [false, true] {
                let engine = support::engine(EngineOptions::default().with_partitions(partitions)).await;
                let container = support::container(&engine, "c").await;
                if is_indexed {
                    build_indexes(&engine, &container, seed).await;
                }
                engines.push(engine);
            }
        }
        Engines { engines }
    }

    pub(super) async fn write(&self, write: &Write) -> Result<(), String> {
        for engine in &self.engines {
            let container = container(engine);
            let (document, operation) = match write {
                Write::Put(document) => {
                    let Value::Object(body) = document.clone() else { return Err("not an object".into()) };
                    let body = NewBody::new(body, &container).map_err(|refusal| refusal.message)?;
                    (document, ItemOperation::Upsert { body })
                }
                Write::Delete(document) => {
                    (document, ItemOperation::Delete { id: member(document, "id").to_owned() })
                }
            };
            let key = key_of(member(document, "pk"));
            let written = engine.write_item(&container, key, operation, Precondition::default()).await;
            written.map_err(|refusal| format!("{write:?}: {}", refusal.message))?;
        }
        Ok(())
    }

    /// Splits one range of every engine that has fewer than [`RANGES_MAX`] ranges. `number` chooses
    /// the range. An engine with indexes splits the same range as the engine without indexes.
    pub(super) async fn split(&self, number: usize) -> Result<(), String> {
        for engine in &self.engines {
            let container = container(engine);
            if container.ranges.len() < RANGES_MAX {
                let range = container.ranges[number % container.ranges.len()].id;
                engine.split(&container, range).await.map_err(|refusal| refusal.message)?;
            }
        }
        Ok(())
    }

    /// Begins to read a query on each engine.
    pub(super) fn begin(
        &self,
        text: &str,
        rows_max: usize,
        partition: Option<&str>,
    ) -> Result<Vec<Reading>, String> {
        let statement = perihelion_query::parse(text).map_err(|errors| format!("{errors:?}"))?;
        let begin = |_: &Arc<Engine>| {
            let now = Now::from_unix_milliseconds(0);
            let program = perihelion_query::compile(&statement, &Parameters::none(), now)
                .map_err(|errors| format!("{errors:?}"))?;
            let request = QueryRequest {
                program,
                scope: QueryScope::All,
                rows_max,
                continuation: None,
                resume: None,
                paging: Paging::Whole,
            };
            let partition = partition.map(key_of);
            Ok(Reading { request, partition, rows: Vec::new(), is_done: false })
        };
        self.engines.iter().map(begin).collect()
    }
}

impl Reading {
    /// Reads the next page.
    pub(super) fn read(&mut self, engine: &Engine) -> Result<(), String> {
        let container = container(engine);
        self.request.scope = match &self.partition {
            Some(key) => {
                let target = Target::resolve(&container, key.clone()).map_err(|refusal| refusal.message)?;
                QueryScope::Partition(target)
            }
            None => QueryScope::All,
        };
        let page: QueryPage = engine
            .query(&container, &self.request, &[])
            .map_err(|refusal| format!("{} {}", refusal.status, refusal.message))?;
        if page.rows > self.request.rows_max {
            return Err(format!("a page of {} rows", page.rows));
        }
        match parse_str(&format!("[{}]", page.rows_text)).map_err(|error| error.to_string())? {
            Value::Array(rows) => self.rows.extend(rows),
            _ => return Err("rows are not a list".into()),
        }
        if page.continuation.as_ref().is_some_and(|token| token.len() > TOKEN_BYTES_MAX) {
            return Err(format!("a long token: {:?}", page.continuation));
        }
        self.is_done = page.continuation.is_none();
        self.request.continuation = page.continuation;
        Ok(())
    }
}

/// The longest token that clients accept, if they set the lowest limit.
const TOKEN_BYTES_MAX: usize = 1024;

async fn build_indexes(engine: &Engine, container: &Arc<Container>, seed: u64) {
    /// The columns of each index. A minus means descending.
    const SHAPES: [&[&str]; 10] = [
        &["a"],
        &["b"],
        &["s"],
        &["-a"],
        &["a", "b"],
        &["-b", "a"],
        &["b", "-s"],
        &["s", "a"],
        &["id"],
        &["pk", "a"],
    ];
    let mut random = Random::new(seed);
    for names in SHAPES {
        if random.one_in(2) {
            let scope = if random.one_in(3) { IndexScope::Partition } else { IndexScope::Segment };
            engine.build_index(container, shape(scope, names)).await.expect("an index");
        }
    }
    engine.maintain().await.expect("indexes are filled");
}

fn container(engine: &Engine) -> Arc<Container> {
    engine.catalog().container("d", "c").expect("the container").clone()
}

pub(super) fn member<'v>(document: &'v Value, name: &str) -> &'v str {
    document.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn key_of(partition: &str) -> PartitionKey {
    PartitionKey::from_header(&format!("[\"{partition}\"]")).expect("a key")
}
