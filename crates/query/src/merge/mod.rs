//! A query across partitions, the client's side: one answer out of many.
//!
//! [`Merge`] does no I/O. It says what to fetch ([`Merge::wanted`]), is told
//! what came of it ([`Merge::page`], [`Merge::gone`], [`Merge::failed`]) and
//! gives rows as soon as no page that is still out can change them
//! ([`Merge::next_row`], or [`Merge::next_page`] for rows with a token at the
//! end of each page; a caller uses one of the two).
//!
//! ```text
//! plan, ranges ─> Merge ── wanted ──> Fetch ─> (network) ─> page, gone, failed
//!                   └── next_row, next_page ──> rows     └─ token ─> resume
//! ```
//!
//! * Without a sort the ranges' answers follow one another in range order.
//!   Tokens exist where a page of the service ends.
//! * Sorted rows are merged, one page of each range at hand. Tokens exist
//!   between any two rows.
//! * Aggregates, groups and sorts that the partitions do not do need all rows
//!   first, an unordered DISTINCT needs all values at the end: these have no
//!   token until they are finished, as in the published SDKs.
//!
//! What always holds: at most `parallel_max` fetches are under way, a range
//! has at most one and holds at most one page, and no row is lost or repeated
//! by a split, a merge of ranges, or a stop and resume between two rows.
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
//! for fetch in merge.wanted() {
//!     // Send fetch.query to fetch.range_id; each finds 20 documents.
//!     merge.page(fetch.id, vec![parse_str(r#"[{"item":20}]"#).unwrap()], None)?;
//! }
//! assert_eq!(merge.next_row()?, NextRow::Row(40_i64.into()));
//! assert_eq!(merge.next_row()?, NextRow::Done);
//! # Ok::<(), perihelion_query::merge::MergeError>(())
//! ```

mod ask;
mod drain;
mod error;
mod give;
mod groups;
mod ladder;
mod plan;
mod progress;
mod range;
mod rows;
mod source;
mod tail;
mod token;

pub use error::MergeError;
pub use plan::MergePlan;
pub use range::KeyRange;

use std::collections::VecDeque;
use std::sync::Arc;

use perihelion_model::json::Value;

use drain::Drain;
use ladder::Ladder;
use plan::Shape;
use range::{Home, Interval, homes};
use source::{Source, Standing};
use tail::Tail;
use token::{Saved, fingerprint};

/// How much at a time.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Settings {
    /// The most rows in a page; the service's default is 100 for SDKs.
    pub page_rows: usize,
    /// The most fetches under way at once.
    pub parallel_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { page_rows: 100, parallel_max: 8 }
    }
}

impl Settings {
    #[must_use]
    pub fn with_page_rows(self, page_rows: usize) -> Self {
        Settings { page_rows: page_rows.max(1), ..self }
    }

    #[must_use]
    pub fn with_parallel_max(self, parallel_max: usize) -> Self {
        Settings { parallel_max: parallel_max.max(1), ..self }
    }
}

/// Names a fetch in the answers to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FetchId(usize);

/// A page to get. The parameters are those of the query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    pub id: FetchId,
    pub range_id: String,
    /// Only these effective keys of the range, from and to, when others of it
    /// are read on their own: after ranges were merged.
    pub keys: Option<(String, String)>,
    pub query: Arc<str>,
    pub continuation: Option<String>,
    /// The most rows in the page.
    pub page_rows: usize,
}

/// The answer's next row.
#[derive(Debug, Clone, PartialEq)]
pub enum NextRow {
    Row(Value),
    /// Pages are missing; see [`Merge::wanted`].
    Pending,
    Done,
}

/// The answer's next page.
#[derive(Debug, Clone, PartialEq)]
pub enum NextPage {
    /// Never empty.
    Page(Vec<Value>),
    /// Pages are missing; see [`Merge::wanted`].
    Pending,
    Done,
}

/// Where the merge stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// For [`Merge::resume`].
    Resume(String),
    /// Nothing is left.
    Finished,
    /// This place has no token; a later one may.
    Unavailable,
}

/// See the [module's documentation](self).
#[derive(Debug)]
pub struct Merge {
    query: Arc<str>,
    fingerprint: u64,
    settings: Settings,
    sources: Vec<Source>,
    /// The sources that are not read to their end, in range order.
    sequence: VecDeque<usize>,
    mode: Mode,
    tail: Tail,
    /// Finished rows of a drained query.
    finished: VecDeque<Value>,
    /// A page in the making.
    page: Vec<Value>,
    is_exhausted: bool,
    /// Sorted: sources in `sequence` that show no row.
    waiting: usize,
    fetching: usize,
}

#[derive(Debug)]
enum Mode {
    Concatenate,
    Sort(Ladder),
    Drain(Drain),
}

impl Merge {
    /// Starts a query over all of these ranges.
    pub fn new(
        plan: MergePlan,
        query: &str,
        ranges: &[KeyRange],
        settings: Settings,
    ) -> Result<Self, MergeError> {
        Merge::start(plan, query, ranges.iter().map(Home::whole).collect(), settings)
    }

    /// Starts a query over the effective keys from `min` up to, not including,
    /// `max`. `ranges` are those of the container; parts of them that are not
    /// within, or cannot hold a result, are left out.
    pub fn within(
        plan: MergePlan,
        query: &str,
        (min, max): (&str, &str),
        ranges: &[KeyRange],
        settings: Settings,
    ) -> Result<Self, MergeError> {
        let scope = Interval { min: min.to_owned(), max: max.to_owned() };
        let holds = |home: &Home| {
            let range = KeyRange::new("", home.interval.min.as_str(), home.interval.max.as_str());
            plan.ranges().iter().any(|wanted| range.holds(wanted))
        };
        let homes = homes(&scope, ranges)?.into_iter().filter(holds).collect();
        Merge::start(plan, query, homes, settings)
    }

    fn start(
        plan: MergePlan,
        query: &str,
        mut homes: Vec<Home>,
        settings: Settings,
    ) -> Result<Self, MergeError> {
        homes.sort_by(|a, b| a.interval.min.cmp(&b.interval.min));
        if homes.iter().any(|home| home.interval.min >= home.interval.max) {
            return Err(MergeError::InvalidPlan("a range is empty"));
        }
        let mut merge = Merge::empty(plan, query, settings);
        for home in homes {
            merge.append(home, Standing::default());
        }
        Ok(merge)
    }

    /// Goes on where [`Merge::token`] was taken. The query and its parameters
    /// must be the same; the ranges may have been split or merged meanwhile.
    pub fn resume(
        plan: MergePlan,
        query: &str,
        ranges: &[KeyRange],
        settings: Settings,
        token: &str,
    ) -> Result<Self, MergeError> {
        let saved = Saved::parse(token)?;
        let mut merge = Merge::empty(plan, query, settings);
        if saved.fingerprint != merge.fingerprint {
            return Err(MergeError::InvalidToken("it belongs to another query"));
        }
        merge.check(&saved)?;
        merge.tail.restore(saved.skip_left, saved.take_left, saved.last);
        for (interval, standing) in saved.standings {
            for home in homes(&interval, ranges)? {
                merge.append(home, standing.clone());
            }
        }
        Ok(merge)
    }

    fn empty(plan: MergePlan, query: &str, settings: Settings) -> Self {
        let statement = plan.statement(query);
        let tail = Tail::new(&plan);
        let mode = match plan.shape {
            Shape::Plain => Mode::Concatenate,
            Shape::Ordered { directions, is_streaming: true } => Mode::Sort(Ladder::new(directions)),
            Shape::Ordered { directions, is_streaming: false } => {
                Mode::Drain(Drain::sorted(directions, tail.rows_wanted()))
            }
            Shape::Groups(grouping) => Mode::Drain(Drain::groups(grouping)),
        };
        Merge {
            fingerprint: fingerprint([query, &statement]),
            query: statement.into(),
            settings,
            sources: Vec::new(),
            sequence: VecDeque::new(),
            mode,
            tail,
            finished: VecDeque::new(),
            page: Vec::new(),
            is_exhausted: false,
            waiting: 0,
            fetching: 0,
        }
    }

    /// A token must fit what the query would have written.
    fn check(&self, saved: &Saved) -> Result<(), MergeError> {
        let keys = match &self.mode {
            Mode::Concatenate => None,
            Mode::Sort(ladder) => Some(ladder.directions.len()),
            Mode::Drain(_) => return Err(MergeError::InvalidToken("this query has none")),
        };
        let marks = saved.standings.iter().filter_map(|(_, standing)| standing.mark.as_ref());
        let fits = self.tail.is_portable()
            && self.tail.take_left.is_some() == saved.take_left.is_some()
            && marks.into_iter().all(|mark| Some(mark.keys.len()) == keys);
        if fits { Ok(()) } else { Err(MergeError::InvalidToken("it does not fit the query")) }
    }

    fn append(&mut self, home: Home, standing: Standing) {
        let source = self.sources.len();
        self.sources.push(Source::new(home, standing, self.sequence.len()));
        self.sequence.push_back(source);
        self.waiting += 1;
    }
}
