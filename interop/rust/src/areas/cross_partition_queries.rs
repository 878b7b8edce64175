//! Queries across partitions: the SDK makes a plan for the query, sends the rewritten query to
//! every range, and merges the answers.

use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::feed::ContinuationToken;
use azure_data_cosmos::models::{
    CompositeIndex, CompositeIndexOrder, CompositeIndexProperty, ContainerProperties, IndexingPolicy,
};
use azure_data_cosmos::options::{QueryOptions, QueryPlanMode};
use azure_data_cosmos::{FeedScope, Query};
use futures::TryStreamExt;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::check::{Outcome, Problem, checks, holds, refused, same};
use crate::query::{pages_of, query_all_with};
use crate::world::{Item, World};

checks![
    a_filter_finds_items_of_all_partitions,
    an_order_holds_across_partitions,
    an_order_holds_across_partitions_and_pages,
    an_order_by_two_properties_holds,
    order_by_sorts_types_as_the_service_does,
    top_and_offset_limit_apply_once_over_all_partitions,
    distinct_values_come_once_over_all_partitions,
    a_plan_from_the_server_gives_the_same_answer,
    a_cross_partition_query_resumes_from_its_token,
    a_query_by_feed_range_finds_exactly_its_items,
    a_key_in_the_filter_needs_no_scope,
    a_cross_partition_query_that_cannot_be_parsed_is_refused,
];

/// All results of a query over the whole container.
async fn query_all<T: DeserializeOwned + Send + 'static>(
    container: &ContainerClient,
    query: impl Into<Query>,
) -> Result<Vec<T>, Problem> {
    crate::query::query_all(container, FeedScope::full_container(), query).await
}

async fn a_filter_finds_items_of_all_partitions(world: &World) -> Outcome {
    let container = world.filled(16, 48).await?;
    let query = Query::from("SELECT * FROM c WHERE c.rank >= @low").with_parameter("@low", 10)?;
    let mut found: Vec<Item> = query_all(&container, query).await?;
    found.sort_by_key(|item| item.rank);
    same!(found.iter().map(|item| item.rank).collect::<Vec<_>>(), (10..48).collect::<Vec<_>>());
    let ranges = container.read_feed_ranges(None).await?;
    same!(ranges.len(), world.partitions());
    Ok(())
}

async fn an_order_holds_across_partitions(world: &World) -> Outcome {
    let container = world.filled(16, 48).await?;
    let up: Vec<Item> = query_all(&container, "SELECT * FROM c ORDER BY c.rank ASC").await?;
    same!(up.iter().map(|item| item.rank).collect::<Vec<_>>(), (0..48).collect::<Vec<_>>());
    let query = Query::from("SELECT VALUE c.id FROM c WHERE c.rank < @high ORDER BY c.rank DESC")
        .with_parameter("@high", 5)?;
    let down: Vec<String> = query_all(&container, query).await?;
    same!(down, ["i004", "i003", "i002", "i001", "i000"]);
    Ok(())
}

async fn an_order_holds_across_partitions_and_pages(world: &World) -> Outcome {
    let container = world.filled(16, 48).await?;
    let query = "SELECT VALUE c.rank FROM c ORDER BY c.rank DESC";
    let found: Vec<i64> =
        query_all_with(&container, FeedScope::full_container(), query, pages_of(2)?).await?;
    same!(found, (0..48).rev().collect::<Vec<_>>());
    Ok(())
}

async fn an_order_by_two_properties_holds(world: &World) -> Outcome {
    let by_rest_and_rank = CompositeIndex::default()
        .with_property(CompositeIndexProperty::new("/rest", CompositeIndexOrder::Ascending))
        .with_property(CompositeIndexProperty::new("/rank", CompositeIndexOrder::Descending));
    let indexing = IndexingPolicy::default().with_included_path("/*").with_composite_index(by_rest_and_rank);
    let properties =
        ContainerProperties::new(world.fresh_name("c"), "/pk".into()).with_indexing_policy(indexing);
    let container = world.container_of(properties).await?;
    for value in 0..24 {
        let (pk, id) = (format!("k{}", value % 7), format!("i{value}"));
        let document = json!({"id": id, "pk": pk, "rank": value, "rest": value % 3});
        container.create_item(pk.clone(), &id, document, None).await?;
    }
    let query = "SELECT VALUE c.rank FROM c ORDER BY c.rest ASC, c.rank DESC";
    let found: Vec<i64> = query_all(&container, query).await?;
    let mut wanted: Vec<i64> = (0..24).collect();
    wanted.sort_by_key(|value| (value % 3, -value));
    same!(found, wanted);
    Ok(())
}

/// The order of types is: undefined, null, booleans, numbers, strings. Arrays and objects come
/// after them; they are not checked here.
async fn order_by_sorts_types_as_the_service_does(world: &World) -> Outcome {
    let container = world.container().await?;
    let mixed = [json!("b"), json!(2), json!(true), Value::Null, json!("a"), json!(false), json!(-1.5)];
    for (n, value) in mixed.iter().enumerate() {
        let (pk, id) = (format!("k{n}"), format!("i{n}"));
        container.create_item(pk.clone(), &id, json!({"id": id, "pk": pk, "mixed": value}), None).await?;
    }
    container.create_item("none", "none", json!({"id": "none", "pk": "none"}), None).await?;
    let ordered = [Value::Null, json!(false), json!(true), json!(-1.5), json!(2), json!("a"), json!("b")];
    let found: Vec<Value> = query_all(&container, "SELECT * FROM c ORDER BY c.mixed").await?;
    let found: Vec<Value> = found.into_iter().filter_map(|document| document.get("mixed").cloned()).collect();
    same!(found, ordered);
    let found: Vec<Value> = query_all(&container, "SELECT * FROM c ORDER BY c.mixed DESC").await?;
    let mut found: Vec<Value> =
        found.into_iter().filter_map(|document| document.get("mixed").cloned()).collect();
    found.reverse();
    same!(found, ordered);
    Ok(())
}

async fn top_and_offset_limit_apply_once_over_all_partitions(world: &World) -> Outcome {
    let container = world.filled(16, 48).await?;
    let found: Vec<i64> =
        query_all(&container, "SELECT TOP 5 VALUE c.rank FROM c ORDER BY c.rank DESC").await?;
    same!(found, [47, 46, 45, 44, 43]);
    let found: Vec<i64> =
        query_all(&container, "SELECT VALUE c.rank FROM c ORDER BY c.rank OFFSET 10 LIMIT 6").await?;
    same!(found, [10, 11, 12, 13, 14, 15]);
    let found: Vec<Value> = query_all(&container, "SELECT TOP 7 * FROM c").await?;
    same!(found.len(), 7);
    Ok(())
}

async fn distinct_values_come_once_over_all_partitions(world: &World) -> Outcome {
    let container = world.filled(16, 48).await?;
    let mut found: Vec<String> = query_all(&container, "SELECT DISTINCT TOP 100 VALUE c.pk FROM c").await?;
    found.sort();
    let mut wanted: Vec<String> = (0..16).map(|key| format!("k{key}")).collect();
    wanted.sort();
    same!(found, wanted);
    let found: Vec<String> = query_all(&container, "SELECT DISTINCT VALUE c.pk FROM c ORDER BY c.pk").await?;
    same!(found, wanted);
    Ok(())
}

async fn a_plan_from_the_server_gives_the_same_answer(world: &World) -> Outcome {
    let container = world.filled(16, 48).await?;
    let before = world.management().request_count("query_plan").await?;
    let query = "SELECT * FROM c WHERE c.rank < 30 ORDER BY c.rank DESC OFFSET 2 LIMIT 3";
    let planned_by_gateway = || QueryOptions::default().with_query_plan_mode(QueryPlanMode::GatewayOnly);
    let found: Vec<Item> =
        query_all_with(&container, FeedScope::full_container(), query, planned_by_gateway()).await?;
    same!(found.iter().map(|item| item.rank).collect::<Vec<_>>(), [27, 26, 25]);
    let query = "SELECT DISTINCT VALUE c.pk FROM c ORDER BY c.pk";
    let found: Vec<String> =
        query_all_with(&container, FeedScope::full_container(), query, planned_by_gateway()).await?;
    same!(found.len(), 16);
    holds!(found.is_sorted());
    same!(world.management().request_count("query_plan").await?, before + 2);
    Ok(())
}

async fn a_cross_partition_query_resumes_from_its_token(world: &World) -> Outcome {
    let container = world.filled(16, 48).await?;
    for query in ["SELECT VALUE c.rank FROM c ORDER BY c.rank", "SELECT VALUE c.rank FROM c"] {
        let mut found: Vec<i64> = Vec::new();
        let mut token: Option<String> = None;
        // Every page comes from an iterator of its own, as between processes.
        for _ in 0..100 {
            let mut options = pages_of(5)?;
            if let Some(token) = token.take() {
                options = options.with_continuation_token(ContinuationToken::from_string(token));
            }
            let scope = FeedScope::full_container();
            let mut pages = container.query_items::<i64>(query, scope, Some(options)).await?.into_pages();
            let Some(page) = pages.try_next().await? else {
                break;
            };
            found.extend(page.into_items());
            if found.len() >= 48 {
                break;
            }
            token = Some(pages.to_continuation_token()?.as_str().to_owned());
        }
        if query.contains("ORDER") {
            holds!(found.is_sorted(), "{found:?}");
        }
        found.sort_unstable();
        same!(found, (0..48).collect::<Vec<_>>());
    }
    Ok(())
}

async fn a_query_by_feed_range_finds_exactly_its_items(world: &World) -> Outcome {
    let container = world.filled(16, 48).await?;
    let mut found: Vec<i64> = Vec::new();
    for range in container.read_feed_ranges(None).await? {
        let query = "SELECT VALUE c.rank FROM c ORDER BY c.rank";
        let part: Vec<i64> = crate::query::query_all(&container, FeedScope::range(range), query).await?;
        holds!(part.is_sorted(), "{part:?}");
        if world.partitions() > 1 {
            holds!(part.len() < 48, "one range holds everything");
        }
        found.extend(part);
    }
    found.sort_unstable();
    same!(found, (0..48).collect::<Vec<_>>());
    Ok(())
}

async fn a_key_in_the_filter_needs_no_scope(world: &World) -> Outcome {
    let container = world.filled(16, 48).await?;
    let query = Query::from("SELECT VALUE c.rank FROM c WHERE c.pk = @pk ORDER BY c.rank")
        .with_parameter("@pk", "k5")?;
    let found: Vec<i64> = query_all(&container, query).await?;
    same!(found, [5, 21, 37]);
    Ok(())
}

async fn a_cross_partition_query_that_cannot_be_parsed_is_refused(world: &World) -> Outcome {
    let container = world.filled(4, 4).await?;
    let answer = async {
        let scope = FeedScope::full_container();
        let stream = container.query_items::<Value>("SELECT * FROM c WHERE", scope, None).await?;
        stream.try_collect::<Vec<_>>().await
    };
    same!(refused(answer.await)?, 400);
    Ok(())
}
