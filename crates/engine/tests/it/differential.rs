//! The differential test: random statements over random documents, each run by four engines
//! (with and without indexes, with one and with four partitions) in pages of 1, 7 or all rows.
//! Between two pages there may be writes and splits that change no expected row. The rows are
//! compared with those of a plain interpreter ([`naive`]).
//!
//! The rows of a statement without ORDER BY may come in any order, and so may rows with equal
//! keys; but an engine with indexes returns them in the same order as one without.
//!
//! `DIFFERENTIAL_QUERIES=1000000 cargo nextest run --release -p perihelion-engine differential`
//! runs more statements. A failure prints its seed and the smallest case that was found;
//! `DIFFERENTIAL_SEED=seed` begins with that seed.

mod engines;
mod generate;
mod naive;
mod statement;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use perihelion_model::json::{Style, Value, to_text};
use perihelion_testkit::random::Random;

use self::engines::{Engines, Reading, Write, member};
use self::statement::{Expr, Item, Projection, Statement};
use crate::support::setting;

/// How many statements run by default: as many as take less than half a minute.
const QUERIES: u64 = 100_000;

/// How many statements run over the same documents, before new engines are opened.
const QUERIES_PER_SEED: u64 = 60;

/// One statement and how it is read.
#[derive(Debug, Clone)]
struct Case {
    statement: Statement,
    rows_max: usize,
    /// The partition key to which the query is limited.
    partition: Option<String>,
    /// How many pages are read before the writes and the split.
    pages_before: usize,
    writes: Vec<Write>,
    has_split: bool,
    /// Whether some documents are deleted after their rows were returned.
    deletes_returned: bool,
}

#[tokio::test]
async fn engines_agree_with_a_plain_interpreter_whatever_the_indexes_partitions_and_pages() {
    let (queries, first) = (setting("DIFFERENTIAL_QUERIES", QUERIES), setting("DIFFERENTIAL_SEED", 1));
    for seed in first..first + queries.div_ceil(QUERIES_PER_SEED) {
        let mut random = Random::new(seed);
        let engines = Engines::open(seed).await;
        let mut documents: BTreeMap<u64, Value> = BTreeMap::new();
        for id in 0..3 + random.below(14) {
            documents.insert(id, generate::document(&mut random, id));
        }
        for document in documents.values() {
            engines.write(&Write::Put(document.clone())).await.expect("a document");
        }
        for _ in 0..QUERIES_PER_SEED {
            let before: Vec<Value> = documents.values().cloned().collect();
            let case = case(&mut random, &documents);
            if let Err(difference) = run(&engines, &mut documents, &case).await {
                let found = shrink(before, case, seed, difference).await;
                panic!("DIFFERENTIAL_SEED={seed}: {found}");
            }
        }
    }
}

/// A random case. Its writes do not change the rows of the statement.
fn case(random: &mut Random, documents: &BTreeMap<u64, Value>) -> Case {
    let statement = generate::statement(random);
    let partition = random.one_in(4).then(|| generate::partition_key(random));
    let rows_max = [1, 7, 7, usize::MAX, usize::MAX][random.index(5)];
    let pages_before = if random.one_in(3) { 1 + random.index(3) } else { 0 };
    let mut case = Case {
        statement,
        rows_max,
        partition,
        pages_before,
        writes: Vec::new(),
        has_split: pages_before > 0 && random.one_in(6),
        deletes_returned: pages_before > 0 && random.one_in(2),
    };
    if pages_before > 0 {
        add_writes(&mut case, random, documents.clone());
    }
    case
}

/// Makes some random writes, and adds those that do not change the rows of the statement.
fn add_writes(case: &mut Case, random: &mut Random, mut documents: BTreeMap<u64, Value>) {
    let expected = all_rows(case, &documents);
    let next_id = documents.keys().last().map_or(0, |last| last + 1);
    for id in next_id..next_id + 4 {
        let known: Vec<u64> = documents.keys().copied().collect();
        let mut changed = documents.clone();
        let write = match known.get(random.index(known.len().max(1))) {
            Some(known) if random.one_in(2) && documents.len() > 4 => {
                Write::Delete(changed.remove(known).expect("a known document"))
            }
            _ => {
                let document = generate::document(random, id);
                changed.insert(id, document.clone());
                Write::Put(document)
            }
        };
        if all_rows(case, &changed) == expected {
            documents = changed;
            case.writes.push(write);
        }
    }
}

/// The rows of the statement as sorted texts, without OFFSET, LIMIT and TOP.
fn all_rows(case: &Case, documents: &BTreeMap<u64, Value>) -> Vec<String> {
    let rows = expected_rows(case, documents);
    let mut texts: Vec<String> = rows.iter().map(|row| naive::canonical(Some(&row.value))).collect();
    texts.sort();
    texts
}

fn expected_rows(case: &Case, documents: &BTreeMap<u64, Value>) -> Vec<naive::ResultRow> {
    let is_wanted = |document: &&Value| {
        case.partition.as_ref().is_none_or(|partition| member(document, "pk") == partition)
    };
    let documents: Vec<Value> = documents.values().filter(is_wanted).cloned().collect();
    naive::run(&case.statement, &documents)
}

/// Runs a case on every engine, and compares the rows.
async fn run(engines: &Engines, documents: &mut BTreeMap<u64, Value>, case: &Case) -> Result<(), String> {
    let expected = expected_rows(case, documents);
    let mut readings = engines.begin(&case.statement.text(), case.rows_max, case.partition.as_deref())?;
    for (engine, reading) in engines.engines.iter().zip(&mut readings) {
        for _ in 0..case.pages_before {
            if !reading.is_done {
                reading.read(engine)?;
            }
        }
    }
    for write in &case.writes {
        perform(engines, documents, write).await?;
    }
    if case.deletes_returned {
        for document in returned_by_all(case, documents, &readings) {
            perform(engines, documents, &Write::Delete(document)).await?;
        }
    }
    if case.has_split {
        engines.split(documents.len()).await?;
    }
    for (engine, reading) in engines.engines.iter().zip(&mut readings) {
        let mut pages_left = PAGES_MAX;
        while !reading.is_done {
            reading.read(engine)?;
            pages_left -= 1;
            if pages_left == 0 {
                return Err("the pages do not end".into());
            }
        }
    }
    for (number, reading) in readings.iter().enumerate() {
        compare(&case.statement, &expected, &reading.rows)
            .map_err(|difference| format!("engine {number}: {difference}"))?;
    }
    for pair in readings.chunks(2) {
        if texts(&case.statement, &pair[0].rows) != texts(&case.statement, &pair[1].rows) {
            return Err(format!("without an index {:?}, with {:?}", pair[0].rows, pair[1].rows));
        }
    }
    Ok(())
}

/// More pages than any case has.
const PAGES_MAX: usize = 2000;

async fn perform(
    engines: &Engines,
    documents: &mut BTreeMap<u64, Value>,
    write: &Write,
) -> Result<(), String> {
    engines.write(write).await?;
    let id = |document: &Value| member(document, "id").parse().unwrap_or_default();
    match write {
        Write::Put(document) => documents.insert(id(document), document.clone()),
        Write::Delete(document) => documents.remove(&id(document)),
    };
    Ok(())
}

/// Up to three documents whose row was returned by every engine, if the row shows the `id` of its
/// document and no other row depends on the document.
fn returned_by_all(case: &Case, documents: &BTreeMap<u64, Value>, readings: &[Reading]) -> Vec<Value> {
    let statement = &case.statement;
    let id_member = match &statement.projection {
        Projection::Star => "id".to_owned(),
        Projection::Value(_) => return Vec::new(),
        Projection::List(items) => {
            let is_id = |item: &Item| matches!(item, Item::Expr(Expr::Path(["id"])));
            let Some(number) = items.iter().position(is_id) else { return Vec::new() };
            format!("n{number}")
        }
    };
    // The next statements read the documents that are left, so a small set is not made smaller.
    let is_small = documents.len() < 8;
    if statement.has_join || statement.is_grouped() || statement.stage.is_some() || is_small {
        return Vec::new();
    }
    let ids = |reading: &Reading| -> BTreeSet<u64> {
        reading.rows.iter().filter_map(|row| member(row, &id_member).parse().ok()).collect()
    };
    let all = readings.iter().map(ids).reduce(|one, other| &one & &other).unwrap_or_default();
    all.iter().take(3).filter_map(|id| documents.get(id).cloned()).collect()
}

/// The text of each row, without the members that the engine adds to a document.
fn texts(statement: &Statement, rows: &[Value]) -> Vec<String> {
    let text = |row: &Value| match row {
        Value::Object(object) if matches!(statement.projection, Projection::Star) => {
            let members = object.iter().filter(|(name, _)| !name.starts_with('_'));
            let members = members.map(|(name, value)| (name.to_owned(), value.clone())).collect();
            naive::canonical(Some(&Value::Object(perihelion_model::json::Object::from_members(members))))
        }
        row => naive::canonical(Some(row)),
    };
    rows.iter().map(text).collect()
}

fn compare(statement: &Statement, expected: &[naive::ResultRow], rows: &[Value]) -> Result<(), String> {
    let (skip, take) = statement.skip_and_take();
    let count = expected.len().saturating_sub(skip).min(take);
    let describe = || {
        let expected: Vec<String> = expected.iter().map(|row| to_text(&row.value, Style::Query)).collect();
        format!("{} rows {rows:?}, not {count} of {expected:?}", rows.len())
    };
    if rows.len() != count {
        return Err(describe());
    }
    // For each expected row, the number of copies that were not returned yet, and its sort keys.
    // Rows with the same text have the same keys, because the keys are selected.
    let mut left: HashMap<String, (usize, &[Option<Value>])> = HashMap::new();
    for row in expected {
        left.entry(naive::canonical(Some(&row.value))).or_insert((0, &row.keys)).0 += 1;
    }
    let directions: Vec<bool> = statement.order.iter().map(|(_, is_descending)| *is_descending).collect();
    let expected_after_skip = &expected[skip.min(expected.len())..];
    for (text, expected_row) in texts(statement, rows).into_iter().zip(expected_after_skip) {
        match left.get_mut(&text) {
            Some((copies, keys)) if *copies > 0 => {
                *copies -= 1;
                if naive::compare_keys(keys, &expected_row.keys, &directions).is_ne() {
                    return Err(format!("{text} is out of order: {}", describe()));
                }
            }
            _ => return Err(format!("{text} was returned too often: {}", describe())),
        }
    }
    Ok(())
}

/// Looks for a smaller case with a difference, on new engines. Returns a description of the
/// smallest case.
async fn shrink(documents: Vec<Value>, case: Case, seed: u64, difference: String) -> String {
    let (mut documents, mut case, mut difference) = (documents, case, difference);
    let mut fails_on_new_engines = false;
    loop {
        let mut smaller: Vec<(Vec<Value>, Case)> = vec![(documents.clone(), case.clone())];
        if fails_on_new_engines {
            smaller = simpler(&documents, &case);
        }
        let mut found = None;
        for (documents, case) in smaller {
            if let Err(difference) = run_on_new_engines(&documents, &case, seed).await {
                found = Some((documents, case, difference));
                break;
            }
        }
        match found {
            Some(found) => (documents, case, difference) = found,
            None => break,
        }
        fails_on_new_engines = true;
    }
    let lines: Vec<String> = documents.iter().map(|document| to_text(document, Style::Query)).collect();
    let how = if fails_on_new_engines { "on new engines" } else { "only after the statements before it" };
    format!(
        "{}\n{difference}\n{case:?}\n(found {how}) documents:\n{}",
        case.statement.text(),
        lines.join("\n")
    )
}

/// Variants of a case that lack one write, the split, the deletes, one document or one part of the
/// statement.
fn simpler(documents: &[Value], case: &Case) -> Vec<(Vec<Value>, Case)> {
    let mut found = Vec::new();
    let with = |change: &dyn Fn(&mut Case)| {
        let mut case = case.clone();
        change(&mut case);
        (documents.to_vec(), case)
    };
    for index in 0..case.writes.len() {
        found.push(with(&|case| drop(case.writes.remove(index))));
    }
    if case.has_split {
        found.push(with(&|case| case.has_split = false));
    }
    if case.deletes_returned {
        found.push(with(&|case| case.deletes_returned = false));
    }
    for index in 0..documents.len() {
        let mut fewer = documents.to_vec();
        fewer.remove(index);
        found.push((fewer, case.clone()));
    }
    found.extend(case.statement.simpler().into_iter().map(|statement| {
        let case = Case { statement, ..case.clone() };
        (documents.to_vec(), case)
    }));
    found
}

async fn run_on_new_engines(documents: &[Value], case: &Case, seed: u64) -> Result<(), String> {
    let engines = Engines::open(seed).await;
    let mut known = BTreeMap::new();
    for document in documents {
        perform(&engines, &mut known, &Write::Put(document.clone())).await?;
    }
    // With fewer documents, a write may change the expected rows, or delete a document that does not
    // exist. A difference then proves nothing, so the case counts as passed.
    let expected = all_rows(case, &known);
    let mut changed = known.clone();
    for write in &case.writes {
        let id: u64 = match write {
            Write::Put(document) | Write::Delete(document) => {
                member(document, "id").parse().unwrap_or_default()
            }
        };
        match write {
            Write::Put(document) => drop(changed.insert(id, document.clone())),
            Write::Delete(_) if !changed.contains_key(&id) => return Ok(()),
            Write::Delete(_) => drop(changed.remove(&id)),
        }
    }
    if all_rows(case, &changed) != expected {
        return Ok(());
    }
    run(&engines, &mut known, case).await
}
