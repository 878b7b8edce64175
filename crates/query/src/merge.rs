//! The client's side of a query across partitions: merging the partitions'
//! pages into one result.
//!
//! [`Merge`] does no I/O. [`Merge::next_fetches`] says which pages to fetch;
//! the caller reports the outcome ([`Merge::add_page`], [`Merge::range_gone`],
//! [`Merge::fetch_failed`]). [`Merge::next_row`] returns a row as soon as no
//! missing page can have an earlier row. [`Merge::next_page`] returns rows in
//! pages. A caller uses either `next_row` or `next_page`. [`Merge::token`] is the
//! continuation token after the last row or page, if there is one.
//!
//! ```text
//! plan, ranges ─> Merge ── next_fetches ──> Fetch ─> (network) ─> add_page, range_gone, fetch_failed
//!                   ├── next_row, next_page ──> rows
//!                   └── token ──> resume
//! ```
//!
//! * Without a sort the rows of the ranges are concatenated in range order.
//!   Tokens exist where a page of the service ends.
//! * Sorted rows are merged (k-way), with one page of each range in memory.
//!   Tokens exist between any two rows that have a `_rid`.
//! * For aggregates, groups and sorts that the partitions do not perform, all rows
//!   are buffered first. An unordered DISTINCT remembers all values until the end.
//!   As in the published SDKs, these queries have no token before the end.
//!
//! A plan of ORDER BY RANK is not merged in this way: [`HybridSearch`] fuses the rows of several
//! statements.
//!
//! Invariants:
//!
//! * At most `parallel_max` fetches are in flight.
//! * A range has at most one fetch in flight and, unless rows are buffered, one page in memory.
//! * No row is lost or repeated by a split, by a merge of ranges, or by resuming from a token.
//!
//! ```
//! use perihelion_model::json::parse_str;
//! use perihelion_query::merge::{KeyRange, Merge, MergePlan, NextRow, Settings};
//!
//! let plan = MergePlan::parse(
//!     r#"{"queryInfo":{"aggregates":["Count"],"rewrittenQuery":"SELECT VALUE [{\"item\": COUNT(1)}] FROM c"}}"#,
//! )?;
//! let ranges = [KeyRange::new("0", "", "80"), KeyRange::new("1", "80", "FF")];
//! let mut merge = Merge::new(plan, "SELECT VALUE COUNT(1) FROM c", &ranges, Settings::default())?;
//! for fetch in merge.next_fetches() {
//!     // Send fetch.query to fetch.range_id; each range has 20 documents.
//!     merge.add_page(fetch.id, vec![parse_str(r#"[{"item":20}]"#).unwrap()], None)?;
//! }
//! assert_eq!(merge.next_row()?, NextRow::Row(40_i64.into()));
//! assert_eq!(merge.next_row()?, NextRow::Done);
//! # Ok::<(), perihelion_query::merge::MergeError>(())
//! ```

mod buffered;
mod error;
mod fetch;
mod groups;
mod hybrid;
mod merge_queue;
mod output;
mod plan;
mod position;
mod range;
mod range_reader;
mod result_filter;
mod rows;
mod token;

pub use error::MergeError;
pub use hybrid::HybridSearch;
pub use plan::MergePlan;
pub use range::KeyRange;

use std::collections::VecDeque;
use std::sync::Arc;

use perihelion_model::json::Value;

use buffered::Buffered;
use merge_queue::MergeQueue;
use plan::{GroupFormat, RowFormat};
use range::{Interval, RangeSlice, slice_interval};
use range_reader::{RangeReader, ResumePoint};
use result_filter::ResultFilter;
use token::{TokenContents, fingerprint};

/// The sizes of pages and the number of concurrent fetches.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Settings {
    /// The most rows in a page of the result. The default is 100, as in some of the
    /// official SDKs.
    pub page_rows: usize,
    /// The most fetches in flight.
    pub parallel_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { page_rows: 100, parallel_max: 8 }
    }
}

impl Settings {
    /// Sets the most rows in a page; at least 1.
    #[must_use]
    pub fn with_page_rows(self, page_rows: usize) -> Self {
        Settings { page_rows: page_rows.max(1), ..self }
    }

    /// Sets the most fetches in flight; at least 1.
    #[must_use]
    pub fn with_parallel_max(self, parallel_max: usize) -> Self {
        Settings { parallel_max: parallel_max.max(1), ..self }
    }
}

/// Identifies a fetch when its outcome is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FetchId(usize);

/// A page to fetch. The caller sends the parameters of the query with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    /// Identifies the fetch.
    pub id: FetchId,
    /// The partition key range to query.
    pub range_id: String,
    /// Restricts the fetch to these effective keys of the range, from the minimum
    /// (inclusive) to the maximum (exclusive). `None` when the whole range is read.
    /// A fetch reads a part of a range in two cases: the query is about a part of the
    /// range, or ranges were merged and the intervals of the old ranges are still read
    /// separately.
    pub keys: Option<(String, String)>,
    /// The statement to send.
    pub query: Arc<str>,
    /// The continuation to send.
    pub continuation: Option<String>,
    /// The most rows in the page.
    pub page_rows: usize,
}

/// The result of [`Merge::next_row`].
#[derive(Debug, Clone, PartialEq)]
pub enum NextRow {
    /// The next row of the result.
    Row(Value),
    /// Pages are missing; see [`Merge::next_fetches`].
    Pending,
    /// The result has no more rows.
    Done,
}

/// The result of [`Merge::next_page`].
#[derive(Debug, Clone, PartialEq)]
pub enum NextPage {
    /// The next rows of the result; never empty.
    Page(Vec<Value>),
    /// Pages are missing; see [`Merge::next_fetches`].
    Pending,
    /// The result has no more rows.
    Done,
}

/// The continuation token of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeToken {
    /// The text for [`Merge::resume`].
    Resume(String),
    /// The result has no more rows.
    Finished,
    /// There is no token at this row. A later row may have a token. Some queries have no
    /// token before the end.
    Unavailable,
    /// The token at this row would be longer than a token may be (256 KiB), because of long
    /// sort keys or very many ranges. A later row may have a token.
    TooLong {
        /// How long the token would be.
        bytes: usize,
    },
}

/// A merge in progress; see the [module's documentation](self).
#[derive(Debug)]
pub struct Merge {
    query: Arc<str>,
    fingerprint: u64,
    /// The effective keys that the query is about.
    scope: Interval,
    /// The `_rid` of the container, if it is known.
    container: Option<String>,
    settings: Settings,
    /// Every reader that was started. No reader is removed, so an index of a reader stays
    /// valid.
    readers: Vec<RangeReader>,
    /// The indexes of the readers in range order. Readers at their end are removed,
    /// except in a sorted query.
    sequence: VecDeque<usize>,
    mode: Mode,
    filter: ResultFilter,
    /// The rows of a buffered query that were not returned yet. Empty until all pages
    /// are merged.
    unreturned_rows: VecDeque<Value>,
    /// The rows of the next page of the result, which does not have all its rows yet.
    partial_page: Vec<Value>,
    /// Whether all readers are at their end.
    is_exhausted: bool,
    /// How many readers in `sequence` have no row in memory and are not at their end. The
    /// number is kept up to date for sorted queries only.
    readers_needing_page: usize,
    fetches_in_flight: usize,
}

/// How the rows of the ranges become one sequence.
#[derive(Debug)]
enum Mode {
    /// One range after the other.
    Concatenate,
    /// The ranges return sorted rows, which a k-way merge combines.
    Sort(MergeQueue),
    /// All rows are read before the first one is returned.
    Buffered(Box<Buffered>),
}

impl Merge {
    /// Starts a query over all the ranges.
    pub fn new(
        plan: MergePlan,
        query: &str,
        ranges: &[KeyRange],
        settings: Settings,
    ) -> Result<Self, MergeError> {
        let slices = ranges.iter().map(RangeSlice::whole).collect();
        Merge::start(plan, query, Interval::all(), slices, settings)
    }

    /// Starts a query over the effective keys from `min` (inclusive) to `max`
    /// (exclusive). `ranges` are the ranges of the container. Parts of them that are
    /// outside these keys, or that cannot hold a result, are left out.
    pub fn within(
        plan: MergePlan,
        query: &str,
        (min, max): (&str, &str),
        ranges: &[KeyRange],
        settings: Settings,
    ) -> Result<Self, MergeError> {
        let scope = Interval { min: min.to_owned(), max: max.to_owned() };
        let can_hold_result = |slice: &RangeSlice| {
            let range = KeyRange::new("", slice.interval.min.as_str(), slice.interval.max.as_str());
            plan.ranges().iter().any(|wanted| range.overlaps(wanted))
        };
        let slices = slice_interval(&scope, ranges)?.into_iter().filter(can_hold_result).collect();
        Merge::start(plan, query, scope, slices, settings)
    }

    fn start(
        plan: MergePlan,
        query: &str,
        scope: Interval,
        mut slices: Vec<RangeSlice>,
        settings: Settings,
    ) -> Result<Self, MergeError> {
        slices.sort_by(|a, b| a.interval.min.cmp(&b.interval.min));
        if slices.iter().any(|slice| slice.interval.min >= slice.interval.max) {
            return Err(range::uncovered(&scope));
        }
        let mut merge = Merge::empty(plan, query, scope, settings)?;
        for slice in slices {
            merge.append(slice, ResumePoint::default());
        }
        Ok(merge)
    }

    /// Resumes from a token of [`Merge::token`]. The query and its parameters
    /// must be the same; the ranges may have been split or merged since. The token of
    /// another query is refused. A change of the parameters is not noticed.
    pub fn resume(
        plan: MergePlan,
        query: &str,
        ranges: &[KeyRange],
        settings: Settings,
        token: &str,
    ) -> Result<Self, MergeError> {
        let all = Interval::all();
        Merge::resume_within(plan, query, (&all.min, &all.max), ranges, settings, token)
    }

    /// Resumes a query over the effective keys from `min` (inclusive) to `max` (exclusive). The
    /// token of a query over other keys is refused: the token lists only the intervals that its
    /// own query still has to read, so other keys would be left out.
    pub fn resume_within(
        plan: MergePlan,
        query: &str,
        (min, max): (&str, &str),
        ranges: &[KeyRange],
        settings: Settings,
        token: &str,
    ) -> Result<Self, MergeError> {
        let contents = TokenContents::parse(token)?;
        let scope = Interval { min: min.to_owned(), max: max.to_owned() };
        let mut merge = Merge::empty(plan, query, scope, settings)?;
        if contents.fingerprint != merge.fingerprint {
            return Err(MergeError::TokenOfAnotherQuery);
        }
        merge.check_token(&contents)?;
        let mut intervals = contents.resume_points.iter().map(|(interval, _)| interval);
        let is_inside =
            intervals.all(|interval| min <= interval.min.as_str() && interval.max.as_str() <= max);
        if !is_inside || contents.scope.as_ref().is_some_and(|scope| *scope != merge.scope) {
            return Err(MergeError::InvalidToken("it belongs to a query over other keys"));
        }
        merge.container = contents.container;
        merge.filter.restore(contents.skip_left, contents.take_left, contents.last_value);
        for (interval, resume_point) in contents.resume_points {
            for slice in slice_interval(&interval, ranges)? {
                merge.append(slice, resume_point.clone());
            }
        }
        Ok(merge)
    }

    /// Names the container of the query by its `_rid`, so that its tokens name the container too. A
    /// merge that was resumed from the token of another container is refused: its positions would
    /// mean nothing here, and rows would be missing. A token without a container is not refused.
    pub fn in_container(self, rid: &str) -> Result<Self, MergeError> {
        match &self.container {
            Some(container) if container != rid => Err(MergeError::TokenOfAnotherContainer),
            _ => Ok(Merge { container: Some(rid.to_owned()), ..self }),
        }
    }

    /// A merge without readers.
    fn empty(plan: MergePlan, query: &str, scope: Interval, settings: Settings) -> Result<Self, MergeError> {
        let statement = plan.statement(query);
        let filter = ResultFilter::new(&plan);
        let mode = match plan.format {
            RowFormat::Plain => Mode::Concatenate,
            RowFormat::Ordered { directions, is_streaming: true } => Mode::Sort(MergeQueue::new(directions)),
            RowFormat::Ordered { directions, is_streaming: false } => {
                Mode::Buffered(Box::new(Buffered::sorted(directions, filter.rows_wanted())))
            }
            RowFormat::Groups(grouping) => {
                // Without GROUP BY there is one group.
                let order = if grouping.has_keys { plan::group_order(query)? } else { Vec::new() };
                Mode::Buffered(Box::new(Buffered::groups(GroupFormat { order, ..grouping })))
            }
        };
        Ok(Merge {
            fingerprint: fingerprint([query, &statement]),
            query: statement.into(),
            scope,
            container: None,
            settings,
            readers: Vec::new(),
            sequence: VecDeque::new(),
            mode,
            filter,
            unreturned_rows: VecDeque::new(),
            partial_page: Vec::new(),
            is_exhausted: false,
            readers_needing_page: 0,
            fetches_in_flight: 0,
        })
    }

    /// Checks that a merge with this plan can have made the token.
    fn check_token(&self, contents: &TokenContents) -> Result<(), MergeError> {
        let key_count = match &self.mode {
            Mode::Concatenate => None,
            Mode::Sort(queue) => Some(queue.directions.len()),
            Mode::Buffered(_) => return Err(MergeError::InvalidToken("a query of this kind has no token")),
        };
        let positions =
            contents.resume_points.iter().filter_map(|(_, resume_point)| resume_point.position.as_ref());
        let fits =
            self.filter.can_reach(contents.skip_left, contents.take_left, contents.last_value.as_ref())
                && positions.into_iter().all(|position| Some(position.keys.len()) == key_count);
        if fits { Ok(()) } else { Err(MergeError::InvalidToken("it does not fit the query")) }
    }

    /// Adds a reader after the other readers.
    fn append(&mut self, slice: RangeSlice, resume_point: ResumePoint) {
        let reader = self.readers.len();
        self.readers.push(RangeReader::new(slice, resume_point, self.sequence.len()));
        self.sequence.push_back(reader);
        self.readers_needing_page += 1;
    }
}
