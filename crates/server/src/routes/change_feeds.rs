//! Change feeds: parses the range, the start and the mode, and answers a page.

use std::sync::Arc;

use perihelion_engine::{
    Container, FeedMode, FeedPage, FeedRequest, FeedStart, PageLimits, RangeId, Refusal, charge,
};
use perihelion_model::partition_key::EffectiveRange;
use perihelion_wire::{date, headers, status};

use super::RegionService;
use crate::answer::Answer;
use crate::call::Call;
use crate::long_reads::{Bill, ReadKind, WorkPerDocument};

pub(super) async fn serve(service: &RegionService, call: &Call) -> Result<Answer, Refusal> {
    let (database, container) = service.container(call)?;
    let (mode, start) = (parse_mode(call)?, parse_start(call)?);
    if mode == FeedMode::AllVersionsAndDeletes {
        check_start(&start)?;
        start_version_log(service, &container).await?;
    }
    let (range, keys) = parse_scope(call, &container)?;
    let partition_key = call.partition_key()?;
    let request = FeedRequest { range, keys, partition_key, start, mode, items_max: call.page_rows()? };
    let bucket = service.engine.admit(&container, range)?;
    let session = call.session()?;
    let kind = ReadKind {
        work: WorkPerDocument::Little,
        is_of_one_partition: request.partition_key.is_some(),
        connection: call.connection,
    };
    let read = {
        let (engine, container) = (Arc::clone(&service.engine), Arc::clone(&container));
        move |limits: PageLimits<'_>| engine.change_feed_within(&container, &request, &session, limits)
    };
    let bill = {
        let engine = Arc::clone(&service.engine);
        // A client that has left receives no bytes.
        let of_documents = |documents: u64| charge::change_feed(documents as usize, 0);
        Bill::new(move |charge| engine.spend(bucket, charge), |page: &FeedPage| page.charge, of_documents)
    };
    let page = service.account.long_reads.run(kind, bill, read).await?;
    Ok(answer(&page, &container).with_content_path(&database, &container))
}

/// Makes every region log the versions of this container from now on, so that a reader
/// can continue in another region. Every region takes the request, because readers may
/// send it to any region.
async fn start_version_log(service: &RegionService, container: &Arc<Container>) -> Result<(), Refusal> {
    if container.logs_versions {
        return Ok(());
    }
    let container = Arc::clone(container);
    service
        .change_catalog_from_any_region(
            move |engine| async move { engine.start_version_log(&container).await },
        )
        .await
}

fn parse_mode(call: &Call) -> Result<FeedMode, Refusal> {
    let wanted = call.header(&headers::A_IM).unwrap_or_default();
    if wanted.eq_ignore_ascii_case("incremental feed") {
        return Ok(FeedMode::LatestVersion);
    }
    if wanted.eq_ignore_ascii_case("full-fidelity feed") {
        return Ok(FeedMode::AllVersionsAndDeletes);
    }
    Err(Refusal::gateway(
        status::BAD_REQUEST,
        format!("The A-IM header must be 'Incremental feed' or 'Full-Fidelity Feed', not '{wanted}'."),
    ))
}

/// The range and the effective keys that the request is about. The request may name a
/// range, a partition key or effective keys; without any of them it is about all keys.
/// A request that names no range is refused when its keys are in several ranges.
fn parse_scope(call: &Call, container: &Arc<Container>) -> Result<(RangeId, EffectiveRange), Refusal> {
    let keys = match call.partition_key()? {
        Some(key) => Some(container.partition_key.effective_range(&key)),
        None => call.effective_keys()?,
    };
    if let Some(id) = call.range(container)? {
        let range_keys =
            container.range(id).map(|range| range.keys.clone()).ok_or_else(Refusal::range_gone)?;
        return Ok((id, keys.unwrap_or(range_keys)));
    }
    let keys = keys.unwrap_or_else(EffectiveRange::whole);
    let mut ranges = container.ranges.iter().filter(|range| range.keys.overlaps(&keys));
    match (ranges.next(), ranges.next()) {
        (Some(only), None) => Ok((only.id, keys)),
        // An interval without keys, such as `[x, x)`, has no changes. The range in which it lies
        // gives the empty answer.
        (None, _) => {
            let range = container.ranges.iter().find(|range| keys.min < range.keys.max);
            let range = range.or(container.ranges.last()).ok_or_else(Refusal::range_gone)?;
            Ok((range.id, EffectiveRange { min: keys.min.clone(), max: keys.min }))
        }
        (Some(_), Some(_)) => Err(Refusal::gateway(
            status::BAD_REQUEST,
            "The change feed of several ranges is read range by range: send x-ms-documentdb-partitionkeyrangeid.",
        )),
    }
}

fn parse_start(call: &Call) -> Result<FeedStart, Refusal> {
    match call.header(&headers::IF_NONE_MATCH).map(str::trim) {
        Some("*") => return Ok(FeedStart::Now),
        Some(etag) if !etag.is_empty() => {
            let lsn = etag.trim_matches('"').parse().map_err(|_| {
                Refusal::gateway(
                    status::BAD_REQUEST,
                    "The If-None-Match header of a change feed must be an etag that the feed returned, or *.",
                )
            })?;
            return Ok(FeedStart::After(lsn));
        }
        _ => {}
    }
    match call.header(&headers::IF_MODIFIED_SINCE) {
        None => Ok(FeedStart::Beginning),
        Some(text) => date::parse(text).map(FeedStart::Since).ok_or_else(|| {
            Refusal::gateway(status::BAD_REQUEST, "The If-Modified-Since header is not an RFC 1123 date.")
        }),
    }
}

/// Refuses a feed of all versions and deletes that starts at the beginning or at a date,
/// because versions and deletes are kept for a limited time only.
fn check_start(start: &FeedStart) -> Result<(), Refusal> {
    match start {
        FeedStart::Now | FeedStart::After(_) => Ok(()),
        FeedStart::Beginning | FeedStart::Since(_) => Err(Refusal::gateway(
            status::BAD_REQUEST,
            "The change feed of all versions and deletes starts from now (If-None-Match: *) or from an etag that the feed returned.",
        )),
    }
}

fn answer(page: &FeedPage, container: &Container) -> Answer {
    let etag = format!("\"{}\"", page.continuation);
    // A page that ended before it found an item is not the end of the feed.
    if page.items.is_empty() && page.is_at_end {
        return Answer::empty(status::NOT_MODIFIED)
            .charged(page.charge)
            .at(page.position.clone())
            .with_etag(etag);
    }
    let mut body = format!("{{\"_rid\":\"{}\",\"Documents\":[", container.rid_text).into_bytes();
    for (index, item) in page.items.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(item);
    }
    body.extend_from_slice(format!("],\"_count\":{}}}", page.items.len()).as_bytes());
    Answer::text(status::OK, body)
        .charged(page.charge)
        .at(page.position.clone())
        .with_etag(etag)
        .with_header(headers::ITEM_COUNT, page.items.len().to_string())
}
