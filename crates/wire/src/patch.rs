//! Partial document update: the patch body, and applying it to a document.
//!
//! Like JSON Patch (RFC 6902), with the service's own rules: `set` creates or
//! replaces, `incr` creates or adds, and at most ten operations run in order,
//! all or none. A patch is read whole before anything is touched, so what is
//! left to fail in [`Patch::apply`] depends on the document alone. Nothing
//! applied here can nest deeper than the parser would read back.

use perihelion_model::json::{DEPTH_MAX, Number, Object, Value};

use crate::binary_json::depth;

/// The service's limit on operations in one patch.
pub const OPERATIONS_MAX: usize = 10;

/// What the service writes itself. (`id` too cannot change once written.)
const SYSTEM_PROPERTIES: [&str; 6] = ["id", "_rid", "_self", "_etag", "_attachments", "_ts"];

/// Members added at the top level stand before this one, as the service
/// writes them: after `_attachments`, before `_ts`.
const FIRST_AFTER_ADDED: &str = "_ts";

/// A patch that is well formed, not yet held against a document.
#[derive(Debug, Clone, PartialEq)]
pub struct Patch {
    operations: Vec<Operation>,
    condition: Option<String>,
}

/// Why a patch is refused. `Display` is the text for the body of the 400.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatchError {
    /// The body is not a patch.
    Syntax,
    TooManyOperations,
    SystemProperty(String),
    /// For the engine, which knows the partition key's paths: see [`Patch::touches`].
    PartitionKey,
    /// One operation cannot be applied to this document; counted from one.
    Operation {
        number: usize,
        reason: Reason,
    },
}

/// Why one operation cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The parent of an added node is missing or a scalar.
    NoParent { is_add: bool, beyond: String },
    /// `replace` of what is not there.
    ReplacedAbsent(String),
    /// `remove` or `move` of what is not there.
    RemovedAbsent(String),
    /// An array index beyond the array, or not an index at all.
    IndexOutOfBounds(String),
    /// `incr` of something else than a number, or beyond the range of numbers.
    NotANumber(String),
    /// A node moved into itself.
    MovedIntoItself,
    /// The result would nest deeper than a document may.
    TooDeep,
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

/// A path into a document, unescaped. Never empty: the root is not patched.
#[derive(Debug, Clone, PartialEq)]
struct Pointer {
    text: String,
    tokens: Vec<String>,
}

impl Patch {
    /// Reads `{"operations":[...],"condition":"..."}` or a bare array of
    /// operations, as the JavaScript SDK sends it.
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

    /// The predicate that must hold for the patch to be applied, e.g.
    /// `from c where c.n = 1`.
    pub fn condition(&self) -> Option<&str> {
        self.condition.as_deref()
    }

    /// How many operations there are, which is part of the charge.
    pub fn operation_count(&self) -> usize {
        self.operations.len()
    }

    /// Whether an operation may change what stands at this path: it targets
    /// the path, something above it or something below it.
    pub fn touches(&self, path: &[&str]) -> bool {
        self.operations.iter().flat_map(Operation::pointers).any(|pointer| {
            let shared = pointer.tokens.iter().zip(path).take_while(|(token, name)| token == *name).count();
            shared == path.len().min(pointer.tokens.len())
        })
    }

    /// Applies the operations in order. The document includes its system
    /// properties in stored order. After an error it may be half changed: the
    /// caller works on a copy, and drops it.
    pub fn apply(&self, document: &mut Object) -> Result<(), PatchError> {
        for (place, operation) in self.operations.iter().enumerate() {
            operation
                .apply(document)
                .map_err(|reason| PatchError::Operation { number: place + 1, reason })?;
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
            Verb::Add(value) => insert(document, &self.path, value.clone(), Mode::Add),
            Verb::Set(value) => insert(document, &self.path, value.clone(), Mode::Set),
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

    fn leaf(&self) -> &str {
        self.tokens.last().map_or("", String::as_str)
    }

    /// The container that holds the leaf, or the first token that is missing
    /// or leads into a scalar.
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

/// `~1` is a slash, `~0` a tilde; a tilde followed by anything else is wrong.
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

/// A container on the way to a leaf.
enum Node<'d> {
    Root(&'d mut Object),
    Object(&'d mut Object),
    Array(&'d mut Vec<Value>),
}

impl<'d> Node<'d> {
    fn child(self, token: &str) -> Option<&'d mut Value> {
        match self {
            Node::Root(object) | Node::Object(object) => object.get_mut(token),
            Node::Array(items) => items.get_mut(index(token)?),
        }
    }
}

/// An array index: decimal digits without a leading zero.
fn index(token: &str) -> Option<usize> {
    let is_canonical = token == "0" || !token.starts_with('0');
    (is_canonical && token.bytes().all(|byte| byte.is_ascii_digit())).then(|| token.parse().ok())?
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// An array element is inserted before the one at the index.
    Add,
    /// An array element is replaced.
    Set,
}

fn insert(document: &mut Object, path: &Pointer, value: Value, mode: Mode) -> Result<(), Reason> {
    if path.tokens.len() + depth(&value) > DEPTH_MAX {
        return Err(Reason::TooDeep);
    }
    let no_parent = |beyond: &str| Reason::NoParent { is_add: mode == Mode::Add, beyond: beyond.to_owned() };
    let leaf = path.leaf();
    match path.parent(document).map_err(no_parent)? {
        Node::Root(object) if !object.contains(leaf) => object.insert_before(FIRST_AFTER_ADDED, leaf, value),
        Node::Root(object) | Node::Object(object) => object.set(leaf, value),
        Node::Array(items) if leaf == "-" => items.push(value),
        Node::Array(items) => match (index(leaf), mode) {
            (Some(at), Mode::Add) if at <= items.len() => items.insert(at, value),
            (Some(at), Mode::Set) if at < items.len() => items[at] = value,
            _ => return Err(Reason::IndexOutOfBounds(leaf.to_owned())),
        },
    }
    Ok(())
}

fn replace(document: &mut Object, path: &Pointer, value: Value) -> Result<(), Reason> {
    if path.tokens.len() + depth(&value) > DEPTH_MAX {
        return Err(Reason::TooDeep);
    }
    let no_parent = |beyond: &str| Reason::NoParent { is_add: false, beyond: beyond.to_owned() };
    let parent = path.parent(document).map_err(no_parent)?;
    let is_array = matches!(parent, Node::Array(_));
    match parent.child(path.leaf()) {
        Some(slot) => *slot = value,
        None if is_array => return Err(Reason::IndexOutOfBounds(path.leaf().to_owned())),
        None => return Err(Reason::ReplacedAbsent(path.text.clone())),
    }
    Ok(())
}

fn remove(document: &mut Object, path: &Pointer) -> Result<Value, Reason> {
    let absent = || Reason::RemovedAbsent(path.text.clone());
    let leaf = path.leaf();
    match path.parent(document).map_err(|_| absent())? {
        Node::Root(object) | Node::Object(object) => object.remove(leaf).ok_or_else(absent),
        Node::Array(items) => match index(leaf) {
            Some(at) if at < items.len() => Ok(items.remove(at)),
            _ => Err(Reason::IndexOutOfBounds(leaf.to_owned())),
        },
    }
}

fn increment(document: &mut Object, path: &Pointer, by: Number) -> Result<(), Reason> {
    let no_parent = |beyond: &str| Reason::NoParent { is_add: false, beyond: beyond.to_owned() };
    let not_a_number = || Reason::NotANumber(path.text.clone());
    match path.parent(document).map_err(no_parent)?.child(path.leaf()) {
        Some(Value::Number(number)) => {
            *number = sum(*number, by).ok_or_else(not_a_number)?;
            Ok(())
        }
        Some(_) => Err(not_a_number()),
        None => insert(document, path, Value::Number(by), Mode::Set),
    }
}

/// Integers stay exact while they fit; everything else is a sum of doubles.
fn sum(a: Number, b: Number) -> Option<Number> {
    if let (Number::Int(_) | Number::Uint(_), Number::Int(_) | Number::Uint(_)) = (a, b) {
        let exact = integer(a) + integer(b);
        if let Ok(value) = i64::try_from(exact) {
            return Some(Number::Int(value));
        }
        if let Ok(value) = u64::try_from(exact) {
            return Some(Number::from_u64(value));
        }
    }
    Number::from_f64(a.as_f64() + b.as_f64())
}

fn integer(number: Number) -> i128 {
    match number {
        Number::Int(value) => value.into(),
        Number::Uint(value) => value.into(),
        Number::Double(value) => value as i128,
    }
}

fn move_node(document: &mut Object, from: &Pointer, to: &Pointer) -> Result<(), Reason> {
    if from.tokens == to.tokens {
        // Moving a node onto itself changes nothing, if it is there.
        let parent = from.parent(document).map_err(|_| Reason::RemovedAbsent(from.text.clone()))?;
        return parent.child(from.leaf()).map(drop).ok_or_else(|| Reason::RemovedAbsent(from.text.clone()));
    }
    if to.tokens.starts_with(&from.tokens) {
        return Err(Reason::MovedIntoItself);
    }
    let value = remove(document, from)?;
    insert(document, to, value, Mode::Add)
}

impl std::fmt::Display for PatchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PatchError::Syntax => f.write_str("Invalid patch request: check syntax of patch specification."),
            PatchError::TooManyOperations => {
                write!(f, "The number of patch operations cannot exceed '{OPERATIONS_MAX}'.")
            }
            PatchError::SystemProperty(name) => {
                write!(f, "Invalid patch request: Cannot patch system property {name}.")
            }
            PatchError::PartitionKey => {
                f.write_str("Invalid patch request: Cannot patch the partition key of a document.")
            }
            PatchError::Operation { number, reason } => write!(f, "For Operation({number}): {reason}"),
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::NoParent { is_add, beyond } => write!(
                f,
                "{} Operation can only create a child object of an existing node(array or object) and \
                 cannot create path recursively, no path found beyond: '{beyond}'.",
                if *is_add { "Add" } else { "Given" }
            ),
            Reason::ReplacedAbsent(path) => write!(f, "Node({path}) to be replaced is absent."),
            Reason::RemovedAbsent(path) => write!(
                f,
                "Node({path}) to be removed is absent. Note: it may also have been removed earlier in the \
                 transaction."
            ),
            Reason::IndexOutOfBounds(token) => {
                write!(f, "Index({token}) to operate on is out of array bounds.")
            }
            Reason::NotANumber(path) => write!(f, "Node({path}) is not a number."),
            Reason::MovedIntoItself => {
                f.write_str("The path of a move operation cannot be a child of its from path.")
            }
            Reason::TooDeep => write!(f, "The document would nest deeper than {DEPTH_MAX} levels."),
        }
    }
}

impl std::error::Error for PatchError {}

#[cfg(test)]
mod tests {
    use super::*;
    use perihelion_model::json::{Style, parse_str, to_text};

    /// Applies the operations to the document: the expected text is the
    /// patched document, or starts with "400 " and is the refusal.
    fn check(document: &str, operations: &str, expect: &str) {
        let Value::Object(mut object) = parse_str(document).unwrap() else { panic!("{document}") };
        let outcome =
            Patch::parse(&parse_str(operations).unwrap()).and_then(|patch| patch.apply(&mut object));
        let text = match outcome {
            Ok(()) => to_text(&Value::Object(object), Style::Point),
            Err(error) => format!("400 {error}"),
        };
        assert_eq!(text, expect, "{operations} on {document}");
    }

    #[test]
    fn the_documented_example_gives_the_documented_result() {
        check(
            r#"{"id":"e","name":"R-410","price":455.95,"inventory":{"quantity":15},"used":false,"categoryId":"road","tags":["r-series"]}"#,
            r#"[{"op":"add","path":"/color","value":"silver"},{"op":"remove","path":"/used"},
                {"op":"set","path":"/price","value":355.45},{"op":"incr","path":"/inventory/quantity","value":10},
                {"op":"add","path":"/tags/-","value":"featured"},{"op":"move","from":"/color","path":"/inventory/color"}]"#,
            r#"{"id":"e","name":"R-410","price":355.45,"inventory":{"quantity":25,"color":"silver"},"categoryId":"road","tags":["r-series","featured"]}"#,
        );
    }

    #[test]
    fn added_members_stand_before_the_time_stamp() {
        check(
            r#"{"id":"d1","n":5,"_rid":"r","_self":"s","_etag":"e","_attachments":"a","_ts":1}"#,
            r#"{"operations":[{"op":"set","path":"/n","value":7},{"op":"incr","path":"/n","value":3},{"op":"add","path":"/new","value":"v"}]}"#,
            r#"{"id":"d1","n":10,"_rid":"r","_self":"s","_etag":"e","_attachments":"a","new":"v","_ts":1}"#,
        );
    }

    #[test]
    fn add_inserts_into_arrays_and_set_replaces() {
        let array = r#"{"a":[1,2]}"#;
        check(array, r#"[{"op":"add","path":"/a/0","value":9}]"#, r#"{"a":[9,1,2]}"#);
        check(array, r#"[{"op":"add","path":"/a/2","value":9}]"#, r#"{"a":[1,2,9]}"#);
        check(array, r#"[{"op":"add","path":"/a/-","value":9}]"#, r#"{"a":[1,2,9]}"#);
        check(array, r#"[{"op":"set","path":"/a/0","value":9}]"#, r#"{"a":[9,2]}"#);
        check(array, r#"[{"op":"set","path":"/a/-","value":9}]"#, r#"{"a":[1,2,9]}"#);
        check(array, r#"[{"op":"replace","path":"/a/1","value":9}]"#, r#"{"a":[1,9]}"#);
        check(array, r#"[{"op":"remove","path":"/a/0"}]"#, r#"{"a":[2]}"#);
        check(array, r#"[{"op":"incr","path":"/a/1","value":5}]"#, r#"{"a":[1,7]}"#);
        let beyond = |token: &str| {
            format!("400 For Operation(1): Index({token}) to operate on is out of array bounds.")
        };
        check(array, r#"[{"op":"add","path":"/a/3","value":9}]"#, &beyond("3"));
        check(array, r#"[{"op":"add","path":"/a/01","value":9}]"#, &beyond("01"));
        check(array, r#"[{"op":"add","path":"/a/x","value":9}]"#, &beyond("x"));
        check(
            array,
            r#"[{"op":"add","path":"/a/99999999999999999999","value":9}]"#,
            &beyond("99999999999999999999"),
        );
        check(array, r#"[{"op":"set","path":"/a/2","value":9}]"#, &beyond("2"));
        check(array, r#"[{"op":"replace","path":"/a/2","value":9}]"#, &beyond("2"));
        check(array, r#"[{"op":"remove","path":"/a/-"}]"#, &beyond("-"));
    }

    #[test]
    fn only_the_leaf_may_be_missing() {
        check(r#"{"o":{}}"#, r#"[{"op":"set","path":"/o/x","value":1}]"#, r#"{"o":{"x":1}}"#);
        check(r#"{"o":{}}"#, r#"[{"op":"add","path":"/o/x","value":null}]"#, r#"{"o":{"x":null}}"#);
        check(r#"{"o":{"x":1}}"#, r#"[{"op":"add","path":"/o/x","value":2}]"#, r#"{"o":{"x":2}}"#);
        let tail = "Operation can only create a child object of an existing node(array or object) and cannot \
                    create path recursively, no path found beyond:";
        let no_parent = |word: &str, beyond: &str| format!("400 For Operation(1): {word} {tail} '{beyond}'.");
        check(r#"{"o":{}}"#, r#"[{"op":"add","path":"/nope/x","value":1}]"#, &no_parent("Add", "nope"));
        check(r#"{"o":1}"#, r#"[{"op":"set","path":"/o/x","value":1}]"#, &no_parent("Given", "o"));
        check(r#"{"o":{}}"#, r#"[{"op":"replace","path":"/o/x/y","value":1}]"#, &no_parent("Given", "x"));
        check(r#"{"o":{}}"#, r#"[{"op":"incr","path":"/o/x/y","value":1}]"#, &no_parent("Given", "x"));
    }

    #[test]
    fn replace_and_remove_need_what_they_name() {
        check(
            r#"{"a":1}"#,
            r#"[{"op":"set","path":"/a","value":2},{"op":"replace","path":"/b","value":1}]"#,
            "400 For Operation(2): Node(/b) to be replaced is absent.",
        );
        let absent = |path: &str| {
            format!(
                "400 For Operation(1): Node({path}) to be removed is absent. Note: it may also have been \
                 removed earlier in the transaction."
            )
        };
        check(r#"{"a":1}"#, r#"[{"op":"remove","path":"/b"}]"#, &absent("/b"));
        check(r#"{"a":1}"#, r#"[{"op":"remove","path":"/b/c"}]"#, &absent("/b/c"));
        check(r#"{"a":1}"#, r#"[{"op":"move","from":"/b","path":"/a"}]"#, &absent("/b"));
        check(r#"{"a":1}"#, r#"[{"op":"move","from":"/b","path":"/b"}]"#, &absent("/b"));
    }

    #[test]
    fn increments_are_exact_and_create_what_is_missing() {
        check(r#"{"_ts":1}"#, r#"[{"op":"incr","path":"/n","value":-2.5}]"#, r#"{"n":-2.5,"_ts":1}"#);
        check(
            r#"{"n":9007199254740993}"#,
            r#"[{"op":"incr","path":"/n","value":1}]"#,
            r#"{"n":9007199254740994}"#,
        );
        check(
            r#"{"n":9223372036854775807}"#,
            r#"[{"op":"incr","path":"/n","value":1}]"#,
            r#"{"n":9223372036854775808}"#,
        );
        check(
            r#"{"n":18446744073709551615}"#,
            r#"[{"op":"incr","path":"/n","value":-1}]"#,
            r#"{"n":18446744073709551614}"#,
        );
        check(
            r#"{"n":18446744073709551615}"#,
            r#"[{"op":"incr","path":"/n","value":1}]"#,
            r#"{"n":1.8446744073709552e+019}"#,
        );
        check(r#"{"n":1.5}"#, r#"[{"op":"incr","path":"/n","value":0.5}]"#, r#"{"n":2}"#);
        let not_a_number = "400 For Operation(1): Node(/n) is not a number.";
        check(r#"{"n":"5"}"#, r#"[{"op":"incr","path":"/n","value":1}]"#, not_a_number);
        check(r#"{"n":null}"#, r#"[{"op":"incr","path":"/n","value":1}]"#, not_a_number);
        check(r#"{"n":1.7e308}"#, r#"[{"op":"incr","path":"/n","value":1.7e308}]"#, not_a_number);
    }

    #[test]
    fn moves_take_the_value_along() {
        check(
            r#"{"a":{"x":[1]},"b":2}"#,
            r#"[{"op":"move","from":"/a/x","path":"/b"}]"#,
            r#"{"a":{},"b":[1]}"#,
        );
        check(r#"{"a":[1,2,3]}"#, r#"[{"op":"move","from":"/a/0","path":"/a/2"}]"#, r#"{"a":[2,3,1]}"#);
        check(r#"{"a":1,"b":2}"#, r#"[{"op":"move","from":"/a","path":"/a"}]"#, r#"{"a":1,"b":2}"#);
        check(
            r#"{"a":{"b":1}}"#,
            r#"[{"op":"move","from":"/a","path":"/a/b"}]"#,
            "400 For Operation(1): The path of a move operation cannot be a child of its from path.",
        );
    }

    #[test]
    fn paths_are_unescaped() {
        check(r#"{"a/b":{"~":1}}"#, r#"[{"op":"set","path":"/a~1b/~0","value":2}]"#, r#"{"a/b":{"~":2}}"#);
        check(r#"{"~1":1}"#, r#"[{"op":"set","path":"/~01","value":2}]"#, r#"{"~1":2}"#);
        check(r#"{"é":1}"#, r#"[{"op":"set","path":"/é","value":2}]"#, r#"{"é":2}"#);
    }

    #[test]
    fn malformed_patches_are_refused() {
        let syntax = "400 Invalid patch request: check syntax of patch specification.";
        for body in [
            "1",
            "{}",
            "[]",
            r#"{"operations":{}}"#,
            r#"{"operations":[]}"#,
            r#"{"operations":[{"op":"remove","path":"/a"}],"condition":1}"#,
            "[1]",
            r#"[{"op":"remove"}]"#,
            r#"[{"path":"/a"}]"#,
            r#"[{"op":"remove","path":"a"}]"#,
            r#"[{"op":"remove","path":""}]"#,
            r#"[{"op":"remove","path":"/~2"}]"#,
            r#"[{"op":"remove","path":"/a~"}]"#,
            r#"[{"op":"remove","path":"/~é"}]"#,
            r#"[{"op":"add","path":"/a"}]"#,
            r#"[{"op":"incr","path":"/a","value":"1"}]"#,
            r#"[{"op":"move","path":"/a"}]"#,
            r#"[{"op":"copy","path":"/a","from":"/b"}]"#,
            r#"[{"op":"Add","path":"/a","value":1}]"#,
        ] {
            check(r#"{"a":1}"#, body, syntax);
        }
        let eleven = format!("[{}]", [r#"{"op":"set","path":"/a","value":1}"#; 11].join(","));
        check("{}", &eleven, "400 The number of patch operations cannot exceed '10'.");
        for name in SYSTEM_PROPERTIES {
            let refusal = format!("400 Invalid patch request: Cannot patch system property {name}.");
            check("{}", &format!(r#"[{{"op":"set","path":"/{name}","value":1}}]"#), &refusal);
            check("{}", &format!(r#"[{{"op":"move","from":"/{name}/x","path":"/a"}}]"#), &refusal);
        }
    }

    #[test]
    fn a_patch_cannot_nest_a_document_too_deep() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let deep = format!(r#"{{"a":{}}}"#, nested(DEPTH_MAX - 1));
        let bottom = format!("/a{}/-", "/0".repeat(DEPTH_MAX - 2));
        let grow = |value: &str| format!(r#"[{{"op":"add","path":"{bottom}","value":{value}}}]"#);
        let too_deep = "400 For Operation(1): The document would nest deeper than 128 levels.";
        check(&deep, &grow("[]"), too_deep);
        check(&deep, &grow("1"), &deep.replace("[]", "[1]"));
        let wide = format!(r#"{{"a":{},"b":{}}}"#, nested(2), nested(DEPTH_MAX - 2));
        check(&wide, r#"[{"op":"move","from":"/b","path":"/a/0/-"}]"#, too_deep);
    }

    #[test]
    fn the_condition_and_the_touched_paths_can_be_asked_for() {
        let body = r#"{"condition":"from c where c.n = 1","operations":[{"op":"set","path":"/a/b","value":1},{"op":"move","from":"/x","path":"/y"}]}"#;
        let patch = Patch::parse(&parse_str(body).unwrap()).unwrap();
        assert_eq!(patch.condition(), Some("from c where c.n = 1"));
        assert_eq!(patch.operation_count(), 2);
        for (path, touched) in [
            (vec!["a", "b"], true),
            (vec!["a"], true),
            (vec!["a", "b", "c"], true),
            (vec!["a", "c"], false),
            (vec!["x"], true),
            (vec!["y", "z"], true),
            (vec!["pk"], false),
        ] {
            assert_eq!(patch.touches(&path), touched, "{path:?}");
        }
    }
}
