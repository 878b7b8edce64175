//! The map of partition key ranges: how it is built from the feed, and how a key is found in it.

use perihelion_model::partition_key::HashVersion;

use super::*;

/// A page of the feed. An entry has the id of a range, its lowest key, the first key beyond
/// it, and the ids of its parents.
fn page(entries: &[(&str, &str, &str, &[&str])]) -> Bytes {
    let entries: Vec<serde_json::Value> = entries
        .iter()
        .map(|(id, min, max, parents)| {
            serde_json::json!({
                "id": id, "_rid": "x", "minInclusive": min, "maxExclusive": max,
                "parents": parents, "status": "online", "throughputFraction": 1,
            })
        })
        .collect();
    serde_json::json!({"_rid": "r", "PartitionKeyRanges": entries, "_count": entries.len()})
        .to_string()
        .into()
}

fn ids<'a>(ranges: impl IntoIterator<Item = &'a Range>) -> Vec<&'a str> {
    ranges.into_iter().map(|range| &*range.id).collect()
}

fn key(hex: &str) -> EffectiveKey {
    EffectiveKey::from_hex(hex).unwrap()
}

fn span(min: &str, max: &str) -> EffectiveRange {
    EffectiveRange { min: key(min), max: key(max) }
}

/// Range 0 was split into 1 and 2, then 2 into 3 and 4.
fn split_twice() -> RangeMap {
    let first = page(&[("3", "20", "30", &["0", "2"]), ("0", "", "FF", &[]), ("1", "", "20", &["0"])]);
    let second = page(&[("2", "20", "FF", &["0"]), ("4", "30", "FF", &["0", "2"])]);
    RangeMap::from_feed(&[first, second]).unwrap()
}

#[test]
fn ranges_that_were_replaced_are_left_out() {
    let map = split_twice();
    assert_eq!(ids(map.iter()), ["1", "3", "4"]);
    assert_eq!((map.len(), map.is_empty()), (3, false));
    assert!(map.get("0").is_none() && map.get("2").is_none());
    assert_eq!(map.get("4").unwrap().range, span("30", "FF"));
    assert_eq!(ids(map.children_of("0")), ["1", "3", "4"]);
    assert_eq!(ids(map.children_of("2")), ["3", "4"]);
    assert!(map.children_of("4").is_empty());
}

#[test]
fn a_merged_range_is_a_child_of_both_parents() {
    let feed = page(&[("0", "", "20", &[]), ("1", "20", "FF", &[]), ("2", "", "FF", &["0", "1"])]);
    let map = RangeMap::from_feed(&[feed]).unwrap();
    assert_eq!(ids(map.iter()), ["2"]);
    assert_eq!((ids(map.children_of("0")), ids(map.children_of("1"))), (vec!["2"], vec!["2"]));
}

#[test]
fn each_key_lies_in_one_range() {
    let map = split_twice();
    for (at, expected) in [
        ("", Some("1")),
        ("1FFF", Some("1")),
        ("20", Some("3")),
        ("2FFF", Some("3")),
        ("30", Some("4")),
        ("FF", None),
    ] {
        assert_eq!(map.locate(&key(at)).map(|range| &*range.id), expected, "{at:?}");
    }
    assert!(RangeMap::default().locate(&key("20")).is_none());
}

#[test]
fn overlapping_ranges_come_in_order() {
    let map = split_twice();
    let check = |min: &str, max: &str, expected: &[&str]| {
        assert_eq!(ids(map.overlapping(&span(min, max))), expected, "{min:?}..{max:?}");
        let scanned = map.iter().filter(|range| range.range.overlaps(&span(min, max)));
        assert_eq!(ids(scanned), expected, "{min:?}..{max:?} by a scan of all ranges");
    };
    check("", "FF", &["1", "3", "4"]);
    check("20", "30", &["3"]);
    check("1F", "2000", &["1", "3"]);
    check("2F", "31", &["3", "4"]);
    check("30", "3000", &["4"]);
    assert_eq!(RangeMap::default().overlapping(&EffectiveRange::whole()).count(), 0);
    assert_eq!(map.overlapping(&span("30", "20")).count(), 0, "a range that ends before it begins");
}

#[test]
fn many_even_ranges_are_found_by_key_and_by_id() {
    let cut = EffectiveRange::whole().split_evenly(257, HashVersion::V2);
    let named: Vec<(String, String, String)> = cut
        .iter()
        .enumerate()
        .map(|(id, range)| (id.to_string(), range.min.to_hex(), range.max.to_hex()))
        .collect();
    let entries: Vec<(&str, &str, &str, &[&str])> =
        named.iter().rev().map(|(id, min, max)| (id.as_str(), min.as_str(), max.as_str(), &[][..])).collect();
    let map = RangeMap::from_feed(&[page(&entries)]).unwrap();
    for (id, range) in cut.iter().enumerate() {
        let found = map.locate(&range.min).unwrap();
        assert_eq!((&*found.id, map.get(&id.to_string()).unwrap()), (id.to_string().as_str(), found));
    }
}

#[test]
fn a_feed_that_does_not_cover_every_key_exactly_once_is_refused() {
    let check = |pages: &[Bytes], reason: &str| {
        let error = RangeMap::from_feed(pages).unwrap_err();
        assert!(error.contains(reason), "{error}");
    };
    check(&[], "end at \"\"");
    check(&[Bytes::from_static(b"not json")], "cannot be read");
    check(&[Bytes::from_static(b"{}")], "cannot be read");
    check(&[page(&[("0", "05", "FF", &[])])], "begins at \"05\"");
    check(&[page(&[("0", "", "20", &[])])], "end at \"20\"");
    check(&[page(&[("0", "", "20", &[]), ("1", "25", "FF", &[])])], "begins at \"25\"");
    check(&[page(&[("0", "", "30", &[]), ("1", "20", "FF", &[])])], "begins at \"20\"");
    // Only one of two children is listed, and it replaces the parent.
    check(&[page(&[("0", "", "FF", &[]), ("1", "", "20", &["0"])])], "end at \"20\"");
    check(&[page(&[("0", "", "xx", &[])])], "has the bound \"xx\"");
    check(&[page(&[("0", "20", "20", &[])])], "is empty");
    check(&[page(&[("0\r\nx", "", "FF", &[])])], "has the id");
    check(&[page(&[("", "", "FF", &[])])], "has the id");
}

#[test]
fn the_later_entry_of_a_range_listed_twice_counts() {
    let map = RangeMap::from_feed(&[page(&[("0", "", "20", &[])]), page(&[("0", "", "FF", &[])])]).unwrap();
    assert_eq!(map.get("0").unwrap().range, EffectiveRange::whole());
}

#[test]
fn parents_may_be_absent_or_null() {
    let feed = r#"{"PartitionKeyRanges":[{"id":"0","minInclusive":"","maxExclusive":"10","parents":null},
        {"id":"1","minInclusive":"10","maxExclusive":"FF"}]}"#;
    assert_eq!(RangeMap::from_feed(&[Bytes::from_static(feed.as_bytes())]).unwrap().len(), 2);
}
