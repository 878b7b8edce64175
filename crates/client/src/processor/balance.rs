//! Balances the leases over the instances: a pure function from the leases to the next steps
//! of this instance. The rules are those of the .NET and Java SDKs, with one exception: an
//! instance asks a live owner for its lease, and does not steal it.

use std::collections::BTreeMap;

/// A lease, as an instance sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeaseView<'a> {
    pub(super) id: &'a str,
    pub(super) owner: Option<&'a str>,
    pub(super) wanted_by: Option<&'a str>,
    /// Whether the owner has not renewed the lease for longer than leases last.
    pub(super) is_expired: bool,
    /// Whether this instance processes the lease.
    pub(super) is_running: bool,
    /// Whether the lease has been free for so long that every instance with room has seen it.
    pub(super) is_left_over: bool,
    /// Whether this instance has asked for the lease, and the owner has not answered for a
    /// long time.
    pub(super) is_unanswered: bool,
}

/// An action on a lease.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// Become the owner: the lease has no owner, is expired, or was given to this instance.
    Take(String),
    /// Ask the owner to hand the lease over.
    Ask(String),
    /// Stop asking for the lease: the owner has not answered for a long time, or the lease is not
    /// needed any more. Otherwise the owner may hand the lease over much later, when this instance
    /// has other leases.
    Withdraw(String),
    /// Give the lease back: it was handed over to this instance, which already has as many leases
    /// as its limit allows.
    GiveBack(String),
}

/// The next steps of the instance `own_name`. `own_max` limits the leases of this instance.
pub(super) fn plan(leases: &[LeaseView<'_>], own_name: &str, own_max: usize) -> Vec<Step> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::from([(own_name, 0)]);
    // A lease of this instance counts even if it has expired: this instance takes it again.
    let is_held = |lease: &&LeaseView<'_>| !lease.is_expired || lease.owner == Some(own_name);
    for lease in leases.iter().filter(is_held) {
        if let Some(owner) = lease.owner {
            *counts.entry(owner).or_default() += 1;
        }
    }
    let own = counts[own_name];
    let target = leases.len().div_ceil(counts.len()).min(own_max);
    let mut steps = settle_given(leases, own_name, own_max);
    let need = target.saturating_sub(own);
    let is_free = |lease: &&LeaseView<'_>| {
        lease.owner != Some(own_name) && (lease.owner.is_none() || lease.is_expired) && !lease.is_running
    };
    // Other instances may not be able to take their share, because their number of leases is
    // limited. This instance takes the leases that they leave over, beyond its own share and up
    // to its own limit.
    let left_over = leases.iter().filter(is_free).filter(|lease| lease.is_left_over).count();
    let extra = left_over.saturating_sub(need).div_ceil(counts.len());
    let take_max = (need + extra).min(own_max.saturating_sub(own));
    let mut free: Vec<&LeaseView<'_>> = leases.iter().filter(is_free).collect();
    free.sort_by_key(|lease| !lease.is_left_over);
    let free: Vec<Step> =
        free.into_iter().map(|lease| Step::Take(lease.id.to_owned())).take(take_max).collect();
    // An owner hands the lease over when it has processed its page. If it does not do so for a long
    // time, this instance asks for another lease.
    let is_asked = |lease: &&LeaseView<'_>| {
        lease.wanted_by == Some(own_name) && lease.owner != Some(own_name) && !lease.is_expired
    };
    let is_given_up = |lease: &&LeaseView<'_>| need == 0 || lease.is_unanswered;
    let withdrawn = leases.iter().filter(is_asked).filter(is_given_up);
    steps.extend(withdrawn.map(|lease| Step::Withdraw(lease.id.to_owned())));
    let has_asked = leases.iter().filter(is_asked).any(|lease| !is_given_up(&lease));
    if need > 0 && free.is_empty() && !has_asked {
        steps.extend(ask_the_busiest(leases, &counts, own_name, target, need));
    }
    steps.extend(free);
    steps
}

/// The steps for leases that this instance owns and does not process: it was restarted, or it has
/// split a lease, or another instance has handed them over. Leases are taken until this instance
/// has `max` leases. The others are given back.
fn settle_given(leases: &[LeaseView<'_>], own_name: &str, max: usize) -> Vec<Step> {
    let running = leases.iter().filter(|lease| lease.is_running).count();
    let given = leases.iter().filter(|lease| lease.owner == Some(own_name) && !lease.is_running);
    let step = |(number, lease): (usize, &LeaseView<'_>)| {
        let id = lease.id.to_owned();
        if running + number < max { Step::Take(id) } else { Step::GiveBack(id) }
    };
    given.enumerate().map(step).collect()
}

/// Asks the instance with the most leases for one lease, if it has more than its share. If all its
/// leases are asked for already, the next instance is asked.
fn ask_the_busiest(
    leases: &[LeaseView<'_>],
    counts: &BTreeMap<&str, usize>,
    own_name: &str,
    target: usize,
    need: usize,
) -> Option<Step> {
    // If this instance lacks two leases or more, it may also ask an owner that has exactly `target`
    // leases. Afterwards that owner lacks only one lease.
    let share = if need > 1 { target.saturating_sub(1) } else { target };
    let mut others: Vec<(&str, usize)> = counts
        .iter()
        .map(|(name, count)| (*name, *count))
        .filter(|(name, count)| *name != own_name && *count > share)
        .collect();
    others.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    others.into_iter().find_map(|(busy, _)| {
        let is_askable = |lease: &&LeaseView<'_>| {
            lease.owner == Some(busy) && !lease.is_expired && lease.wanted_by.is_none()
        };
        leases.iter().find(is_askable).map(|lease| Step::Ask(lease.id.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the steps of instance A. `owners` has the owner of each lease: `-` for none, a
    /// lower-case name for an expired lease. `running` has the leases that A processes.
    fn check(owners: &[&'static str], running: &[usize], expected: &[&str]) {
        let ids: Vec<String> = (0..owners.len()).map(|n| n.to_string()).collect();
        let leases: Vec<LeaseView<'_>> = owners
            .iter()
            .enumerate()
            .map(|(n, owner)| LeaseView {
                id: &ids[n],
                owner: (*owner != "-").then_some(*owner),
                wanted_by: None,
                is_expired: owner.starts_with(char::is_lowercase),
                is_running: running.contains(&n),
                is_left_over: false,
                is_unanswered: false,
            })
            .collect();
        assert_eq!(texts(plan(&leases, "A", usize::MAX)), expected, "{owners:?}");
    }

    fn texts(steps: Vec<Step>) -> Vec<String> {
        let text = |step| match step {
            Step::Take(id) => format!("take {id}"),
            Step::Ask(id) => format!("ask {id}"),
            Step::Withdraw(id) => format!("withdraw {id}"),
            Step::GiveBack(id) => format!("give back {id}"),
        };
        steps.into_iter().map(text).collect()
    }

    fn view(id: &'static str, owner: Option<&'static str>) -> LeaseView<'static> {
        LeaseView {
            id,
            owner,
            wanted_by: None,
            is_expired: false,
            is_running: owner == Some("A"),
            is_left_over: false,
            is_unanswered: false,
        }
    }

    #[test]
    fn leases_that_a_limited_instance_leaves_over_are_taken_beyond_the_share() {
        // The share of each instance is two. B leaves a lease over, because its own limit is one. A
        // does not know this limit.
        let free = view("3", None);
        let leases = |free: LeaseView<'static>| {
            [view("0", Some("A")), view("1", Some("A")), view("2", Some("B")), free]
        };
        assert_eq!(texts(plan(&leases(free.clone()), "A", usize::MAX)), [""; 0], "A leaves it to B at first");
        let left_over = LeaseView { is_left_over: true, ..free };
        assert_eq!(texts(plan(&leases(left_over.clone()), "A", usize::MAX)), ["take 3"]);
        assert_eq!(texts(plan(&leases(left_over), "A", 2)), [""; 0], "the instance's own limit holds");
    }

    #[test]
    fn when_an_owner_does_not_answer_another_lease_is_asked_for() {
        let asked = LeaseView { wanted_by: Some("A"), ..view("0", Some("B")) };
        let leases = |asked: LeaseView<'static>| {
            [asked, view("1", Some("B")), view("2", Some("B")), view("3", Some("A"))]
        };
        assert_eq!(texts(plan(&leases(asked.clone()), "A", usize::MAX)), [""; 0]);
        let unanswered = LeaseView { is_unanswered: true, ..asked };
        assert_eq!(texts(plan(&leases(unanswered), "A", usize::MAX)), ["withdraw 0", "ask 1"]);
    }

    #[test]
    fn an_instance_stops_asking_for_a_lease_that_it_does_not_need_any_more() {
        let asked = LeaseView { wanted_by: Some("A"), ..view("0", Some("B")) };
        let leases = [asked.clone(), view("1", Some("B")), view("2", Some("A")), view("3", Some("A"))];
        assert_eq!(texts(plan(&leases, "A", usize::MAX)), ["withdraw 0"]);
        let leases = [asked, view("1", Some("B")), view("2", Some("B")), view("3", Some("A"))];
        assert_eq!(texts(plan(&leases, "A", 1)), ["withdraw 0"], "the instance's own limit is reached");
    }

    #[test]
    fn leases_beyond_the_limit_of_the_instance_are_given_back() {
        let given = |id| LeaseView { is_running: false, ..view(id, Some("A")) };
        let leases = [view("0", Some("A")), given("1"), given("2"), view("3", Some("B"))];
        assert_eq!(texts(plan(&leases, "A", 2)), ["take 1", "give back 2"]);
        assert_eq!(texts(plan(&leases, "A", 1)), ["give back 1", "give back 2"]);
    }

    /// The instance was stopped for longer than leases last, and has its old name.
    #[test]
    fn own_leases_that_have_expired_count_towards_the_limit() {
        let expired = |id| LeaseView { is_running: false, is_expired: true, ..view(id, Some("A")) };
        let leases = [expired("0"), expired("1"), view("2", None), view("3", None)];
        assert_eq!(texts(plan(&leases, "A", 2)), ["take 0", "take 1"]);
    }

    #[test]
    fn a_lone_instance_takes_every_free_lease() {
        check(&["-", "-", "b"], &[], &["take 0", "take 1", "take 2"]);
    }

    #[test]
    fn an_instance_takes_its_share_of_free_leases() {
        check(&["B", "-", "-", "-"], &[], &["take 1", "take 2"]);
    }

    #[test]
    fn an_instance_asks_the_busiest_instance_for_one_lease() {
        check(&["B", "B", "B", "C"], &[], &["ask 0"]);
        check(&["B", "B", "B", "A"], &[3], &["ask 0"]);
        check(&["B", "B", "A"], &[2], &[]);
        check(&["B"], &[], &[]);
    }

    #[test]
    fn leases_that_were_given_to_the_instance_are_taken() {
        check(&["A", "B"], &[], &["take 0"]);
        check(&["A", "B"], &[0], &[]);
        check(&["A", "A", "A", "B"], &[0], &["take 1", "take 2"]);
    }

    #[test]
    fn shares_become_even_without_going_back_and_forth() {
        for (count, instances) in [(5, 2), (7, 3), (4, 4), (10, 3), (3, 5)] {
            let mut owners: Vec<usize> = vec![0; count];
            let rounds = count * instances;
            for round in 0..rounds {
                for instance in 0..instances {
                    let names: Vec<String> = (0..instances).map(|n| format!("I{n}")).collect();
                    let ids: Vec<String> = (0..count).map(|n| n.to_string()).collect();
                    let views: Vec<LeaseView<'_>> = (0..count)
                        .map(|n| LeaseView {
                            id: &ids[n],
                            owner: Some(&names[owners[n]]),
                            wanted_by: None,
                            is_expired: false,
                            is_running: owners[n] == instance,
                            is_left_over: false,
                            is_unanswered: false,
                        })
                        .collect();
                    let steps = plan(&views, &names[instance], usize::MAX);
                    let is_last = round + 1 == rounds;
                    assert!(!is_last || steps.is_empty(), "{count} leases still move: {steps:?}");
                    for step in steps {
                        // The owner of a lease hands it over at once.
                        let (Step::Take(id) | Step::Ask(id)) = step else { panic!("{step:?}") };
                        owners[id.parse::<usize>().unwrap()] = instance;
                    }
                }
            }
            let shares: Vec<usize> =
                (0..instances).map(|n| owners.iter().filter(|owner| **owner == n).count()).collect();
            let (most, least) = (shares.iter().max().unwrap(), shares.iter().min().unwrap());
            assert!(most - least <= 1, "{count} leases: {shares:?}");
        }
    }
}
