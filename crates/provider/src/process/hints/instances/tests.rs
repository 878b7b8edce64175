//! Hints about instances: when an instance is taken, read again, parked and forgotten.

use std::sync::LazyLock;

use duroxide::providers::DispatcherCapabilityFilter;
use tokio::time::Instant;

use super::*;
use crate::process::hints::Capability;

fn completion(instance: &str, id: &str) -> Message {
    let (instance, result) = (instance.to_owned(), String::new());
    let item = duroxide::providers::WorkItem::ActivityCompleted { instance, execution_id: 1, id: 1, result };
    crate::plan::message_document(&item, id.to_owned(), stamp(1), None).unwrap()
}

fn dispatcher(capability: &Capability) -> Dispatcher<'_> {
    Dispatcher { capability, now: Instant::now() }
}

/// A dispatcher that runs all versions.
fn any_dispatcher() -> Dispatcher<'static> {
    static ANY: LazyLock<Capability> = LazyLock::new(|| Capability::of(None));
    dispatcher(&ANY)
}

/// The name of the instance that a dispatcher for all versions takes.
fn taken(hints: &mut InstanceHints, now: Stamp) -> Option<String> {
    hints.take(now, any_dispatcher()).map(|taken| taken.instance)
}

/// Hints with the instance `a`, whose turn has a lock until this time.
fn hints_during_a_turn(lock_until_ms: u64) -> InstanceHints {
    let mut hints = InstanceHints::default();
    hints.add_due("a", stamp(1));
    hints.take(stamp(2), any_dispatcher()).unwrap();
    hints.record_lock("a", stamp(lock_until_ms), BTreeMap::new());
    hints
}

fn stamp(ms: u64) -> Stamp {
    Stamp::at_ms(ms)
}

#[test]
fn an_instance_is_taken_once_and_in_the_order_of_its_messages() {
    let mut hints = InstanceHints::default();
    hints.add_due("b", stamp(2));
    hints.add_due("a", stamp(1));
    assert_eq!(taken(&mut hints, stamp(5)).as_deref(), Some("a"));
    assert_eq!(taken(&mut hints, stamp(5)).as_deref(), Some("b"));
    assert!(hints.take(stamp(5), any_dispatcher()).is_none());
}

#[test]
fn a_message_that_arrives_during_a_lock_is_seen_when_the_lock_is_released() {
    let mut hints = InstanceHints::default();
    hints.add_due("a", stamp(1));
    hints.add_due("a", stamp(50));
    assert!(hints.take(stamp(2), any_dispatcher()).is_some());
    hints.record_lock("a", stamp(100), BTreeMap::new());
    hints.add_due("a", stamp(3));
    assert!(hints.take(stamp(4), any_dispatcher()).is_none());
    hints.record_release("a");
    assert_eq!(taken(&mut hints, stamp(4)).as_deref(), Some("a"));
    hints.record_idle("a");
    assert!(hints.take(stamp(49), any_dispatcher()).is_none(), "the timer is not due");
    assert_eq!(taken(&mut hints, stamp(51)).as_deref(), Some("a"), "the timer was kept");
}

#[test]
fn after_a_lost_turn_the_instance_is_taken_at_once_and_read() {
    let mut hints = InstanceHints::default();
    hints.add_message(completion("a", "c:1:1"), stamp(1));
    assert!(!hints.take(stamp(2), any_dispatcher()).unwrap().is_partial);
    hints.record_lock("a", stamp(100), BTreeMap::from([("c:1:1".to_owned(), 1)]));
    hints.record_release("a");
    assert!(hints.take(stamp(3), any_dispatcher()).unwrap().is_partial);
}

#[test]
fn an_instance_is_taken_again_when_its_lock_expires() {
    let mut hints = hints_during_a_turn(100);
    hints.record_renewal("a", stamp(200));
    assert!(hints.take(stamp(150), any_dispatcher()).is_none());
    assert_eq!(taken(&mut hints, stamp(200)).as_deref(), Some("a"));
}

#[test]
fn an_unstarted_instance_waits_for_its_next_message_and_an_idle_one_is_forgotten() {
    let mut hints = InstanceHints::default();
    let at = Instant::now();
    hints.add_due("a", stamp(1));
    hints.take(stamp(2), any_dispatcher());
    let seen = |id: &str| SeenMessages::new([id], Stamp::default());
    hints.park_unstarted("a", seen("1"), stamp(2), at);
    assert!(hints.take(stamp(3), any_dispatcher()).is_none());
    let polled = |id: &str| (stamp(1), id.to_owned());
    assert!(hints.is_known("a", &polled("1"), stamp(3)) && !hints.is_known("a", &polled("2"), stamp(3)));
    assert!(hints.leave_out_of_poll(stamp(3), 9, true).is_empty(), "a poll may find its start");
    hints.add_due("a", stamp(3));
    assert!(hints.take(stamp(3), any_dispatcher()).is_some());
    // The start arrives while the messages before it are read.
    hints.add_due("a", stamp(4));
    hints.park_unstarted("a", seen("2"), stamp(4), at);
    assert!(hints.take(stamp(4), any_dispatcher()).is_some());
    hints.record_idle("a");
    assert!(hints.instances.is_empty() && hints.order.is_empty() && hints.parked_order.is_empty());
}

/// A message was given back with a delay. Turns before the end of the delay take other
/// messages. The turn at its end must read.
#[test]
fn a_delayed_message_is_read_when_it_is_due_whatever_turns_came_before() {
    let mut hints = InstanceHints::default();
    hints.add_due("a", stamp(50));
    hints.add_due("a", stamp(1));
    assert!(hints.take(stamp(2), any_dispatcher()).is_some_and(|taken| taken.is_partial));
    hints.record_commit("a");
    assert!(hints.take(stamp(49), any_dispatcher()).is_none());
    assert!(hints.take(stamp(51), any_dispatcher()).is_some_and(|taken| taken.is_partial), "the turn reads");
    hints.record_commit("a");
    assert!(hints.instances.is_empty());
}

#[test]
fn a_message_that_a_turn_has_read_is_not_handed_out_again() {
    let mut hints = InstanceHints::default();
    hints.add_due("a", stamp(1));
    hints.take(stamp(2), any_dispatcher());
    // Added while the turn reads, and again while it runs.
    hints.add_message(completion("a", "m"), stamp(1));
    hints.record_lock("a", stamp(100), BTreeMap::from([("m".to_owned(), 1)]));
    hints.add_message(completion("a", "m"), stamp(1));
    hints.record_commit("a");
    let next = hints.take(stamp(3), any_dispatcher());
    assert!(next.is_none_or(|next| next.messages.is_empty()));
}

#[test]
fn an_instance_parked_by_one_dispatcher_is_open_to_others() {
    let mut hints = InstanceHints::default();
    let old = Capability::of(Some(&DispatcherCapabilityFilter::default_for_current_build()));
    hints.add_due("a", stamp(1));
    assert!(hints.take(stamp(2), dispatcher(&old)).is_some());
    hints.park("a", dispatcher(&old));
    hints.add_due("a", stamp(2));
    assert!(hints.take(stamp(3), dispatcher(&old)).is_none() && hints.next_due(dispatcher(&old)).is_none());
    let polled = (stamp(9), "m:1".to_owned());
    assert!(hints.is_known("a", &polled, stamp(3)), "a poll finds nothing new");
    assert_eq!(hints.next_due(any_dispatcher()), Some(stamp(1)));
    assert!(hints.take(stamp(3), any_dispatcher()).is_some());
    hints.record_commit("a");
    hints.add_due("a", stamp(4));
    assert!(hints.take(stamp(5), dispatcher(&old)).is_none(), "its version has not changed");
    hints.unpark("a");
    assert!(hints.take(stamp(5), dispatcher(&old)).is_some());
}

#[test]
fn an_instance_abandoned_without_delay_keeps_its_place() {
    let mut hints = InstanceHints::default();
    hints.add_due("a", stamp(200_001));
    hints.add_due("b", stamp(200_002));
    let now = stamp(400_000);
    assert_eq!(taken(&mut hints, now).as_deref(), Some("a"));
    hints.record_lock("a", stamp(500_000), BTreeMap::new());
    hints.record_abandon("a", None, now, None);
    assert_eq!(taken(&mut hints, now).as_deref(), Some("a"));
    hints.record_lock("a", stamp(500_000), BTreeMap::new());
    hints.record_abandon("a", Some(stamp(400_001)), now, None);
    assert_eq!(taken(&mut hints, now).as_deref(), Some("b"));
}

/// Every poll leaves out an instance that is always known here. Messages of other processes to this
/// instance must still be read.
#[test]
fn an_instance_that_polls_leave_out_is_read_in_every_third_turn() {
    let mut hints = InstanceHints::default();
    let mut turn = |is_polled: bool| {
        hints.add_message(completion("a", "m"), stamp(1));
        if is_polled {
            assert_eq!(hints.leave_out_of_poll(stamp(2), 10, true), ["a"]);
        }
        let is_partial = hints.take(stamp(2), any_dispatcher()).unwrap().is_partial;
        hints.record_lock("a", stamp(100), BTreeMap::from([("m".to_owned(), 1)]));
        hints.record_commit("a");
        is_partial
    };
    assert_eq!([0; 5].map(|_| turn(false)), [false; 5], "no poll has left the instance out");
    assert!(!turn(true));
    assert_eq!(
        [0; 6].map(|_| turn(false)),
        [false, true, false, false, false, false],
        "the instance was read once"
    );
    assert_eq!([0; 6].map(|_| turn(true)), [false, false, true, false, false, true]);
    // A poll that includes the instance would have found its messages.
    assert!(hints.leave_out_of_poll(stamp(2), 10, true).is_empty());
    assert!(hints.instances.is_empty(), "the instance is forgotten");
}

#[test]
fn a_message_that_a_poll_finds_for_a_busy_instance_is_read_by_its_next_turn() {
    let mut hints = InstanceHints::default();
    hints.add_message(completion("a", "m"), stamp(1));
    let message = |id: &str| (stamp(1), id.to_owned());
    hints.record_polled_message("a", &message("m"), stamp(1));
    assert!(!hints.take(stamp(2), any_dispatcher()).unwrap().is_partial, "the message is held here");
    hints.record_lock("a", stamp(100), BTreeMap::from([("m".to_owned(), 1)]));
    hints.record_polled_message("a", &message("m"), stamp(1));
    hints.record_polled_message("a", &message("of another process"), stamp(1));
    assert!(hints.take(stamp(2), any_dispatcher()).is_none(), "a turn is under way");
    hints.record_commit("a");
    assert!(hints.take(stamp(2), any_dispatcher()).unwrap().is_partial);
}

/// Ten orders a second, each with a timer of two hours, have 72,000 timers at the same time: more than
/// there can be hints.
#[test]
fn pending_timers_get_no_hints_and_new_work_is_taken() {
    let mut hints = InstanceHints::default();
    let (now, hour) = (stamp(1_000_000), Duration::from_secs(3600));
    for number in 0..INSTANCES_MAX + 500 {
        let mut timer = completion(&format!("order-{number}"), "n:1:1");
        (timer.visible_at, timer.enqueued_at) = (now.plus(2 * hour), now.plus(2 * hour));
        hints.add_message(timer, now);
    }
    assert!(hints.instances.is_empty(), "{} hints", hints.instances.len());
    let mut soon = completion("soon", "n:1:1");
    (soon.visible_at, soon.enqueued_at) = (now.plus(TIMER_HORIZON), now.plus(TIMER_HORIZON));
    hints.add_message(soon, now);
    assert_eq!(hints.next_due(any_dispatcher()), Some(now.plus(TIMER_HORIZON)), "it wakes a fetch");
}

#[test]
fn among_too_many_hints_the_latest_is_forgotten_and_new_work_is_added() {
    let mut hints = InstanceHints::default();
    for number in 0..INSTANCES_MAX {
        hints.add_due(&format!("later-{number}"), stamp(5_000 + number as u64));
    }
    hints.add_due("now", stamp(1));
    assert_eq!(hints.instances.len(), INSTANCES_MAX);
    assert!(
        !hints.instances.contains_key(&format!("later-{}", INSTANCES_MAX - 1)),
        "the latest is forgotten"
    );
    assert_eq!(taken(&mut hints, stamp(2)).as_deref(), Some("now"));
    hints.add_due("latest of all", stamp(900_000));
    assert!(!hints.instances.contains_key("latest of all"));
}

#[test]
fn messages_without_a_start_make_room_for_new_work() {
    let mut hints = InstanceHints::default();
    // One time for all, because no pause may end during the test.
    let any_dispatcher = any_dispatcher();
    for number in 0..INSTANCES_MAX {
        let instance = format!("unstarted-{number}");
        hints.add_due(&instance, stamp(1));
        let taken = hints.take(stamp(2), any_dispatcher).unwrap();
        assert_eq!(taken.instance, instance);
        let seen = SeenMessages::new(["1"], Stamp::default());
        hints.park_unstarted(&instance, seen, stamp(2), any_dispatcher.now);
    }
    hints.add_due("now", stamp(3));
    assert_eq!(hints.take(stamp(4), any_dispatcher).map(|taken| taken.instance).as_deref(), Some("now"));
    assert_eq!(hints.instances.len(), INSTANCES_MAX);
}

#[test]
fn an_instance_whose_claims_fail_is_paused_and_its_failed_claims_are_counted() {
    let mut hints = InstanceHints::default();
    hints.add_due("failing", stamp(1));
    hints.add_due("healthy", stamp(2));
    for failed_claims in 0..3 {
        let now = stamp(10 * u64::from(failed_claims) + 10);
        let taken = hints.take(now, any_dispatcher()).unwrap();
        assert_eq!((taken.instance.as_str(), taken.failed_claims), ("failing", failed_claims));
        hints.record_failed_claim("failing", Stamp::at_ms(now.ms() + 10));
        if failed_claims == 0 {
            assert_eq!(
                hints.take(now, any_dispatcher()).unwrap().instance,
                "healthy",
                "the next one is tried"
            );
        }
        assert!(hints.take(now, any_dispatcher()).is_none());
    }
    let taken = hints.take(stamp(40), any_dispatcher()).unwrap();
    assert!(taken.is_partial, "the messages are read again");
    hints.record_lock("failing", stamp(100), BTreeMap::new());
    hints.record_release("failing");
    assert_eq!(hints.take(stamp(41), any_dispatcher()).unwrap().failed_claims, 0);
}

#[test]
fn abandoned_work_is_left_to_others_for_a_while() {
    let mut hints = hints_during_a_turn(50);
    hints.record_abandon("a", Some(stamp(100)), stamp(3), Some(stamp(500)));
    let polled = (stamp(1), "m:1".to_owned());
    assert!(hints.is_known("a", &polled, stamp(300)), "a poll that finds it does not take it");
    assert!(hints.take(stamp(499), any_dispatcher()).is_none());
    assert_eq!(hints.take(stamp(500), any_dispatcher()).unwrap().instance, "a");
}

/// The lock of a turn ends in the millisecond in which a timer of the instance is due.
#[test]
fn a_timer_that_is_due_when_the_lock_ends_keeps_its_due_time() {
    let mut hints = hints_during_a_turn(100);
    hints.add_due("a", stamp(100));
    hints.record_commit("a");
    assert_eq!(hints.next_due(any_dispatcher()), Some(stamp(100)));
}

#[test]
fn an_instance_whose_pause_is_over_is_forgotten_if_nothing_is_due() {
    let mut hints = hints_during_a_turn(100);
    hints.record_commit("a");
    hints.block("a", stamp(50));
    hints.leave_out_of_poll(stamp(49), 10, true);
    assert!(!hints.instances.is_empty(), "the pause lasts");
    hints.leave_out_of_poll(stamp(50), 10, true);
    hints.leave_out_of_poll(stamp(51), 10, true);
    assert!(hints.instances.is_empty());
}
