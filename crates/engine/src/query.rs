//! Running queries. Each page is computed from one snapshot of the store.
//!
//! The crate `perihelion-query` compiles queries; this module runs them on the
//! store. A page is made in four steps, each in its own file:
//! - `access` chooses the keys to read: all documents, the documents of a partition, or an
//!   index;
//! - `sources` scans these keys;
//! - `rows` turns documents into rows in the right order. It uses `stream` without ORDER BY,
//!   `ordered` with ORDER BY, and `gather` when a row does not belong to one document. `counting`
//!   counts documents without reading them. `output` prints the rows;
//! - `continuation` says where the next page starts. It contains a `pause` if the page did not end
//!   after a row.
//!
//! A query that reads many documents for few rows reports the index that would have helped.

mod access;
mod continuation;
mod counting;
mod gather;
mod gathered_page;
mod ordered;
mod output;
mod pause;
mod resume_filter;
mod rows;
mod smallest_rows;
mod sources;
mod stages;
mod stream;
mod value_position;

use perihelion_model::partition_key::{EffectiveRange, PartitionKey};
use perihelion_query::Program;

use crate::catalog::Container;
use crate::charge::{self, QueryWork};
use crate::documents::Target;
use crate::index::IndexShape;
use crate::keys::RangeId;
use crate::pace::{PAGE_BYTES_MAX, Pace};
use crate::refusal::Refusal;
use crate::state::{ContainerState, Position};
use crate::storage::View;

use continuation::Continuation;
pub use resume_filter::ResumeFilter;

/// A request for a page.
pub struct QueryRequest {
    /// The compiled query.
    pub program: Program,
    /// The documents that the query reads.
    pub scope: QueryScope,
    /// The most rows in this page.
    pub rows_max: usize,
    /// The continuation of the page before; `None` for the first page.
    pub continuation: Option<String>,
    /// Where the first page begins; `None` for the beginning of the result.
    pub resume: Option<ResumeFilter>,
    /// Where a page ends.
    pub paging: Paging,
}

/// Where a page of a query without ORDER BY ends, if its rows fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paging {
    /// After the last row of the query.
    Whole,
    /// At the end of a physical partition, as in the service, even if the partition has no rows. A
    /// full page has a continuation, even if no row is left. So pages may be empty.
    AsService,
}

/// The documents that a query reads.
#[derive(Debug, Clone)]
pub enum QueryScope {
    /// One logical partition.
    Partition(Target),
    /// All logical partitions whose hierarchical key begins with the given levels.
    Prefix {
        /// The given levels.
        key: PartitionKey,
        /// The physical partitions that may hold these logical partitions.
        ranges: Vec<RangeId>,
    },
    /// The listed physical partitions, each narrowed to an interval of effective keys.
    /// With an empty list the query reads no documents.
    Ranges(Vec<(RangeId, EffectiveRange)>),
    /// All physical partitions of the container.
    All,
}

impl QueryScope {
    /// The physical partitions that the query reads.
    pub fn range_ids(&self, container: &Container) -> Vec<RangeId> {
        match self {
            QueryScope::Partition(target) => vec![target.range.id],
            QueryScope::Prefix { ranges, .. } => ranges.clone(),
            QueryScope::Ranges(ranges) => ranges.iter().map(|(id, _)| *id).collect(),
            QueryScope::All => container.ranges.iter().map(|range| range.id).collect(),
        }
    }
}

/// A page of rows.
#[derive(Debug, Clone)]
pub struct QueryPage {
    /// The rows as JSON text, without the brackets around them.
    pub rows_text: String,
    /// The number of rows.
    pub rows: usize,
    /// The continuation of the next page; `None` for the last page.
    pub continuation: Option<String>,
    /// Request units.
    pub charge: f64,
    /// The position of each range in the query's scope.
    pub positions: Vec<Position>,
    /// The documents read and the rows returned.
    pub work: QueryWork,
    /// Whether an index was used.
    pub used_index: bool,
    /// The index that would have helped, if the page read many documents that gave no
    /// row.
    pub missing_index: Option<IndexShape>,
}

/// The time that the date functions saw on the pages before, in ticks (100 ns) since 1970; `None` if
/// the time does not matter. The statement has to be compiled with this time again, because with
/// another time the rows would not fit those of the pages before.
pub fn now_of_continuation(continuation: &str) -> Option<i64> {
    continuation::ticks_of(continuation)
}

/// Makes one page. `now` is in seconds since 1970.
pub(crate) fn execute(
    view: &dyn View,
    container: &Container,
    state: &ContainerState,
    request: &QueryRequest,
    pace: &Pace<'_>,
    now: u64,
) -> Result<QueryPage, Refusal> {
    let continuation = match &request.continuation {
        Some(text) => Continuation::parse(text, container)?,
        None => Continuation::start(&request.program),
    };
    if let Some(resume) = &request.resume {
        resume.check(&request.program)?;
    }
    let plan = access::choose(container, request);
    if let Some(used) = &plan.index {
        used.definition.last_use.note(now);
    }
    let context = rows::Context { view, container, state, request, plan: &plan, pace, now };
    let produced = rows::produce(&context, continuation)?;
    let work = QueryWork {
        reads_documents: !request.program.reads_no_document(),
        documents: produced.documents,
        rows: produced.rows as u64,
        members: produced.members,
        bytes: produced.text.len(),
    };
    let missing_index = missing_index(&plan, produced.documents, work.rows, produced.continuation.is_some());
    let positions = request.scope.range_ids(container).into_iter();
    Ok(QueryPage {
        rows: produced.rows,
        rows_text: produced.text,
        continuation: produced.continuation.map(|continuation| continuation.print(container)),
        charge: charge::query(work),
        positions: positions.map(|range| state.position(range)).collect(),
        work,
        used_index: plan.index.is_some(),
        missing_index,
    })
}

/// A page reports a missing index if more than this many of the documents that it read gave no row.
/// Then the index is worth its cost in every write.
const MISSES_BEFORE_INDEX: u64 = 200;

/// The missing index of the plan, if too many documents gave no row. A missing index that only later
/// pages would use is reported only if there is a next page.
fn missing_index(plan: &access::Plan, documents: u64, rows: u64, has_next: bool) -> Option<IndexShape> {
    let is_wasteful = documents.saturating_sub(rows) > MISSES_BEFORE_INDEX;
    let of_window = || plan.window.as_ref().filter(|_| has_next)?.index.as_ref().err().cloned();
    plan.missing_index.clone().or_else(of_window).filter(|_| is_wasteful)
}
