//! The retry rules of transactions as a table, written by hand and not derived from the code,
//! the bounds of each kind of retry, and what holds for all endings.

use perihelion_wire::transport::{FailureKind, Sent};

use super::super::effects::Effect;
use super::*;

/// The default limits.
const LIMITS: Limits = Limits { failovers_max: 3, session_retries_max: None };

/// The jitter sample that leaves a wait as it is.
const MIDDLE: f64 = 0.5;

/// What happens after each ending: for a write, for a write of which an earlier attempt may have
/// been applied, and for a read. `?` means that the outcome of the write is unknown from then on.
///
/// An ending is a status, and after it what the body has: `+ok` (all results, none failed),
/// `+no` (all results, some failed), `+part` (not all results), each with `*` for
/// `isRetriable: true`. Or it is a failure: whether the request was sent, and how it failed. The
/// last column has the effect: `refresh` reads the account again.
const TABLE: &str = "
    endings                                              | write         after unknown  read          effect
    200/0+ok 207/0+ok 200/5425+ok 200/0+ok* 206/0+ok     | done          done           done          none
    200/0+no 201/0+no* 299/0+no                          | unreadable?   unreadable?    done          none
    200/0 200/5425 201/0 204/0 207/0 200/0+part 299/0    | unreadable?   unreadable?    unreadable    none
    207/0+no                                             | abort         abort          abort         none
    207/0+no*                                            | retriable     retriable?     retriable     none
    304/0                                                | abort         ambiguous      done          none
    452/5421+no 452/0+no                                 | abort         abort          abort         none
    452/0 452/5421 452/5421+part 452/5421+ok             | abort         ambiguous      abort         none
    452/5421+no* 452/0+no* 452/0+part*                   | new-token     new-token      new-token     none
    452/0+ok*                                            | unreadable?   unreadable?    new-token     none
    409/0+no 412/0+no 404/0+no 404/1002+no 413/0+no      | abort         abort          abort         none
    400/0+no 403/0+no 424/0+no                           | abort         abort          abort         none
    409/0+no* 412/0+no* 404/1002+no* 429/3200+no*        | retriable     retriable?     retriable     none
    429/3200+part*                                       | retriable     retriable?     retriable     none
    449/0+no* 449/5352+no* 408/0+no* 449/0+part*         | retriable?    retriable?     retriable     none
    500/0+no* 503/0+no* 502/0+no* 410/0+no* 500/5411+no* | retriable?    retriable?     retriable     none
    408/0 408/1 449/5352 408/0+part 408/0+no 449/5352+no | coordinator?  coordinator?   coordinator   none
    449/0 449/1 449/0+no                                 | ambiguous     ambiguous      abort         none
    500/5411 500/5412 500/5413 500/5411+no               | infra?        infra?         infra         none
    429/0 429/3200 429/3200+no 429/3092                  | abort         ambiguous      abort         none
    403/3 403/1008                                       | forbidden     forbidden?     forbidden     refresh
    400/5405 400/5406 400/5407 400/5408 400/5409         | abort         ambiguous      abort         none
    400/5410 400/0 401/0 403/0 404/0 404/1002 404/1003   | abort         ambiguous      abort         none
    405/0 409/0 412/0 413/0 431/0 301/0 302/0            | abort         ambiguous      abort         none
    409/0+ok 404/0+ok 500/0+ok                           | ambiguous     ambiguous      abort         none
    503/0 503/20001 500/0 502/0 504/0 410/0 410/1002     | unavailable?  unavailable?   unavailable   refresh
    500/0+no 503/0+part                                  | unavailable?  unavailable?   unavailable   refresh
    0/0 100/0 199/0 600/0 999/0                          | ambiguous     ambiguous      abort         none
    no-connect no-tls                                    | unavailable   unavailable?   unavailable   refresh
    no-closed no-protocol no-timeout                     | unsent        unsent?        unsent        none
    yes-closed yes-timeout yes-protocol yes-connect      | unavailable?  unavailable?   unavailable   refresh
    unknown-closed unknown-timeout unknown-tls           | unavailable?  unavailable?   unavailable   refresh
";

/// The verdict for each retry of the table when nothing is spent: the wait in milliseconds and
/// the context.
const RETRIES: [(&str, u64, Context); 8] = [
    ("unreadable", 0, Context::Retry),
    ("retriable", 1000, Context::Retry),
    ("new-token", 1000, Context::NewToken),
    ("coordinator", 1000, Context::Retry),
    ("infra", 100, Context::Retry),
    ("forbidden", 0, Context::Failover),
    ("unavailable", 250, Context::Retry),
    ("unsent", 0, Context::Retry),
];

/// An ending as the table writes it.
enum EndingText {
    Answered(Status, Results, bool),
    Failed(Failure),
}

impl EndingText {
    fn read(text: &str) -> Self {
        let Some((code, rest)) = text.split_once('/') else {
            let (sent, kind) = text.split_once('-').unwrap();
            let sent = match sent {
                "no" => Sent::No,
                "yes" => Sent::Yes,
                "unknown" => Sent::Unknown,
                other => panic!("{other}"),
            };
            let kind = match kind {
                "connect" => FailureKind::Connect,
                "tls" => FailureKind::Tls,
                "closed" => FailureKind::Closed,
                "protocol" => FailureKind::Protocol,
                "timeout" => FailureKind::Timeout,
                other => panic!("{other}"),
            };
            return EndingText::Failed(Failure::new(kind, sent, text));
        };
        let (sub, body) = rest.split_once('+').unwrap_or((rest, ""));
        let results = match body.trim_end_matches('*') {
            "" => Results::None,
            "part" => Results::Incomplete,
            "ok" => Results::Succeeded,
            "no" => Results::Failed,
            other => panic!("{other}"),
        };
        EndingText::Answered(
            Status::new(code.parse().unwrap(), sub.parse().unwrap()),
            results,
            body.ends_with('*'),
        )
    }

    fn with_retry_after(&self, retry_after: Option<Duration>) -> TransactionEnding<'_> {
        match self {
            EndingText::Answered(status, results, is_retriable) => TransactionEnding::Answered {
                status: *status,
                results: *results,
                is_retriable: *is_retriable,
                retry_after,
            },
            EndingText::Failed(failure) => TransactionEnding::Failed(failure),
        }
    }
}

fn judge(is_write: bool, ending: &str, budgets: Budgets) -> (Verdict, Effects) {
    let profile = TransactionProfile { is_write, is_replay: false };
    evaluate_transaction(profile, EndingText::read(ending).with_retry_after(None), LIMITS, budgets, MIDDLE)
}

/// Judges an attempt of a write that is replayed.
fn judge_replay(ending: &str, budgets: Budgets) -> Verdict {
    let profile = TransactionProfile { is_write: true, is_replay: true };
    evaluate_transaction(profile, EndingText::read(ending).with_retry_after(None), LIMITS, budgets, MIDDLE).0
}

#[track_caller]
fn check(ending: &str, is_write: bool, before: Budgets, action: &str, effect: &str) {
    let (verdict, effects) = judge(is_write, ending, before);
    let expected_effects = match effect {
        "none" => Effects::NONE,
        "refresh" => Effects::one(Effect::RefreshAccount),
        other => panic!("{other}"),
    };
    assert_eq!(effects, expected_effects, "{ending}");
    let place = format!("{ending}, write: {is_write}, unknown: {}", before.is_ambiguous);
    let name = action.trim_end_matches('?');
    match name {
        "done" => assert_eq!(verdict, Verdict::Complete, "{place}"),
        "abort" => assert_eq!(verdict, Verdict::Abort, "{place}"),
        "ambiguous" => assert_eq!(verdict, Verdict::AbortAmbiguous, "{place}"),
        name => {
            let (_, millis, context) = RETRIES.into_iter().find(|(known, ..)| *known == name).unwrap();
            let Verdict::Retry { after, route_to, context: found, budgets } = verdict else {
                panic!("{place}: {verdict:?}")
            };
            assert_eq!((after, found), (Duration::from_millis(millis), context), "{place}");
            assert_eq!(route_to, RouteTo::WriteRegion, "{place}");
            assert_eq!(budgets.is_ambiguous, action.ends_with('?'), "{place}");
        }
    }
}

#[test]
fn every_ending_has_the_verdict_of_the_table() {
    let mut endings = 0;
    for line in TABLE.lines().skip(2).filter(|line| !line.trim().is_empty()) {
        let (left, right) = line.split_once('|').unwrap();
        let [write, after_unknown, read, effect] =
            right.split_whitespace().collect::<Vec<_>>().try_into().unwrap();
        for ending in left.split_whitespace() {
            check(ending, true, Budgets::default(), write, effect);
            check(ending, true, Budgets::default().with_ambiguity(true), after_unknown, effect);
            check(ending, false, Budgets::default(), read, effect);
            endings += 1;
        }
    }
    assert!(endings > 100, "the table has {endings} endings");
}

/// The waits of all retries after the same ending until the transaction ends, in milliseconds.
fn waits(ending: &str, retry_after: Option<Duration>) -> Vec<u64> {
    let ending = EndingText::read(ending);
    let (mut budgets, mut waits) = (Budgets::default(), Vec::new());
    loop {
        let profile = TransactionProfile { is_write: true, is_replay: false };
        let (verdict, _) =
            evaluate_transaction(profile, ending.with_retry_after(retry_after), LIMITS, budgets, MIDDLE);
        let Verdict::Retry { after, budgets: next, .. } = verdict else { return waits };
        waits.push(after.as_millis() as u64);
        budgets = next;
        assert!(waits.len() <= 100, "the retries do not end");
    }
}

#[test]
fn every_kind_of_retry_has_its_bound() {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let millis = |millis| Some(Duration::from_millis(millis));
    for (ending, retry_after, expected) in [
        ("408/0", None, vec![1000; 10]),
        ("449/5352", millis(40), vec![40; 10]),
        ("449/5352", seconds(2), vec![2000; 10]),
        ("449/5352", millis(0), vec![1000; 10]),
        ("449/5352", seconds(31), vec![]),
        ("500/5411", None, vec![100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]),
        ("500/5413", seconds(9), vec![100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]),
        ("452/0+no*", None, vec![1000, 2000, 4000, 8000]),
        ("449/0+no*", seconds(3), vec![3000, 3000, 4000, 8000]),
        ("449/0+no*", seconds(20), vec![20_000]),
        ("449/0+no*", seconds(31), vec![]),
        ("200/0", None, vec![0]),
        ("yes-closed", None, vec![250, 500, 1000]),
        ("503/0", seconds(60), vec![4000; 3]),
        ("no-closed", None, vec![0, 250, 500, 1000]),
        ("403/3", None, vec![0, 1000, 2000, 2000]),
    ] {
        assert_eq!(waits(ending, retry_after), expected, "{ending} {retry_after:?}");
    }
}

#[test]
fn a_wait_that_is_too_long_ends_the_retries_before_their_count() {
    // No time is spent yet. After 10 retries, their count ends them. After 9 retries, the next wait
    // ends them: it is 32 s, and the waits may take 30 s in all.
    let spent = Budgets::default().with_spent(Budget::Retriable, 10, Duration::ZERO);
    assert_eq!(judge(true, "452/0+no*", spent).0, Verdict::Abort);
    let spent = Budgets::default().with_spent(Budget::Retriable, 9, Duration::ZERO);
    assert_eq!(judge(true, "452/0+no*", spent).0, Verdict::Abort, "the wait of retry 10 is 32 s");
}

#[test]
fn both_kinds_of_retriable_answers_share_one_budget() {
    let (verdict, _) = judge(true, "452/0+no*", Budgets::default());
    let Verdict::Retry { budgets, .. } = verdict else { panic!("{verdict:?}") };
    let (verdict, _) = judge(true, "449/0+no*", budgets);
    let Verdict::Retry { after, .. } = verdict else { panic!("{verdict:?}") };
    assert_eq!(after, Duration::from_secs(2));
}

#[test]
fn an_unknown_outcome_stays_unknown_until_the_service_decides() {
    let (verdict, _) = judge(true, "yes-closed", Budgets::default());
    let Verdict::Retry { budgets, .. } = verdict else { panic!("{verdict:?}") };
    assert_eq!(judge(true, "400/5406", budgets).0, Verdict::AbortAmbiguous);
    assert_eq!(judge(true, "429/3200", budgets).0, Verdict::AbortAmbiguous);
    assert_eq!(judge(true, "452/5421+no", budgets).0, Verdict::Abort);
    assert_eq!(judge(true, "200/0+ok", budgets).0, Verdict::Complete);
    // An abort decides what became of the old token, so the outcome is no longer unknown.
    let (verdict, _) = judge(true, "452/5421+no*", budgets);
    let Verdict::Retry { budgets, context, .. } = verdict else { panic!("{verdict:?}") };
    assert_eq!((budgets.is_ambiguous, context), (false, Context::NewToken));
}

#[test]
fn the_outcome_of_a_replay_stays_unknown_until_the_service_decides_one_of_its_tokens() {
    let mut budgets = Budgets::default().with_ambiguity(true);
    // The first abort is an old answer, so the next token is tried at once.
    for millis in [0, 2000, 4000, 8000] {
        let verdict = judge_replay("452/5421+no*", budgets);
        let Verdict::Retry { after, context, budgets: next, .. } = verdict else { panic!("{verdict:?}") };
        assert_eq!((after, context), (Duration::from_millis(millis), Context::NewToken));
        assert!(next.is_ambiguous, "an earlier run may have committed the next token");
        budgets = next;
    }
    for undecided in ["429/3200", "400/5410", "401/0"] {
        assert_eq!(judge_replay(undecided, budgets), Verdict::AbortAmbiguous, "{undecided}");
    }
    assert_eq!(judge_replay("452/5421+no", budgets), Verdict::Abort);
    assert_eq!(judge_replay("200/0+ok", budgets), Verdict::Complete);
    let spent = budgets.with_spent(Budget::Retriable, 10, Duration::ZERO);
    assert_eq!(judge_replay("452/5421+no*", spent), Verdict::AbortAmbiguous);
}

#[test]
fn for_every_status_a_read_is_never_ambiguous_and_no_endpoint_is_marked() {
    let bodies = ["", "+part", "+ok", "+no", "+part*", "+ok*", "+no*"];
    for code in 0..1000_u16 {
        for sub in [0, 3, 1002, 1008, 3092, 3200, 5352, 5411, 5421] {
            for body in bodies {
                let ending = format!("{code}/{sub}{body}");
                let (verdict, effects) = judge(false, &ending, Budgets::default());
                assert_ne!(verdict, Verdict::AbortAmbiguous, "{ending}");
                let marks = effects.into_iter().any(|effect| effect != Effect::RefreshAccount);
                assert!(!marks, "{ending}: {effects:?}");
                let (verdict, _) = judge(true, &ending, Budgets::default());
                if let Verdict::Retry { route_to, context, .. } = verdict {
                    assert_eq!(route_to, RouteTo::WriteRegion, "{ending}");
                    // Results of success contradict the abort.
                    let is_aborted = code == 452 && body != "+ok*";
                    assert_eq!(context == Context::NewToken, is_aborted, "{ending}");
                }
            }
        }
    }
}
