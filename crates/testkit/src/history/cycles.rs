//! Cycles of the graph of dependencies. A group of transactions that all depend on each other is
//! a strongly connected component. In each component, the most serious kind of cycle is searched
//! for first.

use std::collections::{HashMap, HashSet, VecDeque};

use super::graph::{Dependency, Graph};
use super::{Anomaly, AnomalyKind};

/// The kinds of cycles, the most serious first.
const KINDS: [AnomalyKind; 4] = [
    AnomalyKind::WriteCycle,
    AnomalyKind::CircularInformationFlow,
    AnomalyKind::SingleAntiDependency,
    AnomalyKind::AntiDependency,
];

/// The most serious cycle of each group of transactions that depend on each other.
pub(super) fn find(graph: &Graph) -> Vec<Anomaly> {
    let everything: HashSet<usize> = (0..graph.edges.len()).collect();
    let groups = connected(graph, &everything, &|_| true);
    groups.into_iter().map(|group| most_serious_cycle(graph, &group.into_iter().collect())).collect()
}

fn most_serious_cycle(graph: &Graph, group: &HashSet<usize>) -> Anomaly {
    for kind in KINDS {
        if let Some(steps) = cycle_of_kind(graph, group, kind, false) {
            return Anomaly::cycle(kind, &steps);
        }
    }
    let with_real_time = KINDS.into_iter().find_map(|kind| cycle_of_kind(graph, group, kind, true));
    let steps = with_real_time.expect("transactions that depend on each other are on a cycle");
    Anomaly::cycle(AnomalyKind::RealTime, &steps)
}

type Steps = Vec<(usize, Dependency)>;

/// A cycle of this kind within the group. It has real-time dependencies only if `with_real_time` is
/// set.
fn cycle_of_kind(
    graph: &Graph,
    group: &HashSet<usize>,
    kind: AnomalyKind,
    with_real_time: bool,
) -> Option<Steps> {
    let is_allowed = |dependency: Dependency| match dependency {
        Dependency::WriteWrite(_) => true,
        Dependency::WriteRead(_) => kind != AnomalyKind::WriteCycle,
        Dependency::ReadWrite(_) => kind == AnomalyKind::AntiDependency,
        Dependency::RealTime => with_real_time,
    };
    if kind == AnomalyKind::SingleAntiDependency {
        return cycle_with_one_read_write(graph, group, &is_allowed);
    }
    let component = connected(graph, group, &is_allowed).into_iter().next()?;
    let start = component[0];
    shortest_path(graph, &component.into_iter().collect(), start, start, &is_allowed)
}

/// A cycle of exactly one read-write dependency and otherwise only allowed dependencies.
fn cycle_with_one_read_write(
    graph: &Graph,
    group: &HashSet<usize>,
    is_allowed: &dyn Fn(Dependency) -> bool,
) -> Option<Steps> {
    let mut nodes: Vec<usize> = group.iter().copied().collect();
    nodes.sort_unstable();
    for from in nodes {
        for (to, dependency) in &graph.edges[from] {
            if !matches!(dependency, Dependency::ReadWrite(_)) || !group.contains(to) {
                continue;
            }
            if let Some(back) = shortest_path(graph, group, *to, from, is_allowed) {
                return Some([vec![(from, *dependency)], back].concat());
            }
        }
    }
    None
}

/// The shortest path from one transaction to another, or back to itself: each transaction with
/// its dependency to the next.
fn shortest_path(
    graph: &Graph,
    group: &HashSet<usize>,
    start: usize,
    end: usize,
    is_allowed: &dyn Fn(Dependency) -> bool,
) -> Option<Steps> {
    let mut reached_from: HashMap<usize, (usize, Dependency)> = HashMap::new();
    let mut to_visit = VecDeque::from([start]);
    while let Some(node) = to_visit.pop_front() {
        for (next, dependency) in &graph.edges[node] {
            if !group.contains(next) || !is_allowed(*dependency) || reached_from.contains_key(next) {
                continue;
            }
            reached_from.insert(*next, (node, *dependency));
            if *next == end {
                return Some(walk_back(&reached_from, start, end));
            }
            to_visit.push_back(*next);
        }
    }
    None
}

fn walk_back(reached_from: &HashMap<usize, (usize, Dependency)>, start: usize, end: usize) -> Steps {
    let (mut steps, mut at) = (Vec::new(), end);
    loop {
        let (from, dependency) = reached_from[&at];
        steps.push((from, dependency));
        at = from;
        if at == start {
            steps.reverse();
            return steps;
        }
    }
}

/// The strongly connected components with more than one node, within a group and over allowed
/// edges. This is Tarjan's algorithm without recursion, because a history may be long.
fn connected(
    graph: &Graph,
    group: &HashSet<usize>,
    is_allowed: &dyn Fn(Dependency) -> bool,
) -> Vec<Vec<usize>> {
    let mut search = Search::new(graph.edges.len());
    let mut nodes: Vec<usize> = group.iter().copied().collect();
    nodes.sort_unstable();
    for node in nodes {
        if search.number[node].is_some() {
            continue;
        }
        search.open(node);
        while let Some((at, edge)) = search.calls.pop() {
            let Some((next, dependency)) = graph.edges[at].get(edge) else {
                search.close(at);
                continue;
            };
            search.calls.push((at, edge + 1));
            if !group.contains(next) || !is_allowed(*dependency) {
                continue;
            }
            match search.number[*next] {
                None => search.open(*next),
                Some(number) if search.is_on_stack[*next] => search.lower(at, number),
                Some(_) => {}
            }
        }
    }
    search.components
}

/// The state of Tarjan's algorithm.
struct Search {
    /// The order in which the nodes were found.
    number: Vec<Option<usize>>,
    /// The lowest number that can be reached from a node.
    low: Vec<usize>,
    is_on_stack: Vec<bool>,
    stack: Vec<usize>,
    /// The nodes that are being visited, with the index of the next edge.
    calls: Vec<(usize, usize)>,
    found: usize,
    components: Vec<Vec<usize>>,
}

impl Search {
    fn new(nodes: usize) -> Self {
        Search {
            number: vec![None; nodes],
            low: vec![0; nodes],
            is_on_stack: vec![false; nodes],
            stack: Vec::new(),
            calls: Vec::new(),
            found: 0,
            components: Vec::new(),
        }
    }

    fn open(&mut self, node: usize) {
        self.number[node] = Some(self.found);
        self.low[node] = self.found;
        self.found += 1;
        self.is_on_stack[node] = true;
        self.stack.push(node);
        self.calls.push((node, 0));
    }

    fn lower(&mut self, node: usize, number: usize) {
        self.low[node] = self.low[node].min(number);
    }

    /// Ends the visit of a node, after all its edges were followed.
    fn close(&mut self, node: usize) {
        if let Some((caller, _)) = self.calls.last() {
            let (caller, low) = (*caller, self.low[node]);
            self.lower(caller, low);
        }
        if Some(self.low[node]) != self.number[node] {
            return;
        }
        let start = self.stack.iter().rposition(|on_stack| *on_stack == node).expect("it was opened");
        let component = self.stack.split_off(start);
        for member in &component {
            self.is_on_stack[*member] = false;
        }
        if component.len() > 1 {
            self.components.push(component);
        }
    }
}
