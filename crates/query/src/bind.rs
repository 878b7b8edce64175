//! The binder, from the syntax tree to the bound tree: it resolves names,
//! substitutes parameters, folds constants and checks the semantic rules.
//!
//! The scope has one entry per frame of the evaluation, so that a name becomes
//! a distance. All errors of a statement are collected, in the order of the
//! text within each clause.

mod expression;
mod fold;
mod group;
mod names;
mod select;
mod stage;

pub(crate) use group::{aggregate_call, contains_aggregate, same};
pub(crate) use names::{select_names, source_name};
pub(crate) use stage::staged_source;

use crate::ast::{Expr, Select};
use crate::context::Context;
use crate::diagnostic::{Diagnostic, Span};
use crate::node::{AggregateNode, SelectNode};
use crate::parameters::{Now, Parameters};

/// A bound statement.
pub(crate) struct Bound {
    pub(crate) select: SelectNode,
    /// The distance from the frame of a row to the frame of the document, when
    /// FROM binds the document itself.
    pub(crate) document_hops: Option<usize>,
    /// The statement computes numbers and does not only read them.
    pub(crate) computes: bool,
    /// The inner stage, whose rows take the place of the documents.
    pub(crate) inner: Option<Box<Bound>>,
}

impl Bound {
    /// The stage that reads documents.
    pub(crate) fn innermost(&self) -> &Bound {
        self.inner.as_ref().map_or(self, |inner| inner.innermost())
    }
}

/// Binds a statement and, before it, its inner stage. The height of the tree
/// bounds the number of stages.
pub(crate) fn bind(
    source: &str,
    select: &Select,
    parameters: &Parameters,
    now: Now,
) -> Result<Bound, Vec<Diagnostic>> {
    let staged = staged_source(select);
    let (inner, diagnostics) = match staged.map(|inner| bind(source, inner, parameters, now)) {
        Some(Ok(inner)) => (Some(Box::new(inner)), Vec::new()),
        Some(Err(diagnostics)) => (None, diagnostics),
        None => (None, Vec::new()),
    };
    let mut binder = Binder {
        source,
        parameters,
        context: Context::new(now),
        // The document; FROM gives it a name.
        scope: vec![ScopeEntry::Row { name: None, document: false }],
        is_staged: staged.is_some(),
        diagnostics,
        document_hops: None,
        computes: inner.as_ref().is_some_and(|inner| inner.computes),
    };
    let select = binder.statement(select);
    if binder.diagnostics.is_empty() {
        Ok(Bound { select, document_hops: binder.document_hops, computes: binder.computes, inner })
    } else {
        Err(binder.diagnostics)
    }
}

struct Binder<'q> {
    source: &'q str,
    parameters: &'q Parameters,
    /// For folding constants; its budget is for the whole statement.
    context: Context,
    scope: Vec<ScopeEntry<'q>>,
    /// The first source of FROM is a stage of its own, and its rows take the
    /// place of the documents.
    is_staged: bool,
    diagnostics: Vec<Diagnostic>,
    document_hops: Option<usize>,
    computes: bool,
}

/// One level of the scope, for one frame of the evaluation: a row or a group.
enum ScopeEntry<'q> {
    Row { name: Option<&'q str>, document: bool },
    Group(GroupScope<'q>),
}

/// The scope of a group. It hides the names of its rows, except inside
/// aggregates.
struct GroupScope<'q> {
    keys: &'q [Expr],
    rows: Vec<ScopeEntry<'q>>,
    aggregates: Vec<AggregateNode>,
}

impl Binder<'_> {
    fn complain(&mut self, code: &'static str, message: impl Into<String>, span: Span) {
        self.diagnostics.push(Diagnostic::new(code, message, self.source, span));
    }

    /// The distance from the innermost scope entry to the one at the index.
    fn hops(&self, index: usize) -> usize {
        self.scope.len() - 1 - index
    }
}
