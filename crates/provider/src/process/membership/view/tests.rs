//! Which slots a process owns, given a list of heartbeats.

use std::collections::BTreeSet;

use super::*;
use crate::documents::DocumentType;
use crate::documents::heartbeat::Tags;

fn roles(fetches_orchestrations: bool, tags: &[&str]) -> Roles {
    let names: BTreeSet<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
    Roles { fetches_orchestrations, activity_tags: Tags { names, ..Tags::default() } }
}

fn heartbeat(id: &str, roles: Roles, written_at_s: u64) -> Heartbeat {
    Heartbeat {
        id: id.to_owned(),
        instance_id: crate::documents::heartbeat::HEARTBEATS_KEY,
        document_type: DocumentType::Heartbeat,
        roles,
        readable_version: 2,
        ttl: 1,
        written_at_s,
    }
}

/// The view that `me` has of these processes, all of them alive.
fn view(me: &str, all: &[&str]) -> View {
    let list = all.iter().map(|id| heartbeat(id, roles(true, &["gpu"]), 1000)).collect();
    View::default().next(me, &roles(true, &["gpu"]), list, Stamp(1))
}

fn owned(view: &View) -> BTreeSet<usize> {
    (0..SLOTS).filter(|slot| view.owned_since[*slot].is_some()).collect()
}

#[test]
fn every_slot_has_one_owner_and_every_process_owns_some() {
    let names = ["n:a", "n:b", "n:c", "n:d", "n:e"];
    let shares: Vec<BTreeSet<usize>> = names.iter().map(|me| owned(&view(me, &names))).collect();
    assert_eq!(shares.iter().map(BTreeSet::len).sum::<usize>(), SLOTS);
    assert_eq!(shares.iter().flatten().collect::<BTreeSet<_>>().len(), SLOTS);
    assert!(shares.iter().all(|share| share.len() > SLOTS / 10), "{shares:?}");
}

#[test]
fn only_the_slots_of_a_leaving_process_move() {
    let before = view("n:a", &["n:a", "n:b", "n:c"]);
    let list = vec![heartbeat("n:a", roles(true, &[]), 1000), heartbeat("n:b", roles(true, &[]), 1000)];
    let after = before.next("n:a", &roles(true, &[]), list, Stamp(9));
    assert!(owned(&before).is_subset(&owned(&after)));
    for slot in owned(&after) {
        let since = if owned(&before).contains(&slot) { Stamp(1) } else { Stamp(9) };
        assert_eq!(after.owned_since[slot], Some(since));
    }
}

#[test]
fn a_process_with_an_old_heartbeat_counts_as_dead() {
    let list = vec![
        heartbeat("n:a", roles(true, &[]), 1000),
        heartbeat("n:old", roles(true, &[]), 1000 - ALIVE_FOR.as_secs() - 1),
        heartbeat("n:late", roles(false, &[]), 1000 - ALIVE_FOR.as_secs()),
    ];
    let view = View::default().next("n:a", &roles(true, &[]), list, Stamp(1));
    assert_eq!(view.processes.keys().map(String::as_str).collect::<Vec<_>>(), ["n:a", "n:late"]);
    assert!(view.is_alone(), "the other live process fetches no instances");
    assert_eq!(owned(&view).len(), SLOTS);
}

#[test]
fn a_process_counts_itself_even_when_the_list_lacks_it() {
    let view =
        View::default().next("n:a", &roles(true, &[]), vec![heartbeat("n:b", roles(true, &[]), 5)], Stamp(1));
    assert!(!view.is_alone());
    let share = owned(&view).len();
    assert!(share > 0 && share < SLOTS, "{share}");
}

#[test]
fn activities_belong_to_processes_that_serve_their_tag() {
    let list = vec![
        heartbeat("n:a", roles(false, &["gpu"]), 5),
        heartbeat("n:b", roles(true, &["cpu"]), 5),
        heartbeat("n:c", roles(true, &["cpu", "gpu"]), 5),
    ];
    let view = View::default().next("n:a", &roles(false, &["gpu"]), list, Stamp(1));
    assert!(owned(&view).is_empty(), "a process that fetches no instances owns no slot");
    let ranks: Vec<Rank> =
        (0..200).map(|id| view.rank_of_activity("i", &format!("a:1:{id}"), Some("gpu"))).collect();
    assert!(ranks.contains(&Rank::Owner) && ranks.contains(&Rank::Behind(1)), "two processes share the tag");
    assert!(!ranks.contains(&Rank::Behind(2)));
    let before = View::default();
    assert_eq!(before.rank_of_instance("i"), Rank::Alone, "nothing is known yet");
    assert_eq!(before.owned_since("i"), None);
}

#[test]
fn a_version_is_readable_by_all_when_the_oldest_live_process_can_read_it() {
    assert!(!View::default().all_can_read(1), "nothing is known before heartbeats were read");
    let reads = |id: &str, readable_version, written_at_s| Heartbeat {
        readable_version,
        ..heartbeat(id, roles(true, &[]), written_at_s)
    };
    let check = |heartbeats: Vec<Heartbeat>, version| {
        View::default().next("me", &roles(true, &[]), heartbeats, Stamp(1)).all_can_read(version)
    };
    let two = || vec![reads("me", 3, 1000), reads("new", 3, 1000), reads("old", 2, 1000)];
    assert!(check(two(), 2) && !check(two(), 3));
    let old_is_dead = vec![reads("me", 3, 1000), reads("new", 3, 1000), reads("old", 2, 900)];
    assert!(check(old_is_dead, 3));
    assert!(check(vec![reads("me", 3, 1000)], 3), "this process is alone");
    let before_versions: Heartbeat = serde_json::from_str(
        r#"{"id":"n:1","instanceId":2,"type":"node","turns":true,"works":{"any":true,"untagged":false,"names":[]},
            "ttl":45,"_ts":1000}"#,
    )
    .unwrap();
    assert!(!check(vec![before_versions], 2), "a process before versions reads version 1");
}
