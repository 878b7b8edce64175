//! The change feed, in both of its modes. The SDK's stream never ends. A page without changes
//! means that a range has no more changes for now.

use std::num::NonZeroU32;
use std::time::Duration;

use azure_data_cosmos::FeedScope;
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::feed::{ChangeFeedPageIterator, ContinuationToken};
use azure_data_cosmos::models::{
    ChangeFeedItem, ChangeFeedOperationType, ChangeFeedPolicy, ContainerProperties,
};
use azure_data_cosmos::options::{ChangeFeedMode, ChangeFeedOptions, ChangeFeedStartFrom, MaxItemCountHint};
use futures::StreamExt;
use serde_json::Value;
use time::OffsetDateTime;

use crate::check::{Outcome, Problem, checks, holds, refused, required, same};
use crate::world::{Item, World, item, name_of};

checks![
    the_feed_of_a_container_has_every_item_once,
    the_feed_of_a_partition_has_only_its_items,
    the_feed_of_a_range_has_only_its_items,
    changes_of_a_partition_come_in_order_and_latest_only,
    the_feed_from_now_has_only_later_changes,
    the_feed_from_a_point_in_time_leaves_out_earlier_changes,
    the_feed_resumes_from_its_token,
    the_feed_goes_on_after_a_split,
    pages_are_no_larger_than_asked_for,
    all_versions_and_deletes_are_returned,
    all_versions_cannot_begin_at_the_beginning,
];

type Pages = ChangeFeedPageIterator<ChangeFeedItem<Item>>;

/// The number of empty pages in a row after which a feed counts as drained. Then every range
/// was read at least once, in whatever order the SDK reads the ranges.
const EMPTY_PAGES_WHEN_DRAINED: usize = 8;

/// The most pages that are read: more pages than any check here writes changes.
const PAGES_MAX: usize = 400;

/// Opens a feed.
async fn open_feed(
    container: &ContainerClient,
    scope: FeedScope,
    from: ChangeFeedStartFrom,
    options: ChangeFeedOptions,
) -> Result<Pages, Problem> {
    Ok(container.query_change_feed::<Item>(scope, from, Some(options)).await?)
}

/// Reads a feed until it is drained, and returns the current versions of all changes.
async fn drain(pages: &mut Pages) -> Result<Vec<Item>, Problem> {
    let mut found = Vec::new();
    let mut empty_in_a_row = 0;
    for _ in 0..PAGES_MAX {
        let page = required(pages.next().await, "a page")??;
        empty_in_a_row = if page.items().is_empty() { empty_in_a_row + 1 } else { 0 };
        for change in page.into_items() {
            found.push(required(change.current().cloned(), "the current version")?);
        }
        if empty_in_a_row == EMPTY_PAGES_WHEN_DRAINED {
            return Ok(found);
        }
    }
    Err(format!("not drained after {PAGES_MAX} pages").into())
}

/// The ranks of items, in the order of the items.
fn ranks(items: &[Item]) -> Vec<i64> {
    items.iter().map(|item| item.rank).collect()
}

/// The ranks of items, sorted.
fn sorted_ranks(items: &[Item]) -> Vec<i64> {
    let mut ranks = ranks(items);
    ranks.sort_unstable();
    ranks
}

async fn the_feed_of_a_container_has_every_item_once(world: &World) -> Outcome {
    let container = world.filled(16, 40).await?;
    let options = ChangeFeedOptions::default();
    let mut pages =
        open_feed(&container, FeedScope::full_container(), ChangeFeedStartFrom::Beginning, options).await?;
    same!(sorted_ranks(&drain(&mut pages).await?), (0..40).collect::<Vec<_>>());
    Ok(())
}

async fn the_feed_of_a_partition_has_only_its_items(world: &World) -> Outcome {
    let container = world.filled(4, 20).await?;
    let options = ChangeFeedOptions::default();
    let mut pages =
        open_feed(&container, FeedScope::partition("k1"), ChangeFeedStartFrom::Beginning, options).await?;
    same!(ranks(&drain(&mut pages).await?), [1, 5, 9, 13, 17]);
    Ok(())
}

async fn the_feed_of_a_range_has_only_its_items(world: &World) -> Outcome {
    let container = world.filled(16, 40).await?;
    let mut found = Vec::new();
    for range in container.read_feed_ranges(None).await? {
        let options = ChangeFeedOptions::default();
        let mut pages =
            open_feed(&container, FeedScope::range(range), ChangeFeedStartFrom::Beginning, options).await?;
        found.extend(drain(&mut pages).await?);
    }
    same!(sorted_ranks(&found), (0..40).collect::<Vec<_>>());
    Ok(())
}

async fn changes_of_a_partition_come_in_order_and_latest_only(world: &World) -> Outcome {
    let container = world.container().await?;
    for (id, value) in [("1", 1), ("2", 2), ("3", 3), ("1", 4), ("2", 5)] {
        container.upsert_item("a", id, item("a", id, value), None).await?;
    }
    container.delete_item("a", "2", None).await?;
    let options = ChangeFeedOptions::default();
    let mut pages =
        open_feed(&container, FeedScope::partition("a"), ChangeFeedStartFrom::Beginning, options).await?;
    same!(ranks(&drain(&mut pages).await?), [3, 4]);
    Ok(())
}

async fn the_feed_from_now_has_only_later_changes(world: &World) -> Outcome {
    let container = world.filled(1, 5).await?;
    let options = ChangeFeedOptions::default();
    let mut pages =
        open_feed(&container, FeedScope::partition("k0"), ChangeFeedStartFrom::Now, options).await?;
    same!(ranks(&drain(&mut pages).await?), Vec::<i64>::new());
    container.create_item("k0", "late", item("k0", "late", 99), None).await?;
    same!(ranks(&drain(&mut pages).await?), [99]);
    same!(ranks(&drain(&mut pages).await?), Vec::<i64>::new());
    Ok(())
}

async fn the_feed_from_a_point_in_time_leaves_out_earlier_changes(world: &World) -> Outcome {
    let container = world.filled(1, 3).await?;
    // The header has whole seconds, so two seconds keep earlier and later changes apart.
    tokio::time::sleep(Duration::from_millis(2100)).await;
    let start = ChangeFeedStartFrom::PointInTime(OffsetDateTime::now_utc() - Duration::from_secs(1));
    container.create_item("k0", "late", item("k0", "late", 99), None).await?;
    let mut pages =
        open_feed(&container, FeedScope::partition("k0"), start, ChangeFeedOptions::default()).await?;
    same!(ranks(&drain(&mut pages).await?), [99]);
    Ok(())
}

async fn the_feed_resumes_from_its_token(world: &World) -> Outcome {
    let container = world.filled(16, 40).await?;
    let scope = FeedScope::full_container;
    let options = ChangeFeedOptions::default();
    let mut pages = open_feed(&container, scope(), ChangeFeedStartFrom::Beginning, options).await?;
    same!(drain(&mut pages).await?.len(), 40);
    let token = pages.to_continuation_token()?.as_str().to_owned();
    drop(pages);
    for value in 100..110 {
        let key = format!("k{}", value % 16);
        container.create_item(key.clone(), "new", item(&key, "new", value), None).await?;
    }
    let options = ChangeFeedOptions::default().with_continuation_token(ContinuationToken::from_string(token));
    let mut resumed = open_feed(&container, scope(), ChangeFeedStartFrom::Beginning, options).await?;
    same!(sorted_ranks(&drain(&mut resumed).await?), (100..110).collect::<Vec<_>>());
    Ok(())
}

async fn the_feed_goes_on_after_a_split(world: &World) -> Outcome {
    let container = world.filled(16, 40).await?;
    let options = ChangeFeedOptions::default();
    let mut pages =
        open_feed(&container, FeedScope::full_container(), ChangeFeedStartFrom::Beginning, options).await?;
    same!(drain(&mut pages).await?.len(), 40);
    world.management().split(&name_of(&container).await?, "0").await?;
    for rank in 100..116 {
        let key = format!("k{}", rank % 16);
        container.create_item(key.clone(), "new", item(&key, "new", rank), None).await?;
    }
    same!(sorted_ranks(&drain(&mut pages).await?), (100..116).collect::<Vec<_>>());
    Ok(())
}

async fn pages_are_no_larger_than_asked_for(world: &World) -> Outcome {
    let container = world.filled(1, 10).await?;
    let three = required(NonZeroU32::new(3), "a page size")?;
    let options = ChangeFeedOptions::default().with_max_item_count(MaxItemCountHint::Limit(three));
    let mut pages =
        open_feed(&container, FeedScope::partition("k0"), ChangeFeedStartFrom::Beginning, options).await?;
    let mut sizes = Vec::new();
    for _ in 0..5 {
        sizes.push(required(pages.next().await, "a page")??.items().len());
    }
    same!(sizes, [3, 3, 3, 1, 0]);
    Ok(())
}

/// A new container whose change feed has all versions and deletes.
async fn container_with_all_versions(world: &World) -> Result<ContainerClient, Problem> {
    let policy = ChangeFeedPolicy::default().with_retention_duration(Duration::from_secs(600));
    let properties =
        ContainerProperties::new(world.fresh_name("c"), "/pk".into()).with_change_feed_policy(policy);
    world.container_of(properties).await
}

async fn all_versions_and_deletes_are_returned(world: &World) -> Outcome {
    let container = container_with_all_versions(world).await?;
    let options = ChangeFeedOptions::default().with_mode(ChangeFeedMode::AllVersionsAndDeletes);
    let scope = FeedScope::partition("a");
    let mut pages =
        container.query_change_feed::<Value>(scope, ChangeFeedStartFrom::Now, Some(options)).await?;
    let first = required(pages.next().await, "the first page")??;
    same!(first.items().len(), 0);
    container.create_item("a", "1", item("a", "1", 1), None).await?;
    container.replace_item("a", "1", item("a", "1", 2), None).await?;
    container.delete_item("a", "1", None).await?;
    let mut changes = Vec::new();
    let mut lsns = Vec::new();
    for _ in 0..PAGES_MAX {
        for change in required(pages.next().await, "a page")??.into_items() {
            let value = change.current().and_then(|current| current["rank"].as_i64());
            changes.push((change.operation_type(), value));
            let metadata = required(change.metadata(), "the metadata")?;
            lsns.push(required(metadata.lsn(), "the lsn")?.value());
        }
        if changes.len() >= 3 {
            break;
        }
    }
    same!(
        changes,
        [
            (Some(ChangeFeedOperationType::Create), Some(1)),
            (Some(ChangeFeedOperationType::Replace), Some(2)),
            (Some(ChangeFeedOperationType::Delete), None)
        ]
    );
    holds!(lsns.is_sorted(), "{lsns:?}");
    Ok(())
}

async fn all_versions_cannot_begin_at_the_beginning(world: &World) -> Outcome {
    let container = container_with_all_versions(world).await?;
    let options = ChangeFeedOptions::default().with_mode(ChangeFeedMode::AllVersionsAndDeletes);
    let mut pages =
        open_feed(&container, FeedScope::partition("a"), ChangeFeedStartFrom::Beginning, options).await?;
    let answer = required(pages.next().await, "a page")?;
    same!(refused(answer)?, 400);
    Ok(())
}
