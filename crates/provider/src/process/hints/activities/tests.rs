//! Hints about activities: which are kept when there are too many, and which are forgotten.

use duroxide::providers::WorkItem;

use super::*;
use crate::process::session_table::SessionTable;

fn offer(number: u64, tag: Option<&str>, session: Option<&str>) -> OfferedActivity {
    let item = WorkItem::ActivityExecute {
        instance: "order".to_owned(),
        execution_id: 1,
        id: number,
        name: "charge".to_owned(),
        input: String::new(),
        session_id: session.map(str::to_owned),
        tag: tag.map(str::to_owned),
    };
    let activity = crate::plan::activity_document(&item, Stamp::at_ms(1_000_000 + number)).unwrap();
    (activity, Etag::parse("\"1\"").unwrap())
}

const UNTAGGED_WORKER: Claimant<'static> = Claimant { tags: &TagFilter::DefaultOnly, owner: Some("worker") };

#[test]
fn activities_that_no_worker_here_asks_for_do_not_starve_the_others() {
    let mut hints = ActivityHints::default();
    hints.serve_tags(&TagFilter::DefaultOnly);
    for number in 0..ACTIVITIES_MAX as u64 + 10 {
        assert!(!hints.offer(offer(number, Some("gpu"), None)), "no worker here runs it");
    }
    assert!(hints.offer(offer(9_000_000, None, None)));
    let taken = hints.take(Stamp::at_ms(u64::MAX), &UNTAGGED_WORKER).expect("the activity without a tag");
    assert_eq!(taken.0.tag, None);
}

#[test]
fn among_too_many_activities_the_last_is_forgotten() {
    let mut hints = ActivityHints::default();
    hints.serve_tags(&TagFilter::Any);
    for number in 1..=ACTIVITIES_MAX as u64 {
        assert!(hints.offer(offer(number, None, None)));
    }
    assert!(!hints.offer(offer(ACTIVITIES_MAX as u64 + 1, None, None)), "the new activity would be the last");
    assert!(hints.offer(offer(0, None, None)), "an earlier activity is added");
    assert_eq!((hints.offers.len(), hints.keys.len()), (ACTIVITIES_MAX, ACTIVITIES_MAX));
    assert_eq!(hints.take(Stamp::at_ms(u64::MAX), &UNTAGGED_WORKER).unwrap().0.id, "a:1:0");
}

#[test]
fn activities_of_sessions_that_others_hold_make_room() {
    let mut hints = ActivityHints::default();
    hints.serve_tags(&TagFilter::Any);
    hints.set_session_owner("s", "another".to_owned(), Stamp::at_ms(u64::MAX));
    for number in 0..ACTIVITIES_MAX as u64 {
        hints.offer(offer(number, None, Some("s")));
    }
    assert!(hints.take(Stamp::at_ms(2_000_000), &UNTAGGED_WORKER).is_none());
    assert!(hints.offer(offer(9_000_000, None, None)));
    assert_eq!(hints.take(Stamp::at_ms(u64::MAX), &UNTAGGED_WORKER).unwrap().0.id, "a:1:9000000");
}

/// Activities of a fan-out that other processes have taken do not cost a failed lock each.
#[test]
fn after_some_failed_locks_the_other_activities_of_the_instance_are_forgotten() {
    let mut hints = ActivityHints::default();
    hints.serve_tags(&TagFilter::Any);
    for number in 1..=100 {
        hints.offer(offer(number, None, None));
    }
    let now = Stamp::at_ms(2_000_000);
    for _ in 1..LOST_MAX {
        assert!(!hints.record_lock("order", false, LOST_MAX, now));
    }
    assert!(!hints.record_lock("order", true, LOST_MAX, now), "the hints are not out of date");
    for _ in 1..LOST_MAX {
        assert!(!hints.record_lock("order", false, LOST_MAX, now));
    }
    assert_eq!(hints.count_due(now, 1000), 100);
    assert!(hints.record_lock("order", false, LOST_MAX, now));
    assert_eq!(hints.count_due(now, 1000), 0);
}

#[test]
fn failed_locks_of_activities_of_other_instances_do_not_count() {
    let mut hints = ActivityHints::default();
    let now = Stamp::at_ms(2_000_000);
    for number in 0..3 * LOST_INSTANCES_MAX {
        assert!(!hints.record_lock(&format!("other-{number}"), false, LOST_MAX, now));
    }
    assert!(hints.lost_in_a_row.len() <= LOST_INSTANCES_MAX);
    // A lock of another instance says nothing about this one.
    for _ in 1..LOST_MAX {
        assert!(!hints.record_lock("order", false, LOST_MAX, now));
        assert!(!hints.record_lock("other", true, LOST_MAX, now));
    }
    assert!(hints.record_lock("order", false, LOST_MAX, now));
}

fn ready(number: u64, tag: Option<&str>) -> ReadyActivity {
    let (mut activity, etag) = offer(number, tag, None);
    activity.visible_at = Stamp::at_ms(2_030_000);
    ReadyActivity {
        activity,
        etag,
        nonce: "n".to_owned(),
        lease: Duration::from_secs(30),
        item: None,
        session: None,
    }
}

/// A worker that completes an activity gets the next one, although other activities are locked already:
/// for waiting workers, or for workers with another tag.
#[test]
fn a_returning_worker_gets_an_activity_beside_those_that_are_locked_for_others() {
    let mut hints = ActivityHints::default();
    hints.serve_tags(&TagFilter::Any);
    hints.offer(offer(1, None, None));
    hints.offer(offer(2, None, None));
    hints.offer(offer(3, None, None));
    let now = Stamp::at_ms(2_000_000);
    hints.add_ready(ready(8, Some("gpu")));
    assert!(hints.worker_will_return(now, &UNTAGGED_WORKER).is_some(), "the other one needs a tag");
    hints.worker_returned(true);
    hints.add_waiting_worker(&TagFilter::DefaultOnly, Duration::from_secs(30));
    hints.add_ready(ready(9, None));
    assert!(hints.worker_will_return(now, &UNTAGGED_WORKER).is_some(), "the other one is dispatched");
    hints.worker_returned(true);
    hints.add_ready(ready(10, None));
    assert!(hints.worker_will_return(now, &UNTAGGED_WORKER).is_none(), "one is locked for this worker");
}

/// A locked activity waits for its worker for a tenth of its lease: here 3 of the 30 seconds that end at
/// 2,030,000 ms.
#[test]
fn activities_that_wait_too_long_for_a_worker_are_given_back() {
    let mut hints = ActivityHints::default();
    hints.add_ready(ready(1, None));
    let (overdue, next) = hints.take_overdue_ready(2_003_000);
    assert!(overdue.is_empty());
    assert_eq!(next, Some(2_003_000));
    let (overdue, next) = hints.take_overdue_ready(2_003_001);
    assert_eq!((overdue.len(), next), (1, None));
    assert!(!hints.has_ready());
}

#[test]
fn a_cancelled_activity_is_not_handed_to_the_worker_for_which_it_is_locked() {
    let mut hints = ActivityHints::default();
    for number in [1, 2] {
        let (mut activity, etag) = offer(number, None, None);
        activity.visible_at = Stamp::at_ms(60_000);
        hints.add_ready(ReadyActivity {
            activity,
            etag,
            nonce: String::new(),
            lease: Duration::from_secs(30),
            item: None,
            session: None,
        });
    }
    hints.remove("order", "a:1:1");
    let mut take = || hints.take_ready(30_000, &UNTAGGED_WORKER).map(|ready| ready.activity.id);
    assert_eq!((take(), take()), (Some("a:1:2".to_owned()), None));
}

/// The activity was locked too late for the worker that claimed its session.
#[test]
fn an_activity_whose_session_was_claimed_goes_to_a_worker_of_the_owner() {
    let mut hints = ActivityHints::default();
    let _in_progress = SessionTable::default().begin_claim("cart");
    let session = Some(ClaimedSession { owner: "slot 1".to_owned(), written: None, _in_progress });
    hints.add_ready(ReadyActivity { session, ..ready(1, None) });
    let mut take = |owner| hints.take_ready(2_000_000, &Claimant { tags: &TagFilter::Any, owner });
    assert!(take(None).is_none() && take(Some("slot 2")).is_none());
    assert!(take(Some("slot 1")).is_some());
}
