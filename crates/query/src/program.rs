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

use std::borrow::Cow;
use std::cmp::Ordering;

pub use accumulator::Accumulator;
pub use distinct::DistinctValues;

use perihelion_model::json::{Number, Value};

use crate::ast::{Direction, Select};
use crate::bind::{Bound, bind};
use crate::conjunct::{Conjunct, conjuncts, path_of};
use crate::context::{Budget, Context};
use crate::diagnostic::Diagnostic;
use crate::error::EvaluationError;
use crate::eval::{Frame, GroupTable, each_row, order_keys, output_of};
use crate::gateway::{GatewayVerdict, gateway_verdict};
use crate::node::{Node, Output, SelectNode, Step};
use crate::order::compare_order;
use crate::parameters::{Now, Parameters};
use crate::statement::Query;

/// Compiles a statement. The date functions see `now`.
pub fn compile(query: &Query, parameters: &Parameters, now: Now) -> Result<Program, Vec<Diagnostic>> {
    Program::new(&query.text, &query.select, parameters, now)
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
    /// See [`Program::selects_whole_document`].
    selects_whole_document: bool,
    reads_no_document: bool,
    /// Whether the statement has arithmetic, a function call or an aggregate. Only then
    /// can its output have infinity or NaN, which JSON cannot represent.
    can_compute_non_finite: bool,
    verdict: GatewayVerdict,
}

/// How many bytes of copies take about as long as one step.
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
    pub(crate) fn new(
        source: &str,
        select: &Select,
        parameters: &Parameters,
        now: Now,
    ) -> Result<Self, Vec<Diagnostic>> {
        let bound = bind(source, select, parameters, now)?;
        Ok(Program::from_bound(bound, now, gateway_verdict(select)))
    }

    fn from_bound(bound: Bound, now: Now, verdict: GatewayVerdict) -> Self {
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
            conjuncts,
            directions: order.iter().map(|key| key.direction).collect(),
            order,
            selects_whole_document: selects_document(&bound.select, hops),
            reads_no_document: match &inner {
                Some(inner) => inner.reads_no_document,
                None => bound.select.sources.is_empty(),
            },
            can_compute_non_finite: bound.can_compute_non_finite,
            verdict,
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

    /// The keys of ORDER BY.
    pub fn order(&self) -> &[OrderKey] {
        &self.order
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

    /// Whether an aggregate function is called, subqueries aside.
    pub fn has_aggregates(&self) -> bool {
        self.select.grouping.as_ref().is_some_and(|grouping| !grouping.aggregates.is_empty())
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

    /// What the service's gateway does with this statement across partitions.
    pub fn gateway_verdict(&self) -> GatewayVerdict {
        self.verdict
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

    /// Whether at least one row of the document alone passes WHERE. The output of the
    /// row does not matter.
    pub fn matches(&self, document: &Value) -> Result<bool, EvaluationError> {
        if let Some(inner) = self.inner() {
            let rows = inner.run(std::slice::from_ref(document))?;
            return rows.iter().try_fold(false, |found, row| Ok(found || self.has_row(row)?));
        }
        self.has_row(document)
    }

    /// Whether at least one row of the document alone passes WHERE, with at most this many
    /// steps. Also returns the steps that were spent. Every [`BYTES_PER_STEP`] bytes of copies
    /// count as a step. A statement with an inner stage takes too much work.
    pub(crate) fn matches_within(
        &self,
        document: &Value,
        steps: u64,
    ) -> (Result<bool, EvaluationError>, u64) {
        if self.inner().is_some() {
            return (Err(EvaluationError::TooMuchWork), 0);
        }
        let context = Context { now: self.now, budget: Budget::with_steps(steps) };
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
        Context::new(self.now)
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

/// The keys of ORDER BY.
fn order_of(select: &SelectNode, document_hops: Option<usize>) -> Vec<OrderKey> {
    let path = |node: &Node| match document_hops {
        Some(hops) if select.grouping.is_none() => path_of(node, hops).map(<[Step]>::to_vec),
        _ => None,
    };
    select.order.iter().map(|key| OrderKey { direction: key.direction, path: path(&key.node) }).collect()
}

/// Whether each row is the document itself.
fn selects_document(select: &SelectNode, document_hops: Option<usize>) -> bool {
    let whole = match &select.output {
        Output::Value(Node::Path { hops, steps }) => steps.is_empty() && Some(*hops) == document_hops,
        _ => false,
    };
    whole && select.sources.len() == 1 && select.grouping.is_none()
}

fn is_representable(value: &Value) -> bool {
    match value {
        Value::Number(Number::Double(value)) => value.is_finite(),
        Value::Array(items) => items.iter().all(is_representable),
        Value::Object(object) => object.iter().all(|(_, member)| is_representable(member)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}
