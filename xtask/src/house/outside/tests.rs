//! Tests of the search for references to files outside the checkout.

use std::path::PathBuf;

use super::super::tree::Tree;
use super::*;

/// Whether a line in a file is a problem.
fn is_problem(file: &str, line: &str) -> bool {
    let tree = Tree::new(&[(file, line), ("crates/provider/src/lib.rs", "")]);
    let tracked = [file, "docs/cosmos.md", "README.md", "docs/style.md", "plan.md"].map(PathBuf::from);
    let problems = check(tree.root(), &tracked);
    assert!(problems.iter().all(|problem| problem.path == file), "{problems:?}");
    !problems.is_empty()
}

#[test]
fn a_path_may_climb_to_the_root_and_no_further() {
    let file = "crates/x/tests/it/main.rs";
    assert!(!is_problem(file, "include_str!(\"../../../../docs/cosmos.md\")"));
    assert!(is_problem(file, "include_str!(\"../../../../../facts/cosmos.md\")"));
    assert!(!is_problem("docs/a.md", "see [b](../README.md)"));
    assert!(is_problem("README.md", "see [b](../plan.md)"));
    assert!(is_problem("docs/a.md", "see [b](x/../../../plan.md)"));
    assert!(is_problem("build.rs", "root.join(\"..\")"));
}

#[test]
fn a_path_after_the_manifest_directory_begins_at_the_crate() {
    let file = "crates/x/tests/it/main.rs";
    let line = |path: &str| format!("Path::new(env!(\"CARGO_MANIFEST_DIR\"))\n    .join(\"{path}\")");
    assert!(!is_problem(file, &line("../../conformance/a.json")));
    assert!(is_problem(file, &line("../../../conformance/a.json")));
    assert!(is_problem(file, "format!(\"{}/../../../a\", env!(\"CARGO_MANIFEST_DIR\"))"));
}

#[test]
fn a_path_into_the_directory_beside_the_checkout_is_a_problem() {
    assert!(is_problem("docs/a.md", &format!("`../{BESIDE}/style.md`")));
    assert!(is_problem("docs/a.md", &format!("`{BESIDE}/style.md`")));
    assert!(is_problem("crates/x/src/a.rs", &format!("// see {BESIDE}/facts/a.md")));
    assert!(!is_problem("crates/x/src/a.rs", &format!("let {BESIDE} = 1; // un{BESIDE}/x")));
}

#[test]
fn an_absolute_path_of_one_machine_is_a_problem() {
    assert!(is_problem("a.sh", "cd /work/main"));
    assert!(is_problem("a.sh", "HOME=/home/me"));
    assert!(!is_problem("a.md", "perihelion --to duroxide/workflows /workflows"));
}

#[test]
fn ranges_and_paths_that_enter_the_checkout_from_beside_it_are_no_problem() {
    assert!(!is_problem("build.rs", "for x in 1..2 { &y[..]; S { a, ..b } }"));
    assert!(!is_problem("README.md", "duroxide-cdb = { path = \"../perihelion/crates/provider\" }"));
    assert!(is_problem("README.md", "duroxide-cdb = { path = \"../perihelion/crates/missing\" }"));
}

#[test]
fn a_cited_page_that_does_not_exist_is_a_problem() {
    assert!(!is_problem("crates/x/src/a.rs", "//! See `docs/cosmos.md`, and cosmos.md."));
    assert!(is_problem("crates/x/src/a.rs", "//! See facts.md."));
    assert!(is_problem("crates/x/src/a.rs", "//! See `facts/cosmos.md`."));
    assert!(!is_problem("docs/a.md", "[a](https://example.org/facts.md)"));
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_out_is_a_problem() {
    let tree = Tree::new(&[("docs/a.md", "")]);
    std::os::unix::fs::symlink("../../elsewhere", tree.path("docs/link")).expect("a link is made");
    assert_eq!(check(tree.root(), &[PathBuf::from("docs/link")]).len(), 1);
}
