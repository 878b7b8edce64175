//! The query for several documents of one physical partition.
//!
//! `c.id IN (...)` uses the index on `id`. The conditions on pairs of id and partition
//! key exclude documents of the same id in other logical partitions. These conditions
//! form a balanced tree of OR, which keeps the nesting of the statement low.

use bytes::Bytes;
use perihelion_model::partition_key::{KeyPath, KeyValue, PartitionKeyDefinition};
use serde_json::{Value, json};

use super::plan::WantedDocument;
use crate::Error;
use crate::response::encode;

/// The request body of the query.
pub(super) fn body(wanted: &[WantedDocument], definition: &PartitionKeyDefinition) -> Result<Bytes, Error> {
    let mut parameters = Vec::new();
    let mut ids = Vec::with_capacity(wanted.len());
    let mut pairs = Vec::with_capacity(wanted.len());
    for (number, document) in wanted.iter().enumerate() {
        let id = format!("@i{number}");
        let mut conditions = vec![format!("c.id = {id}")];
        for (level, (path, value)) in definition.paths.iter().zip(&document.key.values).enumerate() {
            let name = format!("@k{number}_{level}");
            conditions.push(key_condition(path, value, &name, &mut parameters));
        }
        pairs.push(format!("({})", conditions.join(" AND ")));
        parameters.push(json!({"name": id, "value": document.id}));
        ids.push(id);
    }
    let query = format!("SELECT * FROM c WHERE c.id IN ({}) AND {}", ids.join(", "), any_of(&pairs));
    encode(&json!({"query": query, "parameters": parameters}))
}

/// The condition for one level of a partition key.
fn key_condition(path: &KeyPath, value: &KeyValue, name: &str, parameters: &mut Vec<Value>) -> String {
    let mut member = String::from("c");
    for step in &path.steps {
        // A JSON string is also a string literal of the query language.
        member.push_str(&format!("[{}]", Value::from(step.as_str())));
    }
    let value = match value {
        KeyValue::Undefined => return format!("NOT IS_DEFINED({member})"),
        KeyValue::Null => Value::Null,
        KeyValue::Bool(flag) => json!(flag),
        KeyValue::Number(number) => json!(number),
        KeyValue::String(text) => json!(text),
    };
    parameters.push(json!({"name": name, "value": value}));
    format!("{member} = {name}")
}

/// The conditions combined by OR as a balanced tree.
fn any_of(pairs: &[String]) -> String {
    match pairs {
        [] => "false".to_owned(),
        [only] => only.clone(),
        _ => {
            let (left, right) = pairs.split_at(pairs.len() / 2);
            format!("({} OR {})", any_of(left), any_of(right))
        }
    }
}
