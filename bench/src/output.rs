//! The files of a run: the scratch directory, and the figures as JSON.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::Value;

/// A directory for this run alone, under `parent` or `bench/.run`.
pub fn scratch_directory(parent: Option<&Path>) -> anyhow::Result<PathBuf> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join(".run");
    let scratch = parent.unwrap_or(&default).join(std::process::id().to_string());
    fs::create_dir_all(&scratch).with_context(|| format!("creating {}", scratch.display()))?;
    Ok(scratch)
}

/// Writes the figures to the file `path`, if there is one.
pub fn write_json(path: Option<&Path>, figures: impl FnOnce() -> Value) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    fs::write(path, format!("{:#}\n", figures())).with_context(|| format!("writing {}", path.display()))
}
