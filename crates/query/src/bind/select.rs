//! Binding a select and its clauses. A method is named after the clause that it binds.

use perihelion_model::json::Value;

use super::group::is_grouped;
use super::names::{select_names, source_name};
use super::{Binder, GroupScope, ScopeEntry};
use crate::ast::{Collection, Count, Expr, Name, OrderBy, PathStep, Select, Selection, Source};
use crate::diagnostic::Span;
use crate::node::{Grouping, Node, OrderNode, Output, SelectNode, SourceNode, Step};

/// The index of the document's entry in the scope.
pub(super) const DOCUMENT_INDEX: usize = 0;

impl<'q> Binder<'q> {
    pub(super) fn statement(&mut self, select: &'q Select) -> SelectNode {
        self.select(select, true)
    }

    /// Binds a select. With `reads_container` the first name in FROM means the
    /// container, whatever the name is.
    pub(super) fn select(&mut self, select: &'q Select, reads_container: bool) -> SelectNode {
        let start = self.scope.len();
        let sources = self.sources(select, reads_container);
        if reads_container && start == DOCUMENT_INDEX + 1 {
            self.document_hops = self.find_document();
        }
        let filter = select.filter.as_ref().map(|filter| self.expr(filter));
        let filter = self.with_defined_distances(filter, select.order_by.as_ref());
        let (grouping, output, order) = if is_grouped(select) {
            self.grouped(select, start)
        } else {
            let output = self.selection(select, start);
            (None, output, self.order(select.order_by.as_ref()))
        };
        self.scope.truncate(start);
        SelectNode {
            sources,
            filter,
            grouping,
            output,
            order,
            distinct: select.distinct,
            top: self.count(select.top.as_ref()),
            offset: self.count(select.window.as_ref().map(|window| &window.offset)),
            limit: self.count(select.window.as_ref().map(|window| &window.limit)),
        }
    }

    /// The number of frames outwards to the source that binds the document itself.
    fn find_document(&self) -> Option<usize> {
        let binds_document =
            |entry: &ScopeEntry<'_>| matches!(entry, ScopeEntry::Value { binds_document: true, .. });
        let index = self.scope.iter().position(binds_document)?;
        Some(self.hops(index))
    }

    fn sources(&mut self, select: &'q Select, reads_container: bool) -> Vec<SourceNode> {
        let Some(from) = &select.from else { return Vec::new() };
        let start = self.scope.len();
        let mut nodes = vec![self.source(&from.first, reads_container)];
        for join in &from.joins {
            nodes.push(self.source(join, false));
        }
        self.check_aliases(start, std::iter::once(&from.first).chain(&from.joins));
        nodes
    }

    /// Binds a source and puts its name into the scope.
    fn source(&mut self, source: &'q Source, reads_container: bool) -> SourceNode {
        let iterates = matches!(source, Source::Iteration { .. });
        let name = source_name(source);
        let mut binds_document = false;
        let node = match source.collection() {
            Collection::Subquery { .. } if reads_container && self.is_staged => {
                binds_document = !iterates;
                let row = Node::Path { hops: self.hops(DOCUMENT_INDEX), steps: Vec::new() };
                if iterates { SourceNode::Elements(row) } else { SourceNode::Value(row) }
            }
            Collection::Subquery { select, .. } => {
                self.refuse_rank(select);
                let rows = Box::new(self.select(select, reads_container));
                if iterates { SourceNode::ElementsOfRows(rows) } else { SourceNode::Rows(rows) }
            }
            Collection::Path { root, steps } => {
                let path = self.collection_path(root, steps, reads_container);
                binds_document = reads_container
                    && steps.is_empty()
                    && !iterates
                    && self.scope.len() == DOCUMENT_INDEX + 1;
                if iterates { SourceNode::Elements(path) } else { SourceNode::Value(path) }
            }
        };
        self.scope.push(ScopeEntry::Value { name, binds_document });
        node
    }

    fn collection_path(&mut self, root: &'q Name, steps: &'q [PathStep], reads_container: bool) -> Node {
        let base = if reads_container {
            Node::Path { hops: self.hops(DOCUMENT_INDEX), steps: Vec::new() }
        } else {
            self.identifier(&root.text, root.span, None)
        };
        steps.iter().fold(base, |base, step| {
            let step = match step {
                PathStep::Member(name) | PathStep::Quoted(name) => Step::Name(name.clone()),
                PathStep::Item(index) => Step::Item(usize::try_from(*index).unwrap_or(usize::MAX)),
            };
            self.step(base, step)
        })
    }

    /// Checks that no two sources have the same name. `start` is the index of the
    /// first source in the scope.
    fn check_aliases(&mut self, start: usize, sources: impl Iterator<Item = &'q Source>) {
        let spans: Vec<Span> = sources.map(source_span).collect();
        for (index, span) in spans.into_iter().enumerate() {
            let name_at = |index: usize| match self.scope.get(start + index) {
                Some(ScopeEntry::Value { name, .. }) => *name,
                _ => None,
            };
            let Some(name) = name_at(index) else { continue };
            if (0..index).any(|earlier| name_at(earlier) == Some(name)) {
                let message =
                    format!("The input alias '{name}' is specified more than once in the FROM clause.");
                self.report("SC2011", message, span);
            }
        }
    }

    /// Binds a select with groups. In the scope the group takes the place of the
    /// sources.
    fn grouped(&mut self, select: &'q Select, start: usize) -> (Option<Grouping>, Output, Vec<OrderNode>) {
        let keys: &'q [Expr] = select.group_by.as_ref().map_or(&[], Vec::as_slice);
        let key_nodes = keys.iter().map(|key| self.expr(key)).collect();
        if keys.is_empty() {
            // All rows are one group, which needs no order. ORDER BY is bound only to
            // report its errors.
            self.order(select.order_by.as_ref());
        }
        let sources = self.scope.split_off(start);
        self.scope.push(ScopeEntry::Group(GroupScope { keys, sources, aggregates: Vec::new() }));
        let output = self.selection(select, start);
        let order = if keys.is_empty() { Vec::new() } else { self.order(select.order_by.as_ref()) };
        let aggregates = match self.scope.pop() {
            Some(ScopeEntry::Group(group)) => group.aggregates,
            _ => Vec::new(),
        };
        (Some(Grouping { keys: key_nodes, aggregates }), output, order)
    }

    fn selection(&mut self, select: &'q Select, start: usize) -> Output {
        match &select.selection {
            Selection::Star(span) => self.star(select, *span, start),
            Selection::Value(expr) => Output::Value(self.expr(expr)),
            Selection::List(items) => {
                let names = select_names(items);
                self.check_names(
                    &names,
                    items.iter().map(|item| item.alias.as_ref().map_or(item.expr.span, |a| a.span)),
                );
                let nodes = items.iter().map(|item| self.expr(&item.expr)).collect::<Vec<_>>();
                Output::Object(names.into_iter().zip(nodes).collect())
            }
        }
    }

    /// `*`: the value of the only source. `start` is the index of the first source in
    /// the scope.
    fn star(&mut self, select: &'q Select, span: Span, start: usize) -> Output {
        let sources = self.scope.len() - start;
        if select.group_by.is_some() {
            self.report("SC2041", "'SELECT *' is not allowed with GROUP BY.", span);
        } else if select.from.is_none() {
            self.report("SC2039", "'SELECT *' is not valid if FROM clause is omitted.", span);
        } else if sources != 1 {
            self.report("SC2040", "'SELECT *' is only valid with a single input set.", span);
        }
        Output::Value(Node::Path { hops: 0, steps: Vec::new() })
    }

    fn check_names(&mut self, names: &[String], spans: impl Iterator<Item = Span>) {
        let mut seen = std::collections::HashSet::with_capacity(names.len());
        for (name, span) in names.iter().zip(spans) {
            if !seen.insert(name.as_str()) {
                let message = format!("'{name}' is specified more than once in the SELECT list.");
                self.report("SC2022", message, span);
            }
        }
    }

    fn order(&mut self, order_by: Option<&'q OrderBy>) -> Vec<OrderNode> {
        let Some(order_by) = order_by else { return Vec::new() };
        if order_by.is_rank {
            self.rank(order_by);
            return Vec::new();
        }
        order_by.items.iter().map(|item| self.order_item(item)).collect()
    }

    /// The number after TOP, OFFSET or LIMIT; `None` when the clause is absent or its
    /// parameter is refused.
    fn count(&mut self, count: Option<&'q Count>) -> Option<u64> {
        match count? {
            Count::Literal { value } => Some(*value),
            Count::Parameter(name) => {
                let value = self.parameters.get(&name.text).and_then(Value::as_i64);
                let count = value.and_then(|value| u64::try_from(value).ok());
                if count.is_none() {
                    let message =
                        format!("The value of the parameter '{}' must be a non-negative integer.", name.text);
                    self.report("SC2060", message, name.span);
                }
                count
            }
        }
    }
}

fn source_span(source: &Source) -> Span {
    match source {
        Source::Iteration { name, .. } => name.span,
        Source::Aliased { alias: Some(alias), .. } => alias.span,
        Source::Aliased { collection: Collection::Path { root, .. }, alias: None } => root.span,
        Source::Aliased { collection: Collection::Subquery { span, .. }, alias: None } => *span,
    }
}
