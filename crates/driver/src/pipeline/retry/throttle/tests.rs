//! Retries of throttled requests: single decisions, and whole sequences.

use super::*;

/// The jitter sample that leaves a wait as it is.
const MIDDLE: f64 = 0.5;
/// The time until the deadline, long enough not to matter.
const LONG: Duration = Duration::from_secs(3600);

fn data() -> ThrottleBudget {
    ThrottleBudget::new(18, Duration::from_secs(270), true)
}

fn metadata() -> ThrottleBudget {
    ThrottleBudget::new(9, Duration::from_secs(30), false)
}

/// All waits until the retries end, and why they end.
fn follow(mut budget: ThrottleBudget, hint: Option<Duration>, jitter: f64) -> (Vec<Duration>, GiveUp) {
    let mut waits = Vec::new();
    loop {
        match judge(budget, hint, jitter, LONG) {
            ThrottleVerdict::RetryAfter { wait, budget: left } => {
                assert_eq!(left.retries, budget.retries + 1);
                waits.push(wait);
                budget = left;
            }
            ThrottleVerdict::GiveUp(why) => return (waits, why),
        }
    }
}

#[test]
fn the_hint_wins() {
    let (waits, why) = follow(data(), Some(Duration::from_millis(287)), 0.9);
    assert_eq!(waits, [Duration::from_millis(287); 18]);
    assert_eq!(why, GiveUp::RetriesSpent);
}

#[test]
fn without_a_hint_waits_double() {
    let (waits, why) = follow(metadata(), None, MIDDLE);
    let millis: Vec<_> = waits.iter().map(Duration::as_millis).collect();
    assert_eq!(millis, [5, 10, 20, 40, 80, 160, 320, 640, 1280]);
    assert_eq!(why, GiveUp::RetriesSpent);
    assert_eq!(follow(metadata(), Some(Duration::ZERO), MIDDLE).0, waits, "a hint of zero is no hint");
}

#[test]
fn without_a_hint_waits_are_spread_by_a_quarter() {
    let first = |jitter| follow(data(), None, jitter).0[0];
    assert_eq!(first(0.0), Duration::from_micros(3750));
    assert_eq!(first(1.0), Duration::from_micros(6250));
}

#[test]
fn a_wait_that_overruns_the_budget_is_a_refusal() {
    let (waits, why) = follow(metadata(), Some(Duration::from_secs(4)), MIDDLE);
    assert_eq!(waits, [Duration::from_secs(4); 7], "28 of 30 s; 2 s would be too early");
    assert_eq!(why, GiveUp::WaitSpent);
}

#[test]
fn one_wait_is_bounded_by_the_plane() {
    for (budget, longest) in [(data(), 15_000), (metadata(), 5_000)] {
        let just = Duration::from_millis(longest);
        assert!(
            matches!(judge(budget, Some(just), MIDDLE, LONG), ThrottleVerdict::RetryAfter { wait, .. } if wait == just)
        );
        let more = just + Duration::from_millis(1);
        assert_eq!(judge(budget, Some(more), MIDDLE, LONG), ThrottleVerdict::GiveUp(GiveUp::WaitTooLong));
        assert_eq!(
            judge(budget, Some(Duration::MAX), MIDDLE, LONG),
            ThrottleVerdict::GiveUp(GiveUp::WaitTooLong)
        );
    }
}

#[test]
fn a_wait_leaves_time_for_an_answer() {
    let hint = Some(Duration::from_millis(500));
    let at = |left| judge(data(), hint, MIDDLE, Duration::from_millis(left));
    assert!(matches!(at(600), ThrottleVerdict::RetryAfter { .. }));
    assert_eq!(at(599), ThrottleVerdict::GiveUp(GiveUp::DeadlineNear));
    assert_eq!(at(0), ThrottleVerdict::GiveUp(GiveUp::DeadlineNear));
}

#[test]
fn no_retries_means_none() {
    let budget = ThrottleBudget::new(0, LONG, true);
    assert_eq!(judge(budget, None, MIDDLE, LONG), ThrottleVerdict::GiveUp(GiveUp::RetriesSpent));
}

#[test]
fn every_budget_ends() {
    for jitter in [0.0, 0.5, 1.0, f64::NAN] {
        let (waits, why) = follow(ThrottleBudget::new(u32::MAX, LONG, true), None, jitter);
        assert_eq!(why, GiveUp::WaitSpent);
        assert!(waits.iter().sum::<Duration>() <= LONG);
        assert!(waits.len() < 2000);
    }
}

#[test]
fn a_replica_out_of_resources_is_not_waited_for() {
    assert!(!is_throttle(status::SYSTEM_RESOURCE_UNAVAILABLE));
    assert!(is_throttle(status::TOO_MANY_REQUESTS));
    assert!(is_throttle(Status::new(429, 0)));
    assert!(is_throttle(Status::new(429, u32::MAX)));
    for code in [0, 200, 428, 430, 449, 503, u16::MAX] {
        assert!(!is_throttle(Status::new(code, 3200)), "{code}");
    }
}
