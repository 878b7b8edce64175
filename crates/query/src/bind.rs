//! The binder turns the syntax tree into the bound tree: it resolves names,
//! substitutes parameters, folds constants and checks the semantic rules.
//!
//! The evaluation holds every bound value in a frame: one frame for the document, one for the
//! value of each source of FROM, and one for a group. The scope has one entry per frame. A name
//! is resolved to a number of hops: how many frames the evaluation walks outwards to the value of
//! the name. All errors of a statement are collected, in the order of the text within each clause.
//!
//! A subquery in FROM that needs all documents at once is an *inner stage* ([`stage`]).
//! The inner stage runs first, and the outer statement reads its rows in place of
//! documents.

mod expression;
mod fold;
mod group;
mod names;
mod rank;
mod search;
mod select;
mod stage;

pub(crate) use group::{aggregate_call, contains_aggregate, parts, same_expr};
pub(crate) use names::{select_names, source_name};
pub(crate) use rank::{RankComponent, Scoring, rank_components};
pub(crate) use search::sorts_by_score;
pub(crate) use stage::subquery_to_run_first;

use crate::ast::{ComputedProperty, Expr, Select};
use crate::context::{Context, size_in_memory};
use crate::diagnostic::{Diagnostic, LIMIT_CODE, Span};
use crate::node::{AggregateNode, Node, SelectNode};
use crate::parameters::{Now, Parameters};

/// A bound statement.
pub(crate) struct Bound {
    pub(crate) select: SelectNode,
    /// The number of frames from the innermost source of FROM outwards to the source
    /// whose value is the whole document (`FROM c`) or a whole row of the inner stage.
    /// `None` when there is no such source.
    pub(crate) document_hops: Option<usize>,
    /// Whether the statement or an inner stage has arithmetic, a function call or an
    /// aggregate. Only such a statement can compute infinity or NaN, which JSON cannot
    /// represent.
    pub(crate) can_compute_non_finite: bool,
    /// The number of constant patterns of RegexMatch in the statement and its inner stages.
    constant_patterns: usize,
    /// The bytes of the copies in the statement and its inner stages ([`COPIED_BYTES_MAX`]).
    copied_bytes: u64,
    /// The inner stage, whose rows take the place of the documents.
    pub(crate) inner: Option<Box<Bound>>,
}

impl Bound {
    /// The stage that reads the documents.
    pub(crate) fn innermost(&self) -> &Bound {
        self.inner.as_ref().map_or(self, |inner| inner.innermost())
    }

    /// The bytes of the copies in the statement and its inner stages.
    pub(crate) fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }
}

/// The most bytes of copies in one statement. Each use of a parameter is a copy of its value, each use
/// of a computed property is a copy of its expression, and a constant pattern of LIKE takes many times
/// the bytes of its text. Half a megabyte of text can name a value of two megabytes a hundred thousand
/// times.
const COPIED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Binds the inner stage of a statement, if it has one, and then the statement.
pub(crate) fn bind(
    source: &str,
    select: &Select,
    parameters: &Parameters,
    now: Now,
) -> Result<Bound, Vec<Diagnostic>> {
    bind_with(source, select, parameters, &[], now)
}

/// Binds a statement over documents with computed properties. Binds its inner stage first, if it has
/// one. The recursion is bounded, because the parser limits the nesting.
pub(crate) fn bind_with(
    source: &str,
    select: &Select,
    parameters: &Parameters,
    computed: &[ComputedProperty],
    now: Now,
) -> Result<Bound, Vec<Diagnostic>> {
    let staged = subquery_to_run_first(select);
    let inner = staged.map(|inner| bind_with(source, inner, parameters, computed, now));
    let (inner, mut diagnostics) = match inner {
        Some(Ok(inner)) => (Some(Box::new(inner)), Vec::new()),
        Some(Err(diagnostics)) => (None, diagnostics),
        None => (None, Vec::new()),
    };
    if let Some(staged) = staged.filter(|staged| rank::is_ranked(staged)) {
        diagnostics.push(rank::error_in_subquery(source, staged));
    }
    let mut binder = Binder {
        source,
        parameters,
        context: Context::new(now),
        // The document. Only the sources of FROM have names.
        scope: vec![ScopeEntry::Value { name: None, binds_document: false }],
        is_staged: staged.is_some(),
        computed,
        document_of_computed_property: None,
        diagnostics,
        document_hops: None,
        can_compute_non_finite: inner.as_ref().is_some_and(|inner| inner.can_compute_non_finite),
        constant_patterns: inner.as_ref().map_or(0, |inner| inner.constant_patterns),
        copied_bytes: inner.as_ref().map_or(0, |inner| inner.copied_bytes),
    };
    let select = binder.statement(select);
    if binder.diagnostics.is_empty() {
        let Binder { document_hops, can_compute_non_finite, constant_patterns, copied_bytes, .. } = binder;
        Ok(Bound { select, document_hops, can_compute_non_finite, constant_patterns, copied_bytes, inner })
    } else {
        Err(binder.diagnostics)
    }
}

/// The state while a statement is bound.
struct Binder<'q> {
    /// The text of the statement, for diagnostics.
    source: &'q str,
    parameters: &'q Parameters,
    /// The context for constant folding. Its budget limits the work of folding all constants of the
    /// statement. An inner stage has a binder and a budget of its own.
    context: Context,
    scope: Vec<ScopeEntry<'q>>,
    /// Whether the first source of FROM is a stage of its own, whose rows take the
    /// place of the documents.
    is_staged: bool,
    /// The computed properties of the documents.
    computed: &'q [ComputedProperty],
    /// While the expression of a computed property is bound: the name of the document in it,
    /// and the index of the document's entry in the scope. The expression can use no other name.
    document_of_computed_property: Option<(&'q str, usize)>,
    diagnostics: Vec<Diagnostic>,
    document_hops: Option<usize>,
    can_compute_non_finite: bool,
    /// The number of constant patterns of RegexMatch so far, those of the inner stages included.
    constant_patterns: usize,
    /// The bytes of the copies so far, those of the inner stages included.
    copied_bytes: u64,
}

/// One entry of the scope. Each entry corresponds to one frame of the evaluation.
enum ScopeEntry<'q> {
    /// The document, which has no name, or the value of one source of FROM.
    Value {
        name: Option<&'q str>,
        /// True for a source of FROM whose value is the whole document (`FROM c`) or a
        /// whole row of the inner stage.
        binds_document: bool,
    },
    /// A group. It takes the place of the sources of its select.
    Group(GroupScope<'q>),
}

/// A group in the scope. It hides the names of its sources, except inside
/// aggregates.
struct GroupScope<'q> {
    keys: &'q [Expr],
    /// The entries of the sources that the group hides.
    sources: Vec<ScopeEntry<'q>>,
    /// The aggregates that were bound so far.
    aggregates: Vec<AggregateNode>,
}

impl Binder<'_> {
    /// Reports a mistake. If an expression is bound twice in a row, its mistake is reported
    /// only once.
    fn report(&mut self, code: &'static str, message: impl Into<String>, span: Span) {
        let diagnostic = Diagnostic::new(code, message, self.source, span);
        if self.diagnostics.last() != Some(&diagnostic) {
            self.diagnostics.push(diagnostic);
        }
    }

    /// Counts the bytes of a copy that is about to be made. Returns false if the copies take more than
    /// [`COPIED_BYTES_MAX`], and reports one error for the whole statement.
    fn may_copy(&mut self, bytes: u64, span: Span) -> bool {
        if self.copied_bytes > COPIED_BYTES_MAX {
            return false;
        }
        self.copied_bytes = self.copied_bytes.saturating_add(bytes);
        if self.copied_bytes > COPIED_BYTES_MAX {
            let message = format!(
                "The query uses parameters, computed properties and patterns of LIKE that take more than \
                 the maximum of {} MB.",
                COPIED_BYTES_MAX / (1024 * 1024)
            );
            self.report(LIMIT_CODE, message, span);
            return false;
        }
        true
    }

    /// A copy of the value of a parameter. Undefined if the parameter has no value, or if the copies
    /// take too many bytes.
    fn parameter(&mut self, name: &str, span: Span) -> Node {
        match self.parameters.get(name) {
            Some(value) if self.may_copy(size_in_memory(value), span) => Node::Constant(Some(value.clone())),
            Some(_) | None => Node::UNDEFINED,
        }
    }

    /// The number of frames from the innermost scope entry outwards to the entry at `index`.
    fn hops(&self, index: usize) -> usize {
        self.scope.len() - 1 - index
    }
}
