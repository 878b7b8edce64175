//! Partition keys that are in different physical partitions. The server says in the answer to a
//! transaction which range each operation was in.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use serde_json::Value;

use super::PARTITIONS_MAX;
use super::client::{Write, transaction_body};
use crate::load::Connection;
use crate::requests::{Partition, Requests};
use crate::setup::{OK, expect_status};
use crate::targets::Server;

/// The number of keys in one transaction. Its answer names the range of each key.
const KEYS_AT_ONCE: u64 = 100;
/// The most transactions until every range has a key. One is enough with a probability of 97 %.
const TRANSACTIONS_MAX: u64 = 10;

/// The bit of the tokens of these transactions. No measured transaction has a token with this bit.
const PROBE_TOKENS: u128 = 1 << 127;

/// One partition of a container in each of its physical partitions.
pub async fn find(server: &Server, container: &str) -> anyhow::Result<Vec<Partition>> {
    let mut requests = Requests::new(server.address)?;
    let mut connection = Connection::new(server.address);
    let mut found: BTreeMap<String, Partition> = BTreeMap::new();
    for attempt in 0..TRANSACTIONS_MAX {
        let keys: Vec<String> = (attempt * KEYS_AT_ONCE..)
            .take(KEYS_AT_ONCE as usize)
            .map(|number| format!("k-{number}"))
            .collect();
        let writes = keys.iter().map(|key| Write {
            key: key.clone(),
            id: "probe".into(),
            document: format!(r#"{{"id":"probe","pk":"{key}"}}"#),
        });
        let body = transaction_body(container, writes);
        let answer =
            connection.send(requests.transaction(PROBE_TOKENS | u128::from(attempt), &body)?).await?;
        expect_status(&answer, OK)?;
        let answer: Value = serde_json::from_slice(answer.body)?;
        let results = answer["operationResponses"].as_array().context("a transaction without results")?;
        for (key, result) in keys.iter().zip(results) {
            let range = result["partitionKeyRangeId"].as_str().context("a result without its range")?;
            found.entry(range.to_owned()).or_insert_with(|| Partition::new(container, key));
        }
        if found.len() as u64 == PARTITIONS_MAX {
            return Ok(found.into_values().collect());
        }
    }
    bail!("only {} of {PARTITIONS_MAX} partitions have a key", found.len())
}
