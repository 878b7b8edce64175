//! Running queries: one page at a time, from one snapshot.
//!
//! The language lives in `perihelion-query`; here it meets the store. A page
//! is made in four steps, a file each: `access` chooses which keys to look
//! at (a document scan, a partition's members, an index), `sources` walks
//! them, `rows` turns documents into rows in the wanted order (`gather` when
//! all of them are needed first), and `continuation` says where the next page
//! starts. A query that had to look
//! at many documents for few rows leaves a wish for the index it missed.

mod access;
mod continuation;
mod gather;
mod output;
mod rows;
mod sources;

use perihelion_model::partition_key::EffectiveRange;
use perihelion_query::Program;

use crate::catalog::Container;
use crate::charge::{self, QueryWork};
use crate::documents::Target;
use crate::index::IndexShape;
use crate::keys::RangeId;
use crate::refusal::Refusal;
use crate::state::{ContainerState, Position};
use crate::storage::View;

use continuation::Continuation;

/// A page request.
pub struct QueryRequest {
    pub program: Program,
    pub scope: QueryScope,
    /// The most rows in this page.
    pub rows_max: usize,
    pub continuation: Option<String>,
}

/// Which documents a query is about.
#[derive(Debug, Clone)]
pub enum QueryScope {
    /// One logical partition.
    Partition(Target),
    /// All partitions that begin with these levels of a hierarchical key.
    Prefix { hash: Vec<u8>, ranges: Vec<RangeId> },
    /// Physical partitions, each narrowed to some effective keys.
    Ranges(Vec<(RangeId, EffectiveRange)>),
}

impl QueryScope {
    /// The physical partitions it touches.
    pub fn range_ids(&self, container: &Container) -> Vec<RangeId> {
        match self {
            QueryScope::Partition(target) => vec![target.range.id],
            QueryScope::Prefix { ranges, .. } => ranges.clone(),
            QueryScope::Ranges(ranges) if ranges.is_empty() => {
                container.ranges.iter().map(|range| range.id).collect()
            }
            QueryScope::Ranges(ranges) => ranges.iter().map(|(id, _)| *id).collect(),
        }
    }
}

/// A page.
#[derive(Debug, Clone)]
pub struct QueryPage {
    /// The rows as JSON text, without the brackets around them.
    pub rows_text: String,
    pub rows: usize,
    pub continuation: Option<String>,
    pub charge: f64,
    /// One per range touched.
    pub positions: Vec<Position>,
    pub work: QueryWork,
    /// Whether an index was used.
    pub used_index: bool,
    /// The index that would have helped.
    pub missing_index: Option<IndexShape>,
}

/// A page ends before this many bytes; only a row that is larger alone makes a
/// larger page, of its own.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Makes one page.
pub(crate) fn execute(
    view: &dyn View,
    container: &Container,
    state: &ContainerState,
    request: &QueryRequest,
    now: u64,
) -> Result<QueryPage, Refusal> {
    let continuation = match &request.continuation {
        Some(text) => Continuation::parse(text, container)?,
        None => Continuation::start(&request.program),
    };
    let plan = access::choose(container, request);
    let context = rows::Context { view, container, request, plan: &plan, now };
    let produced = rows::produce(&context, continuation)?;
    let work = QueryWork {
        reads_documents: !request.program.reads_no_document(),
        documents: produced.documents,
        rows: produced.rows as u64,
        members: produced.members,
        bytes: produced.text.len(),
    };
    let positions = request.scope.range_ids(container).into_iter();
    Ok(QueryPage {
        rows: produced.rows,
        rows_text: produced.text,
        continuation: produced.continuation.map(|continuation| continuation.print(container)),
        charge: charge::query(work),
        positions: positions.map(|range| state.position(range)).collect(),
        work,
        used_index: plan.index.is_some(),
        missing_index: missing_index(&plan, produced.documents, work.rows),
    })
}

/// From how many documents looked at in vain on an index is worth its cost
/// to every write.
const MISSES_BEFORE_INDEX: u64 = 200;

fn missing_index(plan: &access::Plan, documents: u64, rows: u64) -> Option<IndexShape> {
    let is_wasteful = documents.saturating_sub(rows) > MISSES_BEFORE_INDEX;
    plan.missing_index.clone().filter(|_| is_wasteful)
}
