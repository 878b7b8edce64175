//! Invariants of the evaluation, checked for every status that a server can answer with.

use super::*;
use crate::pipeline::retry::findings::{self, Finding};
use crate::pipeline::retry::throttle;

/// Sub-statuses with a meaning, and some without.
const SUB_STATUSES: [u32; 21] = [
    0,
    1,
    2,
    3,
    4,
    1000,
    1001,
    1002,
    1003,
    1004,
    1007,
    1008,
    1013,
    1022,
    1024,
    3088,
    3092,
    3200,
    5352,
    20001,
    u32::MAX,
];

/// Whether a write with this ending was certainly not applied.
fn is_certainly_not_applied(ending: &EndingText) -> bool {
    match ending {
        EndingText::Status(status) => (300..500).contains(&status.code) && status.code != 408,
        EndingText::Failure(failure) => failure.sent == Sent::No,
    }
}

fn failures() -> Vec<EndingText> {
    let mut all = Vec::new();
    for sent in ["no", "yes", "unknown"] {
        for kind in ["connect", "tls", "closed", "protocol", "timeout"] {
            all.push(EndingText::read(&format!("{sent}-{kind}")));
        }
    }
    all
}

/// Every code from 0 to 1000 (HTTP libraries let through 100 to 999) and the largest number, each with
/// every sub-status; and every failure.
fn endings() -> impl Iterator<Item = EndingText> {
    let codes = (0..=1000).chain([u16::MAX]);
    codes
        .flat_map(|code| SUB_STATUSES.map(|sub| EndingText::Status(Status::new(code, sub))))
        .chain(failures())
}

/// Calls `check` for all inputs. Returns the number of calls.
fn for_all(
    mut check: impl FnMut(OperationProfile, &EndingText, Regions, Budgets, Verdict, Vec<Effect>),
) -> usize {
    let mut cases = 0;
    for ending_text in endings() {
        for kind in KINDS {
            for (candidates, is_multi_write) in [(1, false), (2, false), (1, true), (3, true)] {
                for (has_witness, is_ambiguous) in
                    [(false, false), (false, true), (true, false), (true, true)]
                {
                    let profile = profile(kind, has_witness);
                    let regions = Regions {
                        candidates,
                        is_multi_write,
                        // Both values occur; no invariant needs all combinations.
                        has_breaker: has_witness,
                        partition_write_region: PartitionWriteRegion::NotTracked,
                    };
                    let budgets = Budgets::default().with_ambiguity(is_ambiguous);
                    let (verdict, effects) =
                        evaluate(profile, ending_text.ending(), regions, LIMITS, budgets, MIDDLE);
                    check(profile, &ending_text, regions, budgets, verdict, effects.into_iter().collect());
                    cases += 1;
                }
            }
        }
    }
    cases
}

#[test]
fn a_write_that_is_not_idempotent_is_retried_only_if_it_was_not_applied() {
    let mut retries = 0;
    for_all(|profile, ending_text, _, budgets, verdict, _| {
        let is_retry = matches!(verdict, Verdict::Retry { .. });
        if is_retry && !profile.verb.is_read() && profile.idempotency == Idempotency::NotIdempotent {
            assert!(
                is_certainly_not_applied(ending_text) && !budgets.is_ambiguous,
                "{ending_text:?} {budgets:?}"
            );
            retries += 1;
        }
    });
    assert!(retries > 0);
}

#[test]
fn a_write_that_may_have_been_applied_never_ends_in_a_plain_failure() {
    let mut checked = 0;
    for_all(|profile, ending_text, _, budgets, verdict, _| {
        let was_in_doubt = budgets.is_ambiguous;
        let is_in_doubt = was_in_doubt || !is_certainly_not_applied(ending_text);
        if profile.verb.is_read() || !is_in_doubt {
            return;
        }
        match verdict {
            Verdict::Abort => panic!("{profile:?} {ending_text:?} {budgets:?}"),
            Verdict::Retry { budgets, .. } => {
                assert!(budgets.is_ambiguous, "{ending_text:?}: the retry is no longer ambiguous")
            }
            Verdict::ReadBack { .. } => assert!(profile.has_witness),
            Verdict::AbortAmbiguous => {
                assert!(!profile.has_witness, "{ending_text:?} could have been read back")
            }
            Verdict::Complete | Verdict::CompleteAsDeleted => {}
        }
        checked += 1;
    });
    assert!(checked > 0);
}

#[test]
fn a_write_that_was_not_applied_is_never_reported_as_ambiguous() {
    for_all(|_, ending_text, _, budgets, verdict, _| {
        if budgets.is_ambiguous || !is_certainly_not_applied(ending_text) {
            return;
        }
        match verdict {
            Verdict::ReadBack { .. } | Verdict::AbortAmbiguous | Verdict::CompleteAsDeleted => {
                panic!("{ending_text:?} {verdict:?}")
            }
            Verdict::Retry { budgets, .. } => assert!(!budgets.is_ambiguous, "{ending_text:?}"),
            Verdict::Complete | Verdict::Abort => {}
        }
    });
}

#[test]
fn a_read_is_never_ambiguous() {
    for_all(|profile, ending_text, _, _, verdict, _| {
        if !profile.verb.is_read() {
            return;
        }
        match verdict {
            Verdict::Retry { budgets, .. } => assert!(!budgets.is_ambiguous, "{ending_text:?}"),
            Verdict::Complete | Verdict::Abort => {}
            Verdict::CompleteAsDeleted | Verdict::ReadBack { .. } | Verdict::AbortAmbiguous => {
                panic!("{ending_text:?} {verdict:?}")
            }
        }
    });
}

#[test]
fn only_success_completes_and_success_always_completes_a_read() {
    let cases = for_all(|profile, ending_text, _, budgets, verdict, _| {
        let is_success = match ending_text {
            EndingText::Status(status) => status.is_success(),
            EndingText::Failure(_) => false,
        };
        let is_complete = verdict == Verdict::Complete;
        assert!(is_success || !is_complete, "{ending_text:?}");
        let is_clear = profile.verb.is_read() || !budgets.is_ambiguous;
        assert!(is_complete || !(is_success && is_clear), "{ending_text:?}");
    });
    println!("{cases} cases of each invariant");
    // 1002 codes with each sub-status, and 15 failures. For each of them 5 kinds of operations, 4
    // accounts, and 4 combinations of a witness and ambiguity.
    assert_eq!(cases, (1002 * SUB_STATUSES.len() + 15) * 5 * 4 * 4);
}

#[test]
fn effects_do_not_contradict_each_other() {
    for_all(|profile, ending_text, regions, _, verdict, effects| {
        let has = |effect| effects.contains(&effect);
        let is_complete = verdict == Verdict::Complete;
        assert_eq!(
            is_complete && regions.has_breaker,
            is_complete && has(Effect::PartitionSucceeded),
            "a success closes a breaker: {ending_text:?}"
        );
        let has_failed = effects.iter().any(|effect| matches!(effect, Effect::PartitionFailed { .. }));
        assert!(!(has_failed && has(Effect::PartitionSucceeded)), "{ending_text:?}");
        assert!(!(has_failed && is_complete), "{ending_text:?}");
        let is_single_region_write = !profile.verb.is_read() && !regions.is_multi_write;
        let marks_at_once = has(Effect::EndpointFailed { needs_confirmation: false })
            || has(Effect::PartitionFailed { needs_confirmation: false });
        assert!(
            !(is_single_region_write && marks_at_once),
            "the only write region is not marked without confirmation: {ending_text:?}"
        );
    });
}

#[test]
fn every_status_has_a_finding_that_agrees_with_is_throttle() {
    let mut throttles = 0;
    for code in 0..=u16::MAX {
        for sub in SUB_STATUSES {
            let status = Status::new(code, sub);
            let finding = findings::finding_for_status(status);
            let is_done = finding == Finding::Done || finding == Finding::BatchRefused;
            assert_eq!(is_done, status.is_success(), "{status}");
            assert_eq!(finding == Finding::Throttled, throttle::is_throttle(status), "{status}");
            throttles += u32::from(finding == Finding::Throttled);
            let is_outside = !(200..600).contains(&code);
            assert_eq!(finding == Finding::UnexpectedStatus, is_outside, "{status}");
        }
    }
    assert_eq!(throttles as usize, SUB_STATUSES.len() - 1, "every 429 except 429/3092");
}

#[test]
fn the_evaluation_never_panics() {
    let endings = endings().collect::<Vec<_>>();
    let mut random = fastrand::Rng::with_seed(7);
    let edge =
        |random: &mut fastrand::Rng| *random.choice([0, 1, 2, 3, u32::MAX - 1, u32::MAX].iter()).unwrap();
    let time = |random: &mut fastrand::Rng| {
        *random.choice([Duration::ZERO, Duration::from_secs(4), Duration::MAX].iter()).unwrap()
    };
    let mut retries = 0;
    for _ in 0..200_000 {
        let mut budgets = Budgets::default().with_ambiguity(random.bool());
        for budget in Budget::ALL {
            budgets = budgets.with_spent(*budget, edge(&mut random), time(&mut random));
        }
        let regions = Regions {
            candidates: edge(&mut random),
            is_multi_write: random.bool(),
            has_breaker: true,
            partition_write_region: PartitionWriteRegion::NotTracked,
        };
        let limits = Limits {
            failovers_max: edge(&mut random),
            session_retries_max: random.bool().then(|| edge(&mut random)),
        };
        let jitter = *random.choice([0.0, 1.0, -1.0, f64::NAN, f64::INFINITY].iter()).unwrap();
        let ending =
            endings[random.usize(..endings.len())].with_retry_after(random.bool().then(|| time(&mut random)));
        let kind = KINDS[random.usize(..KINDS.len())];
        let (verdict, _) = evaluate(profile(kind, random.bool()), ending, regions, limits, budgets, jitter);
        if let Verdict::Retry { after, .. } = verdict {
            assert!(after <= Duration::from_secs(30), "{ending:?} waits {after:?}");
            retries += 1;
        }
    }
    assert!(retries > 1000, "{retries}");
}

#[test]
fn a_throttled_operation_is_not_retried_in_another_region() {
    for kind in KINDS {
        assert_eq!(judge(kind, "429/3200", regions(3, true), Budgets::default()), Verdict::Abort);
    }
}
