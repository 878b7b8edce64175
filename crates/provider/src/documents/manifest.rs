//! `Manifest`: a compact list of the chunk documents of a history. Chunks are numbered, and
//! a run of consecutive chunks with the same staging id is one entry. A list of ids would
//! fill the state document of a workflow that never ends.

use serde::{Deserialize, Serialize};

/// The chunks of an execution, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Manifest {
    runs: Vec<Run>,
}

/// Consecutive chunks: their count, and their staging id if they were staged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Run(u64, Option<String>);

impl Manifest {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(crate) fn len(&self) -> u64 {
        self.runs.iter().map(|Run(count, _)| count).sum()
    }

    /// Adds a chunk and returns its document id. `staging_id` is set if the chunk is staged.
    pub(crate) fn push(&mut self, execution: u64, staging_id: Option<&str>) -> String {
        let id = chunk_id(execution, self.len(), staging_id);
        match self.runs.last_mut() {
            Some(Run(count, run_staging_id)) if run_staging_id.as_deref() == staging_id => *count += 1,
            _ => self.runs.push(Run(1, staging_id.map(str::to_owned))),
        }
        id
    }

    /// Whether these are the first chunks of `longer`, or all of them.
    pub(crate) fn is_prefix_of(&self, longer: &Manifest) -> bool {
        let count = usize::try_from(self.len()).unwrap_or(usize::MAX);
        self.len() <= longer.len() && self.staging_ids().eq(longer.staging_ids().take(count))
    }

    /// The staging id of each chunk, in order; `None` for a chunk that was not staged.
    fn staging_ids(&self) -> impl Iterator<Item = Option<&str>> {
        self.runs.iter().flat_map(|Run(count, id)| (0..*count).map(|_| id.as_deref()))
    }

    /// The ids of the chunk documents, in order.
    pub(crate) fn ids(&self, execution: u64) -> impl Iterator<Item = String> {
        self.staging_ids().zip(0u64..).map(move |(staging_id, n)| chunk_id(execution, n, staging_id))
    }
}

fn chunk_id(execution: u64, n: u64, staging_id: Option<&str>) -> String {
    match staging_id {
        None => format!("h:{execution}:{n}"),
        Some(staging_id) => format!("h:{execution}:{n}:{staging_id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_keeps_chunk_ids_and_stays_small() {
        let mut manifest = Manifest::default();
        let mut ids = Vec::new();
        for n in 0..30_000 {
            let staging_id = (n % 10_000 < 7).then(|| format!("mark{}", n / 10_000));
            ids.push(manifest.push(2, staging_id.as_deref()));
        }
        let json = serde_json::to_string(&manifest).expect("JSON");
        assert!(json.len() < 200, "{json}");
        let manifest: Manifest = serde_json::from_str(&json).expect("a manifest");
        assert_eq!(manifest.ids(2).collect::<Vec<_>>(), ids);
        assert_eq!(manifest.len(), 30_000);
        assert_eq!((ids[0].as_str(), ids[8].as_str()), ("h:2:0:mark0", "h:2:8"));
    }

    #[test]
    fn a_prefix_has_the_same_staging_ids() {
        let manifest_of = |staging_ids: &[Option<&str>]| {
            let mut manifest = Manifest::default();
            staging_ids.iter().for_each(|id| drop(manifest.push(1, *id)));
            manifest
        };
        let whole = manifest_of(&[None, None, Some("a"), None]);
        for count in 0..=4 {
            let prefix = manifest_of(&[None, None, Some("a"), None][..count]);
            assert!(prefix.is_prefix_of(&whole), "{count}");
        }
        assert!(!whole.is_prefix_of(&manifest_of(&[None, None, Some("a")])));
        assert!(!manifest_of(&[None, None, Some("b")]).is_prefix_of(&whole));
        assert!(!manifest_of(&[None, Some("a")]).is_prefix_of(&whole));
    }
}
