//! Runs the query of the form, and reads a limited number of rows.

use std::time::Duration;

use perihelion_client::{Container, Error, PartitionKey, Query, query_messages};
use perihelion_model::json::{Style, Value, to_text};

use crate::explain::QueryAnswer;
use crate::failure::Failure;
use crate::http::Parameters;

/// The most rows that are shown.
const ROWS_MAX: usize = 100;

/// The most pages that are read. The limit ends a query that finds few rows on each of many pages.
const PAGES_MAX: usize = 20;

/// How long a query may take in all. Pages without rows are skipped and not counted, so a query that
/// finds nothing would otherwise read everything.
const TIME_MAX: Duration = Duration::from_secs(10);

/// The query of the form.
pub(super) fn statement(form: &Parameters) -> Result<Query, Failure> {
    let query = Query::new(form.get("sql"));
    Ok(match form.get("key").trim() {
        "" => query,
        key => query.in_partition(partition_key(key)?),
    })
}

/// The partition key that a person has typed. A key that is not JSON is a text.
pub(in crate::pages) fn partition_key(typed: &str) -> Result<PartitionKey, Failure> {
    let value: serde_json::Value =
        serde_json::from_str(typed).unwrap_or_else(|_| serde_json::Value::String(typed.to_owned()));
    let levels = match value {
        serde_json::Value::Array(levels) => serde_json::Value::Array(levels),
        one => serde_json::Value::Array(vec![one]),
    };
    PartitionKey::from_header(&levels.to_string()).ok_or_else(|| {
        Failure::wrong(format!("{typed:?} is not a partition key."))
            .advise("Write a text, a number, true, false, null, or a JSON list of up to three of them.")
    })
}

pub(super) async fn run(container: &Container, form: &Parameters) -> Result<QueryAnswer, Failure> {
    let mut query = statement(form)?.with_max_items(ROWS_MAX as u32 + 1).with_total_timeout(TIME_MAX);
    if form.has("explain") {
        query = query.with_query_metrics().with_index_metrics();
    }
    let mut feed = container.query::<Value>(query);
    let mut answer = QueryAnswer::default();
    for number in 1..=PAGES_MAX {
        let page = match feed.next_page().await {
            // The time is up. The rows that were read so far are shown.
            Err(error) if error.is_timeout() && !answer.rows.is_empty() => {
                answer.is_cut = true;
                break;
            }
            page => page.map_err(|error| refused(&error))?,
        };
        let Some(page) = page else { break };
        answer.add(page);
        if answer.rows.len() > ROWS_MAX || number == PAGES_MAX {
            answer.is_cut = true;
            break;
        }
    }
    // The rest is the cost of the answers without rows after the last page. For a query that finds nothing,
    // it is the whole cost.
    if let Some(rest) = feed.rest() {
        answer.add(rest);
    }
    answer.rows.truncate(ROWS_MAX);
    Ok(answer)
}

/// Why a query failed: in the service's words if the service refused it.
fn refused(error: &Error) -> Failure {
    let messages = query_messages(error);
    match messages.is_empty() {
        true if error.is_timeout() => {
            Failure::account(format!("The query has found nothing within {} seconds.", TIME_MAX.as_secs()))
                .advise("A filter that no index serves reads every item. Name a partition key.")
        }
        true => Failure::request("The query failed", error),
        false => Failure::wrong(messages.join(" ")),
    }
}

/// The id and the partition key of a row, if it is an item with both.
pub(super) fn item_of(row: &Value, paths: &[String]) -> Option<(String, String)> {
    let id = row.get("id")?.as_str()?.to_owned();
    row.get("_rid")?;
    let values: Option<Vec<Value>> = paths
        .iter()
        .map(|path| path.split('/').skip(1).try_fold(row, |value, name| value.get(name)).cloned())
        .collect();
    Some((id, to_text(&Value::Array(values?), Style::Point)))
}
