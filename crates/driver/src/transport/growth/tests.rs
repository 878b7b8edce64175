//! Which shard gets a request, when shards are opened, and which idle shards are spare.

use super::*;

const LIMITS: ShardLimits = ShardLimits { shards_min: 1, shards_max: 32, streams_max: 20 };

fn shard(in_use: u32) -> SlotsView {
    SlotsView { in_use, limit: 20, is_usable: true }
}

fn candidate(slots: SlotsView) -> Candidate {
    Candidate { slots, is_failing: false, is_stuck: false }
}

#[test]
fn a_failing_shard_is_the_last_choice() {
    let failing = Candidate { is_failing: true, ..candidate(shard(7)) };
    assert_eq!(choose([failing, candidate(shard(0))].into_iter()).0, Some(1));
    assert_eq!(choose([failing, candidate(shard(20))].into_iter()).0, Some(0));
}

#[test]
fn a_shard_on_a_stuck_runtime_is_not_chosen() {
    let stuck = Candidate { is_stuck: true, ..candidate(shard(7)) };
    let (chosen, load) = choose([stuck, candidate(shard(0))].into_iter());
    assert_eq!((chosen, load.has_stuck_shard), (Some(1), true));
    assert_eq!(choose([stuck].into_iter()).0, None);
}

#[test]
fn the_fullest_shard_with_room_is_chosen() {
    let closed = SlotsView { is_usable: false, ..shard(19) };
    let shards = [shard(3), shard(20), shard(17), closed, shard(0)];
    let (chosen, load) = choose(shards.into_iter().map(candidate));
    assert_eq!(chosen, Some(2));
    assert_eq!(load, Load { shards: 5, usable: 4, in_use: 40, capacity: 80, ..Load::default() });
    assert_eq!(choose([shard(20), closed].into_iter().map(candidate)).0, None);
    // Of two shards with the same load the older one is chosen, so that the younger one can become
    // idle.
    assert_eq!(choose([shard(0), shard(0)].into_iter().map(candidate)).0, Some(0));
}

/// When requests come and go, the load ends up on no more shards than it needs.
#[test]
fn the_load_gathers_on_few_shards() {
    let mut in_use = [20, 20, 20, 20, 20u32];
    // In each round a request ends on the next shard in turn. Once fewer than 45 streams are in
    // use, a new request comes in each round.
    for round in 0..200 {
        let ending = [3, 4, 0, 1, 2][round % 5];
        in_use[ending] = in_use[ending].saturating_sub(1);
        if in_use.iter().sum::<u32>() < 45 {
            let (chosen, _) = choose(in_use.into_iter().map(shard).map(candidate));
            in_use[chosen.unwrap()] += 1;
        }
    }
    let used = in_use.iter().filter(|streams| **streams > 0).count();
    assert!(used <= 3, "{in_use:?}");
}

#[track_caller]
fn check_openings(in_use: &[u32], waiting: usize, opening: usize, wanted: usize) {
    let load = Load::of(in_use.iter().map(|in_use| shard(*in_use)));
    assert_eq!(openings_wanted(load, waiting, opening, LIMITS), wanted, "{in_use:?} {waiting} {opening}");
}

#[test]
fn a_shard_is_opened_when_more_than_three_quarters_are_in_use() {
    check_openings(&[15], 0, 0, 0);
    check_openings(&[16], 0, 0, 1);
    check_openings(&[16], 0, 1, 0);
    check_openings(&[20, 10], 0, 0, 0);
    check_openings(&[20, 11], 0, 0, 1);
}

#[test]
fn the_first_shard_is_opened_alone() {
    check_openings(&[], 500, 0, 1);
    check_openings(&[], 500, 1, 0);
}

/// At most 8 openings are under way at a time.
#[test]
fn several_shards_are_opened_at_a_time_for_many_waiting_requests() {
    check_openings(&[20], 25, 0, 2);
    check_openings(&[20], 1980, 0, 8);
    check_openings(&[20], 1980, 5, 3);
}

#[test]
fn no_more_shards_are_opened_than_allowed() {
    check_openings(&[20; 31], 500, 0, 1);
    check_openings(&[20; 31], 500, 1, 0);
    check_openings(&[20; 32], 500, 0, 0);
    check_openings(&[20; 40], 500, 0, 0);
}

#[test]
fn suspect_shards_are_replaced_but_count_as_connections() {
    let suspect = SlotsView { is_usable: false, ..shard(20) };
    let load = Load::of([suspect, suspect].into_iter());
    assert_eq!(openings_wanted(load, 10, 0, LIMITS), 1);
    assert_eq!(openings_wanted(load, 10, 0, ShardLimits { shards_max: 2, ..LIMITS }), 0);
}

#[test]
fn a_minimum_of_shards_is_opened_after_the_first() {
    let limits = ShardLimits { shards_min: 4, ..LIMITS };
    let load = Load::of([shard(1)].into_iter());
    assert_eq!(openings_wanted(load, 0, 0, limits), 3);
}

#[test]
fn an_idle_shard_is_spare_unless_the_load_may_need_it() {
    let load = |in_use: &[u32]| Load::of(in_use.iter().map(|in_use| shard(*in_use)));
    assert!(is_spare(load(&[15, 0]), 20, LIMITS));
    assert!(!is_spare(load(&[16, 0]), 20, LIMITS));
    assert!(!is_spare(load(&[0]), 20, LIMITS), "one shard is the minimum");
    assert!(is_spare(load(&[0, 0]), 20, LIMITS));
}

/// An endpoint may have 4 shards here. Together with the connections that were taken out of use, it
/// may have twice as many: 8.
#[test]
fn connections_that_were_taken_out_of_use_are_counted_until_they_end() {
    let limits = ShardLimits { shards_min: 1, shards_max: 4, streams_max: 20 };
    let check = |shards: usize, retired: usize, opening: usize, expected: usize| {
        let (usable, in_use, capacity) = (shards, 20 * shards, 20 * shards);
        let load = Load { shards, retired, usable, in_use, capacity, has_stuck_shard: false };
        assert_eq!(openings_wanted(load, 100, opening, limits), expected, "{load:?} {opening}");
    };
    check(2, 0, 0, 2);
    check(2, 4, 0, 2);
    check(2, 5, 0, 1);
    check(2, 5, 1, 0);
    check(2, 6, 0, 0);
    check(0, 7, 0, 1);
    check(0, 8, 0, 0);
}
