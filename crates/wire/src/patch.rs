//! Partial document update: parsing a patch and applying it to a document.
//!
//! A patch is like JSON Patch (RFC 6902) with the service's own rules: `set`
//! creates or replaces, `incr` creates or adds, there is no `test` or `copy`, and a
//! patch has at most ten operations, which are applied in order. The whole patch is
//! parsed first, so [`Patch::apply`] fails only when the patch does not fit the document.
//! A patch that is applied never makes a document deeper than the JSON parser accepts.

mod apply;
mod error;

use perihelion_model::json::{DEPTH_MAX, Number, Object, Style, Value, to_text};

pub use error::{PatchError, Reason};

use apply::{InsertMode, Node, increment, insert, move_node, remove, replace};

/// The service's limit on operations in one patch.
pub const OPERATIONS_MAX: usize = 10;

/// The properties that a patch cannot change: `id`, and the properties that the service
/// writes itself.
const SYSTEM_PROPERTIES: [&str; 6] = ["id", "_rid", "_self", "_etag", "_attachments", "_ts"];

/// Every number takes fewer bytes than this as text.
const NUMBER_BYTES_MAX: usize = 32;

/// A byte of a name takes at most this many bytes in the text of a document, when it is
/// escaped as in `\u0000`.
const ESCAPED_BYTES_MAX: usize = 6;

/// The quotes, colon and comma of a member.
const MEMBER_PUNCTUATION_BYTES: usize = 4;

/// A parsed patch.
#[derive(Debug, Clone, PartialEq)]
pub struct Patch {
    operations: Vec<Operation>,
    condition: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
struct Operation {
    verb: Verb,
    path: Pointer,
}

#[derive(Debug, Clone, PartialEq)]
enum Verb {
    Add(Value),
    Set(Value),
    Replace(Value),
    Remove,
    Increment(Number),
    Move { from: Pointer },
}

/// A path into a document. It has at least one token: the root cannot be patched.
#[derive(Debug, Clone, PartialEq)]
struct Pointer {
    /// The path as sent, for messages.
    text: String,
    /// The unescaped names and array indexes, from the top level to the leaf.
    tokens: Vec<String>,
}

impl Patch {
    /// Parses `{"operations":[...],"condition":"..."}` or an array of
    /// operations, which the JavaScript SDK sends.
    pub fn parse(body: &Value) -> Result<Patch, PatchError> {
        let (operations, condition) = match body {
            Value::Array(operations) => (operations.as_slice(), None),
            Value::Object(object) => {
                let operations = object.get("operations").and_then(Value::as_array);
                (operations.ok_or(PatchError::Syntax)?, object.get("condition"))
            }
            _ => return Err(PatchError::Syntax),
        };
        let condition = match condition {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(_) => return Err(PatchError::Syntax),
        };
        if operations.is_empty() {
            return Err(PatchError::Syntax);
        }
        if operations.len() > OPERATIONS_MAX {
            return Err(PatchError::TooManyOperations);
        }
        let operations = operations.iter().map(Operation::parse).collect::<Result<_, _>>()?;
        Ok(Patch { operations, condition })
    }

    /// The condition for applying the patch, such as `from c where c.n = 1`. The caller
    /// checks it.
    pub fn condition(&self) -> Option<&str> {
        self.condition.as_deref()
    }

    /// The number of operations; the charge depends on it.
    pub fn operation_count(&self) -> usize {
        self.operations.len()
    }

    /// The most bytes by which the patch makes the text of a document longer.
    pub fn added_bytes_max(&self) -> usize {
        self.operations.iter().map(Operation::added_bytes_max).sum()
    }

    /// Whether the patch may change the value at this path: one of its operations targets the
    /// path, a path above it or a path below it. A `move` targets both its paths.
    pub fn touches(&self, path: &[&str]) -> bool {
        self.operations.iter().flat_map(Operation::pointers).any(|pointer| {
            let shared = pointer.tokens.iter().zip(path).take_while(|(token, name)| token == *name).count();
            shared == path.len().min(pointer.tokens.len())
        })
    }

    /// Applies the operations in order. The document includes its system properties in
    /// stored order. After an error the document may be partly changed, so callers pass
    /// a copy.
    pub fn apply(&self, document: &mut Object) -> Result<(), PatchError> {
        for (index, operation) in self.operations.iter().enumerate() {
            operation
                .apply(document)
                .map_err(|reason| PatchError::Operation { number: index + 1, reason })?;
        }
        Ok(())
    }
}

impl Operation {
    fn parse(value: &Value) -> Result<Operation, PatchError> {
        let text = |name| value.get(name).and_then(Value::as_str).ok_or(PatchError::Syntax);
        let operand = || value.get("value").cloned().ok_or(PatchError::Syntax);
        let path = Pointer::parse(text("path")?)?;
        let verb = match text("op")? {
            "add" => Verb::Add(operand()?),
            "set" => Verb::Set(operand()?),
            "replace" => Verb::Replace(operand()?),
            "remove" => Verb::Remove,
            "incr" => match operand()? {
                Value::Number(by) => Verb::Increment(by),
                _ => return Err(PatchError::Syntax),
            },
            "move" => Verb::Move { from: Pointer::parse(text("from")?)? },
            _ => return Err(PatchError::Syntax),
        };
        let operation = Operation { verb, path };
        for pointer in operation.pointers() {
            if SYSTEM_PROPERTIES.contains(&pointer.tokens[0].as_str()) {
                return Err(PatchError::SystemProperty(pointer.tokens[0].clone()));
            }
        }
        Ok(operation)
    }

    /// The most bytes by which the operation makes the text of a document longer: a value, its
    /// name, and the punctuation of a member.
    fn added_bytes_max(&self) -> usize {
        let value = match &self.verb {
            // In the style in which point reads return documents.
            Verb::Add(value) | Verb::Set(value) | Verb::Replace(value) => to_text(value, Style::Point).len(),
            Verb::Remove => return 0,
            Verb::Increment(_) => NUMBER_BYTES_MAX,
            Verb::Move { .. } => 0,
        };
        let name = self.path.tokens.last().map_or(0, |name| name.len() * ESCAPED_BYTES_MAX);
        value + name + MEMBER_PUNCTUATION_BYTES
    }

    /// The paths that the operation changes.
    fn pointers(&self) -> impl Iterator<Item = &Pointer> {
        let from = match &self.verb {
            Verb::Move { from } => Some(from),
            Verb::Add(_) | Verb::Set(_) | Verb::Replace(_) | Verb::Remove | Verb::Increment(_) => None,
        };
        std::iter::once(&self.path).chain(from)
    }

    fn apply(&self, document: &mut Object) -> Result<(), Reason> {
        match &self.verb {
            Verb::Add(value) => insert(document, &self.path, value.clone(), InsertMode::Add),
            Verb::Set(value) => insert(document, &self.path, value.clone(), InsertMode::Set),
            Verb::Replace(value) => replace(document, &self.path, value.clone()),
            Verb::Remove => remove(document, &self.path).map(drop),
            Verb::Increment(by) => increment(document, &self.path, *by),
            Verb::Move { from } => move_node(document, from, &self.path),
        }
    }
}

impl Pointer {
    fn parse(text: &str) -> Result<Pointer, PatchError> {
        let inner = text.strip_prefix('/').ok_or(PatchError::Syntax)?;
        let mut tokens = Vec::new();
        for raw in inner.split('/') {
            if tokens.len() == DEPTH_MAX {
                return Err(PatchError::Syntax);
            }
            tokens.push(unescape(raw).ok_or(PatchError::Syntax)?);
        }
        Ok(Pointer { text: text.to_owned(), tokens })
    }

    /// The last token.
    fn leaf(&self) -> &str {
        self.tokens.last().map_or("", String::as_str)
    }

    /// The object or array that contains the leaf; the error is the first token of
    /// the path that is missing or a scalar.
    fn parent<'d>(&self, document: &'d mut Object) -> Result<Node<'d>, &str> {
        let mut node = Node::Root(document);
        for token in &self.tokens[..self.tokens.len() - 1] {
            node = match node.child(token) {
                Some(Value::Object(object)) => Node::Object(object),
                Some(Value::Array(items)) => Node::Array(items),
                _ => return Err(token),
            };
        }
        Ok(node)
    }
}

/// Decodes `~1` to a slash and `~0` to a tilde; `None` for any other tilde.
fn unescape(raw: &str) -> Option<String> {
    let mut parts = raw.split('~');
    let mut token = parts.next()?.to_owned();
    for part in parts {
        let (escape, rest) = part.split_at_checked(1)?;
        token.push(match escape {
            "0" => '~',
            "1" => '/',
            _ => return None,
        });
        token.push_str(rest);
    }
    Some(token)
}

#[cfg(test)]
mod tests;
