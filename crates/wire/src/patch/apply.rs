//! Applying the operations of a patch to a document.

use perihelion_model::json::{DEPTH_MAX, Number, Object, Value};

use super::{Pointer, Reason};
use crate::binary_json::depth;

/// A new member at the top level is inserted before this member, as in the
/// service. Documents end with `_attachments` and `_ts`.
const NEW_MEMBERS_BEFORE: &str = "_ts";

/// An object or an array on the path to the leaf.
pub(super) enum Node<'d> {
    /// The document itself.
    Root(&'d mut Object),
    Object(&'d mut Object),
    Array(&'d mut Vec<Value>),
}

impl<'d> Node<'d> {
    /// The member or item that a token names; `None` when there is none.
    pub(super) fn child(self, token: &str) -> Option<&'d mut Value> {
        match self {
            Node::Root(object) | Node::Object(object) => object.get_mut(token),
            Node::Array(items) => items.get_mut(array_index(token)?),
        }
    }
}

/// Parses an array index: decimal digits without a leading zero.
fn array_index(token: &str) -> Option<usize> {
    let is_canonical = token == "0" || !token.starts_with('0');
    (is_canonical && token.bytes().all(|byte| byte.is_ascii_digit())).then(|| token.parse().ok())?
}

/// The operation that `insert` carries out. `add` and `set` differ when the path ends with the
/// index of an array element.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum InsertMode {
    /// The new element is inserted before the existing one, or after the last one.
    Add,
    /// The new element replaces the existing one.
    Set,
}

pub(super) fn insert(
    document: &mut Object,
    path: &Pointer,
    value: Value,
    mode: InsertMode,
) -> Result<(), Reason> {
    if path.tokens.len() + depth(&value) > DEPTH_MAX {
        return Err(Reason::TooDeep);
    }
    let no_parent =
        |beyond: &str| Reason::NoParent { is_add: mode == InsertMode::Add, beyond: beyond.to_owned() };
    let leaf = path.leaf();
    match path.parent(document).map_err(no_parent)? {
        Node::Root(object) if !object.contains(leaf) => object.insert_before(NEW_MEMBERS_BEFORE, leaf, value),
        Node::Root(object) | Node::Object(object) => object.set(leaf, value),
        Node::Array(items) if leaf == "-" => items.push(value),
        Node::Array(items) => match (array_index(leaf), mode) {
            (Some(at), InsertMode::Add) if at <= items.len() => items.insert(at, value),
            (Some(at), InsertMode::Set) if at < items.len() => items[at] = value,
            _ => return Err(Reason::IndexOutOfBounds(leaf.to_owned())),
        },
    }
    Ok(())
}

pub(super) fn replace(document: &mut Object, path: &Pointer, value: Value) -> Result<(), Reason> {
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

pub(super) fn remove(document: &mut Object, path: &Pointer) -> Result<Value, Reason> {
    let absent = || Reason::RemovedAbsent(path.text.clone());
    let leaf = path.leaf();
    match path.parent(document).map_err(|_| absent())? {
        Node::Root(object) | Node::Object(object) => object.remove(leaf).ok_or_else(absent),
        Node::Array(items) => match array_index(leaf) {
            Some(at) if at < items.len() => Ok(items.remove(at)),
            _ => Err(Reason::IndexOutOfBounds(leaf.to_owned())),
        },
    }
}

/// Adds `by` to a number. A node that does not exist is created with the value `by`.
pub(super) fn increment(document: &mut Object, path: &Pointer, by: Number) -> Result<(), Reason> {
    let no_parent = |beyond: &str| Reason::NoParent { is_add: false, beyond: beyond.to_owned() };
    let not_a_number = || Reason::NotANumber(path.text.clone());
    match path.parent(document).map_err(no_parent)?.child(path.leaf()) {
        Some(Value::Number(number)) => {
            *number = sum(*number, by).ok_or_else(not_a_number)?;
            Ok(())
        }
        Some(_) => Err(not_a_number()),
        None => insert(document, path, Value::Number(by), InsertMode::Set),
    }
}

/// The sum of two numbers. Integers are added exactly if the sum fits into 64
/// bits, signed or unsigned; otherwise both are added as doubles. `None` when the sum is
/// too large for a double.
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

pub(super) fn move_node(document: &mut Object, from: &Pointer, to: &Pointer) -> Result<(), Reason> {
    if from.tokens == to.tokens {
        // Moving a node onto itself changes nothing, but the node must exist.
        let parent = from.parent(document).map_err(|_| Reason::RemovedAbsent(from.text.clone()))?;
        return parent.child(from.leaf()).map(drop).ok_or_else(|| Reason::RemovedAbsent(from.text.clone()));
    }
    if to.tokens.starts_with(&from.tokens) {
        return Err(Reason::MovedIntoItself);
    }
    let value = remove(document, from)?;
    insert(document, to, value, InsertMode::Add)
}
