//! Finds references to files outside the checkout, which a reader of a clone does not have.
//! There are four kinds: a path that climbs out of the repository, a path into the directory
//! `BESIDE`, an absolute path into one of `HOMES`, and the name of a page (`x.md`) that git
//! does not track.
//!
//! A relative path begins at the directory of the file that names it. In a Rust source, a path
//! near the word `CARGO_MANIFEST_DIR` begins at the directory of the crate.

#[cfg(test)]
mod tests;

use std::path::{Component, Path, PathBuf};

use super::Problem;

/// Directories in which people and CI keep their checkouts.
const HOMES: [&str; 5] = ["/work/", "/home/", "/Users/", "/root/", "/mnt/"];

/// The name of a directory that stands beside some checkouts and does not belong to the
/// repository.
const BESIDE: &str = "shared";

/// The name of the checkout's directory in examples of manifests. The programs with these
/// manifests are stored beside the checkout.
const OWN_NAME: &str = "perihelion";

/// The path prefix of this check's own files. They contain the patterns and are not checked.
const OWN_FILES: &str = "xtask/src/house/outside";

/// In a Rust source, paths on a line with this word, and on the lines next to it, begin at the
/// crate.
const MANIFEST_DIRECTORY: &str = "CARGO_MANIFEST_DIR";

pub(super) fn check(root: &Path, tracked: &[PathBuf]) -> Vec<Problem> {
    let pages: Vec<&Path> = tracked.iter().map(PathBuf::as_path).filter(|file| is_page(file)).collect();
    let mut problems = Vec::new();
    for file in tracked.iter().filter(|file| !file.to_string_lossy().starts_with(OWN_FILES)) {
        let path = root.join(file);
        let text = match std::fs::read_link(&path) {
            Ok(target) => target.to_string_lossy().into_owned(),
            // A file that is not text names no path.
            Err(_) => std::fs::read_to_string(&path).unwrap_or_default(),
        };
        let texts = outside_paths(root, file, &text).into_iter().chain(missing_pages(&pages, &text));
        problems.extend(texts.map(|text| Problem { path: file.display().to_string(), text }));
    }
    problems
}

/// The paths in a file's text that lead out of the checkout, each described for a reader.
fn outside_paths(root: &Path, file: &Path, text: &str) -> Vec<String> {
    let is_rust = file.extension().is_some_and(|extension| extension == "rs");
    let file_directory = file.parent().unwrap_or(Path::new(""));
    let lines: Vec<&str> = text.lines().collect();
    let mut problems = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if !HOMES.iter().chain([&BESIDE, &".."]).any(|part| line.contains(part)) {
            continue;
        }
        let near = &lines[at.saturating_sub(1)..(at + 2).min(lines.len())];
        let is_at_crate = is_rust && near.iter().any(|line| line.contains(MANIFEST_DIRECTORY));
        let base = if is_at_crate { crate_of(root, file_directory) } else { file_directory.to_owned() };
        // Two dots alone and without quotes are a range in Rust, not a path.
        let is_quoted = line.contains("\"..\"");
        let paths = paths_in(line).filter(|path| is_quoted || *path != "..");
        for path in paths.filter(|path| is_outside(root, &base, path)) {
            problems.push(format!("line {}: {path} is outside of the checkout", at + 1));
        }
    }
    problems
}

/// Pages that the text names and git does not track, each described for a reader. Web
/// addresses are skipped.
fn missing_pages(pages: &[&Path], text: &str) -> Vec<String> {
    let mut missing = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| line.contains(".md")) {
        let cited = paths_in(line).map(|path| path.trim_end_matches('.'));
        let cited = cited.filter(|path| path.ends_with(".md") && !path.starts_with("//"));
        // A page may be named from any directory: the end of its path is enough.
        let cited = cited.filter(|path| {
            let path = path.trim_start_matches("../").trim_start_matches("./");
            !pages.iter().any(|page| page.ends_with(path))
        });
        missing.extend(cited.map(|path| format!("line {}: there is no page {path} in the checkout", at + 1)));
    }
    missing
}

fn is_page(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "md")
}

/// The nearest directory with a manifest, from this directory upwards. The directory itself
/// if none has a manifest.
fn crate_of(root: &Path, directory: &Path) -> PathBuf {
    let found = directory.ancestors().find(|ancestor| root.join(ancestor).join("Cargo.toml").is_file());
    found.unwrap_or(directory).to_owned()
}

/// Every run of characters that a path can have.
fn paths_in(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |letter: char| letter.is_alphanumeric() || "/._-".contains(letter);
    line.split(move |letter| !is_part(letter)).filter(|path| !path.is_empty())
}

/// Whether a path names a file outside the checkout. `base` is the directory at which a
/// relative path begins, as a path from the root.
fn is_outside(root: &Path, base: &Path, path: &str) -> bool {
    if HOMES.iter().any(|home| path.starts_with(home)) {
        return true;
    }
    // A path after a variable or a call, as in `{}/../x`, begins with a slash.
    let path = path.trim_start_matches('/');
    let beside = path.trim_start_matches("../").trim_start_matches("./");
    if beside.starts_with(&format!("{BESIDE}/")) {
        return true;
    }
    if !path.split('/').any(|part| part == "..") {
        return false;
    }
    climbs_out(base, path) && !is_own(root, base, path)
}

/// Whether a path that begins at `base` leaves the root at any of its parts.
fn climbs_out(base: &Path, path: &str) -> bool {
    let mut depth = base.components().count();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir if depth == 0 => return true,
            Component::ParentDir => depth -= 1,
            Component::Normal(_) => depth += 1,
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    false
}

/// Whether the path names the checkout from beside it, as `../perihelion/crates/provider`
/// does, and names something that exists.
fn is_own(root: &Path, base: &Path, path: &str) -> bool {
    let ups = base.components().count() + 1;
    let climb = "../".repeat(ups);
    let named = path.strip_prefix(&climb).or_else(|| path.strip_prefix("../"));
    let inner = named.and_then(|rest| rest.strip_prefix(OWN_NAME)).and_then(|rest| rest.strip_prefix('/'));
    inner.is_some_and(|inner| root.join(inner).exists())
}
