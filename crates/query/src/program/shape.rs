//! Properties of a bound select: the paths of its sort keys, whether its rows are whole
//! documents, and whether JSON can represent a value.
//!
//! Each source of FROM binds its value in a frame, inside the frame of the source before it.
//! `document_hops` is the number of frames from the last source outwards to the source that is the
//! whole document; `None` if no source is the whole document.

use perihelion_model::json::{Number, Value};

use super::OrderKey;
use crate::conjunct::path_of;
use crate::node::{AggregateFunction, AggregateNode, Node, Output, SelectNode, SourceNode, Step};

/// The keys of ORDER BY.
pub(super) fn order_of(select: &SelectNode, document_hops: Option<usize>) -> Vec<OrderKey> {
    let path = |node: &Node| match document_hops {
        Some(hops) if select.grouping.is_none() => path_of(node, hops).map(<[Step]>::to_vec),
        _ => None,
    };
    select.order.iter().map(|key| OrderKey { direction: key.direction, path: path(&key.node) }).collect()
}

/// Whether a sort key is an element of an array in FROM, or a path into one.
pub(super) fn sorts_by_elements(select: &SelectNode) -> bool {
    let is_element = |hops: usize| {
        let source = select.sources.iter().rev().nth(hops);
        matches!(source, Some(SourceNode::Elements(_) | SourceNode::ElementsOfRows(_)))
    };
    let keys = select.order.iter().filter(|_| select.grouping.is_none());
    keys.map(|key| &key.node).any(|mut node| {
        while let Node::Step(base, _) | Node::Index(base, _) = node {
            node = base;
        }
        matches!(node, Node::Path { hops, .. } if is_element(*hops))
    })
}

/// Whether each row is the document itself.
pub(super) fn selects_document(select: &SelectNode, document_hops: Option<usize>) -> bool {
    let whole = match &select.output {
        Output::Value(Node::Path { hops, steps }) => steps.is_empty() && Some(*hops) == document_hops,
        _ => false,
    };
    whole && select.sources.len() == 1 && select.grouping.is_none()
}

/// The value of a document on which a row of DISTINCT or a group of GROUP BY depends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowKey {
    /// The path of the value in the document.
    pub path: Vec<Step>,
    /// The name of the member that has the value in a row of DISTINCT; `None` if the value itself is
    /// the row, and for groups.
    pub member: Option<String>,
}

/// The one value of a document on which its row or its group depends; see
/// [`Program::row_key`](super::Program::row_key).
pub(super) fn row_key(select: &SelectNode, document_hops: Option<usize>) -> Option<RowKey> {
    let hops = document_hops.filter(|_| select.sources.len() == 1 && select.filter.is_none())?;
    let (node, member) = match (&select.grouping, &select.output) {
        (Some(grouping), _) => match grouping.keys.as_slice() {
            [key] => (key, None),
            _ => return None,
        },
        (None, Output::Value(node)) => (node, None),
        (None, Output::Object(members)) => match members.as_slice() {
            [(name, node)] => (node, Some(name.clone())),
            _ => return None,
        },
    };
    Some(RowKey { path: path_of(node, hops)?.to_vec(), member })
}

/// Whether the select only counts documents, and counts each of them once.
pub(super) fn counts_every_document(select: &SelectNode) -> bool {
    let is_document = |node: &Node| matches!(node, Node::Path { steps, .. } if steps.is_empty());
    let counts = |aggregate: &AggregateNode| {
        aggregate.function == AggregateFunction::Count
            && (aggregate.argument.as_constant().is_some() || is_document(&aggregate.argument))
    };
    let grouping = select.grouping.as_ref().filter(|grouping| grouping.keys.is_empty());
    matches!(select.sources.as_slice(), [SourceNode::Value(node)] if is_document(node))
        && select.filter.is_none()
        && grouping.is_some_and(|grouping| grouping.aggregates.iter().all(counts))
}

/// Whether JSON can represent the value: no number in it is infinite or NaN.
pub(super) fn is_representable(value: &Value) -> bool {
    match value {
        Value::Number(Number::Double(value)) => value.is_finite(),
        Value::Array(items) => items.iter().all(is_representable),
        Value::Object(object) => object.iter().all(|(_, member)| is_representable(member)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}
