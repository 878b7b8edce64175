//! `Graph`: which top-level modules of a crate use which others. It prints these arrows and
//! finds cycles.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

/// The modules that each module uses, and for each of them the first file that uses it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Graph {
    arrows: BTreeMap<String, BTreeMap<String, String>>,
}

impl Graph {
    pub(crate) fn add_module(&mut self, module: &str) {
        self.arrows.entry(module.to_owned()).or_default();
    }

    pub(crate) fn add_arrow(&mut self, from: &str, to: &str, file: &str) {
        if from != to {
            let used = self.arrows.entry(from.to_owned()).or_default();
            used.entry(to.to_owned()).or_insert_with(|| file.to_owned());
        }
    }

    /// Whether another module uses this one.
    pub(crate) fn is_used(&self, module: &str) -> bool {
        self.arrows.values().any(|used| used.contains_key(module))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.arrows.is_empty()
    }

    /// A line per module: `module -> used, used`, or the module alone if it uses no other.
    pub(crate) fn lines(&self) -> String {
        let mut text = String::new();
        for (module, used) in &self.arrows {
            let used: Vec<&str> = used.keys().map(String::as_str).collect();
            let _infallible = match used.as_slice() {
                [] => writeln!(text, "{module}"),
                used => writeln!(text, "{module} -> {}", used.join(", ")),
            };
        }
        text
    }

    /// Each group of modules that reach each other, described by its members, its shortest
    /// cycle, and the files with the arrows of that cycle.
    pub(crate) fn cycles(&self) -> Vec<String> {
        let mut described = Vec::new();
        let mut grouped = BTreeSet::new();
        for module in self.arrows.keys() {
            if grouped.contains(module) || self.shortest_path(module, module).is_none() {
                continue;
            }
            let is_member = |other: &&String| {
                let is_reached = self.shortest_path(module, other).is_some();
                *other == module || (is_reached && self.shortest_path(other, module).is_some())
            };
            let members: Vec<&String> = self.arrows.keys().filter(is_member).collect();
            let cycles = members.iter().filter_map(|member| self.shortest_path(member, member));
            let shortest = cycles.min_by_key(Vec::len).unwrap_or_default();
            described.push(self.describe(&members, &shortest));
            grouped.extend(members);
        }
        described
    }

    fn describe(&self, members: &[&String], cycle: &[&String]) -> String {
        let mut text = format!("{} modules use each other:", members.len());
        for member in members {
            let _infallible = write!(text, " {member}");
        }
        for pair in cycle.windows(2) {
            let file = self.arrows.get(pair[0]).and_then(|used| used.get(pair[1]));
            let file = file.map_or("", String::as_str);
            let _infallible = write!(text, "; {} -> {} ({file})", pair[0], pair[1]);
        }
        text
    }

    /// The modules on the shortest path, both ends included. A path has at least one arrow, so
    /// a path from a module to itself is a cycle.
    fn shortest_path<'a>(&'a self, from: &'a String, to: &'a String) -> Option<Vec<&'a String>> {
        let mut came_from: BTreeMap<&String, &String> = BTreeMap::new();
        let mut waiting = VecDeque::from([from]);
        while let Some(module) = waiting.pop_front() {
            // A module that was only used, and never added, has no entry.
            for next in self.arrows.get(module).into_iter().flat_map(BTreeMap::keys) {
                if next == to {
                    let mut path = vec![to, module];
                    while let Some(before) = path.last().and_then(|module| came_from.get(*module).copied()) {
                        path.push(before);
                    }
                    path.reverse();
                    return Some(path);
                }
                if next != from && !came_from.contains_key(next) {
                    came_from.insert(next, module);
                    waiting.push_back(next);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph with these arrows, each from the first module to the second.
    fn graph(arrows: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::default();
        for (from, to) in arrows {
            graph.add_module(from);
            graph.add_module(to);
            graph.add_arrow(from, to, &format!("{from}.rs"));
        }
        graph
    }

    #[test]
    fn lines_are_sorted_and_show_every_module() {
        assert_eq!(graph(&[("b", "c"), ("b", "a"), ("c", "a")]).lines(), "a\nb -> a, c\nc -> a\n");
    }

    #[test]
    fn no_cycle_is_found_in_a_graph_without_cycles() {
        assert_eq!(graph(&[("a", "b"), ("b", "c"), ("a", "c")]).cycles(), [""; 0]);
    }

    #[test]
    fn a_cycle_is_named_with_its_files() {
        let cycles = graph(&[("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]).cycles();
        let expected = "3 modules use each other: a b c; a -> b (a.rs); b -> c (b.rs); c -> a (c.rs)";
        assert_eq!(cycles, [expected]);
    }

    #[test]
    fn a_cycle_is_found_beside_a_module_that_was_never_added() {
        let mut graph = Graph::default();
        for (from, to) in [("m", "lib"), ("m", "z"), ("z", "lib"), ("z", "m")] {
            graph.add_module(from);
            graph.add_arrow(from, to, &format!("{from}.rs"));
        }
        assert_eq!(graph.cycles(), ["2 modules use each other: m z; m -> z (m.rs); z -> m (z.rs)"]);
    }

    #[test]
    fn the_shortest_cycle_of_each_group_is_shown() {
        let cycles =
            graph(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "b"), ("x", "y"), ("y", "x")]).cycles();
        assert_eq!(
            cycles,
            [
                "3 modules use each other: a b c; b -> c (b.rs); c -> b (c.rs)",
                "2 modules use each other: x y; x -> y (x.rs); y -> x (y.rs)"
            ]
        );
    }
}
