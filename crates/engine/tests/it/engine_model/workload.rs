//! Random operations: on few documents, so that operations conflict, with values of
//! every type, so that orders and indexes are tested.

use perihelion_engine::Precondition;
use perihelion_model::json::{Number, Object, Value, object};
use perihelion_testkit::Random;

use super::model::{Key, Model, Operation, Step, Verb};

/// The number of partition keys in use. It is small, so that conflicts are common.
pub(crate) const PARTITION_KEYS: u64 = 7;
/// The number of ids in use in each partition. It is small, so that conflicts are common.
pub(crate) const IDS: u64 = 12;

/// The number of values of the unique member. It is larger than [`IDS`], so that a partition
/// has free values. It is small, so that a random value is sometimes taken already.
const UNIQUE_VALUES: u64 = 20;

pub(crate) struct Workload {
    pub(crate) random: Random,
    /// Etags that were current when they were added, and one etag that no document has. Most
    /// of them belong to earlier versions by now.
    stale_etags: Vec<String>,
    /// The padding of a document has fewer bytes than this.
    padding_bytes_max: u64,
}

impl Workload {
    pub(crate) fn new(seed: u64, padding_bytes_max: u64) -> Workload {
        Workload { random: Random::new(seed), stale_etags: vec!["\"never\"".to_owned()], padding_bytes_max }
    }

    pub(crate) fn partition(&mut self) -> String {
        format!("p{}", self.random.below(PARTITION_KEYS))
    }

    pub(crate) fn key_in(&mut self, partition: &str) -> Key {
        (partition.to_owned(), format!("id {}", self.random.below(IDS)))
    }

    /// An operation on a random document of the partition.
    pub(crate) fn operation(&mut self, model: &Model, partition: &str) -> Operation {
        let key = self.key_in(partition);
        self.operation_on(model, key)
    }

    /// A random operation on the document with this key.
    pub(crate) fn operation_on(&mut self, model: &Model, key: Key) -> Operation {
        // Most operations can succeed. One in six assumes that the document exists although it does
        // not, or the opposite.
        let assumes_existing = model.documents.contains_key(&key) != self.random.one_in(6);
        let verb = match (assumes_existing, self.random.below(10)) {
            (false, 0..6) => Verb::Create(self.body(&key)),
            (false, _) | (true, 0..2) => Verb::Upsert(self.body(&key)),
            (true, 2..4) => Verb::Replace(self.body(&key)),
            (true, 4..7) => self.patch(),
            (true, 7..9) => Verb::Delete,
            (true, _) => Verb::Read,
        };
        let precondition = self.precondition(model, &key);
        Operation { verb, key, precondition }
    }

    /// A write that changes the document. It always succeeds in a container without unique
    /// keys.
    pub(crate) fn change(&mut self, model: &Model, key: Key) -> Operation {
        let etag = model.documents.get(&key).map(|document| document.etag.clone());
        let verb = match (&etag, self.random.below(6)) {
            (None, 0..3) => Verb::Create(self.body(&key)),
            (None, _) | (Some(_), 0) => Verb::Upsert(self.body(&key)),
            (Some(_), 1..3) => Verb::Replace(self.body(&key)),
            (Some(_), 3) => {
                let value = Value::from(self.random.bits() >> 12);
                Verb::Patch { steps: vec![Step { op: "set", member: "mark", value }], condition: None }
            }
            (Some(_), _) => Verb::Delete,
        };
        let if_match = etag.flatten().filter(|_| self.random.one_in(2));
        Operation { verb, key, precondition: Precondition { if_match, if_none_match: None } }
    }

    fn precondition(&mut self, model: &Model, key: &Key) -> Precondition {
        let current = model.documents.get(key).and_then(|document| document.etag.clone());
        if let Some(etag) = &current
            && self.random.one_in(4)
        {
            self.stale_etags.push(etag.clone());
        }
        let stale = self.stale_etags[self.random.below(self.stale_etags.len() as u64) as usize].clone();
        let current = current.unwrap_or_else(|| stale.clone());
        match self.random.below(12) {
            0..2 => Precondition { if_match: Some(current), if_none_match: None },
            2 => Precondition { if_match: Some(stale), if_none_match: None },
            3 => Precondition { if_match: None, if_none_match: Some(current) },
            4 => Precondition { if_match: None, if_none_match: Some(stale) },
            5 => Precondition { if_match: Some("*".to_owned()), if_none_match: None },
            _ => Precondition::default(),
        }
    }

    fn patch(&mut self) -> Verb {
        const MEMBERS: [&str; 4] = ["a", "b", "kind", "u"];
        let steps = (0..1 + self.random.below(3)).map(|_| {
            let member = MEMBERS[self.random.below(4) as usize];
            let op = ["add", "set", "replace", "remove", "incr"][self.random.below(5) as usize];
            let value = match (op, member) {
                ("incr", _) => Value::from(self.random.below(10) as i64 - 5),
                (_, "b") => self.small_number(),
                (_, "kind") => self.kind(),
                (_, "u") => self.random.below(UNIQUE_VALUES).into(),
                _ => self.value(),
            };
            Step { op, member, value }
        });
        let steps = steps.collect();
        let condition = self.random.one_in(4).then(|| self.random.below(4) as i64);
        Verb::Patch { steps, condition }
    }

    /// A document: `a` of any type or missing, `b` a small number or missing, `kind` one
    /// of three values, `u` one of a few numbers, `mark` always different.
    pub(crate) fn body(&mut self, key: &Key) -> Object {
        let mut body = Object::new();
        body.set("id", key.1.as_str().into());
        body.set("pk", key.0.as_str().into());
        if !self.random.one_in(6) {
            let value = self.value();
            body.set("a", value);
        }
        if !self.random.one_in(10) {
            let value = self.small_number();
            body.set("b", value);
        }
        let kind = self.kind();
        body.set("kind", kind);
        body.set("u", self.random.below(UNIQUE_VALUES).into());
        body.set("mark", (self.random.bits() >> 12).into());
        let padding = self.random.below(self.padding_bytes_max.max(1)) as usize;
        body.set("padding", "x".repeat(padding).into());
        body
    }

    fn kind(&mut self) -> Value {
        ["red", "green", "blue"][self.random.below(3) as usize].into()
    }

    fn small_number(&mut self) -> Value {
        match self.random.below(8) {
            0 => Value::Number(Number::Double(self.random.below(4) as f64 + 0.5)),
            _ => Value::from(self.random.below(6) as i64),
        }
    }

    /// A value of any type.
    fn value(&mut self) -> Value {
        const STRINGS: [&str; 6] = ["", "a", "a\0", "ab", "b", "é"];
        match self.random.below(10) {
            0 => Value::Null,
            1 => Value::Bool(self.random.one_in(2)),
            2..4 => Value::from(self.random.below(9) as i64 - 4),
            4 => Value::Number(Number::Double(self.random.below(9) as f64 / 2.0 - 2.0)),
            5 => Value::from(9_007_199_254_740_992 + self.random.below(4) as i64),
            6..8 => STRINGS[self.random.below(6) as usize].into(),
            8 => Value::Array(vec![Value::from(self.random.below(3) as i64)]),
            _ => object([("x", Value::from(self.random.below(3) as i64))]),
        }
    }
}
