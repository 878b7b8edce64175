//! Random documents and statements for the differential test.

use perihelion_model::json::{Number, Object, Value};
use perihelion_testkit::random::Random;

use super::statement::{Expr, Item, Projection, Stage, Statement};

/// The number of partition keys.
const PARTITION_KEYS: u64 = 5;

pub(super) fn partition_key(random: &mut Random) -> String {
    format!("p{}", random.below(PARTITION_KEYS))
}

fn number(random: &mut Random) -> Value {
    let whole = random.below(7) as i64 - 2;
    if random.one_in(4) { Value::Number(Number::Double(whole as f64 + 0.5)) } else { whole.into() }
}

fn text(random: &mut Random) -> Value {
    const TEXTS: [&str; 7] = ["", "a", "ab", "b", "é", "a\u{0}", "Z"];
    if random.one_in(12) {
        return long_text(random);
    }
    if random.one_in(16) {
        // These texts differ only in their last byte, which is after the bytes that a continuation
        // token has room for.
        return format!("{}{}", "long ".repeat(55), random.below(4)).into();
    }
    TEXTS[random.index(TEXTS.len())].into()
}

/// A text of about 1,024 bytes, the length at which index keys cut strings. Most of these texts have
/// the same index key.
fn long_text(random: &mut Random) -> Value {
    let beginning = match random.below(4) {
        0 => format!("{}\u{0}", "y".repeat(1022)),
        _ => "x".repeat(1020),
    };
    let middle = ["aaaaa", "aaaaa", "aaaaa", "aaaa", "aaaé", ""][random.index(6)];
    format!("{beginning}{middle}{}", ["", "a", "b", "bb", "\u{0}"][random.index(5)]).into()
}

fn scalar(random: &mut Random) -> Value {
    match random.below(8) {
        0 => Value::Null,
        1 => true.into(),
        2 => false.into(),
        3 | 4 => text(random),
        _ => number(random),
    }
}

fn array(random: &mut Random) -> Value {
    let length = random.below(4);
    Value::Array((0..length).map(|_| scalar(random)).collect())
}

fn any(random: &mut Random) -> Value {
    match random.below(10) {
        0 => array(random),
        1 => object(random),
        _ => scalar(random),
    }
}

fn object(random: &mut Random) -> Value {
    let mut object = Object::new();
    for name in ["x", "y"] {
        if !random.one_in(3) {
            object.set(name, scalar(random));
        }
    }
    Value::Object(object)
}

/// A document; each of its members besides `id` and `pk` may be absent.
pub(super) fn document(random: &mut Random, id: u64) -> Value {
    let mut document = Object::new();
    document.set("id", id.to_string().into());
    document.set("pk", partition_key(random).into());
    for (name, make) in
        [("a", any as fn(&mut Random) -> Value), ("b", number), ("s", text), ("o", object), ("tags", array)]
    {
        if !random.one_in(5) {
            document.set(name, make(random));
        }
    }
    // Long texts are frequent, so that several documents have equal keys in an index.
    if random.one_in(2) {
        document.set("s", long_text(random));
    }
    Value::Object(document)
}

fn path(random: &mut Random) -> Expr {
    const PATHS: [&[&str]; 12] = [
        &["a"],
        &["a"],
        &["b"],
        &["b"],
        &["s"],
        &["s"],
        &["o", "x"],
        &["o"],
        &["tags"],
        &["id"],
        &["pk"],
        &["none"],
    ];
    Expr::Path(PATHS[random.index(PATHS.len())])
}

fn value(random: &mut Random, has_join: bool) -> Expr {
    match random.below(12) {
        0 => Expr::Literal(scalar(random)),
        1 => {
            let operator = ['+', '-', '*'][random.index(3)];
            Expr::Arithmetic(operator, Box::new(path(random)), Box::new(value(random, has_join)))
        }
        2 => {
            let function = ["LENGTH", "ARRAY_LENGTH", "ABS", "IS_DEFINED"][random.index(4)];
            Expr::Call(function, Box::new(path(random)))
        }
        3..6 if has_join => Expr::Element,
        _ => path(random),
    }
}

fn condition(random: &mut Random, has_join: bool, depth: u32) -> Expr {
    let operand = |random: &mut Random| {
        Box::new(if has_join && random.one_in(3) { Expr::Element } else { path(random) })
    };
    match random.below(if depth == 0 { 6 } else { 11 }) {
        0..3 => {
            let operator = ["=", "=", "!=", "<", "<=", ">", ">="][random.index(7)];
            let left = operand(random);
            let right = if random.one_in(6) { value(random, has_join) } else { Expr::Literal(any(random)) };
            Expr::Compare(operator, left, Box::new(right))
        }
        3 => {
            let length = 1 + random.below(3);
            Expr::In(operand(random), (0..length).map(|_| scalar(random)).collect())
        }
        4 => Expr::Between(operand(random), scalar(random), scalar(random)),
        5 => Expr::Call(["IS_DEFINED", "IS_NUMBER", "IS_STRING"][random.index(3)], operand(random)),
        6..=8 => {
            let (a, b) = (condition(random, has_join, depth - 1), condition(random, has_join, depth - 1));
            Expr::And(Box::new(a), Box::new(b))
        }
        9 => {
            let (a, b) = (condition(random, has_join, depth - 1), condition(random, has_join, depth - 1));
            Expr::Or(Box::new(a), Box::new(b))
        }
        _ => Expr::Not(Box::new(condition(random, has_join, depth - 1))),
    }
}

fn aggregate(random: &mut Random) -> Item {
    let function = ["COUNT", "SUM", "AVG", "MIN", "MAX"][random.index(5)];
    let argument = if random.one_in(3) { Expr::Literal(1_i64.into()) } else { path(random) };
    Item::Aggregate(function, argument)
}

pub(super) fn statement(random: &mut Random) -> Statement {
    let has_join = random.one_in(5);
    let mut statement = Statement {
        is_distinct: random.one_in(3),
        top: random.one_in(10).then(|| random.index(8)),
        projection: Projection::Star,
        has_join,
        is_join_of_subquery: has_join && random.one_in(3),
        filter: (!random.one_in(3)).then(|| condition(random, has_join, 2)),
        group: Vec::new(),
        order: Vec::new(),
        window: None,
        stage: None,
    };
    match random.below(6) {
        0 | 1 => group(random, &mut statement),
        2 | 3 => order(random, &mut statement),
        _ => statement.projection = projection(random, has_join),
    }
    if statement.top.is_none() && random.one_in(6) {
        statement.window = Some((random.index(4), random.index(9)));
    }
    let is_stageable = statement.is_distinct || statement.is_grouped();
    if is_stageable && statement.top.is_none() && statement.window.is_none() && random.one_in(4) {
        let is_list = matches!(statement.projection, Projection::List(_));
        statement.stage = Some(match random.below(3) {
            0 => Stage::Count,
            1 if is_list => Stage::DistinctFirst,
            _ => Stage::Same,
        });
        statement.order.clear();
    }
    statement
}

fn projection(random: &mut Random, has_join: bool) -> Projection {
    match random.below(5) {
        0 if !has_join => Projection::Star,
        0 | 1 => Projection::Value(Item::Expr(value(random, has_join))),
        2 => Projection::List(vec![Item::Expr(Expr::Path(&["id"])), Item::Expr(value(random, has_join))]),
        _ => {
            let count = 1 + random.below(3);
            Projection::List((0..count).map(|_| Item::Expr(value(random, has_join))).collect())
        }
    }
}

/// Makes a statement with groups.
fn group(random: &mut Random, statement: &mut Statement) {
    let count = random.below(3);
    statement.group = (0..count).map(|_| path(random)).collect();
    statement.is_distinct &= random.one_in(3);
    let mut items: Vec<Item> = statement.group.iter().cloned().map(Item::Expr).collect();
    let aggregates = 1 + random.below(2);
    items.extend((0..aggregates).map(|_| aggregate(random)));
    let value = items[random.index(items.len())].clone();
    let is_value = random.one_in(3) && (count > 0 || matches!(value, Item::Aggregate(..)));
    statement.projection = if is_value { Projection::Value(value) } else { Projection::List(items) };
}

/// Makes a statement with ORDER BY. The keys are selected too, so that a row shows its keys.
fn order(random: &mut Random, statement: &mut Statement) {
    let count = 1 + random.below(2);
    statement.order = (0..count).map(|_| (path(random), random.one_in(2))).collect();
    let mut items: Vec<Item> = statement.order.iter().map(|(key, _)| Item::Expr(key.clone())).collect();
    if random.one_in(2) {
        items.push(Item::Expr(Expr::Path(&["id"])));
    } else if random.one_in(2) {
        items.push(Item::Expr(value(random, statement.has_join)));
    }
    statement.projection = Projection::List(items);
}
