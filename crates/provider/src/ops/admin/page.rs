//! `CosmosDBProvider::list`: one page of instances. The server filters and stops when
//! the page is full. Existing instances come first, then pending ones (`pending`).

use perihelion_client::Query;
use serde_json::Value;

use crate::failure::Failure;
use crate::ops::admin::pending;
use crate::options::listing::{ListOptions, ListOrder, ListPage, ListedInstance, Position};
use crate::store::Store;

/// The condition that selects the state documents of existing instances. The condition on `id`
/// makes it cheap, because the service always indexes `id`.
pub(super) const EXISTING: &str = "c.id = 'i' AND c.type = 'history' AND c.created = true";

/// The columns of a row. A custom status that is stored in parts is left out. The length of
/// an output is in characters, or in bytes if the output is stored in parts. A charge in an unknown
/// form is left out.
pub(super) const MEMBERS: &str = "c.instanceId, c.name, c.version, c.status, c.createdAt, c.updatedAt, c.completedAt, \
     c.execution, c.parentInstanceId, (IS_STRING(c.customStatus) ? c.customStatus : undefined) AS customStatus, \
     (IS_STRING(c.output) ? LENGTH(c.output) : c.output.len) AS outputLength, \
     (IS_NUMBER(c.cost[\"all\"][0]) ? c.cost[\"all\"][0] : undefined) AS chargeCentiRu";

/// The column with the output, unless the output is stored in parts.
const OUTPUT: &str = ", (IS_STRING(c.output) ? c.output : undefined) AS output";

/// How far `_ts` may be behind the times that this crate writes. The service writes and indexes
/// `_ts`. It has whole seconds, and the clocks of the service and of this process agree to
/// about two seconds. The rest is margin.
const TIMESTAMP_SLACK_SECONDS: u64 = 10;

pub(crate) async fn run(store: &Store, options: &ListOptions) -> Result<ListPage, Failure> {
    let size = options.page_size();
    let wrap = |position: Position| Some(options.wrap_continuation(&position));
    let (mut instances, pending_from) = match options.position()? {
        Position::Pending(continuation) => (Vec::new(), continuation),
        Position::Existing(continuation) => {
            let (instances, next) = existing_page(store, options, continuation, size).await?;
            if next.is_some() {
                return Ok(ListPage { instances, continuation: wrap(Position::Existing(next)) });
            }
            if options.status.is_some() {
                return Ok(ListPage { instances, continuation: None });
            }
            (instances, None)
        }
    };
    // The pending instances fill the rest of the page.
    let room = size.saturating_sub(u32::try_from(instances.len()).unwrap_or(u32::MAX));
    if room == 0 {
        return Ok(ListPage { instances, continuation: wrap(Position::Pending(None)) });
    }
    let page = pending::page(store, options, pending_from, room).await?;
    if options.id.is_some() && instances.is_empty() && page.instances.is_empty() {
        // A pending instance may have begun between the two queries. Then it exists now.
        let (instances, _) = existing_page(store, options, None, size).await?;
        return Ok(ListPage { instances, continuation: None });
    }
    instances.extend(page.instances);
    let continuation = page.continuation.and_then(|next| wrap(Position::Pending(Some(next))));
    Ok(ListPage { instances, continuation })
}

/// One page of existing instances, and the service's continuation.
async fn existing_page(
    store: &Store,
    options: &ListOptions,
    continuation: Option<String>,
    size: u32,
) -> Result<(Vec<ListedInstance>, Option<String>), Failure> {
    let mut query = build_query(options).with_max_items(size);
    if let Some(continuation) = continuation {
        query = query.with_continuation(continuation);
    }
    let Some(page) = store.container.query::<ListedInstance>(query).next_page().await? else {
        return Ok((Vec::new(), None));
    };
    let continuation = page.continuation()?.map(ToOwned::to_owned);
    Ok((page.items, continuation))
}

/// The query for these options, without page size and continuation.
fn build_query(options: &ListOptions) -> Query {
    let output = if options.with_output { OUTPUT } else { "" };
    let order = match options.order {
        ListOrder::Stored => "",
        ListOrder::RecentFirst => " ORDER BY c._ts DESC",
    };
    select(&format!("SELECT {MEMBERS}{output}"), options, order)
}

/// A query of the existing instances that the options select: `head FROM c WHERE ... tail`.
pub(super) fn select(head: &str, options: &ListOptions, tail: &str) -> Query {
    // Each filter: the condition, and the name and value of its parameter.
    let mut filters: Vec<(&str, &str, Value)> = Vec::new();
    let mut add_filter = |condition, name, value: Option<Value>| {
        filters.extend(value.map(|value| (condition, name, value)));
    };
    let text = |value: &Option<String>| value.clone().map(Value::from);
    add_filter("c.status = @status", "@status", text(&options.status));
    add_filter("c.parentInstanceId = @parent", "@parent", text(&options.parent));
    add_filter("c.instanceId = @id", "@id", text(&options.id));
    add_filter("c.name = @name", "@name", text(&options.name));
    add_filter("STARTSWITH(c.name, @namePrefix)", "@namePrefix", text(&options.name_prefix));
    add_filter("c.version = @version", "@version", text(&options.version));
    add_filter("CONTAINS(c.customStatus, @custom)", "@custom", text(&options.custom_status));
    add_filter("STARTSWITH(c.instanceId, @prefix)", "@prefix", text(&options.id_prefix));
    add_filter("c.createdAt >= @createdFrom", "@createdFrom", options.created_from.map(Value::from));
    add_filter("c.createdAt < @createdBefore", "@createdBefore", options.created_before.map(Value::from));
    add_filter("c.updatedAt >= @updatedFrom", "@updatedFrom", options.updated_from.map(Value::from));
    add_filter("c.updatedAt < @updatedBefore", "@updatedBefore", options.updated_before.map(Value::from));
    // The state of an instance that was created or updated after a time was also written after
    // that time.
    let since_ms = options.created_from.max(options.updated_from);
    let written_from_s = since_ms.map(|since_ms| (since_ms / 1000).saturating_sub(TIMESTAMP_SLACK_SECONDS));
    add_filter("c._ts >= @written", "@written", written_from_s.map(Value::from));

    let mut statement = format!("{head} FROM c WHERE {EXISTING}");
    for (condition, _, _) in &filters {
        statement.push_str(" AND ");
        statement.push_str(condition);
    }
    statement.push_str(tail);
    let query = filters
        .into_iter()
        .fold(Query::new(statement), |query, (_, name, value)| query.with_parameter(name, value));
    match &options.id {
        // One instance is one logical partition.
        Some(id) => query.in_partition(id.as_str()),
        None => query,
    }
}
