//! Queries within one partition. The server answers them without a plan of the SDK.

use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::feed::ContinuationToken;
use azure_data_cosmos::options::QueryOptions;
use azure_data_cosmos::{FeedScope, Query};
use futures::TryStreamExt;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::check::{Outcome, Problem, checks, holds, refused, required, same};
use crate::query::{pages_of, query_all_with};
use crate::world::{Item, World};

checks![
    a_filter_with_parameters_finds_the_matching_items,
    order_by_sorts_ascending_and_descending,
    values_and_projections_have_their_shape,
    functions_and_operators_are_evaluated,
    a_join_unfolds_an_array,
    top_and_offset_limit_cut_the_answer,
    aggregates_are_computed,
    groups_are_counted,
    distinct_values_come_once,
    pages_have_the_size_asked_for_and_end,
    a_query_resumes_from_its_token,
    a_page_has_its_charge_and_metrics,
    a_query_that_cannot_be_parsed_is_refused,
];

/// All results of a query in partition `k0`.
async fn query_all<T: DeserializeOwned + Send + 'static>(
    container: &ContainerClient,
    query: impl Into<Query>,
) -> Result<Vec<T>, Problem> {
    crate::query::query_all(container, FeedScope::partition("k0"), query).await
}

async fn a_filter_with_parameters_finds_the_matching_items(world: &World) -> Outcome {
    let container = world.filled(2, 20).await?;
    let query = Query::from("SELECT * FROM c WHERE c.rank >= @low AND c.rank < @high AND c.id != @not")
        .with_parameter("@low", 4)?
        .with_parameter("@high", 10)?
        .with_parameter("@not", "i006")?;
    let mut found: Vec<Item> = query_all(&container, query).await?;
    found.sort_by_key(|item| item.rank);
    same!(found.iter().map(|item| item.rank).collect::<Vec<_>>(), [4, 8]);
    holds!(found.iter().all(|item| item.pk == "k0"));
    Ok(())
}

async fn order_by_sorts_ascending_and_descending(world: &World) -> Outcome {
    let container = world.filled(2, 30).await?;
    let up: Vec<i64> = query_all(&container, "SELECT VALUE c.rank FROM c ORDER BY c.rank").await?;
    same!(up, (0..30).step_by(2).collect::<Vec<_>>());
    let down: Vec<i64> = query_all(&container, "SELECT VALUE c.rank FROM c ORDER BY c.rank DESC").await?;
    same!(down, (0..15).rev().map(|half| half * 2).collect::<Vec<_>>());
    let filtered: Vec<i64> = query_all(
        &container,
        "SELECT VALUE c.rank FROM c WHERE c.pk = 'k0' AND c.rank <= 8 ORDER BY c.rank DESC",
    )
    .await?;
    same!(filtered, [8, 6, 4, 2, 0]);
    Ok(())
}

async fn values_and_projections_have_their_shape(world: &World) -> Outcome {
    let container = world.filled(1, 1).await?;
    let found: Vec<Value> = query_all(
        &container,
        "SELECT c.id, c.rank AS number, c.missing, {\"nested\": [c.pk, 1]} AS made FROM c",
    )
    .await?;
    same!(found, [json!({"id": "i000", "number": 0, "made": {"nested": ["k0", 1]}})]);
    let found: Vec<Value> = query_all(&container, "SELECT VALUE {\"v\": c.rank + 1} FROM c").await?;
    same!(found, [json!({"v": 1})]);
    let found: Vec<Value> = query_all(&container, "SELECT VALUE c.missing FROM c").await?;
    same!(found, Vec::<Value>::new());
    Ok(())
}

async fn functions_and_operators_are_evaluated(world: &World) -> Outcome {
    let container = world.filled(1, 12).await?;
    for (condition, wanted) in [
        ("STARTSWITH(c.id, 'i01')", vec!["i010", "i011"]),
        ("CONTAINS(c.id, '00') AND c.rank IN (1, 3, 11)", vec!["i001", "i003"]),
        ("c.id LIKE 'i0_1'", vec!["i001", "i011"]),
        ("c.rank BETWEEN 4 AND 6", vec!["i004", "i005", "i006"]),
        ("IS_DEFINED(c.rank) AND NOT (c.rank < 11)", vec!["i011"]),
        ("c.rank % 5 = 0 AND c.rank > 0", vec!["i005", "i010"]),
        ("ARRAY_CONTAINS([2, 4], c.rank)", vec!["i002", "i004"]),
    ] {
        let mut found: Vec<String> =
            query_all(&container, format!("SELECT VALUE c.id FROM c WHERE {condition}").as_str()).await?;
        found.sort();
        holds!(found == wanted, "{condition} finds {found:?}");
    }
    Ok(())
}

async fn a_join_unfolds_an_array(world: &World) -> Outcome {
    let container = world.container().await?;
    let document = json!({"id": "1", "pk": "k0", "tags": [{"n": "red"}, {"n": "green"}, {"n": "blue"}]});
    container.create_item("k0", "1", document, None).await?;
    let found: Vec<String> =
        query_all(&container, "SELECT VALUE t.n FROM c JOIN t IN c.tags WHERE t.n != 'green'").await?;
    same!(found, ["red", "blue"]);
    Ok(())
}

async fn top_and_offset_limit_cut_the_answer(world: &World) -> Outcome {
    let container = world.filled(1, 20).await?;
    let found: Vec<i64> =
        query_all(&container, "SELECT TOP 3 VALUE c.rank FROM c ORDER BY c.rank DESC").await?;
    same!(found, [19, 18, 17]);
    let found: Vec<i64> =
        query_all(&container, "SELECT VALUE c.rank FROM c ORDER BY c.rank OFFSET 5 LIMIT 4").await?;
    same!(found, [5, 6, 7, 8]);
    Ok(())
}

async fn aggregates_are_computed(world: &World) -> Outcome {
    let container = world.filled(1, 10).await?;
    for (aggregate, wanted) in [
        ("COUNT(1)", json!(10)),
        ("SUM(c.rank)", json!(45)),
        ("MIN(c.rank)", json!(0)),
        ("MAX(c.rank)", json!(9)),
        ("AVG(c.rank)", json!(4.5)),
    ] {
        let found: Vec<Value> =
            query_all(&container, format!("SELECT VALUE {aggregate} FROM c").as_str()).await?;
        holds!(found == [wanted.clone()], "{aggregate} is {found:?}");
    }
    Ok(())
}

async fn groups_are_counted(world: &World) -> Outcome {
    let container = world.filled(1, 10).await?;
    let mut found: Vec<Value> =
        query_all(&container, "SELECT c.rank % 3 AS rest, COUNT(1) AS count FROM c GROUP BY c.rank % 3")
            .await?;
    found.sort_by_key(|group| group["rest"].as_i64());
    same!(
        found,
        [json!({"rest": 0, "count": 4}), json!({"rest": 1, "count": 3}), json!({"rest": 2, "count": 3})]
    );
    Ok(())
}

async fn distinct_values_come_once(world: &World) -> Outcome {
    let container = world.filled(1, 10).await?;
    let mut found: Vec<i64> = query_all(&container, "SELECT DISTINCT VALUE c.rank % 4 FROM c").await?;
    found.sort_unstable();
    same!(found, [0, 1, 2, 3]);
    Ok(())
}

async fn pages_have_the_size_asked_for_and_end(world: &World) -> Outcome {
    let container = world.filled(1, 10).await?;
    let query = "SELECT VALUE c.rank FROM c ORDER BY c.rank";
    let mut pages = container
        .query_items::<i64>(query, FeedScope::partition("k0"), Some(pages_of(4)?))
        .await?
        .into_pages();
    let mut found = Vec::new();
    while let Some(page) = pages.try_next().await? {
        found.push(page.into_items());
    }
    found.retain(|page| !page.is_empty());
    same!(found, [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]]);
    Ok(())
}

async fn a_query_resumes_from_its_token(world: &World) -> Outcome {
    let container = world.filled(1, 10).await?;
    let query = "SELECT VALUE c.rank FROM c ORDER BY c.rank DESC";
    let scope = || FeedScope::partition("k0");
    let mut pages = container.query_items::<i64>(query, scope(), Some(pages_of(3)?)).await?.into_pages();
    let first = required(pages.try_next().await?, "the first page")?.into_items();
    same!(first, [9, 8, 7]);
    let token = pages.to_continuation_token()?.as_str().to_owned();
    drop(pages);
    // An item is written between two pages, at a position that the query has passed.
    let late = crate::world::item("k0", "late", 100);
    container.create_item("k0", "late", late, None).await?;
    let options = pages_of(3)?.with_continuation_token(ContinuationToken::from_string(token));
    let rest: Vec<i64> = query_all_with(&container, scope(), query, options).await?;
    same!(rest, [6, 5, 4, 3, 2, 1, 0]);
    Ok(())
}

async fn a_page_has_its_charge_and_metrics(world: &World) -> Outcome {
    let container = world.filled(1, 10).await?;
    let options = QueryOptions::default().with_populate_query_metrics(true);
    let query = "SELECT * FROM c WHERE c.rank > 3";
    let mut pages =
        container.query_items::<Item>(query, FeedScope::partition("k0"), Some(options)).await?.into_pages();
    let page = required(pages.try_next().await?, "the first page")?;
    same!(page.items().len(), 6);
    holds!(required(page.headers().request_charge(), "the charge")?.value() > 1.0);
    let metrics = required(page.query_metrics(), "the metrics")?;
    holds!(
        metrics.contains("retrievedDocumentCount") && metrics.contains("totalExecutionTimeInMs"),
        "{metrics}"
    );
    Ok(())
}

async fn a_query_that_cannot_be_parsed_is_refused(world: &World) -> Outcome {
    let container = world.filled(1, 1).await?;
    let answer = async {
        let scope = FeedScope::partition("k0");
        let stream = container.query_items::<Value>("SELEKT * FROM c", scope, None).await?;
        stream.try_collect::<Vec<_>>().await
    };
    same!(refused(answer.await)?, 400);
    Ok(())
}
