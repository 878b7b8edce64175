//! Choosing the keys to read.
//!
//! The columns of the best index for a query are the paths of its equalities, followed by
//! its ORDER BY keys. Without ORDER BY, the paths of one IN list and of one range follow
//! the equalities. Another index helps too if the query has an equality, an IN list or a
//! range on the first column of that index. An index gives the order of the query if the
//! columns after those with equalities are exactly the order keys, all in the query's
//! directions or all in the opposite directions. Each value of an IN list selects a part
//! of the index, and the parts together are not in order. Of the indexes that exist, the
//! one with the highest score is chosen. The conditions that chose the index are evaluated
//! again on each document, so a bad choice can make a query slow but never wrong.

use std::ops::Bound;

use perihelion_model::json::Value;
use perihelion_query::{Condition, Conjunct, OrderKey, Program, Step};

use super::{QueryRequest, QueryScope, value_position};
use crate::catalog::Container;
use crate::index::{self, Column, IndexDefinition, IndexScope, IndexShape};

/// How a query is run.
pub(super) struct Plan {
    /// Whether the rows must be sorted by the ORDER BY keys. In ascending order, rows
    /// without a key come first: since June 2022 the service returns them under every
    /// indexing policy (Microsoft's page on ORDER BY; eclipse-edc/Connector#1512).
    pub(super) is_ordered: bool,
    /// For each order key, whether it is descending.
    pub(super) is_descending: Vec<bool>,
    /// For each order key, whether an equality fixes its value. Such a key does not
    /// affect the order and is not part of a cursor, so that a cursor is valid for an
    /// index with or without the key.
    pub(super) is_constant: Vec<bool>,
    /// The index to scan; `None` to scan the documents.
    pub(super) index: Option<IndexUse>,
    /// The index that would serve the query better than every index that exists; `None` if
    /// there is no such index.
    pub(super) missing_index: Option<IndexShape>,
    /// For DISTINCT and GROUP BY without a filter: how later pages find their rows.
    pub(super) window: Option<WindowPlan>,
}

/// How the later pages of DISTINCT or GROUP BY find the documents of their rows.
pub(super) struct WindowPlan {
    /// The path of the value on which the rows depend.
    pub(super) path: Vec<String>,
    /// The bytes before this value in the position of a row ([`value_position::lead_of_member`]);
    /// empty if the position begins with the value.
    pub(super) lead: Vec<u8>,
    /// The index that has the documents in the order of the value, or the shape of the missing index.
    pub(super) index: Result<IndexUse, IndexShape>,
}

/// An index and the parts of it to scan.
pub(super) struct IndexUse {
    pub(super) definition: IndexDefinition,
    /// The encoded values of the equalities: one prefix, or several sorted prefixes
    /// for an IN list.
    pub(super) prefixes: Vec<Vec<u8>>,
    /// The encoded lower bound on the column after the prefix, without the prefix.
    pub(super) from: Bound<Vec<u8>>,
    /// The encoded upper bound on the column after the prefix, without the prefix.
    pub(super) to: Bound<Vec<u8>>,
    /// Whether a scan of the index returns the rows in the order of the query, except rows whose
    /// keys are cut after the same bytes ([`index::cut_order`]). If it does, there is one prefix.
    pub(super) gives_order: bool,
    /// Whether the index is scanned backwards to get the order of the query.
    pub(super) is_backward: bool,
    /// Whether there is one prefix and its entries are in `_rid` order.
    pub(super) is_by_rid: bool,
}

/// The most columns of an index that is worth building.
const COLUMNS_MAX: usize = 8;

/// The longest IN list whose values are looked up in an index. Each value costs a search
/// of the index, so with a longer list it is faster to read the documents.
const IN_LIST_VALUES_MAX: usize = 1024;

/// Chooses the index that serves a query best, if any, and names the index that
/// would be better.
pub(super) fn choose(container: &Container, request: &QueryRequest) -> Plan {
    // Only the innermost stage reads documents. The rows of later stages and of
    // aggregates are sorted by `gather`.
    let program = request.program.innermost();
    let order = program.order();
    let is_staged = request.program.inner().is_some();
    let is_ordered = !order.is_empty() && !program.is_grouped() && !is_staged;
    let shape = QueryShape::of(program.conjuncts(), if is_ordered { order } else { &[] });
    let scope = match request.scope {
        QueryScope::Partition(_) => IndexScope::Partition,
        QueryScope::Prefix { .. } | QueryScope::Ranges(_) | QueryScope::All => IndexScope::Segment,
    };
    let is_usable =
        |index: &&IndexDefinition| index.is_ready && !index.is_retired && index.shape.scope == scope;
    let candidates = container.indexes.iter().filter(is_usable);
    let best = candidates.clone().filter_map(|index| shape.fit(index)).max_by_key(|(score, _)| *score);
    let score = best.as_ref().map_or(0, |(score, _)| *score);
    let missing = shape.best_columns().filter(|columns| shape.score(columns) > score);
    Plan {
        is_ordered,
        is_descending: order.iter().map(is_descending).collect(),
        is_constant: order.iter().map(|key| shape.is_constant(key)).collect(),
        index: best.map(|(_, used)| used),
        missing_index: missing.map(|columns| IndexShape { scope, columns }),
        window: window_plan(&request.program, scope, candidates),
    }
}

/// The plan for the later pages of a statement, if it is a DISTINCT or GROUP BY of one value.
fn window_plan<'c>(
    program: &Program,
    scope: IndexScope,
    mut candidates: impl Iterator<Item = &'c IndexDefinition>,
) -> Option<WindowPlan> {
    let key = program.row_key().filter(|_| program.order().is_empty())?;
    let path = plain_path(Some(&key.path))?;
    let lead = key.member.as_deref().map(value_position::lead_of_member).unwrap_or_default();
    if lead.len() > value_position::LEAD_BYTES_MAX || !(program.is_distinct() || program.has_group_by()) {
        return None;
    }
    let column = Column { path: path.clone(), is_descending: false };
    let index = match candidates.find(|index| index.shape.columns.first() == Some(&column)) {
        None => Err(IndexShape { scope, columns: vec![column] }),
        Some(definition) => Ok(IndexUse {
            definition: definition.clone(),
            prefixes: vec![Vec::new()],
            from: Bound::Unbounded,
            to: Bound::Unbounded,
            gives_order: true,
            is_backward: false,
            is_by_rid: false,
        }),
    };
    Some(WindowPlan { path, lead, index })
}

fn is_descending(key: &OrderKey) -> bool {
    key.direction == perihelion_query::Direction::Descending
}

/// The member names of a path; `None` if the path is missing or empty, or has an array
/// index.
fn plain_path(path: Option<&[Step]>) -> Option<Vec<String>> {
    let steps = path?.iter().map(|step| match step {
        Step::Name(name) => Some(name.clone()),
        Step::Item(_) => None,
    });
    steps.collect::<Option<Vec<String>>>().filter(|path| !path.is_empty())
}

/// The conditions and the order of a query, as far as an index can serve them.
struct QueryShape<'q> {
    /// The paths that must have one value, each with the value.
    equalities: Vec<(Vec<String>, &'q Value)>,
    /// IN lists of up to [`IN_LIST_VALUES_MAX`] scalars, on paths that no equality fixes.
    in_lists: Vec<(Vec<String>, &'q [Value])>,
    /// The order keys that no equality fixes; `None` unless all keys are plain paths.
    order: Option<Vec<Column>>,
    /// Whether the query has order keys, fixed or not.
    has_order: bool,
    /// Comparisons (less, greater) on plain paths.
    ranges: Vec<(Vec<String>, &'q Conjunct)>,
}

impl<'q> QueryShape<'q> {
    /// The shape of a query with these conditions, all of which must hold, and this order.
    fn of(conjuncts: &'q [Conjunct], order: &[OrderKey]) -> Self {
        let mut equalities: Vec<(Vec<String>, &Value)> = Vec::new();
        let (mut in_lists, mut ranges) = (Vec::new(), Vec::new());
        for conjunct in conjuncts {
            let Some(path) = plain_path(Some(&conjunct.path)) else { continue };
            match &conjunct.condition {
                Condition::Equal(value) if is_scalar(value) => add_equality(&mut equalities, path, value),
                Condition::In(values) if values.len() == 1 && is_scalar(&values[0]) => {
                    add_equality(&mut equalities, path, &values[0]);
                }
                Condition::In(values)
                    if values.len() <= IN_LIST_VALUES_MAX && values.iter().all(is_scalar) =>
                {
                    in_lists.push((path, values.as_slice()));
                }
                Condition::Less(value)
                | Condition::LessOrEqual(value)
                | Condition::Greater(value)
                | Condition::GreaterOrEqual(value)
                    if is_scalar(value) =>
                {
                    ranges.push((path, conjunct));
                }
                _ => {}
            }
        }
        in_lists.retain(|(path, _)| !equalities.iter().any(|(known, _)| known == path));
        let columns = order.iter().map(|key| {
            plain_path(key.path.as_deref()).map(|path| Column { path, is_descending: is_descending(key) })
        });
        let columns: Option<Vec<Column>> = columns.collect();
        // A key that is fixed by an equality does not affect the order.
        let columns = columns.map(|mut columns| {
            columns.retain(|column| !equalities.iter().any(|(path, _)| *path == column.path));
            columns
        });
        QueryShape { equalities, in_lists, order: columns, has_order: !order.is_empty(), ranges }
    }

    /// The columns of the index that would serve this query best; `None` if no index would
    /// help or if it would have too many columns.
    fn best_columns(&self) -> Option<Vec<Column>> {
        let mut columns: Vec<Column> = self
            .equalities
            .iter()
            .map(|(path, _)| Column { path: path.clone(), is_descending: false })
            .collect();
        columns.sort();
        if self.has_order {
            let mut order = self.order.clone()?;
            // One index serves an order and its reverse.
            if order.first().is_some_and(|column| column.is_descending) {
                reverse(&mut order);
            }
            columns.extend(order);
        } else {
            let in_list_path = self.in_lists.first().map(|(path, _)| path);
            let range = self.ranges.iter().map(|(path, _)| path).find(|path| Some(*path) != in_list_path);
            let paths = in_list_path.into_iter().chain(range);
            columns.extend(paths.map(|path| Column { path: path.clone(), is_descending: false }));
        }
        (!columns.is_empty() && columns.len() <= COLUMNS_MAX).then_some(columns)
    }

    /// The score of an index for this query, and how it would be used. `None` when
    /// the index does not help.
    fn fit(&self, index: &IndexDefinition) -> Option<(usize, IndexUse)> {
        let columns = &index.shape.columns;
        let fixed_columns = columns.iter().take_while(|column| self.equality(&column.path).is_some()).count();
        let (gives_order, is_backward, order_keys) = self.fit_order(&columns[fixed_columns..]);
        let lookup = self.lookup(columns, !gives_order);
        let rest = &columns[lookup.columns..];
        let (from, to, is_bounded) = match rest.first() {
            Some(column) => self.bounds(column),
            None => (Bound::Unbounded, Bound::Unbounded, false),
        };
        // Most useful is an index that gives the order, then each column with an equality, then an IN
        // list, then a range.
        let score = 4 * (lookup.columns - usize::from(lookup.uses_in_list))
            + 3 * usize::from(lookup.uses_in_list)
            + 2 * usize::from(is_bounded)
            + 8 * usize::from(gives_order && order_keys > 0);
        if score == 0 {
            return None;
        }
        let used = IndexUse {
            definition: index.clone(),
            is_by_rid: rest.is_empty() && lookup.prefixes.len() == 1,
            prefixes: lookup.prefixes,
            from,
            to,
            gives_order,
            is_backward,
        };
        Some((score, used))
    }

    /// The score of an index with these columns.
    fn score(&self, columns: &[Column]) -> usize {
        let shape = IndexShape { scope: IndexScope::Segment, columns: columns.to_vec() };
        let index = IndexDefinition::new(0, shape, true);
        self.fit(&index).map_or(0, |(score, _)| score)
    }

    /// The parts of an index that the equalities and one IN list select.
    fn lookup(&self, columns: &[Column], allows_in_list: bool) -> Lookup {
        let mut lookup = Lookup { prefixes: vec![Vec::new()], columns: 0, uses_in_list: false };
        for column in columns {
            let in_list = self.in_lists.iter().find(|(path, _)| *path == column.path);
            match (self.equality(&column.path), in_list) {
                (Some(value), _) => lookup.extend(std::slice::from_ref(value), column.is_descending),
                (None, Some((_, values))) if allows_in_list && !lookup.uses_in_list => {
                    lookup.extend(values, column.is_descending);
                    lookup.uses_in_list = true;
                }
                _ => break,
            }
        }
        lookup
    }

    /// Whether an equality fixes the value of this order key.
    fn is_constant(&self, key: &OrderKey) -> bool {
        plain_path(key.path.as_deref()).is_some_and(|path| self.equality(&path).is_some())
    }

    /// The value that an equality demands at this path.
    fn equality(&self, path: &[String]) -> Option<&Value> {
        self.equalities.iter().find(|(known, _)| known == path).map(|(_, value)| *value)
    }

    /// Compares `rest`, the columns after those with equalities, with the order keys. Returns
    /// whether a scan of the index gives the order, whether that scan goes backwards, and the
    /// number of order keys (0 if `rest` has another number of columns).
    fn fit_order(&self, rest: &[Column]) -> (bool, bool, usize) {
        let Some(order) = self.order.as_ref().filter(|_| self.has_order) else { return (false, false, 0) };
        if order.len() != rest.len() {
            return (false, false, 0);
        }
        if order == rest {
            return (true, false, order.len());
        }
        let mut reversed = order.clone();
        reverse(&mut reversed);
        (reversed == rest, reversed == rest, order.len())
    }

    /// The bounds that range conditions set on a column, and whether there are any.
    fn bounds(&self, column: &Column) -> (Bound<Vec<u8>>, Bound<Vec<u8>>, bool) {
        let (mut low, mut high) = (Bound::Unbounded, Bound::Unbounded);
        for (_, conjunct) in self.ranges.iter().filter(|(path, _)| *path == column.path) {
            let (from, to) = bounds_of(&conjunct.condition);
            low = tighter(low, from, true);
            high = tighter(high, to, false);
        }
        let is_bounded = !matches!((&low, &high), (Bound::Unbounded, Bound::Unbounded));
        if !column.is_descending {
            return (low, high, is_bounded);
        }
        (invert(high), invert(low), is_bounded)
    }
}

/// The encoded prefixes that the equalities and an IN list select.
struct Lookup {
    prefixes: Vec<Vec<u8>>,
    /// How many columns the prefixes cover.
    columns: usize,
    uses_in_list: bool,
}

impl Lookup {
    /// Covers one more column: appends each of the values to each prefix.
    fn extend(&mut self, values: &[Value], is_descending: bool) {
        let longer = self.prefixes.iter().flat_map(|prefix| {
            values.iter().map(|value| {
                let mut longer = prefix.clone();
                index::encode_cut(&mut longer, Some(value), is_descending);
                longer
            })
        });
        self.prefixes = longer.collect();
        // A value that is listed twice must not return its documents twice.
        self.prefixes.sort();
        self.prefixes.dedup();
        self.columns += 1;
    }
}

/// Adds an equality. Of two equalities on one path only the first is used.
fn add_equality<'q>(equalities: &mut Vec<(Vec<String>, &'q Value)>, path: Vec<String>, value: &'q Value) {
    if !equalities.iter().any(|(known, _)| *known == path) {
        equalities.push((path, value));
    }
}

/// Reverses the direction of every column.
fn reverse(columns: &mut [Column]) {
    for column in columns {
        column.is_descending = !column.is_descending;
    }
}

fn is_scalar(value: &Value) -> bool {
    !matches!(value, Value::Array(_) | Value::Object(_))
}

/// The bounds that a comparison sets on the encoded values. A comparison is true only for
/// values of the type of its operand.
fn bounds_of(condition: &Condition) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let included = |value: &Value| {
        let mut key = Vec::new();
        index::encode_cut(&mut key, Some(value), false);
        Bound::Included(key)
    };
    let excluded = |value: &Value| {
        let mut key = Vec::new();
        // Several strings that begin alike are cut to this key, and some of them may be inside
        // the bound.
        match index::encode_cut(&mut key, Some(value), false) {
            true => Bound::Included(key),
            false => Bound::Excluded(key),
        }
    };
    // Booleans are one type with two type bytes.
    let lowest = |value: &Value| match value {
        Value::Bool(_) => vec![index::type_byte(&Value::Bool(false))],
        _ => vec![index::type_byte(value)],
    };
    let highest = |value: &Value| match value {
        Value::Bool(_) => vec![index::type_byte(&Value::Bool(true)) + 1],
        _ => vec![index::type_byte(value) + 1],
    };
    match condition {
        Condition::Less(value) => (Bound::Included(lowest(value)), excluded(value)),
        Condition::LessOrEqual(value) => (Bound::Included(lowest(value)), included(value)),
        Condition::Greater(value) => (excluded(value), Bound::Excluded(highest(value))),
        Condition::GreaterOrEqual(value) => (included(value), Bound::Excluded(highest(value))),
        _ => (Bound::Unbounded, Bound::Unbounded),
    }
}

/// The stricter of two bounds on the same side.
fn tighter(one: Bound<Vec<u8>>, other: Bound<Vec<u8>>, is_lower: bool) -> Bound<Vec<u8>> {
    // The key, and whether it is excluded.
    let key = |bound: &Bound<Vec<u8>>| match bound {
        Bound::Included(key) => Some((key.clone(), false)),
        Bound::Excluded(key) => Some((key.clone(), true)),
        Bound::Unbounded => None,
    };
    match (key(&one), key(&other)) {
        (None, _) => other,
        (_, None) => one,
        (Some(a), Some(b)) => {
            let one_is_tighter = if is_lower { a >= b } else { (&a.0, !a.1) <= (&b.0, !b.1) };
            if one_is_tighter { one } else { other }
        }
    }
}

/// Converts a bound for a descending column, in which the bytes of the encoded values are inverted.
fn invert(bound: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    let inverted = |key: Vec<u8>| key.into_iter().map(|byte| !byte).collect();
    match bound {
        Bound::Included(key) => Bound::Included(inverted(key)),
        Bound::Excluded(key) => Bound::Excluded(inverted(key)),
        Bound::Unbounded => Bound::Unbounded,
    }
}
