//! Whether a statement is little work for each document.

use super::Program;
use crate::node::{InList, Node, Output, SelectNode, SourceNode};

impl Program {
    /// Whether each document needs little more work than reading it: the statement has no joins, no
    /// subqueries and no calls of functions, whose work depends on what the document holds.
    pub fn is_little_work(&self) -> bool {
        self.inner.is_none() && is_little_select(&self.select)
    }
}

fn is_little_select(select: &SelectNode) -> bool {
    let sources = match select.sources.as_slice() {
        [] => true,
        [SourceNode::Value(node)] => is_little(node),
        [SourceNode::Elements(_) | SourceNode::Rows(_)] | [_, _, ..] => false,
    };
    let output = match &select.output {
        Output::Value(node) => is_little(node),
        Output::Object(members) => members.iter().all(|(_, node)| is_little(node)),
    };
    let groups = select.grouping.as_ref().is_none_or(|grouping| {
        grouping.keys.iter().all(is_little)
            && grouping.aggregates.iter().all(|aggregate| is_little(&aggregate.argument))
    });
    sources
        && output
        && groups
        && select.filter.iter().all(is_little)
        && select.order.iter().all(|key| is_little(&key.node))
}

fn is_little(node: &Node) -> bool {
    match node {
        Node::Constant(_) | Node::Path { .. } | Node::GroupKey { .. } | Node::Aggregate { .. } => true,
        Node::Step(base, _) | Node::Unary(_, base) => is_little(base),
        Node::Index(a, b) | Node::Binary(_, a, b) => is_little(a) && is_little(b),
        Node::Logical(_, nodes) | Node::Array(nodes) => nodes.iter().all(is_little),
        Node::Between { value, low, high, .. } => is_little(value) && is_little(low) && is_little(high),
        Node::In { value, list, .. } => {
            is_little(value)
                && match list {
                    InList::Sorted(_) => true,
                    InList::Nodes(nodes) => nodes.iter().all(is_little),
                }
        }
        Node::Conditional(a, b, c) => is_little(a) && is_little(b) && is_little(c),
        Node::Object(members) => members.iter().all(|(_, node)| is_little(node)),
        Node::Like { .. } | Node::Regex { .. } | Node::Call(..) | Node::Udf(_) | Node::Subquery(..) => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Now, Parameters, compile, parse};

    #[test]
    fn joins_subqueries_and_functions_may_be_much_work() {
        for (sql, is_little) in [
            ("SELECT * FROM c WHERE c.id = 'a' AND c.n IN (1, 2) ORDER BY c.n", true),
            ("SELECT c.a, {b: c.b} AS o FROM c WHERE c.n BETWEEN 1 AND 2 OR NOT c.x", true),
            ("SELECT c.a, COUNT(1) AS n FROM c GROUP BY c.a", true),
            ("SELECT c.a, x FROM c JOIN x IN c.items", false),
            ("SELECT * FROM x IN c.items", false),
            ("SELECT * FROM c WHERE EXISTS (SELECT 1 FROM x IN c.items)", false),
            ("SELECT * FROM c WHERE CONTAINS(c.text, 'a')", false),
            ("SELECT * FROM c WHERE c.text LIKE '%a%'", false),
            ("SELECT COUNT(1) AS n FROM (SELECT DISTINCT c.a FROM c) AS d", false),
        ] {
            let program = compile(&parse(sql).unwrap(), &Parameters::none(), Now::from_unix_milliseconds(0));
            assert_eq!(program.unwrap().is_little_work(), is_little, "{sql}");
        }
    }
}
