//! The route of an attempt, for each state of the regions and each history of the operation.

use std::time::Duration;

use perihelion_wire::transport::Endpoint;
use serde_json::json;

use super::Usage::{Read, Write};
use super::*;
use crate::options::CircuitBreakerOptions;
use crate::routing::resolve::RouteTo::{Next, Same, WriteRegion};

fn partition(container: &str) -> Partition {
    Partition { container: container.into(), range: "0".into() }
}

/// A snapshot and the history of an operation. Regions are single letters, and a text
/// such as `AC` is a set of regions.
#[derive(Debug, Clone, Default)]
struct RouteCase {
    regions: &'static str,
    /// Whether all regions take writes, and not only the first one.
    multi_write: bool,
    /// Whether the operation is a write.
    write: bool,
    /// Whether the operation is on metadata, and not on documents.
    metadata: bool,
    excluded: &'static str,
    unavailable: &'static str,
    /// The regions in which the breaker of the partition is open.
    open: &'static str,
    /// The regions in which a probe of the partition is due.
    probe_due: &'static str,
    /// The regions of earlier attempts, the last one at the end.
    tried: &'static str,
    route_to: Option<RouteTo>,
    /// Whether partitions fail over one by one.
    partition_failover: bool,
    /// The region that the partition has moved to; empty if it has not moved.
    moved_to: &'static str,
}

/// Regions by their letters.
fn regions(letters: &str) -> Vec<Region> {
    letters.chars().map(|letter| Region::new(letter.to_string())).collect()
}

/// An account with these regions, all available. With one write region, the first one
/// takes the writes.
fn account(regions: &str, multi_write: bool) -> Account {
    let configured = Endpoint::parse("https://configured.example").unwrap();
    let location_json = |region: char| json!({"name": region.to_string(), "databaseAccountEndpoint": format!("https://{region}.example")});
    let all: Vec<_> = regions.chars().map(location_json).collect();
    let writable = if multi_write { all.clone() } else { all[..1].to_vec() };
    let document = json!({
        "readableLocations": all,
        "writableLocations": writable,
        "enableMultipleWriteLocations": multi_write,
    });
    Account::from_document(document.to_string().as_bytes(), &[], &Account::bootstrap(configured)).unwrap()
}

impl RouteCase {
    fn usage(&self) -> Usage {
        if self.write { Write } else { Read }
    }

    fn account(&self, all_available: &Account, now: Instant) -> Account {
        let unavailable = all_available
            .read_locations
            .iter()
            .filter(|location| self.unavailable.contains(location.region.name()));
        unavailable.fold(all_available.clone(), |account, location| {
            account.mark_unavailable(&location.endpoint, self.usage(), now, Duration::from_secs(60))
        })
    }

    fn breakers(&self, now: Instant) -> Breakers {
        let mut breakers = Breakers::new(CircuitBreakerOptions::default());
        for (letters, failed_at) in [(self.open, now), (self.probe_due, now - Duration::from_secs(6))] {
            for region in regions(letters) {
                // Five failures open the breaker of reads or of writes. A probe is due five seconds later.
                for _ in 0..5 {
                    let key =
                        BreakerKey { partition: &partition("rid"), region: &region, usage: self.usage() };
                    let next = breakers.failed(key, failed_at, 0.0);
                    breakers = next.unwrap_or(breakers);
                }
            }
        }
        breakers
    }

    /// Resolves the route and formats it as `A/3+B`: the region, `?` if the attempt is a
    /// probe, the number of candidates, and the region of a hedge if there is one.
    fn resolved_route(&self, all_available: &Account) -> String {
        // Some failures are six seconds before `now`. Instants before the start of the clock do not
        // exist, so `now` is in the future.
        let now = Instant::now() + Duration::from_secs(60);
        let (account, breakers) = (self.account(all_available, now), self.breakers(now));
        let (excluded, tried) = (regions(self.excluded), regions(self.tried));
        let moved_to = regions(self.moved_to);
        let request = RouteRequest {
            usage: self.usage(),
            is_data_plane: !self.metadata,
            account: &account,
            breakers: &breakers,
            partition: Some(&partition("rid")),
            has_partition_failover: self.partition_failover,
            moved_to: moved_to.first(),
            excluded_regions: &excluded,
            only_region: None,
            tried_regions: &tried,
            route_to: self.route_to,
            last_region: tried.last(),
            now,
        };
        let route = resolve(&request);
        let alternate = alternate(&request, &route);
        if let Some(alternate) = &alternate {
            assert!(alternate.location.region != route.location.region && !alternate.is_probe);
        }
        let probe = if route.is_probe { "?" } else { "" };
        let alternate = alternate.map_or(String::new(), |other| format!("+{}", other.location.region));
        format!("{}{probe}/{}{alternate}", route.location.region, route.candidates)
    }
}

fn check(case: RouteCase, expected: &str) {
    assert_eq!(case.resolved_route(&account(case.regions, case.multi_write)), expected, "{case:?}");
}

/// The first attempt of a read, in an account of three regions.
fn three_regions() -> RouteCase {
    RouteCase { regions: "ABC", ..RouteCase::default() }
}

#[test]
fn the_first_attempt_goes_to_the_best_region() {
    check(three_regions(), "A/3+B");
    check(RouteCase { regions: "A", ..three_regions() }, "A/1");
    check(RouteCase { excluded: "A", ..three_regions() }, "B/2+C");
    check(RouteCase { excluded: "AC", ..three_regions() }, "B/1");
    check(RouteCase { unavailable: "A", ..three_regions() }, "B/3+C");
    check(RouteCase { open: "A", ..three_regions() }, "B/3+C");
    check(RouteCase { unavailable: "A", open: "B", ..three_regions() }, "C/3");
    check(RouteCase { unavailable: "B", ..three_regions() }, "A/3+C");
    check(RouteCase { open: "B", ..three_regions() }, "A/3+C");
}

#[test]
fn there_is_always_a_route() {
    check(RouteCase { excluded: "ABC", ..three_regions() }, "global/1");
    check(RouteCase { excluded: "ABC", multi_write: true, write: true, ..three_regions() }, "global/1");
    check(RouteCase { unavailable: "ABC", ..three_regions() }, "A/3");
    check(RouteCase { open: "ABC", ..three_regions() }, "A/3");
    check(RouteCase { unavailable: "AB", open: "C", ..three_regions() }, "A/3");
    check(RouteCase { unavailable: "ABC", tried: "A", route_to: Some(Next), ..three_regions() }, "B/3");
    check(RouteCase { unavailable: "ABC", tried: "ABC", route_to: Some(Next), ..three_regions() }, "A/3");
}

#[test]
fn the_next_region_is_one_not_tried_yet() {
    let next = |tried| RouteCase { tried, route_to: Some(Next), ..three_regions() };
    check(next("A"), "B/3+C");
    check(next("AB"), "C/3");
    check(next("B"), "A/3+C");
    check(RouteCase { excluded: "B", ..next("A") }, "C/2");
    check(RouteCase { open: "B", ..next("A") }, "C/3");
    // A region that was not tried comes first, even if it has a known failure.
    check(RouteCase { unavailable: "C", ..next("AB") }, "C/3");
}

#[test]
fn once_all_regions_were_tried_they_are_tried_again() {
    let next = |tried| RouteCase { tried, route_to: Some(Next), ..three_regions() };
    check(next("ABC"), "A/3");
    check(next("ABCA"), "B/3");
    check(next("CBA"), "B/3");
    check(RouteCase { unavailable: "A", ..next("ABC") }, "B/3");
    check(RouteCase { open: "BC", ..next("ABC") }, "A/3");
    check(RouteCase { regions: "A", ..next("A") }, "A/1");
}

#[test]
fn a_region_due_for_a_probe_keeps_its_place_in_the_order() {
    check(RouteCase { probe_due: "A", ..three_regions() }, "A?/3+B");
    check(RouteCase { probe_due: "B", ..three_regions() }, "A/3+C");
    check(RouteCase { probe_due: "B", open: "A", ..three_regions() }, "B?/3+C");
    check(RouteCase { probe_due: "B", tried: "A", route_to: Some(Next), ..three_regions() }, "B?/3+C");
    check(RouteCase { probe_due: "A", unavailable: "A", ..three_regions() }, "B/3+C");
    check(RouteCase { regions: "A", probe_due: "A", ..three_regions() }, "A?/1");
    check(RouteCase { probe_due: "A", tried: "A", route_to: Some(Next), ..three_regions() }, "B/3+C");
}

#[test]
fn a_verdict_can_ask_for_the_same_region_or_the_write_region() {
    let same = RouteCase { tried: "B", route_to: Some(Same), ..three_regions() };
    check(same.clone(), "B/3+A");
    check(RouteCase { unavailable: "B", open: "B", ..same.clone() }, "B/3+A");
    // The account has no region Z any more.
    check(RouteCase { tried: "Z", ..same.clone() }, "A/3+B");
    check(RouteCase { tried: "", ..same }, "A/3+B");
    let write_region = RouteCase { tried: "B", route_to: Some(WriteRegion), ..three_regions() };
    check(write_region.clone(), "A/3+C");
    check(RouteCase { tried: "A", ..write_region.clone() }, "A/3+B");
    check(RouteCase { multi_write: true, ..write_region.clone() }, "A/3+C");
    // If the write region is excluded or is known to fail, the next region is used.
    check(RouteCase { excluded: "A", ..write_region.clone() }, "C/2");
    check(RouteCase { unavailable: "A", ..write_region.clone() }, "C/3");
    check(RouteCase { open: "A", ..write_region.clone() }, "C/3");
    check(RouteCase { open: "A", tried: "", ..write_region.clone() }, "A/3+B");
    // Once the other regions were tried, a write region that is known to fail is tried, too. After
    // it, the other regions are tried again, because they may have caught up.
    check(RouteCase { unavailable: "A", tried: "BC", ..write_region.clone() }, "A/3");
    check(RouteCase { unavailable: "A", tried: "BCA", ..write_region.clone() }, "B/3");
    check(RouteCase { unavailable: "A", tried: "ACB", ..write_region }, "C/3");
}

#[test]
fn writes_go_to_a_write_region() {
    let write = RouteCase { write: true, ..three_regions() };
    check(write.clone(), "A/1");
    check(RouteCase { unavailable: "A", open: "A", ..write.clone() }, "A/1");
    check(RouteCase { excluded: "A", ..write.clone() }, "A/1");
    check(RouteCase { excluded: "B", ..write.clone() }, "A/1");
    check(RouteCase { multi_write: true, ..write.clone() }, "A/3+B");
    check(RouteCase { multi_write: true, excluded: "A", ..write.clone() }, "B/2+C");
    check(RouteCase { multi_write: true, open: "A", ..write.clone() }, "B/3+C");
    check(RouteCase { multi_write: true, tried: "A", route_to: Some(Next), ..write }, "B/3+C");
}

#[test]
fn writes_of_metadata_go_to_the_hub() {
    let write = RouteCase { write: true, metadata: true, multi_write: true, ..three_regions() };
    check(write.clone(), "A/1");
    check(RouteCase { unavailable: "A", open: "A", ..write.clone() }, "A/1");
    check(RouteCase { excluded: "A", ..write.clone() }, "A/1");
    // Another region may be the hub by now.
    let next = |tried| RouteCase { tried, route_to: Some(Next), ..write.clone() };
    check(next("A"), "B/3+C");
    check(next("AB"), "C/3");
    check(RouteCase { excluded: "B", ..next("A") }, "C/2");
    check(RouteCase { tried: "B", route_to: Some(WriteRegion), ..write.clone() }, "A/1");
    check(RouteCase { multi_write: false, ..write }, "A/1");
}

#[test]
fn writes_look_for_a_write_region_that_has_moved() {
    let next = |tried| RouteCase { write: true, tried, route_to: Some(Next), ..three_regions() };
    check(next("A"), "B/3+C");
    check(next("AB"), "C/3");
    check(next("ABC"), "A/3");
    check(next("ABCA"), "B/3");
    check(RouteCase { excluded: "B", ..next("A") }, "C/2");
    check(RouteCase { excluded: "A", ..next("A") }, "B/3+C");
    check(RouteCase { unavailable: "A", ..next("") }, "B/3+C");
    check(RouteCase { regions: "A", ..next("A") }, "A/1");
}

/// The write region is A. Where partitions fail over one by one, a write may go to every
/// region, and the region that the partition has moved to comes first. That region and the
/// write region cannot be excluded.
#[test]
fn a_write_follows_its_partition() {
    let write = |moved_to, tried| RouteCase {
        partition_failover: true,
        write: true,
        moved_to,
        tried,
        route_to: (!tried.is_empty()).then_some(Next),
        ..three_regions()
    };
    check(write("", ""), "A/3+B");
    check(write("", "A"), "B/3+C");
    check(write("", "AB"), "C/3");
    check(write("C", ""), "C/3+A");
    check(write("C", "C"), "A/3+B");
    check(write("A", ""), "A/3+B");
    check(RouteCase { unavailable: "A", ..write("", "") }, "B/3+C");
    check(RouteCase { excluded: "AB", ..write("", "") }, "A/2+C");
    check(RouteCase { excluded: "ABC", ..write("C", "") }, "C/2+A");
    check(RouteCase { excluded: "B", ..write("C", "C") }, "A/2");
    check(RouteCase { route_to: Some(WriteRegion), ..write("C", "A") }, "C/3+B");
}

/// A read that would go to the write region goes to the region that the partition has moved
/// to. A read of another region stays there.
#[test]
fn a_read_follows_its_partition_away_from_the_write_region() {
    let read = |moved_to| RouteCase { partition_failover: true, moved_to, ..three_regions() };
    check(read(""), "A/3+B");
    check(read("C"), "C/3+B");
    check(RouteCase { excluded: "C", ..read("C") }, "B/2+A");
    check(RouteCase { excluded: "A", ..read("C") }, "C/2+B");
    check(RouteCase { tried: "B", route_to: Some(WriteRegion), ..read("C") }, "C/3+A");
    check(RouteCase { excluded: "C", tried: "B", route_to: Some(WriteRegion), ..read("C") }, "A/2");
}

#[test]
fn breakers_do_not_count_for_an_operation_without_a_partition() {
    let now = Instant::now() + Duration::from_secs(60);
    let case = RouteCase { open: "A", ..three_regions() };
    let (account, breakers) = (account("ABC", false), case.breakers(now));
    let request = RouteRequest {
        usage: Read,
        is_data_plane: true,
        account: &account,
        breakers: &breakers,
        partition: None,
        has_partition_failover: false,
        moved_to: None,
        excluded_regions: &[],
        only_region: None,
        tried_regions: &[],
        route_to: None,
        last_region: None,
        now,
    };
    assert_eq!(resolve(&request).location.region, Region::new("A"));
    let other = RouteRequest { partition: Some(&partition("other")), ..request };
    assert_eq!(resolve(&other).location.region, Region::new("A"), "another container's range 0");
    let same = RouteRequest { partition: Some(&partition("rid")), ..request };
    assert_eq!(resolve(&same).location.region, Region::new("B"));
}

#[test]
fn before_the_account_was_read_everything_goes_to_the_configured_endpoint() {
    let account = Account::bootstrap(Endpoint::parse("http://localhost:8081").unwrap());
    let breakers = Breakers::new(CircuitBreakerOptions::default());
    let tried = [account.configured_location.region.clone()];
    for usage in [Read, Write] {
        for route_to in [None, Some(Same), Some(Next), Some(WriteRegion)] {
            let request = RouteRequest {
                usage,
                is_data_plane: true,
                account: &account,
                breakers: &breakers,
                partition: None,
                has_partition_failover: false,
                moved_to: None,
                excluded_regions: &[],
                only_region: None,
                tried_regions: if route_to.is_some() { &tried } else { &[] },
                route_to,
                last_region: route_to.map(|_| &tried[0]),
                now: Instant::now(),
            };
            let route = resolve(&request);
            assert!(Arc::ptr_eq(&route.location, &account.configured_location), "{usage:?} {route_to:?}");
            assert!(route.candidates == 1 && !route.is_probe && alternate(&request, &route).is_none());
        }
    }
}

/// Checks every combination of snapshot and history.
#[test]
fn the_chosen_region_is_allowed_for_every_snapshot_and_history() {
    const SUBSETS: [&str; 8] = ["", "A", "B", "C", "AB", "AC", "BC", "ABC"];
    let choices = [None, Some(Same), Some(Next), Some(WriteRegion)];
    let (single, multi) = (account("ABC", false), account("ABC", true));
    let mut cases = 0;
    for (excluded, unavailable) in SUBSETS.iter().flat_map(|a| SUBSETS.map(|b| (*a, b))) {
        for (tried, open) in SUBSETS.iter().flat_map(|a| SUBSETS.map(|b| (*a, b))) {
            for (route_to, write, multi_write) in choices.iter().flat_map(|route_to| {
                [(*route_to, false, false), (*route_to, true, false), (*route_to, true, true)]
            }) {
                // A verdict has asked for a route exactly when a region was tried.
                if route_to.is_some() == tried.is_empty() {
                    continue;
                }
                let case = RouteCase {
                    excluded,
                    unavailable,
                    tried,
                    open,
                    route_to,
                    write,
                    multi_write,
                    ..three_regions()
                };
                check_allowed(&case, &case.resolved_route(if multi_write { &multi } else { &single }));
                cases += 1;
            }
        }
    }
    // 8 sets each of excluded, unavailable and open regions, 3 kinds of operation, and either no
    // tried region or 7 sets of tried regions with 3 choices of the verdict.
    assert_eq!(cases, 8 * 8 * 8 * 3 * (1 + 7 * 3));
}

/// Checks that the chosen region and the region of the hedge may be used, and that a
/// region that is known to fail was not chosen before an untried one that works.
fn check_allowed(case: &RouteCase, route: &str) {
    let (chosen, rest) = route.split_once('/').unwrap();
    let (count, alternate) = rest.split_once('+').map_or((rest, None), |(count, other)| (count, Some(other)));
    assert_ne!(count, "0", "{case:?}");
    let may_be_excluded = case.route_to == Some(Same) || (case.write && !case.multi_write);
    if !may_be_excluded {
        assert!(!case.excluded.contains(chosen), "{case:?}: {route}");
    }
    if let Some(alternate) = alternate {
        for ruled_out in [case.unavailable, case.open, case.tried] {
            assert!(!ruled_out.contains(alternate), "{case:?}: {route}");
        }
    }
    let is_free_choice = matches!(case.route_to, None | Some(Next)) && chosen != "global";
    if is_free_choice && !case.write && (case.unavailable.contains(chosen) || case.open.contains(chosen)) {
        let is_better = |region: &&str| {
            !case.excluded.contains(*region)
                && !case.unavailable.contains(*region)
                && !case.open.contains(*region)
        };
        let has_untried =
            ["A", "B", "C"].into_iter().filter(is_better).any(|region| !case.tried.contains(region));
        assert!(!has_untried, "{case:?}: {route}, though a region without failures was not tried");
    }
}
