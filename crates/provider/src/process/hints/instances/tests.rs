use duroxide::providers::DispatcherCapabilityFilter;
use tokio::time::Instant;

use super::*;
use crate::process::hints::Capability;

fn completion(instance: &str, id: &str) -> Message {
    let (instance, result) = (instance.to_owned(), String::new());
    let item = duroxide::providers::WorkItem::ActivityCompleted { instance, execution_id: 1, id: 1, result };
    crate::plan::message(&item, id.to_owned(), stamp(1), None).unwrap()
}

fn asker(capability: &Capability) -> Asker<'_> {
    Asker { capability, at: Instant::now() }
}

fn stamp(ms: u64) -> Stamp {
    Stamp::at_ms(ms)
}

#[test]
fn an_instance_is_taken_by_one_and_in_the_order_of_its_messages() {
    let mut hints = InstanceHints::default();
    let anyone = Capability::of(None);
    let anyone = asker(&anyone);
    hints.hint("b", stamp(2));
    hints.hint("a", stamp(1));
    assert_eq!(hints.take(stamp(5), anyone).map(|taken| taken.instance).as_deref(), Some("a"));
    assert_eq!(hints.take(stamp(5), anyone).map(|taken| taken.instance).as_deref(), Some("b"));
    assert!(hints.take(stamp(5), anyone).is_none());
}

#[test]
fn what_comes_while_it_is_locked_is_seen_when_it_is_released() {
    let mut hints = InstanceHints::default();
    let anyone = Capability::of(None);
    let anyone = asker(&anyone);
    hints.hint("a", stamp(1));
    hints.hint("a", stamp(50));
    assert!(hints.take(stamp(2), anyone).is_some());
    hints.locked("a", stamp(100), BTreeMap::new());
    hints.hint("a", stamp(3));
    assert!(hints.take(stamp(4), anyone).is_none());
    hints.released("a");
    assert_eq!(hints.take(stamp(4), anyone).map(|taken| taken.instance).as_deref(), Some("a"));
    hints.idle("a");
    assert!(hints.take(stamp(49), anyone).is_none(), "the timer is not due");
    assert_eq!(
        hints.take(stamp(51), anyone).map(|taken| taken.instance).as_deref(),
        Some("a"),
        "the timer was kept"
    );
}

#[test]
fn a_turn_that_is_lost_is_looked_at_again_at_once_and_by_a_read() {
    let mut hints = InstanceHints::default();
    let anyone = Capability::of(None);
    let anyone = asker(&anyone);
    hints.bring(completion("a", "c:1:1"));
    assert!(!hints.take(stamp(2), anyone).unwrap().is_partial);
    hints.locked("a", stamp(100), BTreeMap::from([("c:1:1".to_owned(), 1)]));
    hints.released("a");
    assert!(hints.take(stamp(3), anyone).unwrap().is_partial);
}

#[test]
fn a_lock_that_runs_out_is_looked_at_again() {
    let mut hints = InstanceHints::default();
    let anyone = Capability::of(None);
    let anyone = asker(&anyone);
    hints.hint("a", stamp(1));
    hints.take(stamp(2), anyone);
    hints.locked("a", stamp(100), BTreeMap::new());
    hints.renewed("a", stamp(200));
    assert!(hints.take(stamp(150), anyone).is_none());
    assert_eq!(hints.take(stamp(200), anyone).map(|taken| taken.instance).as_deref(), Some("a"));
}

#[test]
fn what_has_no_start_waits_for_news_and_nothing_is_kept_of_what_is_idle() {
    let mut hints = InstanceHints::default();
    let anyone = Capability::of(None);
    let at = Instant::now();
    hints.hint("a", stamp(1));
    hints.take(stamp(2), asker(&anyone));
    hints.park_unstarted("a", stamp(1), stamp(2), at);
    assert!(hints.take(stamp(3), asker(&anyone)).is_none());
    assert!(hints.is_known("a", stamp(1), stamp(3)) && !hints.is_known("a", stamp(3), stamp(3)));
    assert!(hints.pass_over(stamp(3), 9).is_empty(), "a poll may tell more of it");
    hints.hint("a", stamp(3));
    assert!(hints.take(stamp(3), asker(&anyone)).is_some());
    // The start comes while the messages before it are read.
    hints.hint("a", stamp(4));
    hints.park_unstarted("a", stamp(3), stamp(4), at);
    assert!(hints.take(stamp(4), asker(&anyone)).is_some());
    hints.idle("a");
    assert!(hints.entries.is_empty() && hints.order.is_empty() && hints.aside.is_empty());
}

/// A message was given back with a delay; turns of its instance before that are
/// of other messages, and the one that comes when it is seen must read.
#[test]
fn a_message_that_is_seen_later_is_not_forgotten_for_the_turns_before_it() {
    let mut hints = InstanceHints::default();
    let anyone = Capability::of(None);
    let anyone = asker(&anyone);
    hints.hint("a", stamp(50));
    hints.hint("a", stamp(1));
    assert!(hints.take(stamp(2), anyone).is_some_and(|taken| taken.is_partial));
    hints.committed("a");
    assert!(hints.take(stamp(49), anyone).is_none());
    assert!(hints.take(stamp(51), anyone).is_some_and(|taken| taken.is_partial), "it is read");
    hints.committed("a");
    assert!(hints.entries.is_empty());
}

#[test]
fn a_message_that_a_turn_has_read_is_not_brought_again() {
    let mut hints = InstanceHints::default();
    let anyone = Capability::of(None);
    let anyone = asker(&anyone);
    hints.hint("a", stamp(1));
    hints.take(stamp(2), anyone);
    // Brought while the turn reads, and again while it runs.
    hints.bring(completion("a", "m"));
    hints.locked("a", stamp(100), BTreeMap::from([("m".to_owned(), 1)]));
    hints.bring(completion("a", "m"));
    hints.committed("a");
    let next = hints.take(stamp(3), anyone);
    assert!(next.is_none_or(|next| next.messages.is_empty()));
}

#[test]
fn what_one_dispatcher_parks_is_there_for_others_and_its_next_message_wakes_nobody() {
    let mut hints = InstanceHints::default();
    let old = Capability::of(Some(&DispatcherCapabilityFilter::default_for_current_build()));
    let anyone = Capability::of(None);
    hints.hint("a", stamp(1));
    assert!(hints.take(stamp(2), asker(&old)).is_some());
    hints.park("a", asker(&old));
    hints.hint("a", stamp(2));
    assert!(hints.take(stamp(3), asker(&old)).is_none() && hints.next(asker(&old)).is_none());
    assert!(hints.is_known("a", stamp(9), stamp(3)), "a poll has nothing to tell of it");
    assert_eq!(hints.next(asker(&anyone)), Some(stamp(1)));
    assert!(hints.take(stamp(3), asker(&anyone)).is_some());
    hints.committed("a");
    hints.hint("a", stamp(4));
    assert!(hints.take(stamp(5), asker(&old)).is_none(), "its version is what it was");
    hints.unpark("a");
    assert!(hints.take(stamp(5), asker(&old)).is_some());
}

#[test]
fn what_is_given_back_at_once_keeps_its_place() {
    let mut hints = InstanceHints::default();
    let anyone = Capability::of(None);
    hints.hint("a", stamp(200_001));
    hints.hint("b", stamp(200_002));
    let now = stamp(400_000);
    assert_eq!(hints.take(now, asker(&anyone)).map(|taken| taken.instance).as_deref(), Some("a"));
    hints.locked("a", stamp(500_000), BTreeMap::new());
    hints.abandoned("a", None, now);
    assert_eq!(hints.take(now, asker(&anyone)).map(|taken| taken.instance).as_deref(), Some("a"));
    hints.locked("a", stamp(500_000), BTreeMap::new());
    hints.abandoned("a", Some(stamp(400_001)), now);
    assert_eq!(hints.take(now, asker(&anyone)).map(|taken| taken.instance).as_deref(), Some("b"));
}

/// An instance that is always known here is passed over by every poll. What
/// others write to it is read all the same.
#[test]
fn of_an_instance_that_polls_pass_over_every_third_turn_reads() {
    let mut hints = InstanceHints::default();
    let anyone = Capability::of(None);
    let mut turn = |polls: bool| {
        hints.bring(completion("a", "m"));
        if polls {
            assert_eq!(hints.pass_over(stamp(2), 10), ["a"]);
        }
        let is_partial = hints.take(stamp(2), asker(&anyone)).unwrap().is_partial;
        hints.locked("a", stamp(100), BTreeMap::from([("m".to_owned(), 1)]));
        hints.committed("a");
        is_partial
    };
    assert_eq!([0; 5].map(|_| turn(false)), [false; 5], "no poll has passed it over");
    assert!(!turn(true));
    assert_eq!([0; 6].map(|_| turn(false)), [false, true, false, false, false, false], "it was read once");
    assert_eq!([0; 6].map(|_| turn(true)), [false, false, true, false, false, true]);
    // A poll that does not pass it over would have found what there is.
    assert!(hints.pass_over(stamp(2), 10).is_empty());
    assert!(hints.entries.is_empty(), "nothing is kept of it");
}

#[test]
fn what_a_poll_finds_of_a_busy_instance_is_read_by_its_next_turn() {
    let mut hints = InstanceHints::default();
    let anyone = Capability::of(None);
    hints.bring(completion("a", "m"));
    let message = |id: &str| (stamp(1), id.to_owned());
    hints.found("a", &message("m"), stamp(1));
    assert!(!hints.take(stamp(2), asker(&anyone)).unwrap().is_partial, "this one is known");
    hints.locked("a", stamp(100), BTreeMap::from([("m".to_owned(), 1)]));
    hints.found("a", &message("m"), stamp(1));
    hints.found("a", &message("foreign"), stamp(1));
    assert!(hints.take(stamp(2), asker(&anyone)).is_none(), "a turn is under way");
    hints.committed("a");
    assert!(hints.take(stamp(2), asker(&anyone)).unwrap().is_partial);
}
