//! Compares the content of an engine with the model: by id, by `_rid`, by
//! partition, by range, by index, by count, and by change feed.
//!
//! A difference is returned as an error, never as a panic, because a test with a
//! faulty disk expects differences.

use std::collections::BTreeSet;
use std::sync::Arc;

use perihelion_engine::{
    Container, Engine, FeedMode, FeedRequest, FeedStart, Paging, PartitionRange, Precondition, QueryRequest,
    QueryScope, Target,
};
use perihelion_model::json::{Value, parse, parse_str};
use perihelion_query::{Now, Parameters};

use super::model::{Document, Key, Model, own_members, partition_key};
use super::workload::{IDS, PARTITION_KEYS};

pub(crate) const DATABASE: &str = "d";
pub(crate) const CONTAINER: &str = "c";

pub(crate) fn container(engine: &Engine) -> Result<Arc<Container>, String> {
    engine
        .catalog()
        .container(DATABASE, CONTAINER)
        .cloned()
        .ok_or_else(|| "the container does not exist".to_owned())
}

pub(crate) fn target(container: &Arc<Container>, partition: &str) -> Result<Target, String> {
    Target::resolve(container, partition_key(partition)).map_err(|refusal| refusal.message)
}

/// Compares everything with the model.
pub(crate) fn check(engine: &Engine, model: &Model, page_rows: usize) -> Result<(), String> {
    let container = container(engine)?;
    check_point_reads(engine, &container, model)?;
    check_feeds(engine, &container, model, page_rows)?;
    check_counters(engine, &container, model)?;
    check_queries(engine, &container, model, page_rows)
}

/// A document by its id; `None` when it does not exist. Also checks that its `_rid` leads
/// to its id.
pub(crate) fn find(
    engine: &Engine,
    container: &Arc<Container>,
    key: &Key,
) -> Result<Option<Document>, String> {
    let target = target(container, &key.0)?;
    match engine.read_item(&target, &key.1, &Precondition::default(), &[]) {
        Ok(outcome) => {
            let lsn = outcome.item_lsn.unwrap_or_default();
            let whole = parse(&outcome.body).map_err(|error| format!("{key:?}: {error}"))?;
            let rid = whole.get("_rid").and_then(Value::as_str).unwrap_or_default();
            let counter =
                container.parse_document_rid(rid).ok_or_else(|| format!("{key:?} has _rid {rid}"))?;
            let id = engine.id_of(&target, counter).map_err(|refusal| refusal.message)?;
            if id.as_deref() != Some(key.1.as_str()) {
                return Err(format!("{key:?} has _rid {rid}, which leads to {id:?}"));
            }
            Ok(Some(Document { body: own_members(&outcome.body)?, etag: outcome.etag, lsn }))
        }
        Err(refusal) if refusal.status == 404 => Ok(None),
        Err(refusal) => Err(format!("reading {key:?}: {} {}", refusal.status, refusal.message)),
    }
}

/// Checks every possible document, by partition and id.
fn check_point_reads(engine: &Engine, container: &Arc<Container>, model: &Model) -> Result<(), String> {
    for partition in 0..PARTITION_KEYS {
        for id in 0..IDS {
            let key = (format!("p{partition}"), format!("id {id}"));
            let found = find(engine, container, &key)?;
            let expected = model.documents.get(&key);
            if found.as_ref() != expected {
                return Err(format!("{key:?} is {found:?}, not {expected:?}"));
            }
        }
    }
    Ok(())
}

/// Checks that the feed of each range has each document of the range once, in the order of
/// the LSNs, and that all documents with the same LSN are on one page.
fn check_feeds(
    engine: &Engine,
    container: &Arc<Container>,
    model: &Model,
    page_rows: usize,
) -> Result<(), String> {
    let mut found = BTreeSet::new();
    for range in &container.ranges {
        let newest_lsn = engine.state(container).map_err(|refusal| refusal.message)?.lsn(range.id);
        let mut last_lsn = 0;
        for page in feed_pages(engine, container, range, FeedMode::LatestVersion, page_rows)? {
            for (row, text) in page.iter().enumerate() {
                let document = parse(text).map_err(|error| error.to_string())?;
                let lsn = document.get("_lsn").and_then(Value::as_i64).unwrap_or_default() as u64;
                let is_in_order = if row == 0 { lsn > last_lsn } else { lsn >= last_lsn };
                if !is_in_order || lsn > newest_lsn {
                    return Err(format!("range {} at {newest_lsn}: LSN {lsn} after {last_lsn}", range.id));
                }
                last_lsn = lsn;
                let key = key_of(&document);
                let expected = model.documents.get(&key).map(|document| (&document.body, document.lsn));
                let body = own_members(text)?;
                if Some((&body, lsn)) != expected {
                    return Err(format!("the feed has {key:?} as {body:?} at {lsn}, not {expected:?}"));
                }
                if !found.insert(key.clone()) {
                    return Err(format!("the feed has {key:?} twice"));
                }
            }
        }
    }
    if found.len() == model.documents.len() {
        return Ok(());
    }
    let lost: Vec<&Key> = model.documents.keys().filter(|key| !found.contains(*key)).collect();
    Err(format!("the feed has lost {lost:?}"))
}

/// The pages of a range's feed, from its beginning.
pub(crate) fn feed_pages(
    engine: &Engine,
    container: &Container,
    range: &PartitionRange,
    mode: FeedMode,
    page_rows: usize,
) -> Result<Vec<Vec<bytes::Bytes>>, String> {
    let mut pages = Vec::new();
    let mut start = FeedStart::Beginning;
    loop {
        let keys = range.keys.clone();
        let request =
            FeedRequest { range: range.id, keys, partition_key: None, start, mode, items_max: page_rows };
        let page = engine.change_feed(container, &request, &[]).map_err(|refusal| refusal.message)?;
        if page.items.is_empty() {
            return Ok(pages);
        }
        pages.push(page.items);
        start = FeedStart::After(page.continuation);
    }
}

/// Checks the number of documents and bytes of all ranges together. A split halves the
/// counters of the parent without counting, so the counters of one range are not exact.
fn check_counters(engine: &Engine, container: &Arc<Container>, model: &Model) -> Result<(), String> {
    let state = engine.state(container).map_err(|refusal| refusal.message)?;
    let mut counted = (0, 0);
    for key in model.documents.keys() {
        let target = target(container, &key.0)?;
        let outcome = engine.read_item(&target, &key.1, &Precondition::default(), &[]);
        let bytes = outcome.map_err(|refusal| refusal.message)?.body.len() as u64;
        counted = (counted.0 + 1, counted.1 + bytes);
    }
    let claimed = (state.documents(), state.bytes());
    if counted == claimed {
        Ok(())
    } else {
        Err(format!("documents and bytes: {counted:?} were read, the counters say {claimed:?}"))
    }
}

/// Checks that queries return the documents of their scope: of all ranges, of each
/// partition, and none for a scope without ranges.
fn check_queries(
    engine: &Engine,
    container: &Arc<Container>,
    model: &Model,
    page_rows: usize,
) -> Result<(), String> {
    let everything = QueryScope::All;
    let count = query(engine, container, "SELECT VALUE COUNT(1) FROM c", &everything, page_rows)?;
    if count.rows != [Value::from(model.documents.len() as u64)] {
        return Err(format!("COUNT returned {:?}, the model has {}", count.rows, model.documents.len()));
    }
    for text in ["SELECT c.pk, c.id FROM c", "SELECT c.pk, c.id, c.b FROM c ORDER BY c.b"] {
        let without_ranges = query(engine, container, text, &QueryScope::Ranges(Vec::new()), page_rows)?;
        if !without_ranges.rows.is_empty() {
            return Err(format!("{text} without ranges gives {:?}", without_ranges.rows));
        }
        let mut scopes = vec![(None, everything.clone())];
        for partition in (0..PARTITION_KEYS).map(|partition| format!("p{partition}")) {
            let scope = QueryScope::Partition(target(container, &partition)?);
            scopes.push((Some(partition), scope));
        }
        for (partition, scope) in scopes {
            let found = query(engine, container, text, &scope, page_rows)?.rows;
            let mut keys: Vec<Key> = found.iter().map(key_of).collect();
            keys.sort();
            let is_in =
                |(key, _): &(&Key, &Document)| partition.as_ref().is_none_or(|partition| key.0 == *partition);
            let expected: Vec<Key> =
                model.documents.iter().filter(is_in).map(|(key, _)| key.clone()).collect();
            if keys != expected {
                return Err(format!("{text} in {partition:?} gives {keys:?}, not {expected:?}"));
            }
            // Rows without the order key come first.
            let order: Vec<Option<f64>> = found.iter().map(|row| row.get("b")?.as_f64()).collect();
            if text.contains("ORDER") && !order.is_sorted() {
                return Err(format!("{text} in {partition:?} gives {order:?}"));
            }
        }
    }
    Ok(())
}

/// The rows of all pages of a query, and whether any page used an index.
pub(crate) struct QueryResult {
    pub(crate) rows: Vec<Value>,
    pub(crate) used_index: bool,
}

/// Reads all pages of a query.
pub(crate) fn query(
    engine: &Engine,
    container: &Arc<Container>,
    text: &str,
    scope: &QueryScope,
    page_rows: usize,
) -> Result<QueryResult, String> {
    let mut result = QueryResult { rows: Vec::new(), used_index: false };
    let mut continuation = None;
    loop {
        let page = query_page(engine, container, text, scope, page_rows, continuation)?;
        let rows = parse_str(&format!("[{}]", page.rows_text)).map_err(|error| error.to_string())?;
        result.rows.extend(rows.as_array().unwrap_or_default().iter().cloned());
        result.used_index |= page.used_index;
        continuation = page.continuation;
        if continuation.is_none() {
            return Ok(result);
        }
    }
}

/// Reads one page of a query.
pub(crate) fn query_page(
    engine: &Engine,
    container: &Arc<Container>,
    text: &str,
    scope: &QueryScope,
    rows_max: usize,
    continuation: Option<String>,
) -> Result<perihelion_engine::QueryPage, String> {
    let statement = perihelion_query::parse(text).map_err(|errors| format!("{text}: {errors:?}"))?;
    let now = Now::from_unix_milliseconds(0);
    let program = perihelion_query::compile(&statement, &Parameters::none(), now)
        .map_err(|errors| format!("{text}: {errors:?}"))?;
    let request = QueryRequest {
        program,
        scope: scope.clone(),
        rows_max,
        continuation,
        resume: None,
        paging: Paging::Whole,
    };
    let page = engine.query(container, &request, &[]);
    page.map_err(|refusal| format!("{text}: {} {}", refusal.status, refusal.message))
}

pub(crate) fn key_of(document: &Value) -> Key {
    let text = |name: &str| document.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("pk"), text("id"))
}
