//! The bound tree of a statement, ready for evaluation.
//!
//! A name of the statement becomes a number of hops: how many frames (`eval::Frame`) the
//! evaluation walks outwards to the value of the name. Parameters are constants. Most
//! expressions that have only constants are constants too (`bind::fold` has the exceptions).
//! The tree does not refer to the text of the statement.

use perihelion_model::json::Value;

use crate::ast::{BinaryOperator, Direction, LogicalOperator, SubqueryKind, UnaryOperator};
use crate::functions::Function;
use crate::like::LikePattern;

/// One step of a path into a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A member of an object, by name.
    Name(String),
    /// An element of an array, by index.
    Item(usize),
}

/// A bound expression.
#[derive(Debug)]
pub(crate) enum Node {
    Constant(Option<Value>),
    /// A fixed path into the value that is `hops` frames outwards.
    Path {
        hops: usize,
        steps: Vec<Step>,
    },
    /// A key of the group that is `hops` frames outwards.
    GroupKey {
        hops: usize,
        index: usize,
    },
    /// The result of an aggregate of the group that is `hops` frames outwards.
    Aggregate {
        hops: usize,
        index: usize,
    },
    /// A step into a computed value: `(a ?? b).c`.
    Step(Box<Node>, Step),
    /// `base[index]` with an index that is not constant.
    Index(Box<Node>, Box<Node>),
    Unary(UnaryOperator, Box<Node>),
    Binary(BinaryOperator, Box<Node>, Box<Node>),
    Logical(LogicalOperator, Vec<Node>),
    Between {
        value: Box<Node>,
        low: Box<Node>,
        high: Box<Node>,
        negated: bool,
    },
    In {
        value: Box<Node>,
        list: InList,
        negated: bool,
    },
    Like {
        value: Box<Node>,
        pattern: Pattern,
        negated: bool,
    },
    /// RegexMatch with a constant pattern and constant modifiers. The pattern is `None`
    /// when it cannot be compiled; then the result is undefined.
    Regex {
        value: Box<Node>,
        pattern: Option<regex_lite::Regex>,
    },
    Conditional(Box<Node>, Box<Node>, Box<Node>),
    Array(Vec<Node>),
    Object(Vec<(String, Node)>),
    Call(Function, Vec<Node>),
    /// A call of a user-defined function, by name. The evaluation refuses it, so the
    /// arguments are not needed.
    Udf(String),
    Subquery(SubqueryKind, Box<SelectNode>),
}

/// The list of an IN expression.
#[derive(Debug)]
pub(crate) enum InList {
    /// Constants only, sorted for binary search.
    Sorted {
        values: Vec<Value>,
        /// The most steps of a walk through an array or an object of the list; `None` if it has
        /// neither.
        array_or_object_steps_max: Option<u64>,
    },
    Nodes(Vec<Node>),
}

/// The pattern of a LIKE expression: a constant, or computed for every row.
#[derive(Debug)]
pub(crate) enum Pattern {
    Fixed(LikePattern),
    Computed { pattern: Box<Node>, escape: Option<char> },
}

/// A bound select: the statement, a stage of it, or a subquery.
#[derive(Debug)]
pub(crate) struct SelectNode {
    pub(crate) sources: Vec<SourceNode>,
    pub(crate) filter: Option<Node>,
    pub(crate) grouping: Option<Grouping>,
    pub(crate) output: Output,
    pub(crate) order: Vec<OrderNode>,
    pub(crate) distinct: bool,
    pub(crate) top: Option<u64>,
    pub(crate) offset: Option<u64>,
    pub(crate) limit: Option<u64>,
}

/// One source of FROM; each binds one frame.
#[derive(Debug)]
pub(crate) enum SourceNode {
    /// The value itself, when the value is defined.
    Value(Node),
    /// Each element of the value, when the value is an array.
    Elements(Node),
    /// Each row of a subquery.
    Rows(Box<SelectNode>),
    /// Each element of each row of a subquery, for the rows that are arrays: `x IN (SELECT …)`.
    ElementsOfRows(Box<SelectNode>),
}

/// The groups of a select with GROUP BY or aggregates. Without GROUP BY there are no
/// keys and one group.
#[derive(Debug)]
pub(crate) struct Grouping {
    pub(crate) keys: Vec<Node>,
    pub(crate) aggregates: Vec<AggregateNode>,
}

/// A call of an aggregate function. The argument is evaluated for each row.
#[derive(Debug)]
pub(crate) struct AggregateNode {
    pub(crate) function: AggregateFunction,
    pub(crate) argument: Node,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AggregateFunction {
    Count,
    Sum,
    Average,
    Min,
    Max,
    CountIf,
    MakeList,
    MakeSet,
}

/// The projection of a row: a value (`VALUE x`, `*`), or an object (a select list).
#[derive(Debug)]
pub(crate) enum Output {
    Value(Node),
    Object(Vec<(String, Node)>),
}

/// One key of ORDER BY.
#[derive(Debug)]
pub(crate) struct OrderNode {
    pub(crate) node: Node,
    pub(crate) direction: Direction,
}

impl Node {
    pub(crate) const UNDEFINED: Node = Node::Constant(None);

    pub(crate) fn as_constant(&self) -> Option<&Option<Value>> {
        match self {
            Node::Constant(value) => Some(value),
            _ => None,
        }
    }
}

impl AggregateFunction {
    /// Every function with its name in SQL and its name in query plans.
    const NAMES: [(AggregateFunction, &'static str, &'static str); 8] = [
        (AggregateFunction::Count, "COUNT", "Count"),
        (AggregateFunction::Sum, "SUM", "Sum"),
        (AggregateFunction::Average, "AVG", "Average"),
        (AggregateFunction::Min, "MIN", "Min"),
        (AggregateFunction::Max, "MAX", "Max"),
        (AggregateFunction::CountIf, "COUNTIF", "CountIf"),
        (AggregateFunction::MakeList, "MAKELIST", "MakeList"),
        (AggregateFunction::MakeSet, "MAKESET", "MakeSet"),
    ];

    /// The function of that name in SQL, in any letter case.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(_, sql, _)| sql.eq_ignore_ascii_case(name));
        found.map(|(function, ..)| *function)
    }

    /// The function of that name in query plans.
    pub(crate) fn by_plan_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(.., plan)| *plan == name).map(|(function, ..)| *function)
    }

    /// The name of the function in query plans.
    pub(crate) fn plan_name(self) -> &'static str {
        Self::NAMES.iter().find(|(function, ..)| *function == self).map_or("", |(.., plan)| plan)
    }
}
