//! The measured latencies, and the hedging threshold that follows from them.

use perihelion_wire::transport::Endpoint;

use super::*;
use crate::region::Region;

const KIND: LatencyKind = LatencyKind::PointRead;
const MIN: Duration = Duration::ZERO;
const MAX: Duration = Duration::from_secs(60);

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// The threshold of point reads.
fn threshold(locations: &[&Arc<Location>], min: Duration, max: Duration, now: Instant) -> Duration {
    super::threshold(locations, KIND, min, max, now)
}

fn location(region: &str) -> Arc<Location> {
    Arc::new(Location::new(Region::new(region), Endpoint::parse("https://a.example").unwrap()))
}

/// Records a request to each location every ten milliseconds for `span`, with the given
/// latencies in milliseconds. Returns the time afterwards.
fn traffic(locations: &[(&Arc<Location>, u64)], from: Instant, span: Duration) -> Instant {
    let mut now = from;
    while now < from + span {
        locations
            .iter()
            .for_each(|(location, latency)| location.latency.of(KIND).record(now, millis(*latency)));
        now += millis(10);
    }
    now
}

#[test]
fn buckets_are_narrow_and_contain_their_latencies() {
    let mut micros = 64.0f64;
    while micros < 8_000_000.0 {
        let elapsed = Duration::from_micros(micros as u64);
        let bound = upper_bound(bucket(elapsed));
        assert!(bound > elapsed, "{elapsed:?} < {bound:?}");
        let ratio = bound.as_secs_f64() / elapsed.as_secs_f64();
        // A bucket is at most a sixteenth (6 %) wide. The other 2 % are tolerance.
        assert!(ratio <= 1.0 + 1.0 / 16.0 + 0.02, "{elapsed:?}: {bound:?}");
        micros *= 1.013;
    }
    assert_eq!(bucket(Duration::ZERO), 0);
    assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    assert!((1..BUCKETS).all(|place| upper_bound(place) > upper_bound(place - 1)));
}

#[test]
fn too_few_requests_give_no_percentile() {
    let (window, now) = (LatencyWindow::new(), Instant::now());
    assert_eq!(window.p99(now), None);
    (1..SAMPLES_MIN).for_each(|_| window.record(now, millis(5)));
    assert_eq!(window.p99(now), None);
    window.record(now, millis(5));
    assert!(window.p99(now + PERCENTILE_CACHED_FOR).is_some());
}

#[test]
fn the_percentile_leaves_the_slowest_hundredth_out() {
    let (window, now) = (LatencyWindow::new(), Instant::now());
    for request in 0..1000 {
        window.record(now, millis(if request % 200 == 0 { 900 } else { 20 }));
    }
    let p99 = window.p99(now).unwrap();
    assert!((millis(20)..millis(22)).contains(&p99), "{p99:?}");
    (0..10).for_each(|_| window.record(now, millis(900)));
    let p99 = window.p99(now + PERCENTILE_CACHED_FOR).unwrap();
    assert!((millis(900)..millis(960)).contains(&p99), "{p99:?}");
}

#[test]
fn old_requests_do_not_count() {
    let (window, now) = (LatencyWindow::new(), Instant::now());
    (0..50).for_each(|_| window.record(now, millis(5)));
    assert!(window.p99(now + SLICE_LENGTH * (SLICE_COUNT as u32 - 1)).is_some());
    assert_eq!(window.p99(now + SLICE_LENGTH * SLICE_COUNT as u32), None);
    // A later slice with the same place in the array as the slice of the old requests.
    let reused_at = now + SLICE_LENGTH * (SLICE_COUNT as u32 * 200);
    window.record(reused_at, millis(5));
    assert_eq!(window.p99(reused_at), None, "an old slice is emptied before it is used again");
}

#[test]
fn a_slice_holds_nothing_of_its_earlier_use() {
    let (window, now) = (LatencyWindow::new(), Instant::now());
    (0..50).for_each(|_| window.record(now, millis(900)));
    let next_use = now + SLICE_LENGTH * SLICE_COUNT as u32;
    (0..50).for_each(|_| window.record(next_use, millis(5)));
    assert!(window.p99(next_use).unwrap() < millis(6));
    // A late answer does not empty the slice again.
    window.record(now, millis(900));
    assert!(window.p99(next_use + PERCENTILE_CACHED_FOR).unwrap() < millis(6));
}

#[test]
fn under_load_only_the_last_seconds_count() {
    let (location, start) = (location("West US"), Instant::now());
    let now = traffic(&[(&location, 300)], start, Duration::from_secs(20));
    assert!(location.latency.of(KIND).p99(now).unwrap() >= millis(300));
    let now = traffic(&[(&location, 5)], now, SLICE_LENGTH + Duration::from_secs(3));
    assert!(
        location.latency.of(KIND).p99(now).unwrap() < millis(6),
        "slow samples count for little more than a slice"
    );
    let now = traffic(&[(&location, 300)], now, millis(100));
    assert!(
        location.latency.of(KIND).p99(now + PERCENTILE_CACHED_FOR).unwrap() >= millis(300),
        "a slow region is noticed at once"
    );
}

#[test]
fn a_slow_first_region_cannot_raise_its_own_threshold() {
    let (west, east, start) = (location("West US"), location("East US"), Instant::now());
    let both = [&west, &east];
    let now = traffic(&[(&west, 5), (&east, 70)], start, Duration::from_secs(10));
    assert_eq!(threshold(&both, MIN, MAX, now), THRESHOLD_FLOOR);
    // The first region goes from 5 to 300 ms: the threshold follows the other region.
    let now = traffic(&[(&west, 300), (&east, 70)], now, Duration::from_secs(10));
    assert!((millis(70)..millis(76)).contains(&threshold(&both, MIN, MAX, now)));
    // All regions become slow: the threshold follows.
    let now = traffic(&[(&west, 400), (&east, 300)], now, Duration::from_secs(2));
    assert!((millis(300)..millis(320)).contains(&threshold(&both, MIN, MAX, now)));
}

/// While no other region is measured, the threshold is at most twice the usual percentile of the
/// first region: its lowest P99 of the last minutes.
#[test]
fn a_slow_region_that_is_measured_alone_cannot_raise_its_threshold() {
    let (west, east, start) = (location("West US"), location("East US"), Instant::now());
    let both = [&west, &east];
    let mut now = start;
    for _ in 0..20 {
        now = traffic(&[(&west, 100)], now, Duration::from_secs(1));
        assert!((millis(100)..millis(107)).contains(&threshold(&both, MIN, MAX, now)));
    }
    now = traffic(&[(&west, 300)], now, Duration::from_secs(20));
    assert!(
        (millis(200)..millis(214)).contains(&threshold(&both, MIN, MAX, now)),
        "twice the usual percentile"
    );
    assert!(
        threshold(&[&west], MIN, MAX, now) >= millis(300),
        "with one region its own latency is the threshold"
    );
    // The requests that are hedged measure the other region, which is as slow: the threshold
    // follows.
    let measured = traffic(&[(&west, 300), (&east, 320)], now, Duration::from_secs(2));
    assert!((millis(300)..millis(320)).contains(&threshold(&both, MIN, MAX, measured)));
    // A latency that stays becomes the usual one.
    for _ in 0..320 {
        now = traffic(&[(&west, 300)], now, Duration::from_secs(1));
        threshold(&both, MIN, MAX, now);
    }
    assert!((millis(300)..millis(320)).contains(&threshold(&both, MIN, MAX, now)));
}

#[test]
fn the_threshold_stays_within_all_bounds() {
    let now = Instant::now();
    for (latency, min, max, expected) in [
        (None, 0, 60_000, 1000),
        (None, 0, 400, 400),
        (None, 2000, 60_000, 2000),
        (Some(5), 0, 60_000, 50),
        (Some(5), 200, 60_000, 200),
        (Some(8000), 0, 60_000, 4000),
        (Some(8000), 0, 700, 700),
        (Some(8000), 0, 1, 50),
        (Some(120), 0, 60_000, 120),
        (Some(5), 9000, 10_000, 4000),
        (Some(5), 500, 100, 500),
    ] {
        let location = location("West US");
        latency.into_iter().for_each(|latency| {
            (0..SAMPLES_MIN).for_each(|_| location.latency.of(KIND).record(now, millis(latency)));
        });
        let found = threshold(&[&location], millis(min), millis(max), now);
        let ratio = found.as_secs_f64() / millis(expected).as_secs_f64();
        assert!((1.0..1.07).contains(&ratio), "{latency:?} within {min}..{max}: {found:?}");
    }
    assert_eq!(threshold(&[], MIN, MAX, now), THRESHOLD_UNKNOWN);
}

#[test]
fn threads_may_record_while_slices_are_reused() {
    let (window, start) = (LatencyWindow::new(), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for step in 0..20_000u64 {
                    let now = start + millis(step * 5);
                    window.record(now, millis(10));
                    if let Some(p99) = window.p99(now) {
                        assert!((millis(10)..millis(11)).contains(&p99), "{p99:?}");
                    }
                }
            });
        }
    });
    let counted: u32 = window.slices.iter().map(|slice| slice.count.load(Ordering::Relaxed)).sum();
    // Four threads at 200 per second for half a minute. Samples that are recorded while a slice is
    // emptied are lost. A thread that was interrupted may count an old sample in an emptied slice.
    assert!((4 * 200 * 20..=4 * 200 * 30 + 100).contains(&counted), "{counted}");
}

#[test]
fn each_kind_of_operation_has_a_threshold_of_its_own() {
    let (west, now) = (location("West US"), Instant::now());
    for _ in 0..100 {
        west.latency.of(LatencyKind::PointRead).record(now, millis(60));
        west.latency.of(LatencyKind::Query).record(now, millis(800));
    }
    let threshold_of = |kind| super::threshold(&[&west], kind, MIN, MAX, now);
    assert!(threshold_of(LatencyKind::PointRead) < millis(70), "{:?}", threshold_of(LatencyKind::PointRead));
    assert!(threshold_of(LatencyKind::Query) > millis(790), "{:?}", threshold_of(LatencyKind::Query));
    assert_eq!(threshold_of(LatencyKind::ChangeFeed), THRESHOLD_UNKNOWN);
}
