//! The `house` part: five rules for the repository's files, checked by reading the files.
//! Modules do not use each other in a circle. ARCHITECTURE.md shows which module uses which
//! (the *arrows*). No file names a file outside the checkout. A module is `x.rs` beside `x/`,
//! never `x/mod.rs`. No file is larger than [`FILE_SIZE_MAX`].

mod architecture;
mod outside;
#[cfg(test)]
pub(crate) mod tree;

use std::path::{Path, PathBuf};

use crate::checkout::Checkout;
use crate::modules;
use crate::outcome::StepOutcome;

/// The page that shows the arrows.
const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// The size limit of a tracked file, in bytes. The largest file, recorded cases of the service,
/// has half of it. A larger file is usually a build product or a store, added by accident, which
/// would stay in the history for good.
const FILE_SIZE_MAX: u64 = 512 * 1024;

/// One violation of a rule: the file or directory, and what is wrong with it.
#[derive(Debug, PartialEq)]
struct Problem {
    path: String,
    text: String,
}

/// Runs every check and prints every problem. A check counts as one passed check, or as one
/// failed check for each of its problems.
pub(crate) fn run(checkout: &Checkout) -> Vec<StepOutcome> {
    eprintln!("\n=== house: module arrows, paths out of the checkout, mod.rs, file sizes");
    let root = checkout.path("");
    let tracked = match checkout.tracked_files() {
        Ok(tracked) => tracked,
        Err(why) => return vec![StepOutcome::failed(why)],
    };
    let checks = [
        ("module cycles", check_cycles(&root)),
        ("module arrows in ARCHITECTURE.md", check_arrows(&root)),
        ("paths out of the checkout", outside::check(&root, &tracked)),
        ("mod.rs", check_module_files(&tracked)),
        ("file sizes", check_file_sizes(&root, &tracked)),
    ];
    checks.into_iter().map(|(name, problems)| print_and_count(name, problems)).collect()
}

/// Prints the problems of a check and counts each as a failure. A check without problems
/// passes.
fn print_and_count(name: &str, problems: Vec<Problem>) -> StepOutcome {
    let mut outcome = StepOutcome::default();
    for Problem { path, text } in problems {
        eprintln!("{path}: {text}");
        outcome.add_failure(format!("{name}: {path}: {text}"));
    }
    if outcome.failures.is_empty() { StepOutcome::passed() } else { outcome }
}

fn check_cycles(root: &Path) -> Vec<Problem> {
    let mut problems = Vec::new();
    for directory in modules::crates(root) {
        let texts = match modules::graph_of_crate(&directory) {
            Ok(graph) => graph.cycles(),
            Err(why) => vec![why],
        };
        let path = relative_path(root, &directory);
        problems.extend(texts.into_iter().map(|text| Problem { path: path.clone(), text }));
    }
    problems
}

/// Compares the blocks of ARCHITECTURE.md with the code.
fn check_arrows(root: &Path) -> Vec<Problem> {
    let page = std::fs::read_to_string(root.join(ARCHITECTURE)).unwrap_or_default();
    let mut blocks = architecture::blocks(&page);
    let mut problems = Vec::new();
    for directory in modules::crates(root) {
        let name = modules::crate_name(&directory);
        let block = blocks.remove(&name);
        let lines = modules::graph_of_crate(&directory).map(|graph| graph.lines()).unwrap_or_default();
        if block.unwrap_or_default() != lines {
            let text = format!(
                "section \"## Modules\" of {ARCHITECTURE} differs from the code; \
                 `cargo xtask modules {name}` prints the block that belongs under \"### {name}\""
            );
            problems.push(Problem { path: relative_path(root, &directory), text });
        }
    }
    problems.extend(blocks.into_keys().map(|name| Problem {
        path: ARCHITECTURE.to_owned(),
        text: format!("there is no crate \"### {name}\""),
    }));
    problems
}

fn check_module_files(tracked: &[PathBuf]) -> Vec<Problem> {
    let mod_files = tracked.iter().filter(|file| file.ends_with("mod.rs"));
    let text = "a module x is x.rs beside x/, not x/mod.rs";
    mod_files.map(|file| Problem { path: file.display().to_string(), text: text.to_owned() }).collect()
}

fn check_file_sizes(root: &Path, tracked: &[PathBuf]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tracked {
        // A tracked file that was deleted but not committed has no size.
        let Ok(metadata) = std::fs::symlink_metadata(root.join(file)) else { continue };
        if metadata.len() > FILE_SIZE_MAX {
            let text = format!("has {} bytes, more than {FILE_SIZE_MAX}", metadata.len());
            problems.push(Problem { path: file.display().to_string(), text });
        }
    }
    problems
}

fn relative_path(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Tally;
    use tree::Tree;

    /// A workspace of one crate with these files, each with its path and text.
    fn workspace(files: &[(&str, &str)]) -> Tree {
        Tree::new(files)
    }

    #[test]
    fn a_cycle_is_a_problem_of_its_crate() {
        let tree = workspace(&[
            ("crates/x/src/lib.rs", "mod a; mod b;"),
            ("crates/x/src/a.rs", "use crate::b::B;"),
            ("crates/x/src/b.rs", "use super::a::A;"),
        ]);
        let problems = check_cycles(tree.root());
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].path, "crates/x");
        assert!(problems[0].text.starts_with("2 modules use each other: a b; a -> b ("), "{problems:?}");
    }

    #[test]
    fn arrows_that_differ_from_the_page_are_a_problem() {
        let code = [
            ("crates/x/src/lib.rs", "mod a; mod b;"),
            ("crates/x/src/a.rs", "use crate::b::B;"),
            ("crates/x/src/b.rs", ""),
        ];
        let page = |block: &str| format!("# A\n\n## Modules\n\n### x\n\n```text\n{block}```\n\n## Rest\n");
        let problems = |page: &str| {
            let mut files = code.to_vec();
            files.push((ARCHITECTURE, page));
            check_arrows(workspace(&files).root())
        };
        assert_eq!(problems(&page("a -> b\nb\n")), []);
        assert_eq!(problems(&page("a\nb\n")).len(), 1);
        assert_eq!(problems("# A page without arrows").len(), 1);
        let wrong = problems(&page("a -> b\nb\n").replace("## Rest", "### y\n\n```text\na\n```\n"));
        assert_eq!(wrong.len(), 1);
        assert_eq!(wrong[0].text, "there is no crate \"### y\"");
    }

    #[test]
    fn a_mod_rs_is_a_problem() {
        let tracked = ["crates/x/src/a/mod.rs", "crates/x/src/b.rs"].map(PathBuf::from);
        let problems = check_module_files(&tracked);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].path, "crates/x/src/a/mod.rs");
    }

    #[test]
    fn a_file_above_the_size_limit_is_a_problem() {
        let limit = usize::try_from(FILE_SIZE_MAX).unwrap();
        let (largest, too_large) = ("x".repeat(limit), "x".repeat(limit + 1));
        let tree = workspace(&[("largest", &largest), ("too-large", &too_large)]);
        let tracked = ["largest", "too-large", "deleted"].map(PathBuf::from);
        let problems = check_file_sizes(tree.root(), &tracked);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].path, "too-large");
    }

    #[test]
    fn a_problem_fails_its_check_and_no_problem_passes_it() {
        assert_eq!(print_and_count("check", Vec::new()), StepOutcome::passed());
        let problem = vec![Problem { path: "crates/x/src/a.rs".to_owned(), text: "wrong".to_owned() }];
        let counted = print_and_count("check", problem);
        assert_eq!(counted.tally, Tally { failed: 1, ..Tally::default() });
        assert_eq!(counted.failures, ["check: crates/x/src/a.rs: wrong"]);
    }
}
