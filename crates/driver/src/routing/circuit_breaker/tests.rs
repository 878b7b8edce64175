//! When a breaker opens, when a request probes, and what each breaker counts.
//!
//! With the default options, 2 failed reads, 5 failed writes or 5 lost hedges open a breaker. The first
//! probe is due 5 s later. Counts are reset after 300 s without a further failure or lost hedge, and an
//! open breaker is removed when its probe has been due for 600 s.

use super::*;

const WEST: &str = "West US";
const EAST: &str = "East US";

/// A partition in a region, by the names of container and range.
#[derive(Debug, Clone)]
struct PartitionInRegion {
    partition: Partition,
    region: Region,
}

impl PartitionInRegion {
    fn new(container: &str, range: &str, region: &str) -> Self {
        let partition = Partition { container: container.into(), range: range.into() };
        PartitionInRegion { partition, region: Region::new(region) }
    }

    fn key(&self, usage: Usage) -> BreakerKey<'_> {
        BreakerKey { partition: &self.partition, region: &self.region, usage }
    }

    fn is_in(&self, breakers: &Breakers) -> bool {
        breakers.has_breaker(&self.partition, &self.region)
    }
}

/// Range 0 of the first container, in West US.
fn first() -> PartitionInRegion {
    PartitionInRegion::new("rid1", "0", WEST)
}

/// Range 0 of the second container, in West US.
fn second() -> PartitionInRegion {
    PartitionInRegion::new("rid2", "0", WEST)
}

fn breakers() -> Breakers {
    Breakers::new(CircuitBreakerOptions::default())
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A step of a test: an event of reads or writes of range 0 of the first container
/// in West US, or a check.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A request fails.
    Fails(Usage),
    /// A request succeeds.
    Works(Usage),
    /// West US loses a hedge.
    LosesHedge(Usage),
    /// West US wins a hedge.
    WinsHedge(Usage),
    /// A request claims the probe.
    Claims(Usage),
    /// Waits for this many seconds.
    Waits(u64),
    /// Removes breakers that are no longer needed.
    RemovesStale,
    /// Checks the states of reads and of writes.
    Has(BreakerState, BreakerState),
    /// Checks that there is no breaker.
    HasNoBreaker,
}

use BreakerState::{Closed, Open, ProbeDue};
use Step::*;
use Usage::{Read, Write};

/// Runs the steps without jitter.
fn check(steps: &[Step]) {
    let (mut breakers, mut now) = (breakers(), Instant::now());
    for (number, step) in steps.iter().enumerate() {
        let next = match *step {
            Fails(usage) => breakers.failed(first().key(usage), now, 0.0),
            Works(usage) => breakers.succeeded(first().key(usage), now),
            LosesHedge(usage) => breakers.hedge_lost(first().key(usage), (now, now), 0.0),
            WinsHedge(usage) => breakers.hedge_won(first().key(usage)),
            Claims(usage) => Some(breakers.claim_probe(first().key(usage), now).expect("a probe is due")),
            RemovesStale => breakers.remove_stale(now),
            Waits(count) => {
                now += seconds(count);
                None
            }
            Has(read, write) => {
                let states = [Read, Write].map(|usage| breakers.breaker_state(first().key(usage), now));
                assert_eq!(states, [read, write], "step {number} of {steps:?}");
                None
            }
            HasNoBreaker => {
                assert!(breakers.is_empty(), "step {number} of {steps:?}");
                None
            }
        };
        breakers = next.unwrap_or(breakers);
    }
}

#[test]
fn consecutive_failures_open_the_breaker() {
    check(&[HasNoBreaker, Fails(Read), Has(Closed, Closed), Fails(Read), Has(Open, Closed)]);
    check(&[
        Fails(Write),
        Fails(Write),
        Fails(Write),
        Fails(Write),
        Has(Closed, Closed),
        Fails(Write),
        Has(Closed, Open),
    ]);
    let losses = [LosesHedge(Read); 4];
    check(&[&losses[..], &[Has(Closed, Closed), LosesHedge(Read), Has(Open, Closed)]].concat());
}

#[test]
fn a_success_in_between_starts_the_count_again() {
    check(&[Fails(Read), Works(Read), HasNoBreaker, Fails(Read), Has(Closed, Closed)]);
    check(&[Fails(Read), Works(Write), Fails(Read), Has(Open, Closed)]);
    let losses = [LosesHedge(Read); 4];
    check(&[&losses[..], &[WinsHedge(Read), HasNoBreaker], &losses[..], &[Has(Closed, Closed)]].concat());
    check(&[&losses[..], &[Works(Read), HasNoBreaker], &losses[..], &[Has(Closed, Closed)]].concat());
}

#[test]
fn winning_a_hedge_does_not_reset_the_failures() {
    check(&[Fails(Read), LosesHedge(Read), WinsHedge(Read), Fails(Read), Has(Open, Closed)]);
    check(&[Fails(Read), Fails(Read), WinsHedge(Read), Has(Open, Closed)]);
}

#[test]
fn failures_far_apart_are_not_consecutive() {
    check(&[Fails(Read), Waits(299), Fails(Read), Has(Open, Closed)]);
    check(&[Fails(Read), Waits(300), Fails(Read), Has(Closed, Closed)]);
    check(&[LosesHedge(Read), Waits(300), Fails(Read), Fails(Read), Has(Open, Closed)]);
}

#[test]
fn one_request_probes_after_five_seconds() {
    let opened = [Fails(Read), Fails(Read), Waits(4), Has(Open, Closed), Waits(1), Has(ProbeDue, Closed)];
    let claimed = [&opened[..], &[Claims(Read), Has(Open, Closed)]].concat();
    check(&[&claimed[..], &[Works(Read), HasNoBreaker]].concat());
    // A single failed probe postpones the next probe: no threshold applies.
    let probe_fails =
        [Fails(Read), Has(Open, Closed), Waits(4), Has(Open, Closed), Waits(1), Has(ProbeDue, Closed)];
    check(&[&claimed[..], &probe_fails[..]].concat());
    let probe_is_slow = [LosesHedge(Read), Waits(4), Has(Open, Closed), Waits(1), Has(ProbeDue, Closed)];
    check(&[&claimed[..], &probe_is_slow[..]].concat());
    // A probe whose outcome is never reported blocks the next probe for ten seconds only.
    check(
        &[&claimed[..], &[Waits(9), Has(Open, Closed), Waits(1), Has(ProbeDue, Closed), Claims(Read)]]
            .concat(),
    );
}

#[test]
fn only_one_request_can_claim_a_probe() {
    let now = Instant::now();
    let opened = breakers().failed(first().key(Read), now, 0.0).unwrap();
    let opened = opened.failed(first().key(Read), now, 0.0).unwrap();
    assert!(opened.claim_probe(first().key(Read), now).is_none(), "not due yet");
    let due = now + seconds(5);
    let claimed = opened.claim_probe(first().key(Read), due).unwrap();
    assert!(claimed.claim_probe(first().key(Read), due).is_none());
    assert!(claimed.claim_probe(first().key(Write), due).is_none(), "writes have nothing to probe");
    assert!(claimed.claim_probe(second().key(Read), due).is_none());
}

#[test]
fn failures_of_an_open_breaker_change_nothing() {
    let now = Instant::now();
    let opened = breakers().failed(first().key(Read), now, 0.0).unwrap();
    let opened = opened.failed(first().key(Read), now, 0.0).unwrap();
    assert!(opened.failed(first().key(Read), now + seconds(4), 0.0).is_none());
    assert!(opened.hedge_lost(first().key(Read), (now + seconds(4), now + seconds(4)), 0.0).is_none());
    // A success or a won hedge changes nothing where nothing was counted: in another region, for
    // writes, or in an empty snapshot.
    assert!(opened.succeeded(PartitionInRegion::new("rid1", "0", EAST).key(Read), now).is_none());
    assert!(opened.succeeded(first().key(Write), now).is_none());
    assert!(breakers().succeeded(first().key(Read), now).is_none());
    assert!(breakers().hedge_won(first().key(Read)).is_none());
}

/// Microsoft's driver keys its breakers by the id of the range alone, so that the
/// ranges "0" of all containers in the account share one breaker.
#[test]
fn two_containers_have_separate_breakers_for_their_range_0() {
    let now = Instant::now();
    let after_one = breakers().failed(first().key(Read), now, 0.0).unwrap();
    let after_one = after_one.failed(second().key(Read), now, 0.0).unwrap();
    assert_eq!(
        after_one.breaker_state(first().key(Read), now),
        Closed,
        "each container has one failure, and two are needed"
    );
    assert_eq!(after_one.breaker_state(second().key(Read), now), Closed);
    let after_two = after_one.failed(first().key(Read), now, 0.0).unwrap();
    assert_eq!(after_two.breaker_state(first().key(Read), now), Open);
    assert_eq!(after_two.breaker_state(second().key(Read), now), Closed);
    let recovered = after_two.succeeded(second().key(Read), now).unwrap();
    assert_eq!(recovered.breaker_state(first().key(Read), now), Open);
}

#[test]
fn each_range_and_region_has_its_own_breaker() {
    let now = Instant::now();
    let (east, other_range) =
        (PartitionInRegion::new("rid1", "0", EAST), PartitionInRegion::new("rid1", "1", WEST));
    let mut all = breakers();
    for place in [&first(), &east, &other_range] {
        all = all.failed(place.key(Read), now, 0.0).unwrap();
    }
    let opened = all.failed(east.key(Read), now, 0.0).unwrap();
    // `eastus` is another spelling of East US.
    for (place, breaker_state) in
        [(first(), Closed), (PartitionInRegion::new("rid1", "0", "eastus"), Open), (other_range, Closed)]
    {
        assert_eq!(opened.breaker_state(place.key(Read), now), breaker_state, "{place:?}");
        assert!(place.is_in(&opened));
    }
    assert!(!PartitionInRegion::new("rid1", "1", EAST).is_in(&opened) && !second().is_in(&opened));
}

#[test]
fn jitter_adds_at_most_half_to_the_wait() {
    for (sample, wait) in [(0.0, 5000), (0.5, 6250), (1.0, 7500), (7.0, 7500), (-1.0, 5000)] {
        let now = Instant::now();
        let opened = breakers().failed(first().key(Read), now, sample).unwrap();
        let opened = opened.failed(first().key(Read), now, sample).unwrap();
        let due = now + Duration::from_millis(wait);
        let states =
            [due - Duration::from_millis(1), due].map(|at| opened.breaker_state(first().key(Read), at));
        assert_eq!(states, [Open, ProbeDue], "{sample}");
    }
}

#[test]
fn counts_that_are_too_old_are_removed() {
    check(&[
        RemovesStale,
        HasNoBreaker,
        Fails(Read),
        Waits(299),
        RemovesStale,
        Fails(Read),
        Has(Open, Closed),
    ]);
    check(&[Fails(Read), Waits(300), RemovesStale, HasNoBreaker]);
    // The counters of reads may be stale while those of writes are not: the first failed write still
    // counts, the first failed read does not.
    check(&[
        Fails(Read),
        Waits(200),
        Fails(Write),
        Waits(100),
        RemovesStale,
        Fails(Read),
        Fails(Write),
        Fails(Write),
        Fails(Write),
        Fails(Write),
        Has(Closed, Open),
    ]);
    // An open breaker that no request probes is removed: the partition may not exist any more.
    check(&[
        Fails(Read),
        Fails(Read),
        Waits(604),
        RemovesStale,
        Has(ProbeDue, Closed),
        Waits(1),
        RemovesStale,
        HasNoBreaker,
    ]);
    // It is kept while a request probes.
    check(&[Fails(Read), Fails(Read), Waits(604), Claims(Read), Waits(1), RemovesStale, Has(Open, Closed)]);
    let now = Instant::now();
    assert!(breakers().failed(first().key(Read), now, 0.0).unwrap().remove_stale(now).is_none());
}

#[test]
fn a_breaker_that_is_switched_off_counts_nothing() {
    let off = Breakers::new(CircuitBreakerOptions { enabled: false, ..CircuitBreakerOptions::default() });
    let now = Instant::now();
    assert!(off.failed(first().key(Read), now, 0.0).is_none());
    assert!(off.hedge_lost(first().key(Read), (now, now), 0.0).is_none());
}

#[test]
fn a_full_snapshot_drops_the_oldest_closed_breaker() {
    let start = Instant::now();
    let mut breakers = breakers();
    let place = |range: usize| PartitionInRegion::new("rid", &range.to_string(), WEST);
    for range in 0..BREAKERS_MAX {
        let at = start + Duration::from_millis(range as u64);
        breakers = breakers.failed(place(range).key(Read), at, 0.0).unwrap();
    }
    // The oldest breaker is open, the second oldest is closed.
    breakers = breakers.failed(place(0).key(Read), start, 0.0).unwrap();
    let now = start + seconds(4);
    let next = breakers.failed(first().key(Read), now, 0.0).unwrap();
    assert_eq!(next.breakers.len(), BREAKERS_MAX);
    assert!(place(0).is_in(&next) && !place(1).is_in(&next) && place(2).is_in(&next));
    assert!(first().is_in(&next));
    assert!(next.breakers.is_sorted_by_key(|breaker| breaker.partition.clone()));
}

#[test]
fn the_failures_of_one_incident_count_once() {
    let now = Instant::now();
    let (incident, later) = (Incident::next(), Incident::next());
    let after_incident = breakers().failed_in(first().key(Read), Some(incident), (now, now), 0.0).unwrap();
    assert!(after_incident.failed_in(first().key(Read), Some(incident), (now, now), 0.0).is_none());
    assert_eq!(after_incident.breaker_state(first().key(Read), now), BreakerState::Closed);
    // Another partition, and writes, count the incident too.
    assert!(after_incident.failed_in(second().key(Read), Some(incident), (now, now), 0.0).is_some());
    assert!(after_incident.failed_in(first().key(Usage::Write), Some(incident), (now, now), 0.0).is_some());
    // A second incident in a row opens the breaker, and so does a failure without an incident.
    let opened = after_incident.failed_in(first().key(Read), Some(later), (now, now), 0.0).unwrap();
    assert_eq!(opened.breaker_state(first().key(Read), now), BreakerState::Open);
    let opened = after_incident.failed(first().key(Read), now, 0.0).unwrap();
    assert_eq!(opened.breaker_state(first().key(Read), now), BreakerState::Open);
    // After a success, the count starts again.
    let again = after_incident.succeeded(first().key(Read), now).unwrap();
    assert!(again.failed_in(first().key(Read), Some(incident), (now, now), 0.0).is_some());
}

/// The region is slow: its hedges are lost, and the answers to earlier requests come late.
#[test]
fn a_success_of_an_attempt_that_began_earlier_does_not_close_a_breaker() {
    let (began_at, place) = (Instant::now(), first());
    let opened_at = began_at + seconds(1);
    let lose =
        |breakers: Breakers, _| breakers.hedge_lost(place.key(Read), (opened_at, opened_at), 0.0).unwrap();
    let opened = (0..5).fold(breakers(), lose);
    assert!(opened.succeeded(place.key(Read), began_at).is_none());
    assert_eq!(opened.breaker_state(place.key(Read), opened_at), Open);
    // A probe fails. The success of a request that began before the probe does not count either.
    let probed_at = opened_at + seconds(5);
    let failed = opened.failed(place.key(Read), probed_at, 0.0).unwrap();
    assert!(failed.succeeded(place.key(Read), probed_at - seconds(1)).is_none());
    let closed = failed.succeeded(place.key(Read), probed_at).unwrap();
    assert!(closed.is_empty());
    // While the breaker is closed, every success ends the count.
    let counting = breakers().failed(place.key(Read), opened_at, 0.0).unwrap();
    assert!(counting.succeeded(place.key(Read), began_at).unwrap().is_empty());
}

/// Story of a bug: a request had begun before the breaker opened, and hung. It failed when the probe
/// was due, and was counted as the probe. So the next probe was due five seconds later, again and
/// again while old requests failed.
#[test]
fn a_failure_of_an_attempt_that_began_earlier_does_not_count_as_the_probe() {
    let (began_at, place) = (Instant::now(), first());
    let opened_at = began_at + seconds(1);
    let opened = breakers().failed(place.key(Read), opened_at, 0.0).unwrap();
    let opened = opened.failed(place.key(Read), opened_at, 0.0).unwrap();
    let due_at = opened_at + seconds(5);
    assert_eq!(opened.breaker_state(place.key(Read), due_at), ProbeDue);
    assert!(opened.failed_in(place.key(Read), None, (began_at, due_at), 0.0).is_none());
    assert!(opened.hedge_lost(place.key(Read), (began_at, due_at), 0.0).is_none());
    // The probe itself fails. A request that began before that does not count as the next probe.
    let failed = opened.failed_in(place.key(Read), None, (due_at, due_at), 0.0).unwrap();
    assert_eq!(failed.breaker_state(place.key(Read), due_at), Open);
    let due_again_at = due_at + seconds(5);
    assert!(failed.failed_in(place.key(Read), None, (opened_at, due_again_at), 0.0).is_none());
    assert!(failed.failed_in(place.key(Read), None, (due_again_at, due_again_at), 0.0).is_some());
}
