//! Partition key ranges: how the SDK routes requests, and what it does when a range splits.

use azure_data_cosmos::FeedScope;
use azure_data_cosmos::feed::FeedRange;
use azure_data_cosmos::options::ReadFeedRangesOptions;
use futures::TryStreamExt;
use serde_json::Value;

use crate::check::{Outcome, Problem, checks, holds, required, same};
use crate::query::{pages_of, query_all};
use crate::world::{Item, World, item, name_of};

checks![
    the_ranges_cover_the_key_space_without_gaps,
    a_partition_key_belongs_to_one_range,
    the_sdk_asks_for_the_ranges_once,
    a_client_survives_a_split,
    a_query_begun_before_a_split_ends_after_it,
    a_query_of_one_partition_does_not_notice_a_split,
];

fn bounds(range: &FeedRange) -> (String, String) {
    (range.min_inclusive().to_string(), range.max_exclusive().to_string())
}

async fn the_ranges_cover_the_key_space_without_gaps(world: &World) -> Outcome {
    let container = world.container().await?;
    let mut ranges: Vec<_> = container.read_feed_ranges(None).await?.iter().map(bounds).collect();
    ranges.sort();
    same!(ranges.len(), world.partitions());
    same!(required(ranges.first(), "a range")?.0, "");
    same!(required(ranges.last(), "a range")?.1, "FF");
    holds!(ranges.windows(2).all(|pair| pair[0].1 == pair[1].0), "{ranges:?}");
    Ok(())
}

async fn a_partition_key_belongs_to_one_range(world: &World) -> Outcome {
    let container = world.filled(16, 16).await?;
    let ranges = container.read_feed_ranges(None).await?;
    for key in 0..16 {
        let key_range = container.feed_range_from_partition_key(format!("k{key}"), None).await?;
        same!(key_range.len(), 1);
        let holders: Vec<_> = ranges.iter().filter(|range| key_range[0].is_subset_of(range)).collect();
        same!(holders.len(), 1);
        let query = format!("SELECT VALUE c.rank FROM c WHERE c.pk = 'k{key}'");
        let scope = FeedScope::range(holders[0].clone());
        let found: Vec<i64> = query_all(&container, scope, query.as_str()).await?;
        same!(found, [key]);
    }
    Ok(())
}

async fn the_sdk_asks_for_the_ranges_once(world: &World) -> Outcome {
    let container = world.filled(16, 16).await?;
    let query_everything = async || -> Result<(), Problem> {
        let all: Vec<Item> = query_all(&container, FeedScope::full_container(), "SELECT * FROM c").await?;
        same!(all.len(), 16);
        Ok(())
    };
    query_everything().await?;
    let before = world.management().request_count("read_ranges").await?;
    holds!(before > 0, "the server counts no requests for ranges");
    for key in 0..16 {
        container.read_item(format!("k{key}"), &format!("i{key:03}"), None).await?;
        query_everything().await?;
    }
    // The SDK has kept its list of ranges, so it has understood the answer 304 to its etag.
    same!(world.management().request_count("read_ranges").await?, before);
    Ok(())
}

async fn a_client_survives_a_split(world: &World) -> Outcome {
    let container = world.filled(16, 32).await?;
    let scope = FeedScope::full_container;
    let query = "SELECT VALUE c.rank FROM c ORDER BY c.rank";
    let all: Vec<i64> = query_all(&container, scope(), query).await?;
    same!(all.len(), 32);
    world.management().split(&name_of(&container).await?, "0").await?;

    for value in 0..32 {
        let read = container.read_item(format!("k{}", value % 16), &format!("i{value:03}"), None).await?;
        same!(read.into_model::<Item>()?.rank, value);
    }
    container.create_item("k0", "after", item("k0", "after", 32), None).await?;
    let all: Vec<i64> = query_all(&container, scope(), query).await?;
    same!(all, (0..33).collect::<Vec<_>>());
    let refreshed = ReadFeedRangesOptions::default().with_force_refresh(true);
    same!(container.read_feed_ranges(Some(refreshed)).await?.len(), world.partitions() + 1);
    Ok(())
}

async fn a_query_begun_before_a_split_ends_after_it(world: &World) -> Outcome {
    let queries = [
        "SELECT VALUE c.rank FROM c",
        "SELECT VALUE c.rank FROM c ORDER BY c.rank",
        "SELECT * FROM c ORDER BY c.pk",
    ];
    for query in queries {
        let container = world.filled(16, 64).await?;
        let scope = FeedScope::full_container();
        let mut pages = container.query_items::<Value>(query, scope, Some(pages_of(2)?)).await?.into_pages();
        let mut found = required(pages.try_next().await?, "the first page")?.into_items();
        world.management().split(&name_of(&container).await?, "0").await?;
        while let Some(page) = pages.try_next().await? {
            found.extend(page.into_items());
        }
        let rank = |row: &Value| row.get("rank").unwrap_or(row).as_i64();
        let mut ranks: Vec<Option<i64>> = found.iter().map(rank).collect();
        if query.ends_with("c.rank") {
            holds!(ranks.is_sorted(), "{ranks:?}");
        }
        ranks.sort_unstable();
        same!(ranks, (0..64).map(Some).collect::<Vec<_>>());
    }
    Ok(())
}

async fn a_query_of_one_partition_does_not_notice_a_split(world: &World) -> Outcome {
    let container = world.filled(1, 10).await?;
    let query = "SELECT VALUE c.rank FROM c";
    let scope = FeedScope::partition("k0");
    let mut pages = container.query_items::<i64>(query, scope, Some(pages_of(3)?)).await?.into_pages();
    let mut found = required(pages.try_next().await?, "the first page")?.into_items();
    let own = container.read_item("k0", "i000", None).await?;
    let range = required(own.headers().partition_key_range_id(), "the range")?.to_owned();
    world.management().split(&name_of(&container).await?, &range).await?;
    while let Some(page) = pages.try_next().await? {
        found.extend(page.into_items());
    }
    same!(found, (0..10).collect::<Vec<_>>());
    Ok(())
}
