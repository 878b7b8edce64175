//! The reader of change feeds. It follows the feed of each partition from page to page, even
//! when the next page comes from another region. A change that a feed has skipped does not
//! come later. So after each page, the reader must have seen in every document the value that
//! was acknowledged before the request, or a higher one.

use std::collections::HashMap;

use bytes::Bytes;
use http::HeaderValue;
use perihelion_driver::operation::{Target, Verb};
use perihelion_driver::{Operation, Region, Response};
use perihelion_wire::headers;

use super::{Worker, json};
use crate::world::customer;

/// The kind, in the record of the run, of a request without a continuation.
const FIRST_PAGE: &str = "change feed";
/// The kind, in the record of the run, of a request with a continuation.
pub(in super::super) const NEXT_PAGE: &str = "continued feed";

/// One of this many reads begins its feed again.
const RESTART_ONE_IN: u32 = 8;

/// The position in the feed of one partition, and what was read up to there.
#[derive(Default)]
struct FeedPosition {
    /// The continuation and the region that gave it; `None` before the first page.
    continuation: Option<(HeaderValue, Region)>,
    /// The highest value of each document that was read.
    seen: HashMap<String, u64>,
}

impl Worker {
    pub(super) async fn change_feed(mut self) {
        let mut positions: HashMap<&'static str, FeedPosition> = HashMap::new();
        while !self.is_stopped() {
            let floors = self.choose_partition();
            if self.rng.u32(..RESTART_ONE_IN) == 0 {
                positions.remove(self.partition);
            }
            let position = positions.entry(self.partition).or_default();
            let target = Target::items(&self.orders);
            let mut feed = Operation::new(Verb::ChangeFeed, target, customer(self.partition), Bytes::new())
                .with_header(headers::MAX_ITEM_COUNT, HeaderValue::from_static("-1"));
            let mut kind = FIRST_PAGE;
            if let Some((etag, region)) = &position.continuation {
                kind = NEXT_PAGE;
                feed = feed
                    .with_header(headers::IF_NONE_MATCH, etag.clone())
                    .with_continuation_region(region.clone());
            }
            if let Ok(response) = self.run(self.plan(kind, "*", 0, feed)).await {
                self.follow_page(position, &floors, &response);
            }
            self.pause().await;
        }
    }

    /// Moves the position to the end of the page, and reports changes that were skipped. A
    /// page has all changes up to now.
    fn follow_page(&self, position: &mut FeedPosition, floors: &[(String, u64)], response: &Response) {
        let page = json(&response.body);
        for row in page["Documents"].as_array().map(Vec::as_slice).unwrap_or_default() {
            let (Some(id), Some(n)) = (row["id"].as_str(), row["n"].as_u64()) else { continue };
            if let Some((_, floor)) = floors.iter().find(|(document, _)| document == id) {
                self.check_value(id, *floor, row, response);
            }
            let seen = position.seen.entry(id.to_owned()).or_default();
            *seen = n.max(*seen);
        }
        for (id, floor) in floors {
            let seen = position.seen.get(id).copied();
            // Two swaps in different regions may both succeed, and one of them is undone.
            let is_undone = self.is_multi_write && id == "swap";
            if seen.is_none_or(|seen| seen < *floor) && !is_undone {
                let problem =
                    format!("the feed has skipped {floor} after {seen:?}: {}", response.diagnostics);
                self.run_record.report(&self.name(id), problem);
            }
        }
        let etag = response.headers.get(&headers::ETAG).cloned();
        position.continuation = etag.zip(response.region().cloned());
    }
}
