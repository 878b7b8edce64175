//! Balances the leases over the instances: a pure function from the leases to what this
//! instance does next. The rules are those of the .NET and Java SDKs, except that a lease of
//! a living instance is asked for and not stolen.

use std::collections::BTreeMap;

/// What an instance knows about a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeaseView<'a> {
    pub(super) id: &'a str,
    pub(super) owner: Option<&'a str>,
    pub(super) wanted_by: Option<&'a str>,
    /// Whether the owner has not renewed the lease for longer than leases last.
    pub(super) is_expired: bool,
    /// Whether this instance processes the lease.
    pub(super) is_running: bool,
}

/// What to do with a lease.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// Become the owner: the lease has no owner, is expired, or was given to this instance.
    Take(String),
    /// Ask the owner to hand the lease over.
    Ask(String),
}

/// The next steps of the instance `own_name`. `own_max` limits the leases of this instance.
pub(super) fn plan(leases: &[LeaseView<'_>], own_name: &str, own_max: usize) -> Vec<Step> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::from([(own_name, 0)]);
    for lease in leases.iter().filter(|lease| !lease.is_expired || lease.is_running) {
        if let Some(owner) = lease.owner {
            *counts.entry(owner).or_default() += 1;
        }
    }
    let own = counts[own_name];
    let target = leases.len().div_ceil(counts.len()).min(own_max);
    // Leases that this instance owns and does not process: it was restarted, or another
    // instance has handed them over.
    let given = leases.iter().filter(|lease| lease.owner == Some(own_name) && !lease.is_running);
    let mut steps: Vec<Step> = given.map(|lease| Step::Take(lease.id.to_owned())).collect();
    let need = target.saturating_sub(own);
    let is_free = |lease: &&LeaseView<'_>| {
        lease.owner != Some(own_name) && (lease.owner.is_none() || lease.is_expired) && !lease.is_running
    };
    let free: Vec<Step> =
        leases.iter().filter(is_free).map(|lease| Step::Take(lease.id.to_owned())).take(need).collect();
    let has_asked = leases.iter().any(|lease| lease.wanted_by == Some(own_name) && !lease.is_expired);
    if need > 0 && free.is_empty() && !has_asked {
        steps.extend(ask_the_busiest(leases, &counts, own_name, target, need));
    }
    steps.extend(free);
    steps
}

/// Asks the instance with the most leases for one, if it has more than its share.
fn ask_the_busiest(
    leases: &[LeaseView<'_>],
    counts: &BTreeMap<&str, usize>,
    own_name: &str,
    target: usize,
    need: usize,
) -> Option<Step> {
    let others = counts.iter().filter(|(name, _)| **name != own_name);
    let (busiest, count) = others.max_by_key(|(_, count)| **count)?;
    // Two leases short is worse than the other instance being one short.
    let share = if need > 1 { target.saturating_sub(1) } else { target };
    let lease = leases
        .iter()
        .find(|lease| lease.owner == Some(*busiest) && !lease.is_expired && lease.wanted_by.is_none())?;
    (*count > share).then(|| Step::Ask(lease.id.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Leases by owner: `-` for none, a lower-case name for an expired lease.
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
            })
            .collect();
        let steps: Vec<String> = plan(&leases, "A", usize::MAX)
            .into_iter()
            .map(|step| match step {
                Step::Take(id) => format!("take {id}"),
                Step::Ask(id) => format!("ask {id}"),
            })
            .collect();
        assert_eq!(steps, expected, "{owners:?}");
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
    fn an_instance_asks_for_one_lease_of_the_busiest() {
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
            for _round in 0..count * instances {
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
                        })
                        .collect();
                    let steps = plan(&views, &names[instance], usize::MAX);
                    for step in steps {
                        let (Step::Take(id) | Step::Ask(id)) = step;
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
