//! The statements that the differential test generates: a small syntax tree and its SQL text.

use perihelion_model::json::{Style, Value, to_text};

/// An expression over a row: the document `c`, and with a JOIN the element `t`.
#[derive(Debug, Clone)]
pub(super) enum Expr {
    /// A path into the document.
    Path(&'static [&'static str]),
    /// The element of the JOIN.
    Element,
    Literal(Value),
    /// `+`, `-` or `*`.
    Arithmetic(char, Box<Expr>, Box<Expr>),
    /// One of `=`, `!=`, `<`, `<=`, `>` and `>=`.
    Compare(&'static str, Box<Expr>, Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    In(Box<Expr>, Vec<Value>),
    Between(Box<Expr>, Value, Value),
    /// `IS_DEFINED`, `IS_NUMBER`, `IS_STRING`, `LENGTH`, `ARRAY_LENGTH` or `ABS`.
    Call(&'static str, Box<Expr>),
}

/// An item of a select list.
#[derive(Debug, Clone)]
pub(super) enum Item {
    Expr(Expr),
    /// An aggregate over the rows of a group.
    Aggregate(&'static str, Expr),
}

/// The select list of a statement.
#[derive(Debug, Clone)]
pub(super) enum Projection {
    Star,
    Value(Item),
    /// The items are called `n0`, `n1` and so on.
    List(Vec<Item>),
}

/// An outer statement, which selects from the rows of the inner statement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Stage {
    /// `SELECT VALUE COUNT(1) FROM (…) AS x`
    Count,
    /// `SELECT VALUE x FROM (…) AS x`
    Same,
    /// `SELECT DISTINCT VALUE x.n0 FROM (…) AS x`
    DistinctFirst,
}

#[derive(Debug, Clone)]
pub(super) struct Statement {
    pub(super) is_distinct: bool,
    pub(super) top: Option<usize>,
    pub(super) projection: Projection,
    /// Whether `JOIN t IN c.tags` multiplies the rows.
    pub(super) has_join: bool,
    /// Whether the JOIN is written `JOIN t IN (SELECT VALUE c.tags)`, which means the same.
    pub(super) is_join_of_subquery: bool,
    pub(super) filter: Option<Expr>,
    pub(super) group: Vec<Expr>,
    /// The keys, each with `true` if it is descending.
    pub(super) order: Vec<(Expr, bool)>,
    /// OFFSET and LIMIT.
    pub(super) window: Option<(usize, usize)>,
    pub(super) stage: Option<Stage>,
}

impl Statement {
    /// Whether the rows are groups.
    pub(super) fn is_grouped(&self) -> bool {
        let is_aggregate = |item: &Item| matches!(item, Item::Aggregate(..));
        !self.group.is_empty()
            || match &self.projection {
                Projection::Star => false,
                Projection::Value(item) => is_aggregate(item),
                Projection::List(items) => items.iter().any(is_aggregate),
            }
    }

    /// How many rows are skipped and how many are returned at most.
    pub(super) fn skip_and_take(&self) -> (usize, usize) {
        let (skip, limit) = self.window.unwrap_or((0, usize::MAX));
        (skip, limit.min(self.top.unwrap_or(usize::MAX)))
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::from("SELECT ");
        if self.is_distinct {
            text.push_str("DISTINCT ");
        }
        if let Some(top) = self.top {
            text.push_str(&format!("TOP {top} "));
        }
        match &self.projection {
            Projection::Star => text.push('*'),
            Projection::Value(item) => text.push_str(&format!("VALUE {}", print_item(item))),
            Projection::List(items) => {
                let items = items.iter().enumerate();
                let items: Vec<String> =
                    items.map(|(n, item)| format!("{} AS n{n}", print_item(item))).collect();
                text.push_str(&items.join(", "));
            }
        }
        text.push_str(match (self.has_join, self.is_join_of_subquery) {
            (false, _) => " FROM c",
            (true, false) => " FROM c JOIN t IN c.tags",
            (true, true) => " FROM c JOIN t IN (SELECT VALUE c.tags)",
        });
        if let Some(filter) = &self.filter {
            text.push_str(&format!(" WHERE {}", print(filter)));
        }
        if !self.group.is_empty() {
            let keys: Vec<String> = self.group.iter().map(print).collect();
            text.push_str(&format!(" GROUP BY {}", keys.join(", ")));
        }
        if !self.order.is_empty() {
            let key = |(key, is_descending): &(Expr, bool)| {
                format!("{}{}", print(key), if *is_descending { " DESC" } else { "" })
            };
            text.push_str(&format!(
                " ORDER BY {}",
                self.order.iter().map(key).collect::<Vec<_>>().join(", ")
            ));
        }
        if let Some((offset, limit)) = self.window {
            text.push_str(&format!(" OFFSET {offset} LIMIT {limit}"));
        }
        match self.stage {
            None => text,
            Some(Stage::Count) => format!("SELECT VALUE COUNT(1) FROM ({text}) AS x"),
            Some(Stage::Same) => format!("SELECT VALUE x FROM ({text}) AS x"),
            Some(Stage::DistinctFirst) => format!("SELECT DISTINCT VALUE x.n0 FROM ({text}) AS x"),
        }
    }

    /// Simpler statements that may show the same difference.
    pub(super) fn simpler(&self) -> Vec<Statement> {
        let mut found = Vec::new();
        let mut add = |change: &dyn Fn(&mut Statement)| {
            let mut simpler = self.clone();
            change(&mut simpler);
            if simpler.text() != self.text() {
                found.push(simpler);
            }
        };
        add(&|statement| statement.stage = None);
        add(&|statement| statement.is_join_of_subquery = false);
        add(&|statement| statement.filter = None);
        add(&|statement| statement.window = None);
        add(&|statement| statement.top = None);
        add(&|statement| statement.is_distinct = false);
        if let Some(Expr::And(one, other) | Expr::Or(one, other)) = &self.filter {
            add(&|statement| statement.filter = Some((**one).clone()));
            add(&|statement| statement.filter = Some((**other).clone()));
        }
        if self.order.len() > 1 {
            add(&|statement| drop(statement.order.pop()));
        }
        found
    }
}

fn print_item(item: &Item) -> String {
    match item {
        Item::Expr(expr) => print(expr),
        Item::Aggregate(function, argument) => format!("{function}({})", print(argument)),
    }
}

fn print(expr: &Expr) -> String {
    let literal = |value: &Value| to_text(value, Style::Query);
    match expr {
        Expr::Path(steps) => format!("c.{}", steps.join(".")),
        Expr::Element => "t".to_owned(),
        Expr::Literal(value) => literal(value),
        Expr::Arithmetic(operator, a, b) => format!("({} {operator} {})", print(a), print(b)),
        Expr::Compare(operator, a, b) => format!("({} {operator} {})", print(a), print(b)),
        Expr::And(a, b) => format!("({} AND {})", print(a), print(b)),
        Expr::Or(a, b) => format!("({} OR {})", print(a), print(b)),
        Expr::Not(a) => format!("(NOT {})", print(a)),
        Expr::In(a, values) => {
            format!("({} IN ({}))", print(a), values.iter().map(literal).collect::<Vec<_>>().join(", "))
        }
        Expr::Between(a, low, high) => {
            format!("({} BETWEEN {} AND {})", print(a), literal(low), literal(high))
        }
        Expr::Call(function, argument) => format!("{function}({})", print(argument)),
    }
}
