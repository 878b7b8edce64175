//! Binding scalar expressions. A method is named after the expression that it binds.

use perihelion_model::json::{Number, Value};

use super::group::{aggregate_call, contains_aggregate, contains_subquery, same_expr};
use super::select::DOCUMENT_INDEX;
use super::{Binder, ScopeEntry, rank};
use crate::ast::{ComputedProperty, Expr, ExprKind, Name};
use crate::context::{Budget, size_in_memory};
use crate::diagnostic::{LIMIT_CODE, Span};
use crate::eval::{as_step, follow};
use crate::functions::Function;
use crate::like::LikePattern;
use crate::node::{AggregateFunction, AggregateNode, InList, Node, Pattern, Step};
use crate::order::{compare_values, walk_steps};
use crate::printer::expr_text;
use crate::regex::{self, CONSTANT_PATTERNS_MAX};

impl<'q> Binder<'q> {
    pub(super) fn expr(&mut self, expr: &'q Expr) -> Node {
        if let Some(key) = self.group_key(expr) {
            return key;
        }
        // Each use of a computed property copies its expression, so the copies of a statement are
        // limited. `may_copy` reports the error.
        if self.document_of_computed_property.is_some() && !self.may_copy(copied_bytes(expr), expr.span) {
            return Node::UNDEFINED;
        }
        let node = match &expr.kind {
            ExprKind::Literal(value) => Node::Constant(value.clone()),
            ExprKind::Parameter(name) => self.parameter(name, expr.span),
            ExprKind::Identifier(_) | ExprKind::Member(..) | ExprKind::Index(..) => self.path(expr, expr),
            ExprKind::Unary(operator, operand) => Node::Unary(*operator, self.boxed(operand)),
            ExprKind::Binary(operator, left, right) => {
                self.can_compute_non_finite |= operator.can_compute_non_finite();
                Node::Binary(*operator, self.boxed(left), self.boxed(right))
            }
            ExprKind::Logical(operator, operands) => Node::Logical(*operator, self.list(operands)),
            ExprKind::Between { value, low, high, negated } => Node::Between {
                value: self.boxed(value),
                low: self.boxed(low),
                high: self.boxed(high),
                negated: *negated,
            },
            ExprKind::In { value, list, negated } => {
                let value = self.boxed(value);
                let list = in_list(self.list(list), &self.context.budget);
                Node::In { value, list, negated: *negated }
            }
            ExprKind::Like { value, pattern, escape, negated } => {
                let value = self.boxed(value);
                let escape = escape.as_ref().and_then(|escape| escape.chars().next());
                Node::Like { value, pattern: self.pattern(pattern, escape), negated: *negated }
            }
            ExprKind::Conditional(condition, consequent, alternative) => {
                Node::Conditional(self.boxed(condition), self.boxed(consequent), self.boxed(alternative))
            }
            ExprKind::Array(items) => Node::Array(self.list(items)),
            ExprKind::Object(members) => {
                Node::Object(members.iter().map(|(name, value)| (name.clone(), self.expr(value))).collect())
            }
            ExprKind::Call { name, is_udf, arguments } => self.call(expr, name, *is_udf, arguments),
            ExprKind::Subquery(kind, select) => {
                self.refuse_rank(select);
                let reads_container = false;
                Node::Subquery(*kind, Box::new(self.select(select, reads_container)))
            }
        };
        self.fold(node)
    }

    fn boxed(&mut self, expr: &'q Expr) -> Box<Node> {
        Box::new(self.expr(expr))
    }

    pub(super) fn list(&mut self, exprs: &'q [Expr]) -> Vec<Node> {
        exprs.iter().map(|expr| self.expr(expr)).collect()
    }

    /// The pattern of a LIKE expression. A constant pattern is compiled here once.
    fn pattern(&mut self, expr: &'q Expr, escape: Option<char>) -> Pattern {
        let node = self.expr(expr);
        match &node {
            Node::Constant(Some(Value::String(text)))
                if self.may_copy(LikePattern::compile_bytes(text) as u64, expr.span) =>
            {
                Pattern::Fixed(LikePattern::new(text, escape))
            }
            _ => Pattern::Computed { pattern: Box::new(node), escape },
        }
    }

    /// The node of a GROUP BY key, if the expression equals a key of a group in scope.
    fn group_key(&self, expr: &Expr) -> Option<Node> {
        if self.document_of_computed_property.is_some() {
            return None;
        }
        for (position, entry) in self.scope.iter().enumerate().rev() {
            if let ScopeEntry::Group(group) = entry
                && let Some(index) = group.keys.iter().position(|key| same_expr(key, expr))
            {
                return Some(Node::GroupKey { hops: self.hops(position), index });
            }
        }
        None
    }

    /// Binds an expression that is a path or the base of a path. `whole` is the entire
    /// path, for error messages.
    fn path(&mut self, expr: &'q Expr, whole: &'q Expr) -> Node {
        if let Some(key) = self.group_key(expr) {
            return key;
        }
        match &expr.kind {
            ExprKind::Identifier(name) => self.identifier(name, expr.span, Some(whole)),
            ExprKind::Member(base, name) => {
                let base = self.path(base, whole);
                self.step(base, Step::Name(name.text.clone()))
            }
            ExprKind::Index(base, index) => {
                let base = self.path(base, whole);
                let index = self.expr(index);
                match index.as_constant() {
                    Some(Some(value)) => match as_step(value) {
                        Some(step) => self.step(base, step),
                        None => Node::UNDEFINED,
                    },
                    Some(None) => Node::UNDEFINED,
                    None => Node::Index(Box::new(base), Box::new(index)),
                }
            }
            _ => self.expr(expr),
        }
    }

    /// Appends a step to a path. If the step leads from the document to a computed property, binds
    /// the expression of that property instead.
    pub(super) fn step(&mut self, base: Node, step: Step) -> Node {
        let Some((property, document)) = self.computed_property(&base, &step) else {
            return self.extend(base, step);
        };
        self.document_of_computed_property = Some((&property.alias, document));
        let node = self.expr(&property.expr);
        self.document_of_computed_property = None;
        node
    }

    /// The computed property that a step leads to, and the index of the document in the scope.
    fn computed_property(&self, base: &Node, step: &Step) -> Option<(&'q ComputedProperty, usize)> {
        let (Node::Path { hops, steps }, Step::Name(name)) = (base, step) else { return None };
        if !steps.is_empty() || self.is_staged || self.document_of_computed_property.is_some() {
            return None;
        }
        let property = self.computed.iter().find(|property| property.name == *name)?;
        let index = self.scope.len().checked_sub(hops + 1)?;
        let is_document = index == DOCUMENT_INDEX
            || matches!(self.scope[index], ScopeEntry::Value { binds_document: true, .. });
        is_document.then_some((property, index))
    }

    /// Appends a step to a path that does not lead to a computed property. A step into a constant
    /// is evaluated at once.
    pub(super) fn extend(&self, base: Node, step: Step) -> Node {
        match base {
            Node::Path { hops, mut steps } => {
                steps.push(step);
                Node::Path { hops, steps }
            }
            Node::Constant(None) => Node::Constant(None),
            Node::Constant(Some(value)) => {
                match follow(&value, std::slice::from_ref(&step), &self.context.budget) {
                    Ok(found) => Node::Constant(found.cloned()),
                    // The lookup exceeds the budget of the binder. It is evaluated when the
                    // statement runs.
                    Err(_) => Node::Step(Box::new(Node::Constant(Some(value))), step),
                }
            }
            base => Node::Step(Box::new(base), step),
        }
    }

    /// Resolves a name, from the innermost scope entry outwards. A group hides the
    /// names of its sources; the error for such a name quotes the whole path.
    pub(super) fn identifier(&mut self, name: &str, span: Span, whole: Option<&Expr>) -> Node {
        if let Some((_, index)) = self.document_of_computed_property.filter(|(alias, _)| *alias == name) {
            return Node::Path { hops: self.hops(index), steps: Vec::new() };
        }
        for (position, entry) in self.scope.iter().enumerate().rev() {
            match entry {
                ScopeEntry::Value { name: Some(known), .. } if *known == name => {
                    return Node::Path { hops: self.hops(position), steps: Vec::new() };
                }
                ScopeEntry::Group(group) if group.sources.iter().any(|source| source.is_named(name)) => {
                    let text = whole.map_or_else(|| name.to_owned(), expr_text);
                    let message = format!(
                        "Property reference '{text}' is invalid in the select list because it is not \
                         contained in either an aggregate function or the GROUP BY clause."
                    );
                    self.report("SC2102", message, whole.map_or(span, |whole| whole.span));
                    return Node::UNDEFINED;
                }
                ScopeEntry::Value { .. } | ScopeEntry::Group(_) => {}
            }
        }
        if let Some(number) = constant_named(name) {
            self.can_compute_non_finite = true;
            return Node::Constant(Some(Value::Number(Number::Double(number))));
        }
        self.report("SC2001", format!("Identifier '{name}' could not be resolved."), span);
        Node::UNDEFINED
    }

    fn call(&mut self, expr: &'q Expr, name: &'q Name, is_udf: bool, arguments: &'q [Expr]) -> Node {
        if is_udf {
            // Binds the arguments only for their errors.
            self.list(arguments);
            return Node::Udf(name.text.clone());
        }
        if let Some((function, arguments)) = aggregate_call(expr) {
            return self.aggregate(function, expr, name, arguments);
        }
        if name.text.eq_ignore_ascii_case(rank::FULL_TEXT_SCORE) {
            let message = "The FullTextScore function is only allowed in the ORDER BY RANK clause.";
            self.report("SC2240", message, expr.span);
            return Node::UNDEFINED;
        }
        let Some(function) = Function::by_name(&name.text) else {
            let message = format!("'{}' is not a recognized built-in function name.", name.text);
            self.report("SC2005", message, name.span);
            return Node::UNDEFINED;
        };
        let signature = function.signature();
        let count = arguments.len();
        if !(signature.arguments_min..=signature.arguments_max).contains(&count) {
            self.report_argument_count(
                signature.name,
                signature.arguments_min,
                signature.arguments_max,
                expr.span,
            );
            return Node::UNDEFINED;
        }
        self.can_compute_non_finite = true;
        let arguments = self.list(arguments);
        if function.is_regex_match() {
            self.regex_match(function, arguments, expr.span)
        } else if function.compares_vectors() {
            self.vector_node(function, arguments, expr.span)
        } else if function.is_spatial() {
            let is_planar = Node::Constant(Some(self.parameters.is_planar().into()));
            Node::Call(function, arguments.into_iter().chain([is_planar]).collect())
        } else {
            Node::Call(function, arguments)
        }
    }

    /// Binds RegexMatch. A constant pattern that our regex engine does not support is refused,
    /// because it would silently match nothing. If the statement has too many constant patterns, one
    /// error is reported for all of them.
    fn regex_match(&mut self, function: Function, arguments: Vec<Node>, span: Span) -> Node {
        let modifiers = match arguments.get(2) {
            Some(Node::Constant(Some(Value::String(modifiers)))) => modifiers,
            _ => "",
        };
        if let Some(Node::Constant(Some(Value::String(pattern)))) = arguments.get(1) {
            let patterns_max = self.parameters.patterns_max().unwrap_or(CONSTANT_PATTERNS_MAX);
            self.constant_patterns += 1;
            if self.constant_patterns > patterns_max {
                if self.constant_patterns == patterns_max + 1 {
                    let message = format!(
                        "The query has more than the maximum of {patterns_max} constant patterns of \
                         RegexMatch."
                    );
                    self.report(LIMIT_CODE, message, span);
                }
                return Node::UNDEFINED;
            }
            if let Some(error) = regex::unsupported(pattern, modifiers) {
                self.report("SC2070", error.to_string(), span);
            }
        }
        regex_node(function, arguments)
    }

    fn report_argument_count(&mut self, name: &str, min: usize, max: usize, span: Span) {
        let wanted = if min == max {
            format!("{min}")
        } else if max == usize::MAX {
            format!("at least {min}")
        } else {
            format!("{min} to {max}")
        };
        self.report("SC2050", format!("The {name} function requires {wanted} argument(s)."), span);
    }

    /// Binds an aggregate. Its argument is evaluated for each row and not for the
    /// group: while the argument is bound, the sources are in scope and the group is
    /// not.
    fn aggregate(
        &mut self,
        function: AggregateFunction,
        expr: &'q Expr,
        name: &'q Name,
        arguments: &'q [Expr],
    ) -> Node {
        let [argument] = arguments else {
            self.report_argument_count(&name.text.to_ascii_uppercase(), 1, 1, expr.span);
            return Node::UNDEFINED;
        };
        if contains_aggregate(argument) || contains_subquery(argument) {
            let message = "Cannot perform an aggregate function on an expression containing an aggregate or \
                           a subquery.";
            self.report("SC2101", message, expr.span);
            return Node::UNDEFINED;
        }
        let Some(ScopeEntry::Group(mut group)) =
            self.scope.pop_if(|entry| matches!(entry, ScopeEntry::Group(_)))
        else {
            let message = format!("The aggregate function {} is not allowed in this context.", name.text);
            self.report("SC2100", message, expr.span);
            return Node::UNDEFINED;
        };
        self.can_compute_non_finite = true;
        let start = self.scope.len();
        self.scope.append(&mut group.sources);
        let argument = self.expr(argument);
        group.sources = self.scope.split_off(start);
        let index = group.aggregates.len();
        group.aggregates.push(AggregateNode { function, argument });
        self.scope.push(ScopeEntry::Group(group));
        Node::Aggregate { hops: 0, index }
    }
}

impl ScopeEntry<'_> {
    fn is_named(&self, wanted: &str) -> bool {
        matches!(self, ScopeEntry::Value { name: Some(name), .. } if *name == wanted)
    }
}

/// The constant of that name. A source with the same name hides it.
fn constant_named(name: &str) -> Option<f64> {
    match name {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        _ => None,
    }
}

/// The bytes of the node of an expression, without the nodes of its parts.
fn copied_bytes(expr: &Expr) -> u64 {
    let text = match &expr.kind {
        ExprKind::Literal(value) => value.as_ref().map_or(0, size_in_memory),
        ExprKind::Member(_, name) => name.text.len() as u64,
        ExprKind::Object(members) => members.iter().map(|(name, _)| name.len() as u64).sum(),
        _ => 0,
    };
    size_of::<Node>() as u64 + text
}

/// The list of an IN expression. A list of defined constants is sorted here, so that
/// the evaluation can use binary search. A list that takes too much work to sort stays as it is.
fn in_list(nodes: Vec<Node>, budget: &Budget) -> InList {
    let comparisons_per_value = u64::from(usize::BITS - nodes.len().leading_zeros());
    let mut steps = 0_u64;
    for node in &nodes {
        let Node::Constant(Some(value)) = node else { return InList::Nodes(nodes) };
        steps = steps.saturating_add(walk_steps(value).saturating_mul(comparisons_per_value));
    }
    if budget.spend_steps(steps).is_err() {
        return InList::Nodes(nodes);
    }
    let mut values: Vec<Value> = nodes
        .into_iter()
        .filter_map(|node| match node {
            Node::Constant(value) => value,
            _ => None,
        })
        .collect();
    values.sort_by(|a, b| compare_values(Some(a), Some(b)));
    let is_array_or_object = |value: &&Value| matches!(value, Value::Array(_) | Value::Object(_));
    let arrays_and_objects = values.iter().filter(is_array_or_object);
    InList::Sorted { array_or_object_steps_max: arrays_and_objects.map(walk_steps).max(), values }
}

/// The node of a call of RegexMatch. If the pattern and the modifiers are constant, the
/// pattern is compiled here once and not for every row.
fn regex_node(function: Function, mut arguments: Vec<Node>) -> Node {
    let text = |node: Option<&Node>| match node {
        Some(Node::Constant(Some(Value::String(text)))) => Some(text.clone()),
        _ => None,
    };
    let modifiers = if arguments.len() > 2 { text(arguments.get(2)) } else { Some(String::new()) };
    match (text(arguments.get(1)), modifiers) {
        (Some(pattern), Some(modifiers)) => Node::Regex {
            value: Box::new(arguments.swap_remove(0)),
            pattern: regex::compile(&pattern, &modifiers),
        },
        _ => Node::Call(function, arguments),
    }
}
