//! Turning documents into the rows of a page.
//!
//! Three ways, by what the query needs: *stream* (no order: documents in
//! `_rid` order, range after range), *merge* (ORDER BY: each range gives its
//! first rows after the last page's place, from an index or by keeping the
//! smallest, and the ranges are merged), and [*gather*](super::gather), which
//! computes everything and cuts the page out by count.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use perihelion_model::json::{self, Style, Value};
use perihelion_query::{Program, Row};

use super::access::Plan;
use super::continuation::{Continuation, Floor, Place};
use super::output::Output;
use super::sources::{self, Unit, Walk};
use super::{PAGE_BYTES_MAX, QueryRequest, gather};
use crate::catalog::Container;
use crate::documents::StoredDocument;
use crate::index;
use crate::keys::RangeId;
use crate::refusal::{Layer, Refusal};
use crate::storage::View;

pub(super) struct Context<'a> {
    pub(super) view: &'a dyn View,
    pub(super) container: &'a Container,
    pub(super) request: &'a QueryRequest,
    pub(super) plan: &'a Plan,
    pub(super) now: u64,
}

/// The rows of a page and what making them took.
pub(super) struct Produced {
    /// The rows as JSON text, commas between them.
    pub(super) text: String,
    pub(super) rows: usize,
    pub(super) members: u64,
    pub(super) documents: u64,
    pub(super) continuation: Option<Continuation>,
}

/// Rows that an aggregate, DISTINCT or an unindexed sort may hold, so that
/// one query cannot take all memory.
pub(super) const ROWS_HELD_MAX: usize = 1_000_000;

pub(super) fn produce(context: &Context<'_>, continuation: Continuation) -> Result<Produced, Refusal> {
    let program = &context.request.program;
    if gather::is_needed(program) {
        return gather::gather(context, continuation);
    }
    if context.plan.is_ordered { merge(context, continuation) } else { stream(context, continuation) }
}

/// Collects the rows of one page, minding OFFSET, TOP and the page's size.
pub(super) struct Page {
    text: String,
    rows: usize,
    members: u64,
    rows_max: usize,
    state: Continuation,
    pub(super) documents: u64,
}

impl Page {
    pub(super) fn new(context: &Context<'_>, state: Continuation) -> Self {
        let rows_max = context.request.rows_max;
        Page { text: String::new(), rows: 0, members: 0, rows_max, state, documents: 0 }
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.state.take == Some(0)
    }

    /// Adds the next row, unless the page has all it can or may have.
    pub(super) fn offer(&mut self, row: &Output, place: Place) -> bool {
        if self.is_exhausted() || self.rows >= self.rows_max {
            return false;
        }
        if self.state.skip > 0 {
            self.state.skip -= 1;
        } else if self.print(row) {
            self.rows += 1;
            self.members += row.members();
            if let Some(take) = &mut self.state.take {
                *take -= 1;
            }
        } else {
            return false;
        }
        self.state.after = Some(place);
        true
    }

    /// Appends a row's text if it fits; the first one always does.
    fn print(&mut self, row: &Output) -> bool {
        let end = self.text.len();
        if self.rows > 0 {
            self.text.push(',');
        }
        row.print_into(&mut self.text);
        let fits = self.rows == 0 || self.text.len() <= PAGE_BYTES_MAX;
        if !fits {
            self.text.truncate(end);
        }
        fits
    }

    pub(super) fn finish(mut self, has_more: bool) -> Produced {
        self.state.pages += 1;
        self.state.rows += self.rows as u64;
        let goes_on = has_more && !self.is_exhausted();
        Produced {
            text: self.text,
            rows: self.rows,
            members: self.members,
            documents: self.documents,
            continuation: goes_on.then_some(self.state),
        }
    }
}

fn stream(context: &Context<'_>, continuation: Continuation) -> Result<Produced, Refusal> {
    let units = sources::units(context.container, &context.request.scope);
    let floors = floors(&continuation);
    let mut at = first_unit(context.container, &units, continuation.after.as_ref())?;
    let mut page = Page::new(context, continuation);
    let mut has_more = false;
    while let Some(unit) = units.get(at) {
        let floor = floor_of(context.container, unit.range, &floors);
        let first = floor.map_or(0, |(rid, _)| rid);
        context.walk(unit).by_rid(context.plan.index.as_ref(), first, &mut |rid, document| {
            page.documents += 1;
            for (row, place) in context.rows_of(unit.range, rid, &document)? {
                if floor.is_some_and(|floor| (rid, place.row) <= floor) {
                    continue;
                }
                if !page.offer(&row.output, place) {
                    has_more = true;
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if has_more || page.is_exhausted() {
            break;
        }
        at += 1;
    }
    let ahead = units.get(at..).unwrap_or_default();
    page.state.floors = floors;
    page.state.floors.retain(|floor| {
        let is_split = context.container.range(floor.range).is_none();
        is_split && ahead.iter().any(|unit| descends(context.container, unit.range, floor.range))
    });
    Ok(page.finish(has_more))
}

/// How far each range was read, the one that the last page ended in included.
fn floors(continuation: &Continuation) -> Vec<Floor> {
    let last = continuation.after.as_ref();
    let last = last.map(|place| Floor { range: place.range, rid: place.rid, row: place.row });
    continuation.floors.iter().copied().chain(last).collect()
}

/// The last row of this range that was read, be it under a parent's name.
fn floor_of(container: &Container, range: RangeId, floors: &[Floor]) -> Option<(u64, u64)> {
    let own = floors.iter().filter(|floor| descends(container, range, floor.range));
    own.map(|floor| (floor.rid, floor.row)).max()
}

/// The unit a page goes on in. The children of a range that was split meanwhile
/// stand where it stood.
fn first_unit(container: &Container, units: &[Unit<'_>], resume: Option<&Place>) -> Result<usize, Refusal> {
    let Some(place) = resume else { return Ok(0) };
    let goes_on = |unit: &Unit<'_>| descends(container, unit.range, place.range);
    units.iter().position(goes_on).ok_or_else(Refusal::range_gone)
}

/// Whether a range is another one, or came out of it by splits.
fn descends(container: &Container, range: RangeId, from: RangeId) -> bool {
    container.range(range).map_or(range == from, |range| range.descends_from(from))
}

/// Where a row stands among all rows of an ordered query. Its range has no say:
/// a split changes that, and a page after the split goes on where one before it
/// ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SortKey {
    order: Vec<u8>,
    /// Turned round when the first key is descending, as an index walked
    /// backwards gives it.
    rid: u64,
    row: u64,
}

/// One row of a document.
struct DocumentRow {
    output: Output,
    order_keys: Vec<Option<Value>>,
}

/// A document's rows, `None` for those that are undefined. Whole documents are
/// looked into only as far as the filter and the order ask for it.
fn document_rows(program: &Program, document: &StoredDocument) -> Result<Vec<Option<DocumentRow>>, Refusal> {
    if program.selects_every_document() {
        return Ok(vec![Some(DocumentRow {
            output: Output::of(document, || document.value()),
            order_keys: Vec::new(),
        })]);
    }
    let value = document.value();
    if program.selects_whole_document() {
        let keys = program.document_keys(&value).map_err(evaluation_refusal)?;
        let row = keys.map(|order_keys| DocumentRow { output: Output::of(document, || value), order_keys });
        return Ok(vec![row]);
    }
    let mut rows = Vec::new();
    program.rows(&value, &mut rows).map_err(evaluation_refusal)?;
    let defined = |row: Row| {
        let output = Output::Value(row.output?);
        Some(DocumentRow { output, order_keys: row.order_keys })
    };
    Ok(rows.into_iter().map(defined).collect())
}

fn merge(context: &Context<'_>, continuation: Continuation) -> Result<Produced, Refusal> {
    let resume = continuation.after.as_ref().map(|place| context.sort_key(place));
    let mut page = Page::new(context, continuation);
    // One row more than fits tells whether there is a next page.
    let wanted = page.rows_max.saturating_add(1).saturating_add(page.state.skip as usize);
    let wanted = page.state.take.map_or(wanted, |take| wanted.min((take + page.state.skip) as usize + 1));
    let mut best: BTreeMap<SortKey, (RangeId, Output)> = BTreeMap::new();
    for unit in &sources::units(context.container, &context.request.scope) {
        page.documents += context.smallest(unit, resume.as_ref(), wanted, &mut best)?;
    }
    let mut has_more = false;
    for (key, (range, row)) in best {
        if !page.offer(&row, context.place(range, key)) {
            has_more = true;
            break;
        }
    }
    Ok(page.finish(has_more))
}

impl Context<'_> {
    pub(super) fn walk<'b>(&'b self, unit: &'b Unit<'b>) -> Walk<'b> {
        Walk { view: self.view, container: self.container, unit, now: self.now }
    }

    /// The rows of a document that are in the answer, each with its place.
    fn rows_of(
        &self,
        range: RangeId,
        rid: u64,
        document: &StoredDocument,
    ) -> Result<impl Iterator<Item = (DocumentRow, Place)> + use<>, Refusal> {
        let rows = document_rows(&self.request.program, document)?;
        Ok((0..).zip(rows).filter_map(move |(row, found)| {
            found.map(|found| (found, Place { range, rid, row, order: None }))
        }))
    }

    fn is_reversed(&self) -> bool {
        self.plan.directions.first().copied().unwrap_or(false)
    }

    fn turned(&self, rid: u64) -> u64 {
        if self.is_reversed() { u64::MAX - rid } else { rid }
    }

    fn sort_key(&self, place: &Place) -> SortKey {
        let order = place.order.clone().unwrap_or_default();
        SortKey { order, rid: self.turned(place.rid), row: place.row }
    }

    fn place(&self, range: RangeId, key: SortKey) -> Place {
        Place { range, rid: self.turned(key.rid), row: key.row, order: Some(key.order) }
    }

    fn encode_order(&self, keys: &[Option<Value>]) -> Vec<u8> {
        let mut order = Vec::new();
        let columns = self.plan.directions.iter().zip(&self.plan.is_constant);
        for (value, (is_descending, is_constant)) in keys.iter().zip(columns) {
            if !is_constant {
                index::encode(&mut order, value.as_ref(), *is_descending);
            }
        }
        order
    }

    /// Adds a unit's first rows after `resume` to `best`, which keeps the
    /// `wanted` smallest; returns how many documents were looked at.
    fn smallest(
        &self,
        unit: &Unit<'_>,
        resume: Option<&SortKey>,
        wanted: usize,
        best: &mut BTreeMap<SortKey, (RangeId, Output)>,
    ) -> Result<u64, Refusal> {
        let mut documents = 0;
        let in_order = self.plan.index.as_ref().filter(|used| used.gives_order);
        // An index whose first column is declared descending is walked forwards
        // for a descending order: its keys come in order, but among equal ones
        // the `_rid`s the other way round.
        let gives_ties_in_order = in_order.is_some_and(|used| used.is_backward == self.is_reversed());
        let mut consume = |rid: u64, document: StoredDocument| {
            documents += 1;
            let mut is_beyond = false;
            for (row, place) in self.rows_of(unit.range, rid, &document)? {
                let place = Place { order: Some(self.encode_order(&row.order_keys)), ..place };
                let key = self.sort_key(&place);
                if resume.is_some_and(|resume| key <= *resume) {
                    continue;
                }
                if best.len() >= wanted
                    && let Some((last, _)) = best.last_key_value()
                    && *last < key
                {
                    is_beyond |= gives_ties_in_order || last.order < key.order;
                    continue;
                }
                best.insert(key, (unit.range, row.output));
                if best.len() > wanted {
                    best.pop_last();
                }
                if best.len() > ROWS_HELD_MAX {
                    return Err(too_many_rows());
                }
            }
            // An index gives rows in order: the first that is too late ends it.
            Ok(if is_beyond && in_order.is_some() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        };
        match in_order {
            Some(used) => {
                let start = resume.map(|resume| self.index_start(used.is_backward, resume));
                self.walk(unit).by_index(used, start.as_deref(), &mut consume)?;
            }
            None => self.walk(unit).by_rid(self.plan.index.as_ref(), 0, &mut consume)?,
        }
        Ok(documents)
    }

    /// Where an index walk goes on: at the encoded order keys of the last
    /// row, which stand inverted in an index that is walked backwards.
    fn index_start(&self, is_backward: bool, resume: &SortKey) -> Vec<u8> {
        if is_backward { resume.order.iter().map(|byte| !byte).collect() } else { resume.order.clone() }
    }
}

pub(super) fn too_many_rows() -> Refusal {
    Refusal::bad_request(format!(
        "The query holds more than {ROWS_HELD_MAX} rows in memory; narrow its filter or order by an indexed path."
    ))
}

/// A value that JSON cannot hold, or the like: a backend error that is charged.
pub(super) fn evaluation_refusal(error: perihelion_query::EvaluationError) -> Refusal {
    Refusal::new(400, Layer::QueryRuntime, json::to_text(&error.to_json(), Style::Query))
        .with_charge(QUERY_ERROR_CHARGE)
}

/// A failed query cost what a constant one does.
const QUERY_ERROR_CHARGE: f64 = 2.25;
