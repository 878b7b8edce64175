//! The compiled statement: its properties for the engine's planner, and its
//! evaluation.
//!
//! A program is immutable and may be shared between threads. It evaluates one
//! document at a time. Sorting, OFFSET, LIMIT, TOP, DISTINCT and groups span
//! documents and are up to the caller; [`Program::arrange`] and
//! [`Accumulator`] do this for rows that fit in memory. A program in stages
//! has an [inner](Program::inner) program, whose rows take the place of the
//! documents.

mod accumulator;
mod distinct;
mod row_place;
mod shape;
mod work;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::atomic::{AtomicU64, Ordering as AtomicOrdering};

pub use accumulator::{Accumulator, GroupRows};
pub use distinct::DistinctValues;
pub use row_place::RowPlace;
pub use shape::RowKey;
use shape::{
    counts_every_document, is_representable, order_of, row_key, selects_document, sorts_by_elements,
};

use perihelion_model::json::Value;

use crate::ast::Direction;
use crate::bind::{Bound, bind_with, sorts_by_score};
use crate::computed::ComputedProperties;
use crate::conjunct::{Conjunct, conjuncts};
use crate::context::{Budget, Context};
use crate::diagnostic::Diagnostic;
use crate::error::EvaluationError;
use crate::eval::{Frame, GroupTable, GroupWindow, each_row, order_keys, output_of};
use crate::gateway::{GatewayVerdict, gateway_verdict};
use crate::node::{Node, SelectNode, Step};
use crate::order::compare_order;
use crate::parameters::{Now, Parameters};
use crate::statement::Query;

/// Compiles a statement. The date functions see `now`.
pub fn compile(query: &Query, parameters: &Parameters, now: Now) -> Result<Program, Vec<Diagnostic>> {
    compile_with(query, parameters, &ComputedProperties::default(), now)
}

/// Compiles a statement over documents with computed properties.
pub fn compile_with(
    query: &Query,
    parameters: &Parameters,
    computed: &ComputedProperties,
    now: Now,
) -> Result<Program, Vec<Diagnostic>> {
    let bound = bind_with(&query.text, &query.select, parameters, computed.as_slice(), now)?;
    let order_by = query.select.order_by.as_ref();
    Ok(Program {
        is_ranked: order_by.is_some_and(|order_by| order_by.is_rank),
        sorts_by_score: order_by.is_some_and(sorts_by_score),
        ..Program::from_bound(bound, now, gateway_verdict(&query.select))
    })
}

/// A compiled statement. See the [crate documentation](crate).
#[derive(Debug)]
pub struct Program {
    select: SelectNode,
    inner: Option<Box<Program>>,
    now: Now,
    conjuncts: Vec<Conjunct>,
    order: Vec<OrderKey>,
    /// The directions of `order`.
    directions: Vec<Direction>,
    /// See [`Program::row_key`].
    row_key: Option<RowKey>,
    /// See [`Program::selects_whole_document`].
    selects_whole_document: bool,
    reads_no_document: bool,
    /// Whether the statement has arithmetic, a function call or an aggregate. Only then
    /// can its output have infinity or NaN, which JSON cannot represent.
    can_compute_non_finite: bool,
    verdict: GatewayVerdict,
    is_ranked: bool,
    sorts_by_score: bool,
    /// See [`Program::copied_bytes`].
    copied_bytes: u64,
    /// The number of evaluations so far.
    evaluations: AtomicU64,
}

/// The most copies of a constant in a program: one in the expression, and one in a conjunct.
const COPIES_PER_CONSTANT: u64 = 2;

/// How many bytes of copies take about as long as one step of the evaluation's budget.
const BYTES_PER_STEP: u64 = 64;

/// One key of ORDER BY.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderKey {
    /// Ascending or descending.
    pub direction: Direction,
    /// The path of the key in the document, when it is a fixed path. `None` in a program
    /// that is grouped or has an [inner](Program::inner) program.
    pub path: Option<Vec<Step>>,
}

/// One row that a document results in.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The projected value; `None` when it is undefined, and then the row is
    /// not part of the result.
    pub output: Option<Value>,
    /// One value per key of ORDER BY; `None` is undefined.
    pub order_keys: Vec<Option<Value>>,
}

impl Program {
    fn from_bound(bound: Bound, now: Now, verdict: GatewayVerdict) -> Self {
        let copied_bytes = bound.copied_bytes().saturating_mul(COPIES_PER_CONSTANT);
        let inner = bound.inner.map(|inner| {
            // The rows of an inner stage are not output, so their numbers need no check.
            Box::new(Program { can_compute_non_finite: false, ..Program::from_bound(*inner, now, verdict) })
        });
        // Only the innermost stage reads documents.
        let hops = bound.document_hops.filter(|_| inner.is_none());
        let conjuncts = match (&bound.select.filter, hops) {
            (Some(filter), Some(hops)) => conjuncts(filter, hops),
            _ => Vec::new(),
        };
        let order = order_of(&bound.select, hops);
        Program {
            now,
            copied_bytes,
            conjuncts,
            directions: order.iter().map(|key| key.direction).collect(),
            order,
            row_key: row_key(&bound.select, hops),
            selects_whole_document: selects_document(&bound.select, hops),
            reads_no_document: match &inner {
                Some(inner) => inner.reads_no_document,
                None => bound.select.sources.is_empty(),
            },
            can_compute_non_finite: bound.can_compute_non_finite,
            verdict,
            is_ranked: false,
            sorts_by_score: false,
            evaluations: AtomicU64::new(0),
            select: bound.select,
            inner,
        }
    }

    /// The program to run first, when a subquery in FROM needs all documents
    /// at once (`FROM (SELECT DISTINCT …)`). Its arranged rows take the place
    /// of the documents: pass them to [`Program::rows`] or
    /// [`Accumulator::add`].
    pub fn inner(&self) -> Option<&Program> {
        self.inner.as_deref()
    }

    /// The stage that reads documents: the program itself when it has no inner
    /// program. An engine narrows its scan by the conjuncts and the order of this
    /// stage.
    pub fn innermost(&self) -> &Program {
        self.inner().map_or(self, Program::innermost)
    }

    /// The most bytes of the copies in the program: the value of a parameter and the expression of a
    /// computed property at each place of their use, and the compiled constant patterns of LIKE. The
    /// rest of the program takes memory in proportion to the statement's text.
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }

    /// The whole result over documents in memory.
    pub fn run(&self, documents: &[Value]) -> Result<Vec<Value>, EvaluationError> {
        let input: Cow<'_, [Value]> = match self.inner() {
            Some(inner) => Cow::Owned(inner.run(documents)?),
            None if self.reads_no_document => Cow::Owned(vec![Value::Null]),
            None => Cow::Borrowed(documents),
        };
        if self.is_grouped() {
            let mut accumulator = self.accumulator();
            input.iter().try_for_each(|document| accumulator.add(document))?;
            return Ok(self.arrange(accumulator.finish()?));
        }
        let mut rows = Vec::new();
        input.iter().try_for_each(|document| self.rows(document, &mut rows))?;
        Ok(self.arrange(rows))
    }

    /// Conditions that every document of the result satisfies; see [`Conjunct`]. Empty
    /// when the program has an [inner](Program::inner) program.
    pub fn conjuncts(&self) -> &[Conjunct] {
        &self.conjuncts
    }

    /// Whether WHERE is a constant other than `true`, so that no document matches.
    pub fn matches_nothing(&self) -> bool {
        match &self.select.filter {
            Some(Node::Constant(value)) => *value != Some(Value::Bool(true)),
            _ => false,
        }
    }

    /// The time that the date functions see.
    pub fn now(&self) -> Now {
        self.now
    }

    /// The keys of ORDER BY.
    pub fn order(&self) -> &[OrderKey] {
        &self.order
    }

    /// Whether the order depends on an element of an array in FROM: `JOIN t IN c.tags ORDER BY t.x`.
    /// No index has this order, and the service refuses it.
    pub fn sorts_by_elements(&self) -> bool {
        self.inner.is_none() && sorts_by_elements(&self.select)
    }

    /// The one value of a document on which its row or its group depends. `None` if that is not a single
    /// value at a fixed path, or if the program has a filter or an [inner](Program::inner) program.
    pub fn row_key(&self) -> Option<&RowKey> {
        self.row_key.as_ref()
    }

    /// The directions of [`Program::order`], for [`compare_order`].
    pub fn directions(&self) -> &[Direction] {
        &self.directions
    }

    /// The count of TOP.
    pub fn top(&self) -> Option<u64> {
        self.select.top
    }

    /// The count of OFFSET.
    pub fn offset(&self) -> Option<u64> {
        self.select.offset
    }

    /// The count of LIMIT.
    pub fn limit(&self) -> Option<u64> {
        self.select.limit
    }

    /// Whether the statement is a SELECT DISTINCT.
    pub fn is_distinct(&self) -> bool {
        self.select.distinct
    }

    /// Whether the rows are groups: then use [`Program::accumulator`].
    pub fn is_grouped(&self) -> bool {
        self.select.grouping.is_some()
    }

    /// Whether an aggregate function is called outside of subqueries.
    pub fn has_aggregates(&self) -> bool {
        self.select.grouping.as_ref().is_some_and(|grouping| !grouping.aggregates.is_empty())
    }

    /// Whether the statement counts the documents, all of them, and does nothing else with them
    /// (`SELECT VALUE COUNT(1) FROM c`). Then the number of documents is enough:
    /// [`Accumulator::add_documents`].
    pub fn counts_every_document(&self) -> bool {
        self.inner.is_none() && counts_every_document(&self.select)
    }

    /// Whether there is a GROUP BY clause.
    pub fn has_group_by(&self) -> bool {
        self.select.grouping.as_ref().is_some_and(|grouping| !grouping.keys.is_empty())
    }

    /// Whether the statement, or its [innermost](Program::innermost) stage, has no
    /// FROM. Then the result does not depend on the container: evaluate the innermost
    /// program once, on any value.
    pub fn reads_no_document(&self) -> bool {
        self.reads_no_document
    }

    /// Whether each matching document is itself the row (`SELECT *`,
    /// `SELECT VALUE c`, no joins), so that the caller may copy its text. See
    /// [`Program::document_keys`].
    pub fn selects_whole_document(&self) -> bool {
        self.selects_whole_document
    }

    /// Whether the rows, before DISTINCT, OFFSET, LIMIT and TOP, are all documents in
    /// any order, so that no document has to be parsed to find them.
    pub fn selects_every_document(&self) -> bool {
        self.selects_whole_document && self.select.filter.is_none() && self.select.order.is_empty()
    }

    /// The verdict of the service's gateway on this statement, if it is sent for all partitions.
    pub fn gateway_verdict(&self) -> GatewayVerdict {
        self.verdict
    }

    /// Whether the statement has ORDER BY RANK. Such a statement runs only through its plan: a client
    /// collects statistics, runs the statements of the plan and fuses their ranks. The program
    /// itself returns the rows in any order.
    pub fn is_ranked(&self) -> bool {
        self.is_ranked
    }

    /// Whether ORDER BY sorts by a distance or a score. The service returns all rows of such a
    /// statement in one page, because clients do not continue it.
    pub fn sorts_by_score(&self) -> bool {
        self.sorts_by_score
    }

    /// Appends the rows of one document, after FROM, WHERE and the projection.
    /// Not for grouped programs.
    pub fn rows(&self, document: &Value, out: &mut Vec<Row>) -> Result<(), EvaluationError> {
        let context = self.context();
        let frame = Frame::root(Some(document));
        each_row(&self.select, &frame, &context, &mut |row| {
            let output = output_of(&self.select.output, row, &context)?;
            self.check_output(output.as_ref())?;
            out.push(Row { output, order_keys: order_keys(&self.select.order, row, &context)? });
            Ok(true)
        })?;
        Ok(())
    }

    /// Whether at least one row passes WHERE if this document is the only one. The output of
    /// the row does not matter.
    pub fn matches(&self, document: &Value) -> Result<bool, EvaluationError> {
        if let Some(inner) = self.inner() {
            let rows = inner.run(std::slice::from_ref(document))?;
            return rows.iter().try_fold(false, |found, row| Ok(found || self.has_row(row)?));
        }
        self.has_row(document)
    }

    /// Whether at least one row passes WHERE if this document is the only one. The evaluation may
    /// spend `steps` steps, and copy [`BYTES_PER_STEP`] bytes for each of them. Also returns how many
    /// steps it spent, including a step for every [`BYTES_PER_STEP`] copied bytes. A statement with an
    /// inner stage is refused as too much work.
    pub(crate) fn matches_within(
        &self,
        document: &Value,
        steps: u64,
    ) -> (Result<bool, EvaluationError>, u64) {
        if self.inner().is_some() {
            return (Err(EvaluationError::TooMuchWork), 0);
        }
        let budget = Budget::with_limits(steps, steps.saturating_mul(BYTES_PER_STEP));
        let context = Context::with_budget(self.now, budget).with_seed(self.next_seed());
        let (steps_before, bytes_before) = (context.budget.steps_left(), context.budget.bytes_left());
        let outcome = self.has_row_in(document, &context);
        let steps_for_bytes = (bytes_before - context.budget.bytes_left()) / BYTES_PER_STEP;
        (outcome, steps_before - context.budget.steps_left() + steps_for_bytes)
    }

    fn has_row(&self, document: &Value) -> Result<bool, EvaluationError> {
        self.has_row_in(document, &self.context())
    }

    fn has_row_in(&self, document: &Value, context: &Context) -> Result<bool, EvaluationError> {
        let frame = Frame::root(Some(document));
        each_row(&self.select, &frame, context, &mut |_| Ok(false)).map(|visited_all| !visited_all)
    }

    /// The sort keys of a document; `None` when the document does not match. For programs
    /// that select whole documents.
    pub fn document_keys(&self, document: &Value) -> Result<Option<Vec<Option<Value>>>, EvaluationError> {
        let context = self.context();
        let frame = Frame::root(Some(document));
        let mut keys = None;
        each_row(&self.select, &frame, &context, &mut |row| {
            keys = Some(order_keys(&self.select.order, row, &context)?);
            Ok(false)
        })?;
        Ok(keys)
    }

    /// An empty table of groups, for grouped programs. With other programs the
    /// accumulator ignores all documents.
    pub fn accumulator(&self) -> Accumulator<'_> {
        let table = self.select.grouping.as_ref().map(GroupTable::new);
        Accumulator { program: self, table, context: self.context() }
    }

    /// An empty table of the groups in a window, for grouped programs. The memory that it
    /// takes does not grow with the number of groups outside the window.
    pub fn groups_after(&self, window: GroupWindow) -> Accumulator<'_> {
        let table = self.select.grouping.as_ref().map(|grouping| GroupTable::within(grouping, window));
        Accumulator { program: self, table, context: self.context() }
    }

    /// Orders two rows by ORDER BY.
    pub fn compare(&self, a: &Row, b: &Row) -> Ordering {
        compare_order(&a.order_keys, &b.order_keys, &self.directions)
    }

    /// Turns all rows into the result: drops rows whose output is undefined, sorts
    /// (stably), and applies DISTINCT, OFFSET, LIMIT and TOP.
    pub fn arrange(&self, mut rows: Vec<Row>) -> Vec<Value> {
        rows.sort_by(|a, b| self.compare(a, b));
        let mut distinct = DistinctValues::default();
        let size = |count: Option<u64>, default: usize| {
            count.map_or(default, |count| usize::try_from(count).unwrap_or(usize::MAX))
        };
        rows.into_iter()
            .filter_map(|row| row.output)
            .filter(|value| !self.select.distinct || distinct.insert(value))
            .skip(size(self.select.offset, 0))
            .take(size(self.select.limit, usize::MAX))
            .take(size(self.select.top, usize::MAX))
            .collect()
    }

    fn context(&self) -> Context {
        Context::new(self.now).with_seed(self.next_seed())
    }

    /// A number that no earlier evaluation used, so that RAND differs from document to document.
    fn next_seed(&self) -> u64 {
        self.evaluations.fetch_add(1, AtomicOrdering::Relaxed)
    }

    /// Checks that JSON can represent the output.
    fn check_output(&self, output: Option<&Value>) -> Result<(), EvaluationError> {
        match output {
            Some(value) if self.can_compute_non_finite && !is_representable(value) => {
                Err(EvaluationError::NotRepresentable)
            }
            _ => Ok(()),
        }
    }
}
