//! Finds the tests that a Markdown table names: reads the names in the table, and looks
//! them up in the Rust sources of the repository.

use std::path::{Path, PathBuf};

use crate::repository;

/// The Rust sources below some directories.
#[derive(Debug)]
pub struct Sources(Vec<(PathBuf, String)>);

impl Sources {
    /// Reads every Rust file below these directories of the repository, except in
    /// directories called `target`.
    pub fn read(directories: &[&str]) -> Sources {
        let mut files = Vec::new();
        for directory in directories {
            collect_rust_files(&repository::root().join(directory), &mut files);
        }
        Sources(files)
    }

    /// Whether a function of this name, without type parameters, is defined.
    pub fn has_function(&self, name: &str) -> bool {
        self.0.iter().any(|(_, text)| text.contains(&format!("fn {name}(")))
    }

    /// Whether a test is defined. `path` has the modules of the test and then the name of its
    /// function. A module is a file or a folder. The module `tests` is ignored, because it may be
    /// inside a file.
    pub fn has_test(&self, path: &str) -> bool {
        let mut modules: Vec<&str> = path.split("::").collect();
        let Some(function) = modules.pop() else { return false };
        let is_in = |file: &Path| {
            let file = file.with_extension("");
            let named = |module: &&str| *module == "tests" || file.iter().any(|part| part == *module);
            modules.iter().all(named)
        };
        self.0.iter().any(|(file, text)| is_in(file) && defines_test(text, function))
    }
}

/// Whether the first function of this name in the text has a test attribute. The attribute
/// stands before the function, without an empty line in between.
fn defines_test(text: &str, name: &str) -> bool {
    let Some((before, _)) = text.split_once(&format!("fn {name}(")) else { return false };
    let attributes = before.rsplit("\n\n").next().unwrap_or_default();
    attributes.contains("#[test]") || attributes.contains("#[tokio::test")
}

fn collect_rust_files(directory: &Path, files: &mut Vec<(PathBuf, String)>) {
    let entries = std::fs::read_dir(directory).unwrap_or_else(|error| panic!("{directory:?}: {error}"));
    for entry in entries.map(|entry| entry.unwrap_or_else(|error| panic!("{directory:?}: {error}"))) {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() && name != "target" {
            collect_rust_files(&path, files);
        } else if name.ends_with(".rs") {
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            files.push((path, text));
        }
    }
}

/// The cells of every row of the tables in a Markdown text, the heads included.
pub fn table_rows(markdown: &str) -> Vec<Vec<&str>> {
    let rows = markdown.lines().filter_map(|line| line.trim_end().strip_prefix('|')?.strip_suffix('|'));
    rows.map(|row| row.split('|').map(str::trim).collect()).collect()
}

/// The texts between backticks in a cell.
pub fn in_backticks(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::{Sources, in_backticks, table_rows};

    #[test]
    fn names_are_read_from_the_cells_of_a_table() {
        let rows = table_rows("text\n| no. | test |\n|---|---|\n| 1 | `a::b` and `c` |\n");
        assert_eq!(rows, [vec!["no.", "test"], vec!["---", "---"], vec!["1", "`a::b` and `c`"]]);
        assert_eq!(in_backticks(rows[2][1]), ["a::b", "c"]);
    }

    #[test]
    fn a_test_is_found_by_its_modules_and_its_function() {
        let sources = Sources::read(&["crates/testkit"]);
        let here = "a_test_is_found_by_its_modules_and_its_function";
        assert!(sources.has_function(here) && sources.has_test(here));
        assert!(sources.has_test(&format!("named_tests::tests::{here}")));
        assert!(!sources.has_test(&format!("scratch::{here}")));
        assert!(sources.has_function("has_test"));
        assert!(!sources.has_test("has_test"), "a function, but not a test");
        assert!(!sources.has_test("named_tests"), "a module, but not a test");
    }
}
