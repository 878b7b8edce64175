//! `CosmosDBProvider::list`: one page of instances. The server filters and stops when
//! the page is full.

use perihelion_client::Query;
use serde_json::Value;

use crate::failure::Failure;
use crate::options::listing::{ListOptions, ListOrder, ListPage, ListedInstance};
use crate::store::Store;

/// Selects the state documents of existing instances. The service always indexes `id`.
const EXISTING: &str = "c.id = 'i' AND c.type = 'history' AND c.created = true";

/// The columns of a row. A custom status that is stored in parts is left out. The length of
/// an output is in characters, or in bytes if the output is stored in parts.
const MEMBERS: &str = "c.instanceId, c.name, c.version, c.status, c.createdAt, c.updatedAt, c.completedAt, \
     c.execution, c.parentInstanceId, (IS_STRING(c.customStatus) ? c.customStatus : undefined) AS customStatus, \
     (IS_STRING(c.output) ? LENGTH(c.output) : c.output.len) AS outputLength";

/// The column with the output, unless the output is stored in parts.
const OUTPUT: &str = ", (IS_STRING(c.output) ? c.output : undefined) AS output";

/// How far `_ts`, which the service writes and indexes, may be behind the times that this
/// crate writes. `_ts` is cut to whole seconds, and the clocks agree to about two seconds.
/// The rest is margin.
const TIMESTAMP_SLACK_SECONDS: u64 = 10;

pub(crate) async fn run(store: &Store, options: &ListOptions) -> Result<ListPage, Failure> {
    let mut query = query(options).with_max_items(options.page_size());
    if let Some(continuation) = options.service_continuation()? {
        query = query.with_continuation(continuation);
    }
    let page = store.container.query::<ListedInstance>(query).next_page().await?;
    let Some(page) = page else { return Ok(ListPage::default()) };
    let continuation = page.continuation().map(|continuation| options.wrap_continuation(continuation));
    Ok(ListPage { instances: page.items, continuation })
}

/// The query for these options, without page size and continuation.
fn query(options: &ListOptions) -> Query {
    let mut filters: Vec<(&str, &str, Value)> = Vec::new();
    let mut filter = |text, name, value: Option<Value>| {
        filters.extend(value.map(|value| (text, name, value)));
    };
    let text = |value: &Option<String>| value.clone().map(Value::from);
    filter("c.status = @status", "@status", text(&options.status));
    filter("c.parentInstanceId = @parent", "@parent", text(&options.parent));
    filter("c.name = @name", "@name", text(&options.name));
    filter("STARTSWITH(c.instanceId, @prefix)", "@prefix", text(&options.id_prefix));
    filter("c.createdAt >= @createdFrom", "@createdFrom", options.created_from.map(Value::from));
    filter("c.createdAt < @createdBefore", "@createdBefore", options.created_before.map(Value::from));
    filter("c.updatedAt >= @updatedFrom", "@updatedFrom", options.updated_from.map(Value::from));
    filter("c.updatedAt < @updatedBefore", "@updatedBefore", options.updated_before.map(Value::from));
    // An instance created or updated after a time was also written after it.
    let since = options.created_from.max(options.updated_from);
    let written = since.map(|since| (since / 1000).saturating_sub(TIMESTAMP_SLACK_SECONDS));
    filter("c._ts >= @written", "@written", written.map(Value::from));

    let output = if options.with_output { OUTPUT } else { "" };
    let mut statement = format!("SELECT {MEMBERS}{output} FROM c WHERE {EXISTING}");
    for (condition, _, _) in &filters {
        statement.push_str(" AND ");
        statement.push_str(condition);
    }
    match options.order {
        ListOrder::Stored => {}
        ListOrder::RecentFirst => statement.push_str(" ORDER BY c._ts DESC"),
    }
    filters
        .into_iter()
        .fold(Query::new(statement), |query, (_, name, value)| query.with_parameter(name, value))
}
