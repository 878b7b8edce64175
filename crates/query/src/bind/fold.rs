//! Constant folding: the evaluation of expressions that do not depend on the
//! document.

use super::Binder;
use crate::eval::{Frame, evaluate};
use crate::node::{InList, Node, Pattern};

impl Binder<'_> {
    /// The node, or its value when all operands are constants. A node that
    /// exceeds the budget of the binder is not folded, but evaluated when the statement
    /// runs.
    pub(super) fn fold(&self, node: Node) -> Node {
        if !is_foldable(&node) {
            return node;
        }
        let value = evaluate(&node, &Frame::root(None), &self.context)
            .and_then(|value| value.map(|value| self.context.own(value)).transpose());
        match value {
            Ok(value) => Node::Constant(value),
            Err(_) => node,
        }
    }
}

/// Whether the node can be folded: all its operands are constants.
fn is_foldable(node: &Node) -> bool {
    let constant = |node: &Node| node.as_constant().is_some();
    match node {
        Node::Step(base, _) | Node::Unary(_, base) => constant(base),
        Node::Index(a, b) | Node::Binary(_, a, b) => constant(a) && constant(b),
        Node::Call(function, _) if function.is_random() => false,
        Node::Logical(_, items) | Node::Array(items) | Node::Call(_, items) => items.iter().all(constant),
        Node::Object(members) => members.iter().all(|(_, member)| constant(member)),
        Node::Conditional(a, b, c) => constant(a) && constant(b) && constant(c),
        Node::Between { value, low, high, .. } => constant(value) && constant(low) && constant(high),
        Node::In { value, list: InList::Sorted { .. }, .. } => constant(value),
        Node::In { value, list: InList::Nodes(nodes), .. } => constant(value) && nodes.iter().all(constant),
        Node::Like { value, pattern: Pattern::Fixed(_), .. } | Node::Regex { value, .. } => constant(value),
        Node::Like { pattern: Pattern::Computed { .. }, .. }
        | Node::Constant(_)
        | Node::Path { .. }
        | Node::GroupKey { .. }
        | Node::Aggregate { .. }
        | Node::Udf(_)
        | Node::Subquery(..) => false,
    }
}
