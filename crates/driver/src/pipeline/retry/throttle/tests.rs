//! Retries of throttled requests: single decisions, and whole sequences.

use super::*;

/// The jitter sample that leaves a wait as it is.
const MIDDLE: f64 = 0.5;
/// One hour. As the time until the deadline, it never ends the retries. As the longest sum of the
/// waits, it ends the retries if their number is not limited.
const LONG: Duration = Duration::from_secs(3600);

/// The default budget of an operation on documents.
fn data_budget() -> ThrottleBudget {
    ThrottleBudget::new(18, Duration::from_secs(270), true)
}

/// The default budget of an operation on metadata.
fn metadata_budget() -> ThrottleBudget {
    ThrottleBudget::new(9, Duration::from_secs(30), false)
}

/// All waits until the retries end, and why they end.
fn waits_until_give_up(
    mut budget: ThrottleBudget,
    requested_wait: Option<Duration>,
    jitter: f64,
) -> (Vec<Duration>, GiveUp) {
    let mut waits = Vec::new();
    loop {
        match judge(budget, requested_wait, jitter, LONG) {
            ThrottleVerdict::RetryAfter { wait, budget: remaining } => {
                assert_eq!(remaining.retries_made, budget.retries_made + 1);
                waits.push(wait);
                budget = remaining;
            }
            ThrottleVerdict::GiveUp(why) => return (waits, why),
        }
    }
}

#[test]
fn the_wait_that_the_service_asks_for_wins_over_the_backoff() {
    let (waits, why) = waits_until_give_up(data_budget(), Some(Duration::from_millis(287)), 0.9);
    assert_eq!(waits, [Duration::from_millis(287); 18]);
    assert_eq!(why, GiveUp::RetriesSpent);
}

#[test]
fn waits_double_when_the_service_asks_for_none() {
    let (waits, why) = waits_until_give_up(metadata_budget(), None, MIDDLE);
    let millis: Vec<_> = waits.iter().map(Duration::as_millis).collect();
    assert_eq!(millis, [5, 10, 20, 40, 80, 160, 320, 640, 1280]);
    assert_eq!(why, GiveUp::RetriesSpent);
    assert_eq!(
        waits_until_give_up(metadata_budget(), Some(Duration::ZERO), MIDDLE).0,
        waits,
        "a wait of zero is ignored"
    );
}

#[test]
fn the_backoff_has_a_jitter_of_a_quarter() {
    let first = |jitter| waits_until_give_up(data_budget(), None, jitter).0[0];
    assert_eq!(first(0.0), Duration::from_micros(3750));
    assert_eq!(first(1.0), Duration::from_micros(6250));
}

#[test]
fn a_wait_longer_than_the_remaining_budget_ends_the_retries() {
    let (waits, why) = waits_until_give_up(metadata_budget(), Some(Duration::from_secs(4)), MIDDLE);
    assert_eq!(waits, [Duration::from_secs(4); 7], "28 of 30 s are spent, and the service asks for 4 s");
    assert_eq!(why, GiveUp::WaitSpent);
}

#[test]
fn the_longest_single_wait_differs_between_documents_and_metadata() {
    for (budget, longest) in [(data_budget(), 15_000), (metadata_budget(), 5_000)] {
        let longest = Duration::from_millis(longest);
        assert!(
            matches!(judge(budget, Some(longest), MIDDLE, LONG), ThrottleVerdict::RetryAfter { wait, .. } if wait == longest)
        );
        let too_long = longest + Duration::from_millis(1);
        assert_eq!(judge(budget, Some(too_long), MIDDLE, LONG), ThrottleVerdict::GiveUp(GiveUp::WaitTooLong));
        assert_eq!(
            judge(budget, Some(Duration::MAX), MIDDLE, LONG),
            ThrottleVerdict::GiveUp(GiveUp::WaitTooLong)
        );
    }
}

#[test]
fn a_wait_leaves_time_for_an_answer() {
    let requested_wait = Some(Duration::from_millis(500));
    let judge_with_time_left =
        |milliseconds| judge(data_budget(), requested_wait, MIDDLE, Duration::from_millis(milliseconds));
    assert!(matches!(judge_with_time_left(600), ThrottleVerdict::RetryAfter { .. }));
    assert_eq!(judge_with_time_left(599), ThrottleVerdict::GiveUp(GiveUp::DeadlineNear));
    assert_eq!(judge_with_time_left(0), ThrottleVerdict::GiveUp(GiveUp::DeadlineNear));
}

#[test]
fn a_budget_of_zero_retries_allows_no_retry() {
    let budget = ThrottleBudget::new(0, LONG, true);
    assert_eq!(judge(budget, None, MIDDLE, LONG), ThrottleVerdict::GiveUp(GiveUp::RetriesSpent));
}

#[test]
fn a_budget_with_unlimited_retries_ends_by_the_sum_of_its_waits() {
    for jitter in [0.0, 0.5, 1.0, f64::NAN] {
        let (waits, why) = waits_until_give_up(ThrottleBudget::new(u32::MAX, LONG, true), None, jitter);
        assert_eq!(why, GiveUp::WaitSpent);
        assert!(waits.iter().sum::<Duration>() <= LONG);
        assert!(waits.len() < 2000, "an hour has about 720 waits of 5 s");
    }
}

#[test]
fn a_replica_out_of_resources_does_not_count_as_throttling() {
    assert!(!is_throttle(status::SYSTEM_RESOURCE_UNAVAILABLE));
    assert!(is_throttle(status::TOO_MANY_REQUESTS));
    assert!(is_throttle(Status::new(429, 0)));
    assert!(is_throttle(Status::new(429, u32::MAX)));
    for code in [0, 200, 428, 430, 449, 503, u16::MAX] {
        assert!(!is_throttle(Status::new(code, 3200)), "{code}");
    }
}
