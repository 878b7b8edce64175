//! Change feeds in an account whose regions all take writes. Each region has its own order
//! of changes, so a feed continues only in the region that gave its continuation.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use perihelion_driver::operation::{Target, Verb};
use perihelion_driver::options::Hedging;
use perihelion_driver::{Error, ErrorKind, Operation, OperationOptions, Region};
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::regions::{self, EAST, NORTH, REGIONS, WEST, all_but};
use perihelion_wire::headers;

use crate::multi_region::prefers_east;
use crate::world::{World, ada};

/// Three regions that all have the document `0`; East is preferred.
async fn three_regions(is_multi_write: bool) -> World {
    let regions = regions::three_regions();
    let server = EmbeddedOptions::default().with_regions(regions).with_multi_write(is_multi_write);
    let world = World::with(server, prefers_east()).await;
    world.run(&world.write(Verb::Create, "0", "a")).await.unwrap();
    world.wait_for_replication().await;
    world
}

/// A reader of the change feed, with its position.
struct Reader<'a> {
    world: &'a World,
    continuation: Option<HeaderValue>,
    region: Option<Region>,
    seen: BTreeSet<String>,
}

impl Reader<'_> {
    fn new(world: &World) -> Reader<'_> {
        Reader { world, continuation: None, region: None, seen: BTreeSet::new() }
    }

    fn operation(&self) -> Operation {
        let target = Target::items(&self.world.orders);
        let mut feed = Operation::new(Verb::ChangeFeed, target, ada(), Bytes::new());
        if let Some(continuation) = &self.continuation {
            feed = feed.with_header(headers::IF_NONE_MATCH, continuation.clone());
        }
        match &self.region {
            Some(region) => feed.with_continuation_region(region.clone()),
            None => feed,
        }
    }

    /// Reads the next page. Returns the regions that were asked.
    async fn read(&mut self, options: &OperationOptions) -> Result<Vec<String>, Error> {
        let response = self.world.driver.execute(&self.operation(), options).await?;
        self.continuation = Some(response.headers[&headers::ETAG].clone());
        self.region = response.region().cloned();
        if !response.body.is_empty() {
            let page: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
            let ids = page["Documents"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap());
            self.seen.extend(ids.map(str::to_owned));
        }
        Ok(response.diagnostics.regions().into_iter().map(Region::to_string).collect())
    }
}

fn hedged() -> OperationOptions {
    OperationOptions::default().with_hedging(Hedging::Fixed(Duration::from_millis(20)))
}

/// Creates a document in one region, with another driver that has a session of its own.
async fn create_in(world: &World, region: &str, id: &str) {
    let other = world.other_driver(prefers_east()).await;
    let target = Target::items(&other.container("shop", "orders"));
    let body = format!(r#"{{"id":"{id}","customer":"ada"}}"#);
    let create = Operation::new(Verb::Create, target, ada(), Bytes::from(body));
    let options = OperationOptions::default().with_excluded_regions(all_but(region));
    other.execute(&create, &options).await.unwrap();
}

/// The defect: East was slow, and a hedge at West answered. The reader saw the change with number
/// n + 1 of West, and then went on after n + 1 in East. So it never saw the change with number n + 1
/// of East.
#[tokio::test(start_paused = true)]
async fn a_change_feed_skips_nothing_when_its_region_is_slow() {
    let world = three_regions(true).await;
    let mut reader = Reader::new(&world);
    assert_eq!(reader.read(&hedged()).await.unwrap(), [EAST]);
    for region in REGIONS {
        world.manage_region("replication/cut", region).await;
    }
    create_in(&world, WEST, "west").await;
    world.fault(&format!(r#"{{"operation":"change_feed","region":"{EAST}","count":1,"delayMs":300}}"#)).await;
    assert_eq!(reader.read(&hedged()).await.unwrap(), [EAST], "a continuation of East is not hedged");
    create_in(&world, EAST, "east").await;
    reader.read(&hedged()).await.unwrap();
    for region in REGIONS {
        world.manage_region("replication/heal", region).await;
    }
    world.wait_for_replication().await;
    reader.read(&hedged()).await.unwrap();
    assert_eq!(reader.seen, ["0", "east", "west"].map(str::to_owned).into());
}

#[tokio::test(start_paused = true)]
async fn a_change_feed_waits_for_its_region() {
    let world = three_regions(true).await;
    let mut reader = Reader::new(&world);
    reader.read(&hedged()).await.unwrap();
    let fault = |count: u32| {
        format!(r#"{{"operation":"change_feed","region":"{EAST}","count":{count},"status":503}}"#)
    };
    world.fault(&fault(2)).await;
    assert_eq!(reader.read(&hedged()).await.unwrap(), [EAST], "after a short outage the same region answers");
    world.fault(&fault(100)).await;
    let before = reader.continuation.clone();
    let error = reader.read(&hedged()).await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    let asked: Vec<_> = error.diagnostics().regions().into_iter().map(Region::name).collect();
    assert_eq!((asked, &reader.continuation), (vec![EAST], &before));
}

/// The first page may come from any region. The feed then stays in that region, although
/// another region is preferred.
#[tokio::test(start_paused = true)]
async fn a_change_feed_stays_in_the_region_of_its_first_page() {
    let world = three_regions(true).await;
    let mut reader = Reader::new(&world);
    world.fault(&format!(r#"{{"operation":"change_feed","region":"{EAST}","count":1,"status":503}}"#)).await;
    assert_eq!(reader.read(&hedged()).await.unwrap(), [EAST, WEST]);
    assert_eq!(reader.region, Some(Region::new(WEST)));
    for _ in 0..3 {
        assert_eq!(reader.read(&hedged()).await.unwrap(), [WEST]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_continuation_whose_region_is_unknown_or_excluded_is_refused() {
    let world = three_regions(true).await;
    let mut reader = Reader::new(&world);
    reader.read(&hedged()).await.unwrap();
    let east_excluded = hedged().with_excluded_regions([EAST]);
    let error = reader.read(&east_excluded).await.unwrap_err();
    assert!(error.message().contains("can continue only there"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Input);
    reader.region = Some(Region::new("Mars Central"));
    let error = reader.read(&hedged()).await.unwrap_err();
    assert!(error.message().contains("does not have this region"), "{error}");
    reader.region = None;
    let error = reader.read(&hedged()).await.unwrap_err();
    assert!(error.message().contains("does not name its region"), "{error}");
    // When all other regions are excluded, the region of the continuation is known.
    let east_only = hedged().with_excluded_regions([WEST, NORTH]);
    assert_eq!(reader.read(&east_only).await.unwrap(), [EAST]);
}

/// With one write region, all regions have the same order of changes.
#[tokio::test(start_paused = true)]
async fn a_change_feed_of_one_write_region_continues_in_any_region() {
    let world = three_regions(false).await;
    let mut reader = Reader::new(&world);
    reader.read(&hedged()).await.unwrap();
    world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    world.wait_for_replication().await;
    world.fault(&format!(r#"{{"operation":"change_feed","region":"{EAST}","delayMs":300}}"#)).await;
    assert_eq!(reader.read(&hedged()).await.unwrap(), [EAST, WEST], "a slow region is hedged");
    assert_eq!(reader.region, Some(Region::new(WEST)));
    assert_eq!(reader.seen, ["0", "1"].map(str::to_owned).into());
    reader.region = None;
    reader.read(&hedged()).await.unwrap();
}
