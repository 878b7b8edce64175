//! Random numbers from a seed, and random documents with values of every type.

use perihelion_model::json::{Number, Object, Value};
use perihelion_testkit::Random;

use super::backend::Document;

/// A generator of random numbers and documents. The same seed gives the same sequence.
pub(super) struct RandomDocuments(Random);

impl RandomDocuments {
    pub(super) fn new(seed: u64) -> Self {
        RandomDocuments(Random::new(seed))
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// True with a probability of one in `times`.
    pub(super) fn one_in(&mut self, times: u64) -> bool {
        self.0.one_in(times)
    }

    /// A value from a small set, so that equal values are frequent. With
    /// `has_collections` arrays and objects are possible too.
    fn mixed(&mut self, has_collections: bool) -> Option<Value> {
        Some(match self.below(if has_collections { 11 } else { 9 }) {
            0 => return None,
            1 => Value::Null,
            2 => Value::Bool(self.one_in(2)),
            3 | 4 => self.number(),
            5..=8 => self.name(),
            9 => Value::Array(vec![self.number(), self.name()]),
            _ => Value::Object(Object::from_members(vec![("x".to_owned(), self.number())])),
        })
    }

    /// A multiple of 0.25, so that sums are exact in any order.
    fn number(&mut self) -> Value {
        let quarters = self.below(24) as i64 - 8;
        match quarters % 4 {
            0 => Value::from(quarters / 4),
            _ => Value::Number(Number::Double(quarters as f64 / 4.0)),
        }
    }

    fn name(&mut self) -> Value {
        Value::from(["", "a", "asdf", "b", "zebra", "żółw"][self.below(6) as usize])
    }

    /// A document with all the members that the tested statements read.
    fn value(&mut self, rid: u64) -> Value {
        let mut members = Object::new();
        members.set("id", format!("item-{rid}").into());
        members.set("_rid", format!("{rid:06}").into());
        members.set("_ts", (1_600_000_000 + self.below(5) as i64).into());
        for name in ["name", "grp", "property4"] {
            set(&mut members, name, (!self.one_in(6)).then(|| self.name()));
        }
        for name in ["n", "age", "income", "field4"] {
            set(&mut members, name, (!self.one_in(6)).then(|| self.number()));
        }
        for name in ["blah", "key", "orderByField1", "orderByField2", "a", "b", "field1"] {
            set(&mut members, name, self.mixed(false));
        }
        for name in ["any", "blah2"] {
            set(&mut members, name, self.mixed(true));
        }
        let city = Value::Object(Object::from_members(vec![("city".to_owned(), self.name())]));
        set(&mut members, "address", (!self.one_in(4)).then_some(city));
        let children = (0..self.below(4)).map(|_| {
            Value::Object(Object::from_members(vec![
                ("age".to_owned(), self.number()),
                ("name".to_owned(), self.name()),
            ]))
        });
        members.set("children", Value::Array(children.collect()));
        Value::Object(members)
    }

    /// Random documents. With `rids_follow_keys` their `_rid`s are in the order of their
    /// effective keys.
    pub(super) fn documents(&mut self, count: u64, rids_follow_keys: bool) -> Vec<Document> {
        let mut keys: Vec<String> = (0..count).map(|_| format!("{:02X}", self.below(0xFF))).collect();
        if rids_follow_keys {
            keys.sort();
        }
        let documents = keys.into_iter().zip(1..);
        documents
            .map(|(effective_key, rid)| Document { effective_key, rid, value: self.value(rid) })
            .collect()
    }
}

fn set(members: &mut Object, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        members.set(name, value);
    }
}
