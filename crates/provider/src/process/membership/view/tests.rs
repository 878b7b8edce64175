//! Which slices a process owns, and its rank for pieces of work, given the live processes,
//! their loads and the partitions of a container of the real engine.

use std::collections::BTreeSet;

use perihelion_client::{Client, KeySpace};
use perihelion_server::{Embedded, EmbeddedOptions};

use super::*;
use crate::documents::DocumentType;
use crate::documents::heartbeat::{Heartbeat, Tags};
use crate::process::membership::alive;
use crate::timing::ALIVE_FOR;

/// The key space of a new container with this many physical partitions.
async fn space(partitions: u32) -> KeySpace {
    let mut options = EmbeddedOptions::default();
    options.account.partitions = partitions;
    let engine = Embedded::open(options).await.unwrap();
    let client = Client::over(&engine.endpoint(), engine.transport()).await.unwrap();
    let database = client.create_database_if_missing("d").await.unwrap();
    let container = database.create_container_if_missing(&crate::container_properties("c")).await.unwrap();
    let space = container.key_space().await.unwrap();
    assert_eq!(space.feed_ranges().len(), partitions as usize);
    space
}

fn roles(fetches_orchestrations: bool, tags: &[&str]) -> Roles {
    let names: BTreeSet<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
    Roles { fetches_orchestrations, activity_tags: Tags { names, ..Tags::default() } }
}

fn member(id: &str, roles: Roles) -> Member {
    Member { id: id.to_owned(), roles, load: Load::default(), readable_version: 2, container_version: 2 }
}

fn heartbeat(id: &str, readable_version: u32, written_at_s: u64) -> Heartbeat {
    Heartbeat {
        process: Member { readable_version, ..member(id, roles(true, &[])) },
        instance_id: crate::documents::heartbeat::HEARTBEATS_KEY,
        document_type: DocumentType::Heartbeat,
        ttl: 1,
        written_at_s,
    }
}

fn members(count: usize) -> Vec<Member> {
    (0..count).map(|number| member(&format!("n:{number}"), roles(true, &["gpu"]))).collect()
}

/// The view of the process `me` after the view `before`. The live processes are `all`, read at `now`.
fn view_of(before: &View, me: &str, all: &[Member], space: &KeySpace, now: u64) -> View {
    // Used if `all` does not have `me`.
    let unlisted = (roles(true, &["gpu"]), Load::default());
    let (roles, load) = all
        .iter()
        .find(|member| member.id == me)
        .map_or((&unlisted.0, &unlisted.1), |own| (&own.roles, &own.load));
    before.next(Own { id: me, roles, load }, all, Some(space), Stamp(now))
}

fn view(me: &str, all: &[Member], space: &KeySpace) -> View {
    view_of(&View::default(), me, all, space, 1)
}

fn owned_indices(view: &View) -> BTreeSet<usize> {
    (0..view.slices.all.len()).filter(|index| view.instances.is_owned[*index]).collect()
}

#[tokio::test]
async fn each_slice_has_one_owner_and_no_process_owns_more_than_its_share() {
    for (partitions, processes) in [(1, 4), (4, 3), (4, 16), (16, 5), (16, 40), (3, 64)] {
        let (space, mut all) = (space(partitions).await, members(processes));
        // While a process is busy, each slice has an owner of its own.
        all[0].load.is_busy = true;
        let shares: Vec<BTreeSet<usize>> =
            all.iter().map(|me| owned_indices(&view(&me.id, &all, &space))).collect();
        let slices = shares.iter().flatten().collect::<BTreeSet<_>>().len();
        assert!(slices >= partitions as usize && slices <= 8 * partitions as usize);
        assert_eq!(shares.iter().map(BTreeSet::len).sum::<usize>(), slices, "one owner each");
        let largest = shares.iter().map(BTreeSet::len).max().unwrap();
        assert!(largest <= slices.div_ceil(processes), "{partitions} {processes}: {shares:?}");
    }
}

#[tokio::test]
async fn one_process_polls_all_slices_of_a_partition_while_no_process_is_busy() {
    let (space, mut all) = (space(2).await, members(8));
    let polled = |all: &[Member]| -> Vec<Vec<FeedRange>> {
        all.iter()
            .map(|me| view(&me.id, all, &space).owned_ranges().unwrap())
            .filter(|owned| !owned.is_empty())
            .collect()
    };
    let idle: BTreeSet<FeedRange> = polled(&all).into_iter().flatten().collect();
    assert_eq!(idle, space.feed_ranges().into_iter().collect(), "two requests cover the container");
    all[3].load.is_busy = true;
    let busy: Vec<FeedRange> = polled(&all).into_iter().flatten().collect();
    assert_eq!(busy.len(), 2 * 4, "while one process is busy, each polls its own slices: {busy:?}");
}

#[tokio::test]
async fn most_slices_keep_their_owner_when_a_process_leaves() {
    let space = space(16).await;
    let (five, four) = (members(5), members(4));
    let (mut moved, mut kept) = (0, 0);
    for me in &four {
        let before = view(&me.id, &five, &space);
        let after = view_of(&before, &me.id, &four, &space, 9);
        for index in 0..16 {
            match (before.owned_since[index], after.owned_since[index]) {
                (Some(_), Some(since)) => {
                    assert_eq!(since, Stamp(1), "owned before the change, too");
                    kept += 1;
                }
                (None, Some(since)) => {
                    assert_eq!(since, Stamp(9), "owned from the change on");
                    moved += 1;
                }
                (_, None) => {}
            }
        }
    }
    assert_eq!(moved + kept, 16);
    assert!(moved <= 8, "{moved} of 16 moved");
}

#[tokio::test]
async fn when_slices_are_cut_in_half_their_owner_keeps_the_start_of_its_ownership() {
    let space = space(1).await;
    let alone = view("n:0", &members(1), &space);
    let two = view_of(&alone, "n:0", &members(2), &space, 9);
    assert_eq!(two.slices.all.len(), 2);
    let owned: BTreeSet<Stamp> = two.owned_since.iter().flatten().copied().collect();
    assert_eq!(owned, BTreeSet::from([Stamp(1)]), "while all are idle, `n:0` owns both halves");
}

#[tokio::test]
async fn a_rank_depends_on_the_slice_and_in_a_shared_slice_on_the_work() {
    let (space, mut all) = (space(4).await, members(4));
    let names: Vec<String> = (0..200).map(|number| format!("order-{number}")).collect();
    let ranks = |all: &[Member], name: &str| -> Vec<Rank> {
        all.iter().map(|me| view(&me.id, all, &space).rank_of_instance(name)).collect()
    };
    let owners =
        |all: &[Member], name: &str| ranks(all, name).iter().filter(|rank| **rank == Rank::Owner).count();
    assert!(names.iter().all(|name| owners(&all, name) == 1));
    let activity_rank = |all: &[Member], me: &str, id: usize| {
        view(me, all, &space).rank_of_activity("order-1", &format!("a:1:{id}"), Some("gpu"))
    };
    let activity_owners = |all: &[Member]| -> BTreeSet<String> {
        let is_owner = |me: &Member, id: usize| activity_rank(all, &me.id, id) == Rank::Owner;
        (0..40).map(|id| all.iter().find(|me| is_owner(me, id)).unwrap().id.clone()).collect()
    };
    assert_eq!(activity_owners(&all).len(), 1, "the activities of one instance belong to one process");
    let slice = view("n:0", &all, &space).slice_of("order-1").unwrap().to_owned();
    all[2].load.shared_slices = vec![slice];
    let is_helper = |me: &&Member| (0..40).any(|id| activity_rank(&all, &me.id, id) == Rank::Helper);
    let helpers: Vec<&Member> = all.iter().filter(is_helper).collect();
    assert_eq!(helpers.len(), 3, "in a shared slice all others help its owner");
    for me in &all {
        let shared = view(&me.id, &all, &space).shared_ranges();
        assert_eq!(shared.len(), 1, "all processes poll a shared slice");
    }
    assert_eq!(
        view("n:1", &all, &space).owned_since("order-1"),
        None,
        "no process owns a shared slice alone"
    );
}

#[tokio::test]
async fn slices_are_found_by_their_first_keys() {
    let (space, all) = (space(2).await, members(2));
    let (first, second) = (view("n:0", &all, &space), view("n:1", &all, &space));
    let slice = first.slice_of("order-1").unwrap().to_owned();
    assert_eq!(first.ranges_at(&[slice]).len(), 1);
    assert!(second.ranges_at(&[]).is_empty());
}

#[test]
fn a_process_with_an_old_heartbeat_counts_as_dead() {
    let list = vec![
        heartbeat("n:a", 2, 1000),
        heartbeat("n:old", 2, 1000 - ALIVE_FOR.as_secs() - 1),
        heartbeat("n:late", 2, 1000 - ALIVE_FOR.as_secs()),
    ];
    let ids: Vec<String> = alive(list).into_iter().map(|member| member.id).collect();
    assert_eq!(ids, ["n:a", "n:late"]);
}

#[tokio::test]
async fn a_process_that_the_list_of_processes_lacks_is_in_its_own_view() {
    let space = space(4).await;
    let view = view("n:a", &[member("n:b", roles(true, &[]))], &space);
    assert!(!view.is_alone());
    let share = owned_indices(&view).len();
    assert!(share > 0 && share < view.slices.all.len(), "{share}");
}

#[tokio::test]
async fn activities_belong_to_processes_that_serve_their_tag() {
    let space = space(8).await;
    let all = [
        member("n:a", roles(false, &["gpu"])),
        member("n:b", roles(true, &["cpu"])),
        member("n:c", roles(true, &["cpu", "gpu"])),
    ];
    let (a, b, c) = (view("n:a", &all, &space), view("n:b", &all, &space), view("n:c", &all, &space));
    let each_has_one_owner = |views: &[&View], rank: fn(&View, &str) -> Rank| {
        (0..200).all(|number| {
            let instance = format!("i-{number}");
            views.iter().filter(|view| rank(view, &instance) == Rank::Owner).count() == 1
        })
    };
    let gpu_rank: fn(&View, &str) -> Rank =
        |view, instance| view.rank_of_activity(instance, "a:1:2", Some("gpu"));
    let cpu_rank: fn(&View, &str) -> Rank =
        |view, instance| view.rank_of_activity(instance, "a:1:2", Some("cpu"));
    assert!(each_has_one_owner(&[&a, &c], gpu_rank));
    assert!(each_has_one_owner(&[&b, &c], cpu_rank));
    assert!(each_has_one_owner(&[&b, &c], View::rank_of_instance));
    assert_eq!(b.rank_of_activity("i", "a:1:2", Some("other")), Rank::Alone, "no other process serves it");
    let polled: usize = [&a, &c].iter().map(|view| view.owned_ranges().unwrap().len()).sum();
    assert!(polled >= 8, "the two processes that serve `gpu` poll all partitions");
    let before = View::default();
    assert_eq!(before.rank_of_instance("i"), Rank::Alone, "nothing is known yet");
    assert_eq!((before.owned_since("i"), before.owned_ranges()), (None, None));
}

#[tokio::test]
async fn a_process_alone_polls_the_whole_container_and_reconciles_all_of_it() {
    let space = space(4).await;
    let alone = view("n:0", &members(1), &space);
    assert_eq!(alone.owned_ranges(), None);
    assert!(space.feed_ranges().iter().all(|range| alone.reconciles(range) == Some(true)));
    let all = members(3);
    let reconciling = |range: &FeedRange| {
        all.iter().filter(|me| view(&me.id, &all, &space).reconciles(range) == Some(true)).count()
    };
    assert!(
        space.feed_ranges().iter().all(|range| reconciling(range) == 1),
        "one process for each partition"
    );
    assert_eq!(View::default().reconciles(&space.feed_ranges()[0]), None);
}

#[tokio::test]
async fn a_version_is_readable_by_all_when_the_oldest_live_process_can_read_it() {
    assert!(!View::default().all_can_read(1), "nothing is known before heartbeats were read");
    let space = space(1).await;
    let check =
        |heartbeats: Vec<Heartbeat>, version| view("me", &alive(heartbeats), &space).all_can_read(version);
    let old_is_alive =
        || vec![heartbeat("me", 3, 1000), heartbeat("new", 3, 1000), heartbeat("old", 2, 1000)];
    assert!(check(old_is_alive(), 2) && !check(old_is_alive(), 3));
    let old_is_dead = vec![heartbeat("me", 3, 1000), heartbeat("new", 3, 1000), heartbeat("old", 2, 900)];
    assert!(check(old_is_dead, 3));
    assert!(check(vec![heartbeat("me", 3, 1000)], 3), "this process is alone");
    let before_versions: Heartbeat = serde_json::from_str(
        r#"{"id":"n:1","instanceId":2,"type":"node","turns":true,"works":{"any":true,"untagged":false,"names":[]},
            "ttl":45,"_ts":1000}"#,
    )
    .unwrap();
    assert!(!check(vec![before_versions], 2), "a heartbeat without a version means version 1");
}

/// With more than [`TAGS_MAX`] tags, a process polls the whole container. Here more than that many
/// processes name one tag, and the processes that take any tag still poll only their slices.
#[tokio::test]
async fn a_tag_that_many_processes_name_counts_once() {
    let space = space(4).await;
    let mut all: Vec<Member> =
        (0..70).map(|number| member(&format!("n:{number}"), roles(false, &["gpu"]))).collect();
    let any = Roles { activity_tags: Tags { matches_any: true, ..Tags::default() }, ..Roles::default() };
    all.extend((0..3).map(|number| member(&format!("n:any-{number}"), any.clone())));
    all[0].load.is_busy = true;
    let polled: Vec<FeedRange> = all[70..]
        .iter()
        .flat_map(|me| view(&me.id, &all, &space).owned_ranges().expect("few tags"))
        .collect();
    let whole = &view("n:0", &all, &space).slices;
    assert!(
        whole.all.iter().all(|slice| polled.iter().any(|range| range.contains(&slice.range))),
        "{polled:?}"
    );
}
