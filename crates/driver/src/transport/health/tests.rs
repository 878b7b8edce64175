//! Each rule that keeps, suspects, retires or breaks a connection.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

const LIMITS: HealthLimits = HealthLimits {
    ping_timeout: SECOND.saturating_mul(2),
    read_hang_limit: SECOND.saturating_mul(2),
    idle_timeout: SECOND.saturating_mul(60),
};

/// A connection that has just answered, with three requests in flight.
const HEALTHY: Signs = Signs {
    number: 1,
    in_flight: 3,
    silent_for: Duration::ZERO,
    hung_for: Duration::ZERO,
    ping_waiting_for: None,
    idle_for: Duration::ZERO,
    failures: 0,
    unanswered_for: Duration::ZERO,
    has_answered: true,
};

/// A connection on which requests fail, while bytes arrive.
const FAILING: Signs = Signs { failures: FAILURES_MAX, unanswered_for: SECOND.saturating_mul(3), ..HEALTHY };

#[track_caller]
fn check(this: Signs, others: &[Signs], verdict: Verdict) {
    assert_eq!(judge(&this, others, LIMITS, false), verdict, "{this:?}");
}

#[test]
fn a_connection_that_answers_is_kept() {
    check(HEALTHY, &[], Verdict::Keep);
    check(Signs { failures: FAILURES_MAX - 1, ..FAILING }, &[HEALTHY], Verdict::Keep);
}

#[test]
fn a_silent_connection_with_requests_is_suspect_and_then_broken() {
    let hung = |millis: u64, ping_millis: Option<u64>| Signs {
        silent_for: Duration::from_millis(millis),
        hung_for: Duration::from_millis(millis),
        ping_waiting_for: ping_millis.map(Duration::from_millis),
        ..HEALTHY
    };
    check(hung(900, Some(500)), &[], Verdict::Keep);
    check(hung(1000, Some(500)), &[], Verdict::Suspect);
    check(hung(1999, Some(1500)), &[], Verdict::Suspect);
    check(hung(2000, Some(1500)), &[], Verdict::Break(Reason::ReadHang));
    // Without a ping, the silence may be that of a slow query. A pong is due after a quarter of the
    // read-hang limit: 500 ms.
    check(hung(10_000, None), &[], Verdict::Keep);
    check(hung(10_000, Some(499)), &[], Verdict::Keep);
}

#[test]
fn a_missing_pong_breaks_an_idle_connection_too_unless_something_else_arrived() {
    let idle = Signs { in_flight: 0, ping_waiting_for: Some(2 * SECOND), silent_for: 2 * SECOND, ..HEALTHY };
    check(idle, &[], Verdict::Break(Reason::PingUnanswered));
    check(Signs { silent_for: SECOND, ..idle }, &[], Verdict::Keep);
    check(Signs { ping_waiting_for: Some(SECOND), ..idle }, &[], Verdict::Keep);
}

#[test]
fn a_failing_connection_is_retired_if_another_one_is_known_to_work() {
    let other = Signs { number: 2, ..HEALTHY };
    check(FAILING, &[other], Verdict::Retire(Reason::Failing));
    check(Signs { unanswered_for: FAILURE_GRACE, ..FAILING }, &[other], Verdict::Keep);
    // A new connection has shown nothing yet.
    check(FAILING, &[Signs { has_answered: false, ..other }], Verdict::Keep);
    // The other connection has had no answer since this connection had one.
    check(FAILING, &[Signs { unanswered_for: 5 * SECOND, ..other }], Verdict::Keep);
}

#[test]
fn when_all_connections_fail_one_is_replaced_as_a_probe() {
    let second = Signs { number: 2, ..FAILING };
    check(FAILING, &[second], Verdict::Retire(Reason::AllFailing));
    check(second, &[FAILING], Verdict::Keep);
    check(FAILING, &[], Verdict::Retire(Reason::AllFailing));
    // The probe is under way: one request has failed on it, and none was answered yet.
    let probe = Signs { number: 3, failures: 1, has_answered: false, unanswered_for: SECOND, ..HEALTHY };
    check(second, &[probe], Verdict::Keep);
    // The probe has answered, so the other connections are at fault.
    check(second, &[Signs { has_answered: true, failures: 0, ..probe }], Verdict::Retire(Reason::Failing));
}

#[test]
fn an_idle_connection_is_retired_after_the_idle_timeout() {
    let idle = Signs { in_flight: 0, idle_for: 60 * SECOND, ..HEALTHY };
    check(idle, &[], Verdict::Retire(Reason::Idle));
    check(Signs { idle_for: 59 * SECOND, ..idle }, &[], Verdict::Keep);
}

#[test]
fn while_this_process_is_starved_only_idle_connections_are_retired() {
    let hung =
        Signs { silent_for: 9 * SECOND, hung_for: 9 * SECOND, ping_waiting_for: Some(9 * SECOND), ..FAILING };
    assert_eq!(judge(&hung, &[HEALTHY], LIMITS, true), Verdict::Keep);
    let idle = Signs { in_flight: 0, idle_for: 60 * SECOND, ..hung };
    assert_eq!(judge(&idle, &[], LIMITS, true), Verdict::Retire(Reason::Idle));
}
