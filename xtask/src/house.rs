//! The `house` part: what must hold of the repository's files, checked by
//! reading them. Modules do not use each other in a circle, ARCHITECTURE.md shows which
//! module uses which, no file names anything outside the checkout, and a module is `x.rs`
//! beside `x/`, never `x/mod.rs`.

mod architecture;
mod outside;
#[cfg(test)]
pub(crate) mod tree;

use std::path::{Path, PathBuf};

use crate::checkout::Checkout;
use crate::modules;
use crate::outcome::StepOutcome;

/// The page with the arrows.
const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// What a check found: the file or directory, and what is wrong with it.
#[derive(Debug, PartialEq)]
struct Problem {
    path: String,
    text: String,
}

/// Runs every check and prints every problem. A check passes once, or fails once for each
/// problem.
pub(crate) fn run(checkout: &Checkout) -> Vec<StepOutcome> {
    eprintln!("\n=== house: module arrows, paths out of the checkout, mod.rs");
    let root = checkout.path("");
    let tracked = match checkout.tracked_files() {
        Ok(tracked) => tracked,
        Err(why) => return vec![StepOutcome::failed(why)],
    };
    let checks = [
        ("module cycles", cycles(&root)),
        ("module arrows in ARCHITECTURE.md", arrows(&root)),
        ("paths out of the checkout", outside::check(&root, &tracked)),
        ("mod.rs", module_files(&tracked)),
    ];
    checks.into_iter().map(|(name, problems)| judge(name, problems)).collect()
}

/// Prints every problem. A check without problems passes.
fn judge(name: &str, problems: Vec<Problem>) -> StepOutcome {
    let mut outcome = StepOutcome::default();
    for Problem { path, text } in problems {
        eprintln!("{path}: {text}");
        outcome.add_failure(format!("{name}: {path}: {text}"));
    }
    if outcome.failures.is_empty() { StepOutcome::passed() } else { outcome }
}

fn cycles(root: &Path) -> Vec<Problem> {
    let mut problems = Vec::new();
    for directory in modules::crates(root) {
        let found = match modules::of_crate(&directory) {
            Ok(graph) => graph.cycles(),
            Err(why) => vec![why],
        };
        let path = relative(root, &directory);
        problems.extend(found.into_iter().map(|text| Problem { path: path.clone(), text }));
    }
    problems
}

/// Compares the blocks of ARCHITECTURE.md with the code.
fn arrows(root: &Path) -> Vec<Problem> {
    let page = std::fs::read_to_string(root.join(ARCHITECTURE)).unwrap_or_default();
    let mut blocks = architecture::blocks(&page);
    let mut problems = Vec::new();
    for directory in modules::crates(root) {
        let name = modules::crate_name(&directory);
        let written = blocks.remove(&name);
        let lines = modules::of_crate(&directory).map(|graph| graph.lines()).unwrap_or_default();
        if written.unwrap_or_default() != lines {
            let text = format!(
                "section \"## Modules\" of {ARCHITECTURE} differs from the code; \
                 `cargo xtask modules {name}` prints the block that belongs under \"### {name}\""
            );
            problems.push(Problem { path: relative(root, &directory), text });
        }
    }
    problems.extend(blocks.into_keys().map(|name| Problem {
        path: ARCHITECTURE.to_owned(),
        text: format!("there is no crate \"### {name}\""),
    }));
    problems
}

fn module_files(tracked: &[PathBuf]) -> Vec<Problem> {
    let found = tracked.iter().filter(|file| file.ends_with("mod.rs"));
    let text = "a module x is x.rs beside x/, not x/mod.rs";
    found.map(|file| Problem { path: file.display().to_string(), text: text.to_owned() }).collect()
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Tally;
    use tree::Tree;

    /// A workspace of one crate with those files.
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
        let problems = cycles(tree.root());
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
            arrows(workspace(&files).root())
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
        let problems = module_files(&tracked);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].path, "crates/x/src/a/mod.rs");
    }

    #[test]
    fn a_problem_fails_its_check_and_no_problem_passes_it() {
        assert_eq!(judge("check", Vec::new()), StepOutcome::passed());
        let problem = vec![Problem { path: "crates/x/src/a.rs".to_owned(), text: "wrong".to_owned() }];
        let counted = judge("check", problem);
        assert_eq!(counted.tally, Tally { failed: 1, ..Tally::default() });
        assert_eq!(counted.failures, ["check: crates/x/src/a.rs: wrong"]);
    }
}
