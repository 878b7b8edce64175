//! [`Program::is_little_work`]: whether a statement needs little work for each document.
//!
//! A step here is an operation in the text of a statement, such as a comparison or a name in a path. It
//! is counted before the statement runs, and is not a step of the budget of an evaluation. The work of a
//! step is bounded by the size of the document or of a constant: a path is looked up among
//! the members of an object, and two arrays are compared or copied element by element. So a statement
//! of few steps is little work for a document that is not large.

use perihelion_model::json::Value;

use super::Program;
use crate::node::{InList, Node, Output, SelectNode, SourceNode};

/// The most steps of a statement that is little work: more than nearly all statements by which
/// applications look up documents. Each step takes up to 0.05 ms for a document of 16 KB.
const STEPS_MAX: usize = 64;

/// The extra steps of a value that becomes a part of another value. The value is copied, and a copy
/// takes longer than a comparison.
const COPY_STEPS: usize = 2;

/// This many bytes of a constant text take one extra step: to copy them takes about as long as a step.
/// An id has at most 1023 bytes, so a comparison with an id takes no extra step.
const TEXT_BYTES_PER_STEP: usize = 1024;

impl Program {
    /// Whether the statement needs little more work for a document than to read it, unless the document
    /// is large. Such a statement has few steps. It has no joins, no subqueries and no calls of
    /// functions, because their work depends on the contents of the document.
    pub fn is_little_work(&self) -> bool {
        let steps = &mut Steps { left: STEPS_MAX };
        self.inner.is_none() && steps.spend_select(&self.select)
    }
}

/// The steps that a statement of little work may still take. Each method spends the steps of one
/// part of the statement. It returns `false` if too few steps are left, or if the part can be much
/// work.
struct Steps {
    left: usize,
}

impl Steps {
    fn spend_select(&mut self, select: &SelectNode) -> bool {
        let sources = match select.sources.as_slice() {
            [] => true,
            [SourceNode::Value(node)] => self.spend_node(node),
            [SourceNode::Elements(_) | SourceNode::Rows(_) | SourceNode::ElementsOfRows(_)] | [_, _, ..] => {
                false
            }
        };
        let output = match &select.output {
            Output::Value(node) => self.spend_node(node),
            Output::Object(members) => members.iter().all(|(_, node)| self.spend_copy(node)),
        };
        let groups = select.grouping.as_ref().is_none_or(|grouping| {
            self.spend_nodes(&grouping.keys)
                && grouping.aggregates.iter().all(|aggregate| self.spend_node(&aggregate.argument))
        });
        sources
            && output
            && groups
            && select.filter.iter().all(|node| self.spend_node(node))
            && select.order.iter().all(|key| self.spend_node(&key.node))
    }

    fn spend_nodes(&mut self, nodes: &[Node]) -> bool {
        nodes.iter().all(|node| self.spend_node(node))
    }

    fn spend_copy(&mut self, node: &Node) -> bool {
        self.spend(COPY_STEPS) && self.spend_node(node)
    }

    fn spend_node(&mut self, node: &Node) -> bool {
        match node {
            Node::Constant(value) => self.spend_constant(value.as_ref()),
            Node::Path { steps, .. } => self.spend(1 + steps.len()),
            Node::GroupKey { .. } | Node::Aggregate { .. } => self.spend(1),
            Node::Step(base, _) | Node::Unary(_, base) => self.spend(1) && self.spend_node(base),
            Node::Index(a, b) | Node::Binary(_, a, b) => {
                self.spend(1) && self.spend_node(a) && self.spend_node(b)
            }
            Node::Logical(_, nodes) => self.spend(1) && self.spend_nodes(nodes),
            Node::Array(nodes) => self.spend(1) && nodes.iter().all(|node| self.spend_copy(node)),
            Node::Between { value, low, high, .. } => {
                self.spend(1) && self.spend_node(value) && self.spend_node(low) && self.spend_node(high)
            }
            Node::In { value, list, .. } => {
                self.spend(1)
                    && self.spend_node(value)
                    && match list {
                        // A binary search takes few comparisons, however long the list is. A
                        // comparison with an array or an object of the list may be much work.
                        InList::Sorted { array_or_object_steps_max, .. } => {
                            array_or_object_steps_max.is_none()
                        }
                        InList::Nodes(nodes) => self.spend_nodes(nodes),
                    }
            }
            Node::Conditional(a, b, c) => {
                self.spend(1) && self.spend_node(a) && self.spend_node(b) && self.spend_node(c)
            }
            Node::Object(members) => self.spend(1) && members.iter().all(|(_, node)| self.spend_copy(node)),
            Node::Like { .. } | Node::Regex { .. } | Node::Call(..) | Node::Udf(_) | Node::Subquery(..) => {
                false
            }
        }
    }

    /// Spends the steps of a constant, of which each row may have a copy.
    fn spend_constant(&mut self, value: Option<&Value>) -> bool {
        self.spend(1)
            && match value {
                Some(Value::Array(items)) => items.iter().all(|item| self.spend_constant(Some(item))),
                Some(Value::Object(members)) => members
                    .iter()
                    .all(|(name, member)| self.spend_text(name) && self.spend_constant(Some(member))),
                Some(Value::String(text)) => self.spend_text(text),
                Some(Value::Null | Value::Bool(_) | Value::Number(_)) | None => true,
            }
    }

    /// Spends the extra steps of a long text. The step of its value is spent already.
    fn spend_text(&mut self, text: &str) -> bool {
        self.spend(text.len() / TEXT_BYTES_PER_STEP)
    }

    fn spend(&mut self, steps: usize) -> bool {
        let left = self.left.checked_sub(steps);
        self.left = left.unwrap_or_default();
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use perihelion_model::json::parse_str;

    use crate::{Now, Parameters, compile, parse};

    /// Story of a bug: a statement of thousands of comparisons of whole arrays counted as little work.
    #[test]
    fn many_steps_are_much_work() {
        let list = |step: &str, separator: &str, count: usize| vec![step; count].join(separator);
        let columns = |count| (0..count).map(|n| format!("c.p{n}")).collect::<Vec<String>>().join(", ");
        for (sql, is_little) in [
            (format!("SELECT * FROM c WHERE {}", list("c.a = c.b", " AND ", 5)), true),
            (format!("SELECT * FROM c WHERE {}", list("c.a = c.b", " AND ", 50)), false),
            (format!("SELECT VALUE {} FROM c", list("c.a", " || ", 50)), false),
            (format!("SELECT VALUE [{}] FROM c", list("c", ",", 20)), true),
            (format!("SELECT VALUE [{}] FROM c", list("c", ",", 50)), false),
            (format!("SELECT {} FROM c", columns(15)), true),
            (format!("SELECT {} FROM c", columns(50)), false),
            (format!("SELECT VALUE c{} FROM c", ".a".repeat(100)), false),
            (format!("SELECT VALUE [{}] FROM c", list("1", ",", 100)), false),
            (format!("SELECT * FROM c WHERE c.a IN ({})", list("1", ",", 100)), true),
            ("SELECT * FROM c WHERE c.a IN (1, {})".to_owned(), false),
            ("SELECT * FROM c WHERE c.a IN (1, [2])".to_owned(), false),
            (format!("SELECT * FROM c WHERE c.id = '{}'", "a".repeat(1000)), true),
            (format!("SELECT VALUE c.id || '{}' FROM c", "a".repeat(100_000)), false),
            (format!("SELECT VALUE [c.id, {{'{}': 1}}] FROM c", "a".repeat(100_000)), false),
        ] {
            let program = compile(&parse(&sql).unwrap(), &Parameters::none(), Now::from_unix_milliseconds(0));
            assert_eq!(program.unwrap().is_little_work(), is_little, "{sql:.100}");
        }
    }

    /// Story of a bug: a parameter of any length counted as one step. A statement that appended a long
    /// parameter to each id 30 times copied many megabytes per document, on an async worker.
    #[test]
    fn a_long_parameter_is_much_work() {
        for (length, is_little) in [(1000, true), (1_000_000, false)] {
            let list = format!(r#"[{{"name":"@p","value":"{}"}}]"#, "a".repeat(length));
            let parameters = Parameters::from_json(parse_str(&list).unwrap()).unwrap();
            let query = parse("SELECT VALUE c.id || @p FROM c").unwrap();
            let program = compile(&query, &parameters, Now::from_unix_milliseconds(0));
            assert_eq!(program.unwrap().is_little_work(), is_little, "{length}");
        }
    }

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
