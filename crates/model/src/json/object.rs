//! JSON objects: members in order, each name once.

use std::collections::HashMap;

use super::Value;

/// The members of an object, in order. A name occurs once.
#[derive(Debug, Clone, Default)]
pub struct Object {
    members: Vec<(String, Value)>,
}

/// Up to this many members a repeated name is found by linear search. With more
/// a hash map is used, so that a hostile object cannot take quadratic time.
const LINEAR_MEMBERS_MAX: usize = 16;

impl Object {
    /// An object without members.
    pub fn new() -> Self {
        Object::default()
    }

    /// An object without members, with room for this many.
    pub fn with_capacity(members: usize) -> Self {
        Object { members: Vec::with_capacity(members) }
    }

    /// Builds an object from members that may repeat a name. The last value of a name
    /// wins, at the position of its first value.
    pub fn from_members(members: Vec<(String, Value)>) -> Self {
        if members.len() <= LINEAR_MEMBERS_MAX {
            let mut object = Object::with_capacity(members.len());
            for (name, value) in members {
                object.set(name, value);
            }
            return object;
        }
        let mut indexes = HashMap::with_capacity(members.len());
        let mut distinct: Vec<(String, Value)> = Vec::with_capacity(members.len());
        for (name, value) in members {
            match indexes.get(&name) {
                Some(&index) => {
                    let slot: &mut (String, Value) = &mut distinct[index];
                    slot.1 = value;
                }
                None => {
                    indexes.insert(name.clone(), distinct.len());
                    distinct.push((name, value));
                }
            }
        }
        Object { members: distinct }
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The member with this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.members.iter().find(|(member, _)| member == name).map(|(_, value)| value)
    }

    /// The member with this name, mutable.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.members.iter_mut().find(|(member, _)| member == name).map(|(_, value)| value)
    }

    /// Whether there is a member with this name.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Replaces the member with this name, or appends it.
    pub fn set(&mut self, name: impl Into<String>, value: Value) {
        let name = name.into();
        match self.get_mut(&name) {
            Some(slot) => *slot = value,
            None => self.members.push((name, value)),
        }
    }

    /// Inserts a new member before the member `before`, or at the end when
    /// there is no such member. The object must not have a member `name` yet.
    pub fn insert_before(&mut self, before: &str, name: impl Into<String>, value: Value) {
        let name = name.into();
        let index =
            self.members.iter().position(|(member, _)| member == before).unwrap_or(self.members.len());
        self.members.insert(index, (name, value));
    }

    /// Removes the member with this name and returns its value.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let index = self.members.iter().position(|(member, _)| member == name)?;
        Some(self.members.remove(index).1)
    }

    /// Keeps the members for whose names `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.members.retain(|(name, _)| keep(name));
    }

    /// The members in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.members.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The members in order, by value.
    pub fn into_members(self) -> Vec<(String, Value)> {
        self.members
    }
}

/// Objects are equal when they have the same members, in any order.
impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|(name, value)| other.get(name) == Some(value))
    }
}

/// Builds an object from a literal: `object([("id", "a".into())])`.
pub fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(Object::from_members(
        members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
    ))
}
