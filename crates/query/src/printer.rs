//! The printer turns the syntax tree back into text, in the service's normal form.
//!
//! Every operator is in parentheses, strings have double quotes, keywords are upper
//! case. There are two layouts. The parser's normal form is on one line and always
//! has `ASC`. The planner's layout has one clause per line, and has `ASC` only if the
//! statement has it. Subqueries are in the form on one line in both layouts.

use perihelion_model::json::{Number, Style, Value, print_into, print_string};

use crate::ast::{
    Collection, Count, Direction, Expr, ExprKind, From, OrderBy, PathStep, Select, SelectItem, Selection,
    Source, SubqueryKind, UnaryOperator, Window,
};

/// The layout of a printed statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    OneLine,
    /// One clause per line, as the planner rewrites queries.
    Plan,
}

pub(crate) fn print_select(out: &mut String, select: &Select, layout: Layout) {
    let separator = match layout {
        Layout::OneLine => " ",
        Layout::Plan => "\n",
    };
    out.push_str("SELECT ");
    if select.distinct {
        out.push_str("DISTINCT ");
    }
    if let Some(top) = &select.top {
        out.push_str("TOP ");
        print_count(out, top);
        out.push(' ');
    }
    print_selection(out, &select.selection);
    if let Some(from) = &select.from {
        out.push_str(separator);
        print_from(out, from, separator);
    }
    if let Some(filter) = &select.filter {
        out.push_str(separator);
        out.push_str("WHERE ");
        print_expr(out, filter);
    }
    if let Some(group_by) = &select.group_by {
        out.push_str(separator);
        out.push_str("GROUP BY ");
        print_list(out, group_by);
        // The service's normal form has this space even at the end of the statement.
        if layout == Layout::OneLine {
            out.push(' ');
        }
    }
    if let Some(order_by) = &select.order_by {
        // In the layout on one line, GROUP BY ends with a space already.
        if !(layout == Layout::OneLine && out.ends_with(' ')) {
            out.push_str(separator);
        }
        print_order_by(out, order_by, layout);
    }
    if let Some(window) = &select.window {
        if !(layout == Layout::OneLine && out.ends_with(' ')) {
            out.push_str(separator);
        }
        print_window(out, window);
    }
}

pub(crate) fn expr_text(expr: &Expr) -> String {
    let mut out = String::new();
    print_expr(&mut out, expr);
    out
}

fn print_count(out: &mut String, count: &Count) {
    match count {
        Count::Literal { value } => out.push_str(&value.to_string()),
        Count::Parameter(name) => out.push_str(&name.text),
    }
}

fn print_selection(out: &mut String, selection: &Selection) {
    match selection {
        Selection::Star(_) => out.push('*'),
        Selection::Value(expr) => {
            out.push_str("VALUE ");
            print_expr(out, expr);
        }
        Selection::List(items) => print_separated(out, items, print_item),
    }
}

fn print_item(out: &mut String, item: &SelectItem) {
    print_expr(out, &item.expr);
    if let Some(alias) = &item.alias {
        out.push_str(" AS ");
        out.push_str(&alias.text);
    }
}

pub(crate) fn print_from(out: &mut String, from: &From, separator: &str) {
    out.push_str("FROM ");
    print_source(out, &from.first);
    for join in &from.joins {
        out.push_str(separator);
        out.push_str("JOIN ");
        print_source(out, join);
    }
}

fn print_source(out: &mut String, source: &Source) {
    match source {
        Source::Aliased { collection, alias } => {
            print_collection(out, collection);
            if let Some(alias) = alias {
                out.push_str(" AS ");
                out.push_str(&alias.text);
            }
        }
        Source::Iteration { name, collection } => {
            out.push_str(&name.text);
            out.push_str(" IN ");
            print_collection(out, collection);
        }
    }
}

fn print_collection(out: &mut String, collection: &Collection) {
    match collection {
        Collection::Subquery { select, .. } => print_subquery(out, "", select),
        Collection::Path { root, steps } => {
            out.push_str(&root.text);
            for step in steps {
                match step {
                    PathStep::Member(name) => {
                        out.push('.');
                        out.push_str(name);
                    }
                    PathStep::Quoted(name) => {
                        out.push('[');
                        print_string(out, name);
                        out.push(']');
                    }
                    PathStep::Item(item) => {
                        out.push_str(&format!("[{item}]"));
                    }
                }
            }
        }
    }
}

pub(crate) fn print_order_by(out: &mut String, order_by: &OrderBy, layout: Layout) {
    out.push_str(if order_by.is_rank { "ORDER BY RANK " } else { "ORDER BY " });
    print_separated(out, &order_by.items, |out, item| {
        print_expr(out, &item.expr);
        let direction = match layout {
            Layout::OneLine => Some(item.direction.unwrap_or(Direction::Ascending)),
            Layout::Plan => item.direction,
        };
        match direction {
            Some(Direction::Ascending) => out.push_str(" ASC"),
            Some(Direction::Descending) => out.push_str(" DESC"),
            None => {}
        }
    });
}

fn print_window(out: &mut String, window: &Window) {
    out.push_str("OFFSET ");
    print_count(out, &window.offset);
    out.push_str(" LIMIT ");
    print_count(out, &window.limit);
}

fn print_list(out: &mut String, items: &[Expr]) {
    print_separated(out, items, print_expr);
}

fn print_separated<T>(out: &mut String, items: &[T], print: impl Fn(&mut String, &T)) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        print(out, item);
    }
}

fn print_subquery(out: &mut String, word: &str, select: &Select) {
    out.push_str(word);
    out.push('(');
    print_select(out, select, Layout::OneLine);
    out.push(')');
}

pub(crate) fn print_expr(out: &mut String, expr: &Expr) {
    match &expr.kind {
        ExprKind::Literal(None) => out.push_str("undefined"),
        ExprKind::Literal(Some(Value::Number(Number::Double(number)))) => out.push_str(&double_text(*number)),
        ExprKind::Literal(Some(value)) => print_into(out, value, Style::Query),
        ExprKind::Parameter(name) | ExprKind::Identifier(name) => out.push_str(name),
        ExprKind::Member(base, name) => {
            print_base(out, base);
            out.push('.');
            out.push_str(&name.text);
        }
        ExprKind::Index(base, index) => {
            print_base(out, base);
            out.push('[');
            print_expr(out, index);
            out.push(']');
        }
        ExprKind::Array(items) => {
            out.push('[');
            print_list(out, items);
            out.push(']');
        }
        ExprKind::Object(members) => {
            out.push('{');
            print_separated(out, members, |out, (name, value)| {
                print_string(out, name);
                out.push_str(": ");
                print_expr(out, value);
            });
            out.push('}');
        }
        ExprKind::Call { name, is_udf, arguments } => {
            out.push_str(if *is_udf { "udf." } else { "" });
            out.push_str(&name.text);
            out.push('(');
            print_list(out, arguments);
            out.push(')');
        }
        ExprKind::Subquery(kind, select) => print_subquery(out, subquery_word(*kind), select),
        ExprKind::Unary(..)
        | ExprKind::Binary(..)
        | ExprKind::Logical(..)
        | ExprKind::Between { .. }
        | ExprKind::In { .. }
        | ExprKind::Like { .. }
        | ExprKind::Conditional(..) => print_operation(out, expr),
    }
}

/// Prints the base of a path step. A number is in parentheses: the lexer would read `1.a` as a
/// number, and the parser accepts no step after `-1`.
fn print_base(out: &mut String, base: &Expr) {
    if matches!(base.kind, ExprKind::Literal(Some(Value::Number(_)))) {
        out.push('(');
        print_expr(out, base);
        out.push(')');
    } else {
        print_expr(out, base);
    }
}

/// Prints an operator and its operands, in parentheses.
fn print_operation(out: &mut String, expr: &Expr) {
    out.push('(');
    match &expr.kind {
        ExprKind::Unary(operator, operand) => {
            out.push_str(match operator {
                UnaryOperator::Plus => "+ ",
                UnaryOperator::Minus => "- ",
                UnaryOperator::BitNot => "~ ",
                UnaryOperator::Not => "NOT ",
            });
            print_expr(out, operand);
        }
        ExprKind::Binary(operator, left, right) => {
            print_expr(out, left);
            out.push_str(&format!(" {} ", operator.text()));
            print_expr(out, right);
        }
        ExprKind::Logical(operator, operands) => {
            // A chain is printed as if it were nested to the left.
            out.push_str(&"(".repeat(operands.len().saturating_sub(2)));
            for (index, operand) in operands.iter().enumerate() {
                if index > 0 {
                    out.push_str(&format!(" {} ", operator.text()));
                }
                print_expr(out, operand);
                if index > 0 && index + 1 < operands.len() {
                    out.push(')');
                }
            }
        }
        ExprKind::Between { value, low, high, negated } => {
            print_expr(out, value);
            out.push_str(if *negated { " NOT BETWEEN " } else { " BETWEEN " });
            print_expr(out, low);
            out.push_str(" AND ");
            print_expr(out, high);
        }
        ExprKind::In { value, list, negated } => {
            print_expr(out, value);
            out.push_str(if *negated { " NOT IN (" } else { " IN (" });
            print_list(out, list);
            out.push(')');
        }
        ExprKind::Like { value, pattern, escape, negated } => {
            print_expr(out, value);
            out.push_str(if *negated { " NOT LIKE " } else { " LIKE " });
            print_expr(out, pattern);
            if let Some(escape) = escape {
                out.push_str(" ESCAPE ");
                print_string(out, escape);
            }
        }
        ExprKind::Conditional(condition, consequent, alternative) => {
            print_expr(out, condition);
            out.push_str(" ? ");
            print_expr(out, consequent);
            out.push_str(" : ");
            print_expr(out, alternative);
        }
        // `print_expr` prints everything else.
        _ => {}
    }
    out.push(')');
}

/// The text of a double as the service prints it: with 15 significant digits if they are enough
/// to read the same number, otherwise with 17. A number that is printed with an exponent has as
/// few digits as possible.
fn double_text(number: f64) -> String {
    let mut shortest = String::new();
    print_into(&mut shortest, &Value::Number(Number::Double(number)), Style::Query);
    let digits = shortest.bytes().take_while(|byte| *byte != b'e' && *byte != b'E');
    let digits = digits.filter(u8::is_ascii_digit).skip_while(|byte| *byte == b'0').count();
    if digits <= DIGITS_SHORT || shortest.contains(['e', 'E']) {
        return shortest;
    }
    let exponent = number.abs().log10().floor() as i32;
    let decimals = usize::try_from(DIGITS_LONG - 1 - exponent).unwrap_or(0);
    let long = format!("{number:.decimals$}");
    long.trim_end_matches('0').to_owned()
}

/// The significant digits of a double: the short form, and the long form for doubles that the
/// short form does not represent exactly ([`double_text`]).
const DIGITS_SHORT: usize = 15;
const DIGITS_LONG: i32 = 17;

fn subquery_word(kind: SubqueryKind) -> &'static str {
    match kind {
        SubqueryKind::Scalar => "",
        SubqueryKind::Array => "ARRAY",
        SubqueryKind::Exists => "EXISTS",
        SubqueryKind::All => "ALL",
        SubqueryKind::First => "FIRST",
        SubqueryKind::Last => "LAST",
    }
}
