//! Hand-made histories with one anomaly each, and random histories of small stores that are
//! correct or have a bug.

use super::{Anomaly, AnomalyKind, Element, Key, Outcome, Transaction, check};
use crate::Random;

const X: Key = 0;
const Y: Key = 1;

/// A committed transaction that ran from one time to another.
fn committed(
    (invoked_at, completed_at): (u64, u64),
    reads: &[(Key, &[Element])],
    appends: &[(Key, Element)],
) -> Transaction {
    let reads = reads.iter().map(|(key, list)| (*key, list.to_vec())).collect();
    Transaction { reads, appends: appends.to_vec(), invoked_at, completed_at, outcome: Outcome::Committed }
}

fn aborted(transaction: Transaction) -> Transaction {
    Transaction { outcome: Outcome::Aborted, ..transaction }
}

fn unknown(transaction: Transaction) -> Transaction {
    Transaction { outcome: Outcome::Unknown, ..transaction }
}

fn kinds(anomalies: &[Anomaly]) -> Vec<AnomalyKind> {
    anomalies.iter().map(|anomaly| anomaly.kind).collect()
}

/// Checks a history that has exactly these anomalies.
fn expect(history: &[Transaction], expected: &[AnomalyKind]) {
    let anomalies = check(history);
    assert_eq!(kinds(&anomalies), expected, "{anomalies:#?}");
}

#[test]
fn a_serial_history_has_no_anomaly() {
    let history = [
        committed((1, 2), &[(X, &[]), (Y, &[])], &[(X, 1), (Y, 1)]),
        committed((3, 4), &[(X, &[1])], &[(X, 2), (X, 3)]),
        committed((5, 6), &[(X, &[1, 2, 3]), (Y, &[1])], &[]),
    ];
    expect(&history, &[]);
}

#[test]
fn a_read_at_the_time_of_a_write_may_see_the_write_or_not() {
    for seen in [&[][..], &[1]] {
        let history = [
            committed((1, 4), &[], &[(X, 1), (Y, 1)]),
            committed((2, 3), &[(X, seen), (Y, seen)], &[]),
            committed((5, 6), &[(X, &[1]), (Y, &[1])], &[]),
        ];
        expect(&history, &[]);
    }
}

#[test]
fn read_skew_is_found() {
    let history = [
        committed((1, 4), &[], &[(X, 1), (Y, 1)]),
        committed((2, 5), &[(X, &[1]), (Y, &[])], &[]),
        committed((6, 7), &[(X, &[1]), (Y, &[1])], &[]),
    ];
    expect(&history, &[AnomalyKind::SingleAntiDependency]);
    let found = &check(&history)[0];
    let mut transactions = found.transactions.clone();
    transactions.sort_unstable();
    assert_eq!(transactions, [0, 1]);
    assert!(found.text.contains("T1 read list 1 without what T0 appended"), "{found}");
    assert!(found.text.contains("T1 read list 0 with what T0 had appended"), "{found}");
    // The anomaly is also found without a later read of the second list.
    expect(&history[..2], &[AnomalyKind::SingleAntiDependency]);
}

#[test]
fn a_lost_update_is_found() {
    let both = [committed((1, 3), &[(X, &[])], &[(X, 1)]), committed((2, 4), &[(X, &[])], &[(X, 2)])];
    // The second transaction replaced the list, so the first element is missing.
    let missing = [&both[..], &[committed((5, 6), &[(X, &[2])], &[])]].concat();
    expect(&missing, &[AnomalyKind::LostUpdate, AnomalyKind::SingleAntiDependency]);
    // Both elements are in the list, but the second transaction had not read the first element.
    let blind = [&both[..], &[committed((5, 6), &[(X, &[1, 2])], &[])]].concat();
    expect(&blind, &[AnomalyKind::LostUpdate, AnomalyKind::SingleAntiDependency]);
}

#[test]
fn a_lost_acknowledged_append_is_found() {
    let history = [
        committed((1, 2), &[], &[(X, 1)]),
        committed((3, 4), &[], &[(X, 2)]),
        committed((5, 6), &[(X, &[1])], &[]),
    ];
    expect(&history, &[AnomalyKind::RealTime]);
    // No read shows any element of the list.
    let history = [committed((1, 2), &[], &[(X, 1)]), committed((3, 4), &[(X, &[])], &[])];
    expect(&history, &[AnomalyKind::RealTime]);
}

#[test]
fn a_dirty_read_is_found() {
    let history = [aborted(committed((1, 4), &[], &[(X, 1), (Y, 1)])), committed((2, 3), &[(X, &[1])], &[])];
    expect(&history, &[AnomalyKind::AbortedRead]);
    assert_eq!(check(&history)[0].transactions, [0, 1]);
}

#[test]
fn an_intermediate_read_is_found() {
    let history = [
        committed((1, 4), &[], &[(X, 1), (Y, 1), (X, 2)]),
        committed((2, 3), &[(X, &[1])], &[]),
        committed((5, 6), &[(X, &[1, 2])], &[]),
    ];
    expect(&history, &[AnomalyKind::IntermediateRead, AnomalyKind::SingleAntiDependency]);
}

#[test]
fn a_cycle_of_writes_is_found() {
    let history = [
        committed((1, 3), &[], &[(X, 1), (Y, 1)]),
        committed((2, 4), &[], &[(X, 2), (Y, 2)]),
        committed((5, 6), &[(X, &[1, 2]), (Y, &[2, 1])], &[]),
    ];
    expect(&history, &[AnomalyKind::WriteCycle]);
}

#[test]
fn a_circular_flow_of_information_is_found() {
    let history = [committed((1, 3), &[(Y, &[1])], &[(X, 1)]), committed((2, 4), &[(X, &[1])], &[(Y, 1)])];
    expect(&history, &[AnomalyKind::CircularInformationFlow]);
}

#[test]
fn write_skew_is_found() {
    let history = [
        committed((1, 3), &[(X, &[])], &[(Y, 1)]),
        committed((2, 4), &[(Y, &[])], &[(X, 1)]),
        committed((5, 6), &[(X, &[1]), (Y, &[1])], &[]),
    ];
    expect(&history, &[AnomalyKind::AntiDependency]);
}

/// The history is serializable: the read of the empty list comes first in the serial order.
#[test]
fn a_stale_read_is_found_by_real_time_only() {
    let history = [
        committed((1, 2), &[], &[(X, 1)]),
        committed((3, 4), &[(X, &[])], &[]),
        committed((5, 6), &[(X, &[1])], &[]),
    ];
    expect(&history, &[AnomalyKind::RealTime]);
    let overlapping = [committed((1, 4), &[], &[(X, 1)]), history[1].clone(), history[2].clone()];
    expect(&overlapping, &[]);
}

/// The graph has no edge from the append to the stale read at (6, 7). That edge follows from the two
/// edges through the transaction at (3, 4).
#[test]
fn real_time_is_transitive() {
    let history = [
        committed((1, 2), &[], &[(X, 1)]),
        committed((3, 4), &[(Y, &[])], &[]),
        committed((5, 8), &[(Y, &[])], &[]),
        committed((6, 7), &[(X, &[])], &[]),
        committed((9, 10), &[(X, &[1])], &[]),
    ];
    expect(&history, &[AnomalyKind::RealTime]);
}

#[test]
fn an_unknown_outcome_is_decided_by_the_reads() {
    let doubtful = unknown(committed((1, 2), &[], &[(X, 1), (Y, 1)]));
    let nothing = committed((3, 4), &[(X, &[]), (Y, &[])], &[]);
    let everything = committed((5, 6), &[(X, &[1]), (Y, &[1])], &[]);
    // The unknown transaction may never take effect, or only after its client gave up.
    expect(&[doubtful.clone(), nothing.clone()], &[]);
    expect(&[doubtful.clone(), nothing, everything.clone()], &[]);
    // It must not be undone, and must not take effect in part.
    let undone = committed((7, 8), &[(X, &[]), (Y, &[])], &[]);
    expect(&[doubtful.clone(), everything, undone], &[AnomalyKind::RealTime]);
    let half = committed((5, 6), &[(X, &[1]), (Y, &[])], &[]);
    expect(&[doubtful.clone(), half], &[AnomalyKind::SingleAntiDependency]);
    // The appends of `second` were read, so `second` was committed. It read the append of
    // `doubtful`, so that was committed too. Then `seen` must not read list X as empty.
    let second = unknown(committed((3, 4), &[(X, &[1])], &[(Y, 2)]));
    let seen = committed((5, 6), &[(X, &[]), (Y, &[1, 2])], &[]);
    expect(&[doubtful, second, seen], &[AnomalyKind::SingleAntiDependency]);
}

#[test]
fn lists_with_garbage_duplicates_or_another_order_are_found() {
    expect(&[committed((1, 2), &[(X, &[7])], &[])], &[AnomalyKind::Garbage]);
    let writer = committed((1, 2), &[], &[(X, 1)]);
    expect(&[writer.clone(), committed((3, 4), &[(X, &[1, 1])], &[])], &[AnomalyKind::Duplicate]);
    let other = committed((1, 2), &[], &[(X, 2)]);
    let [long, short] = [&[1, 2][..], &[2]].map(|list| committed((3, 4), &[(X, list)], &[]));
    let anomalies = check(&[writer, other, long, short]);
    assert_eq!(anomalies[0].kind, AnomalyKind::IncompatibleOrder, "{anomalies:?}");
}

#[test]
#[should_panic(expected = "is appended twice")]
fn an_element_is_appended_once() {
    check(&[committed((1, 2), &[], &[(X, 1)]), committed((3, 4), &[], &[(X, 1)])]);
}

/// How a store of the test serves transactions.
#[derive(Clone, Copy, PartialEq)]
enum Store {
    /// One transaction after the other.
    Serial,
    /// Reads are from the state some transactions ago, and the writes are not checked.
    StaleReads,
    /// Each list is read at another time.
    SeparateReads,
}

/// A history of several clients. Transaction number n takes effect at time 1000 n. It begins up to
/// 10,000 before that time, and ends up to 10,000 after it.
fn random_history(store: Store, seed: u64) -> Vec<Transaction> {
    const KEYS: usize = 5;
    let mut random = Random::new(seed);
    let mut states: Vec<Vec<Vec<Element>>> = vec![vec![Vec::new(); KEYS]];
    let mut history = Vec::new();
    for number in 1..=150u64 {
        let mut state = states.last().expect("a state").clone();
        let mut transaction = committed((0, 0), &[], &[]);
        let (from, span) = (random.index(KEYS), 1 + random.index(3));
        let mut ago = random.below(4) as usize;
        for key in (from..from + span).map(|key| key % KEYS) {
            if store == Store::SeparateReads {
                ago = random.below(4) as usize;
            }
            let ago = if store == Store::Serial { 0 } else { ago };
            let seen = &states[states.len().saturating_sub(1 + ago)][key];
            transaction.reads.push((key as Key, seen.clone()));
            if random.one_in(2) {
                transaction.appends.push((key as Key, number));
                state[key].push(number);
            }
        }
        transaction.invoked_at = 1000 * number - random.below(10_000).min(1000 * number);
        transaction.completed_at = 1000 * number + 1 + random.below(10_000);
        states.push(state);
        history.push(transaction);
    }
    history
}

#[test]
fn anomalies_are_found_only_in_random_histories_of_buggy_stores() {
    for seed in 0..10 {
        expect(&random_history(Store::Serial, seed), &[]);
        for store in [Store::StaleReads, Store::SeparateReads] {
            let found = kinds(&check(&random_history(store, seed)));
            assert!(found.contains(&AnomalyKind::LostUpdate), "seed {seed}: {found:?}");
            // The kinds after `LostUpdate` are cycles.
            assert!(found.iter().any(|kind| *kind > AnomalyKind::LostUpdate), "seed {seed}: {found:?}");
        }
    }
}
