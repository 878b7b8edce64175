//! `Backend`: a container in memory whose ranges return pages and can be split and
//! merged. Statements are evaluated by the crate itself; pages have random sizes.
//!
//! A continuation of rows and sorted rows names a document and a row, and is valid for
//! every range. A continuation of distinct values is a number of rows of the range. A
//! continuation of groups is, at random, either a number of groups of the range (as in
//! our engine), or the document after which the partial groups continue (as in the
//! service). Continuations of distinct values and groups are valid only for their range.

use std::cmp::Ordering;

use perihelion_model::json::{Style, Value, parse_str, to_text};
use perihelion_query::merge::{Fetch, KeyRange};
use perihelion_query::{Parameters, Program, Row, compare_order, compile, parse};

use super::random::RandomDocuments;
use crate::support::now;

pub(super) struct Document {
    pub(super) effective_key: String,
    pub(super) rid: u64,
    pub(super) value: Value,
}

pub(super) struct Backend {
    pub(super) documents: Vec<Document>,
    pub(super) ranges: Vec<KeyRange>,
    pub(super) parameters: Parameters,
    /// Whether rows with equal keys come in descending `_rid` order.
    pub(super) has_reversed_ties: bool,
    /// Whether a page has the groups of its own documents only, as in the service.
    pub(super) has_partial_groups: bool,
    ranges_created: u32,
}

/// The range of a fetch does not exist any more.
pub(super) struct Gone;

type Page = (Vec<Value>, Option<String>);

/// The `_rid` of a document, the index of one of its rows, and the row.
type IndexedRow = (u64, usize, Row);

impl Backend {
    pub(super) fn new(
        documents: Vec<Document>,
        parameters: Parameters,
        ranges: u32,
        random: &mut RandomDocuments,
    ) -> Self {
        let whole = vec![KeyRange::new("0", "", "FF")];
        let mut backend = Backend {
            documents,
            ranges: whole,
            parameters,
            has_reversed_ties: false,
            has_partial_groups: random.one_in(2),
            ranges_created: 1,
        };
        while backend.ranges.len() < ranges as usize {
            backend.split(random);
        }
        backend
    }

    /// Splits a range at a random key, or does nothing when that key is already the end
    /// of a range.
    pub(super) fn split(&mut self, random: &mut RandomDocuments) {
        let cut = format!("{:02X}", 1 + random.below(0xFD));
        let index = self.ranges.iter().position(|range| range.min < cut && cut < range.max);
        let Some(index) = index else { return };
        let parent = self.ranges.remove(index);
        let right = self.range(cut.clone(), parent.max);
        let left = self.range(parent.min, cut);
        self.ranges.splice(index..index, [left, right]);
    }

    /// Merges two neighbouring ranges, if there are two.
    pub(super) fn join(&mut self, random: &mut RandomDocuments) {
        if self.ranges.len() < 2 {
            return;
        }
        let index = random.below(self.ranges.len() as u64 - 1) as usize;
        let right = self.ranges.remove(index + 1);
        let left = self.ranges.remove(index);
        let joined = self.range(left.min, right.max);
        self.ranges.insert(index, joined);
    }

    fn range(&mut self, min: String, max: String) -> KeyRange {
        self.ranges_created += 1;
        KeyRange::new(self.ranges_created.to_string(), min, max)
    }

    pub(super) fn page(&self, fetch: &Fetch, random: &mut RandomDocuments) -> Result<Page, Gone> {
        let range = self.ranges.iter().find(|range| range.id == fetch.range_id).ok_or(Gone)?;
        let (min, max) = fetch.keys.clone().unwrap_or((range.min.clone(), range.max.clone()));
        assert!(range.min <= min && max <= range.max && min < max, "{fetch:?} of {range:?}");
        let query = parse(&fetch.query).unwrap_or_else(|errors| panic!("{}: {errors:?}", fetch.query));
        let program = compile(&query, &self.parameters, now()).expect("it compiles");
        let is_held = |document: &&Document| min <= document.effective_key && document.effective_key < max;
        let mut documents: Vec<&Document> = self.documents.iter().filter(is_held).collect();
        documents.sort_by_key(|document| document.rid);
        let rows_max = 1 + random.below(fetch.page_rows as u64) as usize;
        // The service sometimes returns an empty page with a continuation.
        if random.one_in(8) {
            return Ok((Vec::new(), Some(fetch.continuation.clone().unwrap_or_else(|| "start".to_owned()))));
        }
        let after = fetch.continuation.as_deref().filter(|text| *text != "start");
        let (rows, next) = if program.is_grouped() && self.has_partial_groups {
            partial_groups(&program, &documents, after, rows_max)
        } else if program.is_grouped() || program.is_distinct() || program.reads_no_document() {
            by_count(&program, &documents, after, rows_max)
        } else {
            self.by_document(&program, &documents, after, rows_max)
        };
        // Print and parse the rows, as the network does.
        let rows = rows.iter().map(|row| parse_str(&to_text(row, Style::Query)).expect("it is JSON"));
        Ok((rows.collect(), next))
    }

    /// A page of rows. Its continuation is `rid/row/count`: the document of the last row,
    /// the index of this row among the rows of the document, and how many rows all pages
    /// so far had.
    fn by_document(
        &self,
        program: &Program,
        documents: &[&Document],
        after: Option<&str>,
        rows_max: usize,
    ) -> Page {
        let mut rows = indexed_rows(program, documents);
        rows.sort_by(|a, b| self.compare(program, a, b));
        let mut taken = 0;
        if let Some(after) = after {
            let after: Vec<u64> =
                after.split('/').map(|part| part.parse().expect("the backend wrote it")).collect();
            taken = after[2] as usize;
            // The range may have been split since the page before. So the last row of that
            // page is looked up among all documents.
            let last = self.documents.iter().filter(|document| document.rid == after[0]).collect::<Vec<_>>();
            let last = indexed_rows(program, &last).into_iter().find(|row| row.1 == after[1] as usize);
            let last = last.expect("documents do not change");
            rows.retain(|row| self.compare(program, row, &last).is_gt());
        }
        let window = program.top().into_iter().chain(program.limit()).min().unwrap_or(u64::MAX) as usize;
        let rows_left = rows.len().min(window.saturating_sub(taken));
        rows.truncate(rows_left.min(rows_max));
        let next = (rows.len() < rows_left).then(|| {
            let last = rows.last().expect("rows_max is not 0");
            format!("{}/{}/{}", last.0, last.1, taken + rows.len())
        });
        (rows.into_iter().filter_map(|(_, _, row)| row.output).collect(), next)
    }

    fn compare(&self, program: &Program, a: &IndexedRow, b: &IndexedRow) -> Ordering {
        let keys = compare_order(&a.2.order_keys, &b.2.order_keys, program.directions());
        let rids = match self.has_reversed_ties {
            true => b.0.cmp(&a.0),
            false => a.0.cmp(&b.0),
        };
        keys.then(rids).then(a.1.cmp(&b.1))
    }
}

fn indexed_rows(program: &Program, documents: &[&Document]) -> Vec<IndexedRow> {
    let mut all = Vec::new();
    for document in documents {
        let mut rows = Vec::new();
        program.rows(&document.value, &mut rows).expect("it runs");
        all.extend(rows.into_iter().enumerate().map(|(index, row)| (document.rid, index, row)));
    }
    all
}

/// A page of groups or distinct values. Its continuation is the number of groups or
/// values in all pages so far.
fn by_count(program: &Program, documents: &[&Document], after: Option<&str>, rows_max: usize) -> Page {
    let values: Vec<Value> = documents.iter().map(|document| document.value.clone()).collect();
    let all = program.run(&values).expect("it runs");
    let taken: usize = after.map_or(0, |after| after.parse().expect("the backend wrote it"));
    let rows: Vec<Value> = all.iter().skip(taken).take(rows_max).cloned().collect();
    let next = taken + rows.len();
    (rows, (next < all.len()).then(|| next.to_string()))
}

/// The groups of the next documents. The continuation is the last of these documents.
fn partial_groups(
    program: &Program,
    documents: &[&Document],
    after: Option<&str>,
    documents_max: usize,
) -> Page {
    let after: u64 = after.map_or(0, |after| after.parse().expect("the backend wrote it"));
    let rest: Vec<&&Document> = documents.iter().filter(|document| document.rid > after).collect();
    let chunk: Vec<Value> = rest.iter().take(documents_max).map(|document| document.value.clone()).collect();
    let next = (rest.len() > chunk.len()).then(|| rest[chunk.len() - 1].rid.to_string());
    (program.run(&chunk).expect("it runs"), next)
}
