//! The syntax tree of a statement.
//!
//! The tree has the details that the printer and the diagnostics need: spans,
//! whether `ASC` was written, and the difference between `a.b` and `a["b"]`. The
//! binder resolves names later. Every list has the order of the statement. No tree
//! is higher than [`HEIGHT_MAX`], so code that walks it may recurse.

use perihelion_model::json::Value;

use crate::diagnostic::Span;

/// The greatest height of a tree. Printer, binder, evaluator and destructor
/// recurse over the tree and must fit the 2 MiB stack of a worker thread even in a
/// debug build. A chain of `AND` or `OR` counts once, whatever its length.
pub(crate) const HEIGHT_MAX: u16 = 128;

/// `SELECT … [FROM …] [WHERE …] [GROUP BY …] [ORDER BY …] [OFFSET … LIMIT …]`
#[derive(Debug, Clone)]
pub(crate) struct Select {
    pub(crate) distinct: bool,
    pub(crate) top: Option<Count>,
    pub(crate) selection: Selection,
    pub(crate) from: Option<From>,
    pub(crate) filter: Option<Expr>,
    pub(crate) group_by: Option<Vec<Expr>>,
    pub(crate) order_by: Option<OrderBy>,
    pub(crate) window: Option<Window>,
    pub(crate) height: u16,
}

/// The part of a select between SELECT and FROM.
#[derive(Debug, Clone)]
pub(crate) enum Selection {
    /// `*`
    Star(Span),
    /// `a, b AS c`
    List(Vec<SelectItem>),
    /// `VALUE a`
    Value(Expr),
}

/// `expr [AS alias]`
#[derive(Debug, Clone)]
pub(crate) struct SelectItem {
    pub(crate) expr: Expr,
    pub(crate) alias: Option<Name>,
}

/// A name with its location in the statement.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) span: Span,
}

/// The number after `TOP`, `OFFSET` or `LIMIT`.
#[derive(Debug, Clone)]
pub(crate) enum Count {
    Literal { value: u64 },
    Parameter(Name),
}

/// `FROM first [JOIN …]…`
#[derive(Debug, Clone)]
pub(crate) struct From {
    pub(crate) first: Source,
    pub(crate) joins: Vec<Source>,
}

/// One source of FROM: it binds a name to a value.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// `collection [[AS] alias]`: the value itself.
    Aliased { collection: Collection, alias: Option<Name> },
    /// `name IN collection`: each element of an array.
    Iteration { name: Name, collection: Collection },
}

/// The value that a source reads: a path such as `c.children`, or a subquery.
#[derive(Debug, Clone)]
pub(crate) enum Collection {
    Path { root: Name, steps: Vec<PathStep> },
    Subquery { select: Box<Select>, span: Span },
}

/// A step of a path in `FROM`.
#[derive(Debug, Clone)]
pub(crate) enum PathStep {
    /// `.name`
    Member(String),
    /// `["name"]`
    Quoted(String),
    /// `[3]`
    Item(u64),
}

/// `ORDER BY [RANK] item, …`
#[derive(Debug, Clone)]
pub(crate) struct OrderBy {
    /// `ORDER BY RANK`
    pub(crate) is_rank: bool,
    pub(crate) items: Vec<OrderItem>,
}

/// `expr [ASC | DESC]`
#[derive(Debug, Clone)]
pub(crate) struct OrderItem {
    pub(crate) expr: Expr,
    /// `None` when the statement names no direction, which means ascending.
    pub(crate) direction: Option<Direction>,
}

/// The direction of a sort key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// `ASC`, the default.
    Ascending,
    /// `DESC`
    Descending,
}

/// `OFFSET … LIMIT …`
#[derive(Debug, Clone)]
pub(crate) struct Window {
    pub(crate) offset: Count,
    pub(crate) limit: Count,
}

/// A property of documents that is computed when a statement names it.
#[derive(Debug, Clone)]
pub(crate) struct ComputedProperty {
    pub(crate) name: String,
    /// The name of the document in `expr`.
    pub(crate) alias: String,
    /// The value. It has no subqueries and no aggregates.
    pub(crate) expr: Expr,
}

/// A scalar expression. Its height is one more than the height of its highest part.
#[derive(Debug, Clone)]
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    pub(crate) span: Span,
    pub(crate) height: u16,
}

#[derive(Debug, Clone)]
pub(crate) enum ExprKind {
    /// A literal; `None` is `undefined`.
    Literal(Option<Value>),
    Parameter(String),
    Identifier(String),
    /// `base.name`
    Member(Box<Expr>, Name),
    /// `base[index]`
    Index(Box<Expr>, Box<Expr>),
    Unary(UnaryOperator, Box<Expr>),
    Binary(BinaryOperator, Box<Expr>, Box<Expr>),
    /// `a AND b AND c` or `a OR b OR c`, evaluated from the left; at least two operands.
    Logical(LogicalOperator, Vec<Expr>),
    Between {
        value: Box<Expr>,
        low: Box<Expr>,
        high: Box<Expr>,
        negated: bool,
    },
    In {
        value: Box<Expr>,
        list: Vec<Expr>,
        negated: bool,
    },
    Like {
        value: Box<Expr>,
        pattern: Box<Expr>,
        escape: Option<String>,
        negated: bool,
    },
    /// `condition ? consequent : alternative`
    Conditional(Box<Expr>, Box<Expr>, Box<Expr>),
    Array(Vec<Expr>),
    Object(Vec<(String, Expr)>),
    Call {
        name: Name,
        is_udf: bool,
        arguments: Vec<Expr>,
    },
    Subquery(SubqueryKind, Box<Select>),
}

/// The kind of a subquery, by the word before its parentheses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubqueryKind {
    /// `(SELECT …)`
    Scalar,
    /// `ARRAY(SELECT …)`
    Array,
    /// `EXISTS(SELECT …)`
    Exists,
    /// `ALL(SELECT …)`
    All,
    /// `FIRST(SELECT …)`
    First,
    /// `LAST(SELECT …)`
    Last,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnaryOperator {
    Plus,
    Minus,
    BitNot,
    Not,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogicalOperator {
    And,
    Or,
}

impl LogicalOperator {
    pub(crate) fn text(self) -> &'static str {
        match self {
            LogicalOperator::And => "AND",
            LogicalOperator::Or => "OR",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BinaryOperator {
    Coalesce,
    Concat,
    BitOr,
    BitXor,
    BitAnd,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    ShiftLeft,
    ShiftRight,
    /// `>>>`: zeros come in from the left.
    ShiftRightZero,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

impl BinaryOperator {
    /// Whether the result can be infinity or NaN, which JSON cannot represent. The bit
    /// operators return integers of 32 bits.
    pub(crate) fn can_compute_non_finite(self) -> bool {
        matches!(
            self,
            BinaryOperator::Add
                | BinaryOperator::Subtract
                | BinaryOperator::Multiply
                | BinaryOperator::Divide
                | BinaryOperator::Modulo
        )
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            BinaryOperator::Coalesce => "??",
            BinaryOperator::Concat => "||",
            BinaryOperator::BitOr => "|",
            BinaryOperator::BitXor => "^",
            BinaryOperator::BitAnd => "&",
            BinaryOperator::Equal => "=",
            BinaryOperator::NotEqual => "!=",
            BinaryOperator::Less => "<",
            BinaryOperator::LessEqual => "<=",
            BinaryOperator::Greater => ">",
            BinaryOperator::GreaterEqual => ">=",
            BinaryOperator::ShiftLeft => "<<",
            BinaryOperator::ShiftRight => ">>",
            BinaryOperator::ShiftRightZero => ">>>",
            BinaryOperator::Add => "+",
            BinaryOperator::Subtract => "-",
            BinaryOperator::Multiply => "*",
            BinaryOperator::Divide => "/",
            BinaryOperator::Modulo => "%",
        }
    }
}

impl Expr {
    pub(crate) fn new(kind: ExprKind, span: Span) -> Self {
        let height = kind.height();
        Expr { kind, span, height }
    }
}

impl ExprKind {
    /// One more than the height of the highest direct part.
    fn height(&self) -> u16 {
        let list = |items: &[Expr]| items.iter().map(|item| item.height).max().unwrap_or(0);
        let parts = match self {
            ExprKind::Literal(_) | ExprKind::Parameter(_) | ExprKind::Identifier(_) => 0,
            ExprKind::Member(base, _) | ExprKind::Unary(_, base) => base.height,
            ExprKind::Index(a, b) | ExprKind::Binary(_, a, b) => a.height.max(b.height),
            ExprKind::Logical(_, items) | ExprKind::Array(items) => list(items),
            ExprKind::Between { value, low, high, .. } => value.height.max(low.height).max(high.height),
            ExprKind::In { value, list: items, .. } => value.height.max(list(items)),
            ExprKind::Like { value, pattern, .. } => value.height.max(pattern.height),
            ExprKind::Conditional(a, b, c) => a.height.max(b.height).max(c.height),
            ExprKind::Object(members) => members.iter().map(|(_, value)| value.height).max().unwrap_or(0),
            ExprKind::Call { arguments, .. } => list(arguments),
            ExprKind::Subquery(_, select) => select.height,
        };
        parts.saturating_add(1)
    }
}

impl Select {
    /// Sets the height from the parts. The parser calls this function once, at the end
    /// of the select.
    pub(crate) fn with_height(mut self) -> Self {
        let mut highest = self.filter.as_ref().map_or(0, |filter| filter.height);
        let mut include = |height: u16| highest = highest.max(height);
        match &self.selection {
            Selection::Star(_) => {}
            Selection::List(items) => items.iter().for_each(|item| include(item.expr.height)),
            Selection::Value(expr) => include(expr.height),
        }
        if let Some(from) = &self.from {
            std::iter::once(&from.first).chain(&from.joins).for_each(|source| include(source.height()));
        }
        if let Some(group_by) = &self.group_by {
            group_by.iter().for_each(|expr| include(expr.height));
        }
        if let Some(order_by) = &self.order_by {
            order_by.items.iter().for_each(|item| include(item.expr.height));
        }
        self.height = highest.saturating_add(1);
        self
    }
}

impl Source {
    pub(crate) fn collection(&self) -> &Collection {
        match self {
            Source::Aliased { collection, .. } | Source::Iteration { collection, .. } => collection,
        }
    }

    fn height(&self) -> u16 {
        match self.collection() {
            Collection::Path { .. } => 0,
            Collection::Subquery { select, .. } => select.height,
        }
    }
}
