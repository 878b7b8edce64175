//! `Variables`: the values of `{db}`, `{coll}` and of the names that a case has
//! saved.
//!
//! Only known names between braces are replaced: patterns and placeholders of the
//! service have braces with other meanings.

use std::collections::BTreeMap;

use perihelion_model::json::{Object, Value};

#[derive(Clone, Debug, Default)]
pub(super) struct Variables {
    values: BTreeMap<String, String>,
}

impl Variables {
    pub(super) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.values.insert(name.to_owned(), value.into());
    }

    /// The text with every known variable replaced. In a pattern (`re:`) the values
    /// are escaped.
    pub(super) fn fill(&self, text: &str) -> String {
        let is_pattern = text.starts_with("re:");
        self.values.iter().fold(text.to_owned(), |text, (name, value)| {
            let value = if is_pattern { regex_lite::escape(value) } else { value.clone() };
            text.replace(&format!("{{{name}}}"), &value)
        })
    }

    /// The value with the variables replaced in every string.
    pub(super) fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill(text)),
            Value::Array(items) => Value::Array(items.iter().map(|item| self.fill_value(item)).collect()),
            Value::Object(object) => {
                let members = object.iter().map(|(name, member)| (name.to_owned(), self.fill_value(member)));
                Value::Object(Object::from_members(members.collect()))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_names_are_replaced() {
        let mut variables = Variables::default();
        variables.set("db", "d.1");
        assert_eq!(variables.fill("/dbs/{db}/colls/{coll}/{db}"), "/dbs/d.1/colls/{coll}/d.1");
        assert_eq!(variables.fill("({documentdb-filter}) {8}"), "({documentdb-filter}) {8}");
        assert_eq!(variables.fill("re:^dbs/{db}/[0-9]{8}$"), "re:^dbs/d\\.1/[0-9]{8}$");
    }
}
