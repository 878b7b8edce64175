use super::*;

fn completion(instance: &str, id: &str) -> Message {
    let (instance, result) = (instance.to_owned(), String::new());
    let item = duroxide::providers::WorkItem::ActivityCompleted { instance, execution_id: 1, id: 1, result };
    crate::plan::message(&item, id.to_owned(), stamp(1), None).unwrap()
}

fn stamp(ms: u64) -> Stamp {
    Stamp::at_ms(ms)
}

#[test]
fn an_instance_is_taken_by_one_and_in_the_order_of_its_messages() {
    let mut hints = Instances::default();
    let nobody = Skipped::new();
    hints.hint("b", stamp(2));
    hints.hint("a", stamp(1));
    assert_eq!(hints.take(stamp(5), &nobody).map(|taken| taken.instance).as_deref(), Some("a"));
    assert_eq!(hints.take(stamp(5), &nobody).map(|taken| taken.instance).as_deref(), Some("b"));
    assert!(hints.take(stamp(5), &nobody).is_none());
}

#[test]
fn what_comes_while_it_is_locked_is_seen_when_it_is_released() {
    let mut hints = Instances::default();
    let nobody = Skipped::new();
    hints.hint("a", stamp(1));
    hints.hint("a", stamp(50));
    assert!(hints.take(stamp(2), &nobody).is_some());
    hints.locked("a", stamp(100), BTreeMap::new());
    hints.hint("a", stamp(3));
    assert!(hints.take(stamp(4), &nobody).is_none());
    hints.released("a");
    assert_eq!(hints.take(stamp(4), &nobody).map(|taken| taken.instance).as_deref(), Some("a"));
    hints.idle("a");
    assert!(hints.take(stamp(49), &nobody).is_none(), "the timer is not due");
    assert_eq!(
        hints.take(stamp(51), &nobody).map(|taken| taken.instance).as_deref(),
        Some("a"),
        "the timer was kept"
    );
}

#[test]
fn a_lock_that_runs_out_is_looked_at_again() {
    let mut hints = Instances::default();
    let nobody = Skipped::new();
    hints.hint("a", stamp(1));
    hints.take(stamp(2), &nobody);
    hints.locked("a", stamp(100), BTreeMap::new());
    hints.renewed("a", stamp(200));
    assert!(hints.take(stamp(150), &nobody).is_none());
    assert_eq!(hints.take(stamp(200), &nobody).map(|taken| taken.instance).as_deref(), Some("a"));
}

#[test]
fn news_end_a_soft_wait_and_nothing_is_kept_of_what_is_idle() {
    let mut hints = Instances::default();
    let nobody = Skipped::new();
    hints.hint("a", stamp(1));
    hints.take(stamp(2), &nobody);
    hints.block("a", stamp(100), true);
    assert!(hints.take(stamp(3), &nobody).is_none());
    hints.hint("a", stamp(3));
    assert!(hints.take(stamp(3), &nobody).is_some());
    hints.idle("a");
    assert!(hints.entries.is_empty() && hints.order.is_empty());
}

/// A message was given back with a delay; turns of its instance before that are
/// of other messages, and the one that comes when it is seen must read.
#[test]
fn a_message_that_is_seen_later_is_not_forgotten_for_the_turns_before_it() {
    let mut hints = Instances::default();
    let nobody = Skipped::new();
    hints.hint("a", stamp(50));
    hints.hint("a", stamp(1));
    assert!(hints.take(stamp(2), &nobody).is_some_and(|taken| taken.is_partial));
    hints.committed("a");
    assert!(hints.take(stamp(49), &nobody).is_none());
    assert!(hints.take(stamp(51), &nobody).is_some_and(|taken| taken.is_partial), "it is read");
    hints.committed("a");
    assert!(hints.entries.is_empty());
}

#[test]
fn a_message_that_a_turn_has_read_is_not_brought_again() {
    let mut hints = Instances::default();
    let nobody = Skipped::new();
    hints.hint("a", stamp(1));
    hints.take(stamp(2), &nobody);
    // Brought while the turn reads, and again while it runs.
    hints.bring(completion("a", "m"));
    hints.locked("a", stamp(100), BTreeMap::from([("m".to_owned(), 1)]));
    hints.bring(completion("a", "m"));
    hints.committed("a");
    let next = hints.take(stamp(3), &nobody);
    assert!(next.is_none_or(|next| next.messages.is_empty()));
}
