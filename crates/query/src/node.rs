//! The statement ready to run.
//!
//! Names have become distances: a binding is reached by walking that many
//! frames outwards. Parameters and everything computable from them are
//! constants. Nothing here refers to the text any more.

use perihelion_model::json::Value;

use crate::ast::{BinaryOperator, Direction, LogicalOperator, SubqueryKind, UnaryOperator};
use crate::functions::Function;
use crate::like::LikePattern;

/// One step of a path into a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A member of an object, by name.
    Name(String),
    /// An element of an array, by place.
    Item(usize),
}

#[derive(Debug)]
pub(crate) enum Node {
    Constant(Option<Value>),
    /// A binding and the fixed steps below it.
    Path {
        hops: usize,
        steps: Vec<Step>,
    },
    /// A key of the group that many frames outwards.
    GroupKey {
        hops: usize,
        index: usize,
    },
    /// The result of an aggregate of that group.
    Aggregate {
        hops: usize,
        index: usize,
    },
    Step(Box<Node>, Step),
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
    /// RegexMatch with a constant pattern; `None` if there is no such pattern.
    Regex {
        value: Box<Node>,
        pattern: Option<regex_lite::Regex>,
    },
    Conditional(Box<Node>, Box<Node>, Box<Node>),
    Array(Vec<Node>),
    Object(Vec<(String, Node)>),
    Call(Function, Vec<Node>),
    /// A user-defined function; the arguments are not kept, because nothing
    /// here can run one.
    Udf(String),
    Subquery(SubqueryKind, Box<SelectNode>),
}

#[derive(Debug)]
pub(crate) enum InList {
    /// Constants only, sorted, for a search by halves.
    Sorted(Vec<Value>),
    Nodes(Vec<Node>),
}

#[derive(Debug)]
pub(crate) enum Pattern {
    Fixed(LikePattern),
    Computed { pattern: Box<Node>, escape: Option<char> },
}

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
    /// The value itself, when it is defined.
    Value(Node),
    /// Each element, when it is an array.
    Elements(Node),
    /// Each row of a subquery.
    Rows(Box<SelectNode>),
}

#[derive(Debug)]
pub(crate) struct Grouping {
    pub(crate) keys: Vec<Node>,
    pub(crate) aggregates: Vec<AggregateNode>,
}

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

#[derive(Debug)]
pub(crate) enum Output {
    Value(Node),
    Object(Vec<(String, Node)>),
}

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
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        let known = [
            ("COUNT", AggregateFunction::Count),
            ("SUM", AggregateFunction::Sum),
            ("AVG", AggregateFunction::Average),
            ("MIN", AggregateFunction::Min),
            ("MAX", AggregateFunction::Max),
            ("COUNTIF", AggregateFunction::CountIf),
            ("MAKELIST", AggregateFunction::MakeList),
            ("MAKESET", AggregateFunction::MakeSet),
        ];
        known.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, function)| function)
    }

    /// The function that the planner calls so.
    pub(crate) fn by_plan_name(name: &str) -> Option<Self> {
        let all = [
            AggregateFunction::Count,
            AggregateFunction::Sum,
            AggregateFunction::Average,
            AggregateFunction::Min,
            AggregateFunction::Max,
            AggregateFunction::CountIf,
            AggregateFunction::MakeList,
            AggregateFunction::MakeSet,
        ];
        all.into_iter().find(|function| function.plan_name() == name)
    }

    /// What the planner calls it.
    pub(crate) fn plan_name(self) -> &'static str {
        match self {
            AggregateFunction::Count => "Count",
            AggregateFunction::Sum => "Sum",
            AggregateFunction::Average => "Average",
            AggregateFunction::Min => "Min",
            AggregateFunction::Max => "Max",
            AggregateFunction::CountIf => "CountIf",
            AggregateFunction::MakeList => "MakeList",
            AggregateFunction::MakeSet => "MakeSet",
        }
    }
}
