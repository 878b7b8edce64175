//! The paths that an indexing policy indexes. The charge of a write depends on
//! the number of indexed values.
//!
//! Microsoft documents these rules: the most specific path that matches a value
//! decides; a path ends in `/?` (the value itself) or `/*` (the value and everything
//! below it); `[]` is any element of an array; `id` is indexed unless the mode is `none`.

use perihelion_model::json::{Object, Value};

/// The members that the service adds to a document (`_lsn` only in the change feed).
/// They do not count as indexed values under any policy.
pub(crate) const SYSTEM_MEMBERS: [&str; 6] = ["_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"];

/// The paths of a policy, parsed once for each container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IndexedPaths {
    /// Whether the policy indexes nothing (the mode is `none`).
    indexes_nothing: bool,
    /// The included and excluded paths. Empty when every path is indexed, as without
    /// a policy.
    rules: Vec<PathRule>,
}

/// An included or excluded path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PathRule {
    /// The steps before the `/?` or `/*` at the end.
    steps: Vec<String>,
    /// Whether the path ends in `/*`.
    is_deep: bool,
    /// Whether the policy includes the path; otherwise the policy excludes it.
    is_included: bool,
}

/// The step of a path that stands for any element of an array.
const ELEMENT: &str = "[]";

impl IndexedPaths {
    /// The paths of an indexing policy. Without a policy every path is indexed.
    pub(crate) fn new(policy: Option<&Value>) -> Self {
        let Some(policy) = policy else { return IndexedPaths::default() };
        if policy.get("indexingMode").and_then(Value::as_str) == Some("none") {
            return IndexedPaths { indexes_nothing: true, rules: Vec::new() };
        }
        let rules = |member: &str, is_included: bool| -> Vec<PathRule> {
            let paths = policy.get(member).and_then(Value::as_array).unwrap_or_default();
            let texts = paths.iter().filter_map(|path| path.get("path")?.as_str());
            texts.filter_map(|text| PathRule::parse(text, is_included)).collect()
        };
        let mut rules: Vec<PathRule> =
            rules("includedPaths", true).into_iter().chain(rules("excludedPaths", false)).collect();
        rules.retain(|rule| !SYSTEM_MEMBERS.contains(&rule.steps.first().map_or("", String::as_str)));
        let indexes_everything =
            rules.iter().all(|rule| rule.is_included && rule.steps.is_empty() && rule.is_deep);
        if indexes_everything {
            rules.clear();
        }
        IndexedPaths { indexes_nothing: false, rules }
    }

    /// The number of indexed values in a document, without system members. A value is a
    /// scalar, an empty array or an empty object.
    pub(crate) fn terms(&self, document: &Object) -> u32 {
        if self.indexes_nothing {
            return 0;
        }
        let mut path = Vec::new();
        let members = document.iter().filter(|(name, _)| !SYSTEM_MEMBERS.contains(name));
        members.map(|(name, value)| self.terms_below(&mut path, name, value)).sum()
    }

    /// The number of indexed values in the member `step` of the value at `path`.
    fn terms_below<'d>(&self, path: &mut Vec<&'d str>, step: &'d str, value: &'d Value) -> u32 {
        path.push(step);
        let terms = match value {
            Value::Array(items) if !items.is_empty() => {
                items.iter().map(|item| self.terms_below(path, ELEMENT, item)).sum()
            }
            Value::Object(object) if object.iter().next().is_some() => {
                object.iter().map(|(name, value)| self.terms_below(path, name, value)).sum()
            }
            _ => u32::from(self.is_indexed(path)),
        };
        path.pop();
        terms
    }

    /// Whether a query can use an index on the value at this path.
    pub(crate) fn covers(&self, path: &[&str]) -> bool {
        !self.indexes_nothing && (path == ["_ts"] || self.is_indexed(path))
    }

    /// Whether the value at this path is indexed.
    fn is_indexed(&self, path: &[&str]) -> bool {
        if self.rules.is_empty() || path == ["id"] {
            return true;
        }
        let matching = self.rules.iter().filter(|rule| rule.matches(path));
        // Of two paths with the same number of steps, `/?` wins over `/*`, and an
        // excluded path over an included one.
        let best = matching.max_by_key(|rule| (rule.steps.len(), !rule.is_deep, !rule.is_included));
        best.is_some_and(|rule| rule.is_included)
    }
}

impl PathRule {
    /// Parses a path; `None` for a path that does not end in `/?` or `/*`. Such a path is
    /// ignored.
    fn parse(text: &str, is_included: bool) -> Option<PathRule> {
        let mut steps: Vec<String> = text
            .split('/')
            .filter(|step| !step.is_empty())
            .map(|step| step.trim_matches('"').to_owned())
            .collect();
        let is_deep = match steps.last().map(String::as_str) {
            Some("*") => true,
            Some("?") => false,
            _ => return None,
        };
        steps.pop();
        Some(PathRule { steps, is_deep, is_included })
    }

    fn matches(&self, path: &[&str]) -> bool {
        let is_long_enough =
            if self.is_deep { path.len() >= self.steps.len() } else { path.len() == self.steps.len() };
        is_long_enough && self.steps.iter().zip(path).all(|(step, name)| step == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perihelion_model::json;

    fn terms(policy: &str, document: &str) -> u32 {
        let policy = json::parse(policy.as_bytes()).unwrap();
        let document = json::parse(document.as_bytes()).unwrap();
        IndexedPaths::new(Some(&policy)).terms(document.as_object().unwrap())
    }

    const DOCUMENT: &str = r#"{"id":"1","a":1,"b":{"c":1,"d":[1,2,{"e":3}]},"f":[],"_ts":1}"#;

    #[test]
    fn without_a_policy_every_value_except_system_members_is_indexed() {
        assert_eq!(terms("{}", DOCUMENT), 7);
        assert_eq!(
            terms(r#"{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]}"#, DOCUMENT),
            7
        );
    }

    #[test]
    fn the_most_specific_path_decides_whether_a_value_is_indexed() {
        let only = r#"{"includedPaths":[{"path":"/a/?"}],"excludedPaths":[{"path":"/*"}]}"#;
        assert_eq!(terms(only, DOCUMENT), 2, "id and a");
        let within =
            r#"{"includedPaths":[{"path":"/*"},{"path":"/b/d/[]/e/?"}],"excludedPaths":[{"path":"/b/*"}]}"#;
        assert_eq!(terms(within, DOCUMENT), 4, "id, a, e, f");
        let elements = r#"{"includedPaths":[{"path":"/b/d/[]/?"}],"excludedPaths":[{"path":"/*"}]}"#;
        assert_eq!(terms(elements, DOCUMENT), 3, "id and two elements");
    }

    #[test]
    fn the_mode_none_indexes_nothing() {
        assert_eq!(terms(r#"{"indexingMode":"none"}"#, DOCUMENT), 0);
    }
}
