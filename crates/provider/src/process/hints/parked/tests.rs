//! When parked instances are looked at, and for which dispatchers they are parked.

use super::*;

fn capability(name: &str) -> Capability {
    Capability(Some(name.to_owned()))
}

#[test]
fn a_parked_instance_is_looked_at_less_and_less_often() {
    let (old, begun) = (capability("old"), Instant::now());
    let dispatcher = |seconds| Dispatcher { capability: &old, now: begun + Duration::from_secs(seconds) };
    let mut parked = Parked::default();
    let mut looks = Vec::new();
    for second in 0..300 {
        if !parked.is_parked("a", dispatcher(second)) {
            looks.push(second);
            parked.park("a", dispatcher(second));
        }
    }
    assert_eq!(looks, [0, 5, 15, 35, 75, 135, 195, 255]);
    parked.remove("a");
    assert!(!parked.is_parked("a", dispatcher(300)) && !parked.contains("a"));
}

#[test]
fn one_parked_instance_is_looked_at_per_interval_and_none_is_left_out() {
    let (old, begun) = (capability("old"), Instant::now());
    let dispatcher = |seconds| Dispatcher { capability: &old, now: begun + Duration::from_secs(seconds) };
    let names: Vec<String> = (0..20).map(|number| format!("{number:02}")).collect();
    let mut parked = Parked::default();
    names.iter().for_each(|name| parked.park(name, dispatcher(0)));
    let mut looks = Vec::new();
    for second in 1..=200 {
        let open: Vec<_> = names.iter().filter(|name| !parked.is_parked(name, dispatcher(second))).collect();
        assert!(open.len() <= 1, "{second}: {open:?}");
        assert_eq!(parked.may_any_be_taken(dispatcher(second)), open.len() == 1);
        for name in open {
            looks.push(name.clone());
            parked.park(name, dispatcher(second));
        }
    }
    looks.sort();
    assert_eq!(looks, names);
}

#[test]
fn parking_for_one_filter_does_not_affect_another_and_few_filters_are_remembered() {
    let at = Instant::now();
    let (old, new) = (capability("old"), capability("new"));
    let mut parked = Parked::default();
    parked.park("a", Dispatcher { capability: &old, now: at });
    assert!(parked.is_parked("a", Dispatcher { capability: &old, now: at }));
    assert!(!parked.is_parked("a", Dispatcher { capability: &new, now: at }));
    assert!(parked.may_any_be_taken(Dispatcher { capability: &new, now: at }));
    for number in 0..100 {
        let at = at + Duration::from_secs(number);
        parked.park("b", Dispatcher { capability: &capability(&number.to_string()), now: at });
    }
    assert_eq!(parked.groups.len(), REASONS_MAX);
    assert!(!parked.contains("a"), "the oldest reason was forgotten");
}

#[test]
fn an_unstarted_instance_is_parked_for_all_until_its_next_message() {
    let at = Instant::now();
    let (old, new) = (capability("old"), capability("new"));
    let mut parked = Parked::default();
    let message = |enqueued_at, id: &str| (Stamp(enqueued_at), id.to_owned());
    parked.park_unstarted("a", SeenMessages::new(["seen"], Stamp(2)), at);
    for capability in [&old, &new] {
        assert!(parked.is_parked("a", Dispatcher { capability, now: at }));
        assert!(!parked.may_any_be_taken(Dispatcher { capability, now: at }));
    }
    assert!(!parked.may_be_start("a", &message(5, "seen")) && !parked.may_be_start("a", &message(2, "old")));
    assert!(parked.may_be_start("a", &message(6, "new")));
    assert!(parked.may_be_start("a", &message(4, "delayed")), "its sender's clock may be behind");
    parked.message_arrived("a");
    assert!(!parked.contains("a") && !parked.may_be_start("a", &message(6, "new")));
    parked.park("a", Dispatcher { capability: &old, now: at });
    parked.message_arrived("a");
    assert!(parked.contains("a"), "a message does not change the version that the instance needs");
}

#[test]
fn instances_that_are_parked_for_the_first_time_do_not_delay_a_look_at_another() {
    let (old, begun) = (capability("old"), Instant::now());
    let dispatcher = |seconds| Dispatcher { capability: &old, now: begun + Duration::from_secs(seconds) };
    let mut parked = Parked::default();
    parked.park("first", dispatcher(0));
    for second in 1..=6 {
        parked.park(&second.to_string(), dispatcher(second));
    }
    assert!(!parked.is_parked("first", dispatcher(6)));
}
