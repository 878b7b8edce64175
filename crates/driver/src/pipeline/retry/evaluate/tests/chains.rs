//! Sequences of attempts, in which all attempts end the same way or each in a random
//! way. The tests check the waits, the number of attempts, and how the operation ends.

use super::*;

/// Each line has the ending of all attempts (a status and sub-status, or whether the request
/// was sent and what failed, see [`EndingText`]), the kind of operation, whether one region
/// or all take writes, and the number of regions; then the waits between the attempts
/// in milliseconds; then the last verdict.
const CHAINS: &str = "
    503/0           read           one 1 | 250 500 1000              | Abort
    503/0           read           one 2 | 0 250 500                 | Abort
    503/0           read           one 3 | 0 0 250                   | Abort
    503/0           read           all 3 | 0 0 250                   | Abort
    503/0           not-idempotent one 3 |                           | AbortAmbiguous
    503/0           conditional    one 1 | 250 500 1000              | AbortAmbiguous
    503/0           idempotent     one 2 | 0 250 500                 | AbortAmbiguous
    503/0           delete         all 3 | 0 0 250                   | AbortAmbiguous
    408/0           read           one 2 | 0 250 500                 | Abort
    500/0           read           one 2 | 0 250 500                 | Abort
    500/0           not-idempotent one 2 |                           | AbortAmbiguous
    410/0           not-idempotent one 1 | 250 500 1000              | Abort
    429/3092        not-idempotent one 2 | 0 250 500                 | Abort
    429/3200        idempotent     one 2 |                           | Abort
    no-connect      not-idempotent one 1 | 250 500 1000              | Abort
    no-connect      read           one 3 | 0 0 250                   | Abort
    no-closed       not-idempotent one 1 | 0 250 500 1000            | Abort
    no-closed       read           one 2 | 0 0 250 500               | Abort
    yes-timeout     read           one 3 | 0 0 250                   | Abort
    yes-timeout     not-idempotent one 3 |                           | AbortAmbiguous
    unknown-closed  conditional    all 2 | 0 250 500                 | AbortAmbiguous
    403/3           not-idempotent one 1 | 0 1000 2000 2000          | Abort
    403/3           idempotent     one 3 | 0 1000 2000 2000          | Abort
    403/1008        read           all 2 | 0 1000 2000 2000          | Abort
    404/1002        read           one 1 | 100 200 400 800 1000      | Abort
    404/1002        read           one 3 | 0 100 200 400 800         | Abort
    404/1002        read           all 1 | 100 200 400 800 1000      | Abort
    404/1002        read           all 2 | 0 100 200 400 800         | Abort
    404/1002        not-idempotent all 3 | 0 0 100 200 400           | Abort
    404/1003        read           one 1 | 0                         | Abort
    400/1024        not-idempotent one 2 | 0 100 200 400 800 1600 2000 2000 | Abort
    410/1000        read           one 1 | 0 100 200 400 800 1600 2000 2000 | Abort
    410/1002        not-idempotent one 1 | 0 100 200 400 800 1600 2000 2000 | Abort
    410/1007        conditional    one 3 | 0 100 200 400 800 1600 2000 2000 | Abort
    449/0           not-idempotent one 1 | 12.5 22.5 42.5 82.5 162.5 322.5 642.5 1002.5 1002.5 1002.5 1002.5 1002.5 1002.5 1002.5 1002.5 1002.5 1002.5 1002.5 1002.5 1002.5 1002.5 1002.5 1002.5 1002.5 1002.5 1002.5 1002.5 1002.5 1002.5 1002.5 | Abort
    200/0           not-idempotent one 1 |                           | Complete
    404/0           delete         one 1 |                           | Abort
";

/// The most attempts that an operation can make in three regions or fewer: the first, 3 failovers,
/// 1 retry of an unsent request, 5 session retries, 10 after 403, 30 after 449, 8 with new metadata.
const ATTEMPTS_MAX: usize = 1 + 3 + 1 + 5 + 10 + 30 + 8;

/// The longest that an operation can wait in total. The sums, in seconds: 1.75 for failovers,
/// 2.5 for sessions, 5 for moving write regions, 24.4 for status 449 (30 when the service sets
/// the waits), 7.1 for new metadata. With the worst jitter, the waits for failovers, sessions
/// and new metadata take a quarter longer. The waits that a service may ask for before failovers
/// are not included.
const WAIT_MAX: Duration = Duration::from_secs(50);

/// Evaluates attempts until the operation ends. Returns the waits between the attempts, the
/// last verdict, and the budgets at the end.
fn follow<'a>(
    profile: OperationProfile,
    regions: Regions,
    mut next: impl FnMut() -> Ending<'a>,
    mut jitter: impl FnMut() -> f64,
) -> (Vec<Duration>, Verdict, Budgets) {
    let (mut budgets, mut waits) = (Budgets::default(), Vec::new());
    loop {
        let (verdict, _) = evaluate(profile, next(), regions, LIMITS, budgets, jitter());
        let Verdict::Retry { after, budgets: spent, .. } = verdict else { return (waits, verdict, budgets) };
        assert!(has_grown(budgets, spent), "{budgets:?} to {spent:?}");
        budgets = spent;
        waits.push(after);
        assert!(waits.len() < ATTEMPTS_MAX, "{budgets:?}");
    }
}

/// Whether no count became smaller, exactly one grew by one, and an ambiguous write
/// is still ambiguous.
fn has_grown(before: Budgets, after: Budgets) -> bool {
    let spent = |budgets: Budgets| Budget::ALL.iter().map(move |budget| budgets.spent(*budget));
    let retries = |budgets: Budgets| spent(budgets).map(|spent| spent.retries).sum::<u32>();
    spent(before).zip(spent(after)).all(|(old, new)| old.retries <= new.retries && old.waited <= new.waited)
        && retries(after) == retries(before) + 1
        && before.is_ambiguous <= after.is_ambiguous
}

#[test]
fn chains_wait_and_end_as_the_table_says() {
    let mut chains = 0;
    for line in CHAINS.lines().filter(|line| !line.trim().is_empty()) {
        let [case, waits, end] = line.split('|').collect::<Vec<_>>().try_into().unwrap();
        let [ending, kind, writers, count] = case.split_whitespace().collect::<Vec<_>>().try_into().unwrap();
        let regions = regions(count.parse().unwrap(), writers == "all");
        let ending_text = EndingText::read(ending);
        let expected: Vec<_> = waits.split_whitespace().map(millis).collect();
        let (found, last, _) = follow(profile(kind, false), regions, || ending_text.ending(), || MIDDLE);
        assert_eq!(found, expected, "{case}");
        assert_eq!(format!("{last:?}"), end.trim(), "{case}");
        chains += 1;
    }
    assert_eq!(chains, 37);
}

#[test]
fn any_sequence_of_attempts_ends() {
    let endings: Vec<_> = [
        "503/0",
        "408/0",
        "500/0",
        "410/0",
        "429/3092",
        "403/3",
        "403/1008",
        "404/1002",
        "404/1003",
        "400/1024",
        "410/1000",
        "410/1002",
        "410/1007",
        "449/0",
        "no-connect",
        "no-closed",
        "yes-timeout",
        "unknown-closed",
    ]
    .map(EndingText::read)
    .into();
    let mut random = fastrand::Rng::with_seed(3);
    let (mut longest, mut slowest) = (0, Duration::ZERO);
    for round in 0..20_000 {
        let kind = KINDS[random.usize(..KINDS.len())];
        let regions = regions(random.u32(1..=3), random.bool());
        let mut draws = random.fork();
        let mut next = || {
            let retry_after = draws.bool().then(|| Duration::from_millis(draws.u64(0..2000)));
            endings[draws.usize(..endings.len())].with_retry_after(retry_after)
        };
        let (waits, last, budgets) =
            follow(profile(kind, round % 2 == 0), regions, &mut next, || random.f64());
        longest = longest.max(waits.len() + 1);
        slowest = slowest.max(waits.iter().sum());
        let is_plain = last == Verdict::Abort;
        assert!(!(is_plain && budgets.is_ambiguous), "{kind} was ambiguous and ended in a plain failure");
    }
    println!("at most {longest} attempts and {slowest:?} of waiting");
    assert!(longest > 10, "the chains are too short to prove anything: {longest}");
    assert!(longest <= ATTEMPTS_MAX);
    assert!(slowest <= WAIT_MAX, "{slowest:?}");
}

#[test]
fn a_chain_of_every_kind_of_failure_ends() {
    // Many failures of each kind, with the longest waits. All are within their budgets, except the
    // fourth 503, which ends the operation.
    let rounds =
        [("449/0", 30), ("410/1002", 8), ("403/3", 3), ("404/1002", 5), ("no-closed", 1), ("503/0", 4)];
    let endings: Vec<_> = rounds
        .iter()
        .flat_map(|(ending, times)| std::iter::repeat_n(EndingText::read(ending), *times))
        .collect();
    let mut endings = endings.iter();
    let (waits, last, _) = follow(
        profile("conditional", false),
        regions(3, true),
        || endings.next().expect("the last ending ends the operation").ending(),
        || 1.0,
    );
    assert_eq!(last, Verdict::AbortAmbiguous);
    assert_eq!(waits.len(), 30 + 8 + 3 + 5 + 1 + 3);
    assert!(waits.iter().sum::<Duration>() <= WAIT_MAX);
}

#[test]
fn waits_have_a_jitter_of_a_quarter() {
    for ending in ["503/0", "404/1002", "no-connect"] {
        let ending_text = EndingText::read(ending);
        let waits =
            |jitter| follow(profile("read", false), regions(1, false), || ending_text.ending(), || jitter).0;
        let (short, middle, long) = (waits(0.0), waits(0.5), waits(1.0));
        for ((short, middle), long) in short.iter().zip(&middle).zip(&long) {
            assert_eq!(*short, middle.mul_f64(0.75), "{ending}");
            assert_eq!(*long, middle.mul_f64(1.25), "{ending}");
        }
    }
}

#[test]
fn the_waits_for_a_moving_write_region_are_five_seconds_in_all() {
    for jitter in [0.0, 0.3, 0.7, 1.0] {
        let ending_text = EndingText::read("403/3");
        let (waits, last, budgets) =
            follow(profile("not-idempotent", false), regions(2, false), || ending_text.ending(), || jitter);
        assert_eq!(last, Verdict::Abort);
        assert_eq!(waits[0], Duration::ZERO, "the first retry does not wait");
        assert_eq!(
            budgets.spent(Budget::Forbidden).waited,
            Duration::from_secs(5),
            "the last wait is shortened to fit"
        );
    }
}

#[test]
fn a_wait_that_the_service_asks_for_applies_only_to_the_same_region() {
    let after = |kind, ending: &str, retry_after, candidates| {
        let ending_text = EndingText::read(ending);
        let ending = ending_text.with_retry_after(Some(retry_after));
        match evaluate(
            profile(kind, false),
            ending,
            regions(candidates, false),
            LIMITS,
            Budgets::default(),
            0.5,
        )
        .0
        {
            Verdict::Retry { after, .. } => Some(after),
            Verdict::Abort => None,
            other @ (Verdict::Complete
            | Verdict::CompleteAsDeleted
            | Verdict::ReadBack { .. }
            | Verdict::AbortAmbiguous) => panic!("{other:?}"),
        }
    };
    let millis = Duration::from_millis;
    assert_eq!(after("not-idempotent", "449/0", millis(77), 1), Some(millis(77)));
    assert_eq!(
        after("not-idempotent", "449/0", millis(0), 1),
        Some(Duration::from_micros(12_500)),
        "a wait of zero is ignored"
    );
    assert_eq!(
        after("not-idempotent", "449/0", millis(30_000), 1),
        Some(millis(30_000)),
        "the whole budget may be one wait"
    );
    assert_eq!(
        after("not-idempotent", "449/0", millis(30_001), 1),
        None,
        "a wait longer than the budget ends the retries"
    );
    assert_eq!(after("read", "503/0", millis(40), 1), Some(millis(40)));
    assert_eq!(after("read", "503/0", Duration::MAX, 1), Some(millis(4000)), "cut to our longest wait");
    assert_eq!(
        after("read", "503/0", millis(40), 2),
        Some(millis(0)),
        "the service does not ask the next region to wait"
    );
}

#[test]
fn the_limits_of_the_options_are_kept() {
    let ending_text = EndingText::read("503/0");
    let no_retries = Limits { failovers_max: 0, session_retries_max: Some(0) };
    let verdict = |kind, limits, budgets| {
        evaluate(profile(kind, true), ending_text.ending(), regions(3, false), limits, budgets, MIDDLE).0
    };
    assert_eq!(verdict("read", no_retries, Budgets::default()), Verdict::Abort);
    assert_eq!(
        verdict("idempotent", no_retries, Budgets::default()),
        Verdict::ReadBack { is_refusal_final: false }
    );
    let session_not_available = EndingText::read("404/1002");
    for (candidates, is_multi_write) in [(1, false), (3, false), (1, true), (3, true)] {
        let regions = regions(candidates, is_multi_write);
        let ending = session_not_available.ending();
        let (verdict, _) =
            evaluate(profile("read", false), ending, regions, no_retries, Budgets::default(), MIDDLE);
        assert_eq!(verdict, Verdict::Abort, "{candidates} {is_multi_write}");
    }
    let endless = Limits { failovers_max: u32::MAX, session_retries_max: Some(u32::MAX) };
    let one_left = Budgets::default().with_spent(Budget::Failover, u32::MAX - 1, Duration::ZERO).with_spent(
        Budget::Session,
        u32::MAX - 1,
        Duration::ZERO,
    );
    let Verdict::Retry { after, budgets, .. } = verdict("read", endless, one_left) else {
        panic!("one retry is left")
    };
    assert_eq!((after, budgets.spent(Budget::Failover).retries), (Duration::from_secs(4), u32::MAX));
    assert_eq!(verdict("read", endless, budgets), Verdict::Abort);
}

/// Where partitions fail over one by one, a write that a region refuses with 403/3 asks every
/// other region without a wait. No endpoint is avoided, because other partitions may still be
/// written there. The region that takes the write is recorded, unless the driver already knew that
/// it takes the writes of this partition.
#[test]
fn a_refused_write_of_a_partition_asks_every_region_at_once() {
    let regions_with = |partition_write_region| Regions { partition_write_region, ..regions(3, false) };
    let refused = EndingText::read("403/3");
    let judge = |regions, budgets| {
        evaluate(profile("conditional", false), refused.ending(), regions, LIMITS, budgets, MIDDLE)
    };
    let mut budgets = Budgets::default();
    for (attempt, partition_write_region) in [
        PartitionWriteRegion::ThisRegion,
        PartitionWriteRegion::OtherRegion,
        PartitionWriteRegion::OtherRegion,
    ]
    .into_iter()
    .enumerate()
    {
        let (verdict, effects) = judge(regions_with(partition_write_region), budgets);
        let Verdict::Retry { after, budgets: spent, .. } = verdict else { panic!("{verdict:?}") };
        assert_eq!(after.is_zero(), attempt < 2, "attempt {attempt} is followed by a wait of {after:?}");
        assert_eq!(effects.into_iter().collect::<Vec<_>>(), [Effect::RefreshAccount]);
        budgets = spent;
    }
    let done = EndingText::read("201/0");
    for (partition_write_region, expected) in [
        (PartitionWriteRegion::NotTracked, vec![]),
        (PartitionWriteRegion::ThisRegion, vec![]),
        (PartitionWriteRegion::OtherRegion, vec![Effect::WriteRegionFound]),
    ] {
        let (verdict, effects) = evaluate(
            profile("conditional", false),
            done.ending(),
            regions_with(partition_write_region),
            LIMITS,
            budgets,
            MIDDLE,
        );
        assert_eq!((verdict, effects.into_iter().collect::<Vec<_>>()), (Verdict::Complete, expected));
    }
}

/// While a partition moves, no region takes its writes. After each wait every region is asked
/// again, however many there are.
#[test]
fn a_refused_write_of_a_partition_asks_every_region_again_after_each_wait() {
    let refused = EndingText::read("403/3");
    for candidates in [1, 2, 3, 5, 12, 60] {
        let regions = Regions {
            partition_write_region: PartitionWriteRegion::OtherRegion,
            ..regions(candidates, false)
        };
        let (mut budgets, mut asked_per_round, mut waited) = (Budgets::default(), vec![1], Duration::ZERO);
        while let (Verdict::Retry { after, budgets: spent, .. }, _) =
            evaluate(profile("conditional", false), refused.ending(), regions, LIMITS, budgets, MIDDLE)
        {
            budgets = spent;
            waited += after;
            match asked_per_round.last_mut() {
                Some(asked) if after.is_zero() => *asked += 1,
                _ => asked_per_round.push(1),
            }
        }
        // A single region is asked twice at first: the client's view of the account may have
        // been out of date.
        let first = candidates.max(2);
        assert_eq!(asked_per_round, [first, candidates, candidates, candidates], "{candidates} regions");
        assert_eq!(waited, Duration::from_secs(5));
    }
}
