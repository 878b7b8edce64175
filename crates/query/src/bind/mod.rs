//! From the tree to the program: names resolved, parameters put in, constants
//! computed, rules of meaning checked.
//!
//! The scope mirrors the frames of evaluation entry by entry, so that a name
//! becomes a distance. All complaints about a statement are collected, in the
//! order of the text within each clause; a statement with complaints has no
//! program.

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
use crate::diagnostic::{Diagnostic, Span};
use crate::eval::{Budget, Context};
use crate::node::{AggregateNode, SelectNode};
use crate::parameters::{Now, Parameters};

/// A statement that means something.
pub(crate) struct Bound {
    pub(crate) select: SelectNode,
    /// How many frames the document is away from a row of the statement, when
    /// FROM binds the document itself.
    pub(crate) document_hops: Option<usize>,
    /// Numbers are computed, not only read.
    pub(crate) computes: bool,
    /// The statement whose rows take the place of the documents.
    pub(crate) inner: Option<Box<Bound>>,
}

impl Bound {
    /// The stage that reads documents.
    pub(crate) fn innermost(&self) -> &Bound {
        self.inner.as_ref().map_or(self, |inner| inner.innermost())
    }
}

/// Binds a statement and, before it, the one it is staged on. The height of
/// the tree bounds how many there can be.
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
        context: Context { now, budget: Budget::new() },
        // The document; it has no name until FROM gives it one.
        scope: vec![Entry::Row { name: None, document: false }],
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
    /// For computing constants; its budget is for the whole statement.
    context: Context,
    scope: Vec<Entry<'q>>,
    /// The first source has been answered: what runs are its rows.
    is_staged: bool,
    diagnostics: Vec<Diagnostic>,
    document_hops: Option<usize>,
    computes: bool,
}

/// What one frame will hold.
enum Entry<'q> {
    Row { name: Option<&'q str>, document: bool },
    Group(Group<'q>),
}

/// A group stands in for the rows it was made of: their names can no longer
/// be read, except inside aggregates.
struct Group<'q> {
    keys: &'q [Expr],
    rows: Vec<Entry<'q>>,
    aggregates: Vec<AggregateNode>,
}

impl Binder<'_> {
    fn complain(&mut self, code: &'static str, message: impl Into<String>, span: Span) {
        self.diagnostics.push(Diagnostic::new(code, message, self.source, span));
    }

    /// The distance of the scope entry at that place.
    fn hops(&self, place: usize) -> usize {
        self.scope.len() - 1 - place
    }
}
