//! Tests that a Markdown table names: reads the names out of the table, and
//! looks them up in the Rust sources of the repository.

use std::path::Path;

use crate::repository;

/// The Rust sources below some directories.
#[derive(Debug)]
pub struct Sources(String);

impl Sources {
    /// Reads every Rust file below these directories of the repository.
    pub fn read(directories: &[&str]) -> Sources {
        let mut text = String::new();
        for directory in directories {
            collect(&repository::root().join(directory), &mut text);
        }
        Sources(text)
    }

    /// Whether a function of this name is defined.
    pub fn has_function(&self, name: &str) -> bool {
        self.0.contains(&format!("fn {name}("))
    }

    /// Whether a module of this name is declared.
    pub fn has_module(&self, name: &str) -> bool {
        self.0.contains(&format!("mod {name};"))
    }
}

fn collect(directory: &Path, text: &mut String) {
    let entries = std::fs::read_dir(directory).unwrap_or_else(|error| panic!("{directory:?}: {error}"));
    for entry in entries.map(|entry| entry.unwrap_or_else(|error| panic!("{directory:?}: {error}"))) {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() && name != "target" {
            collect(&path, text);
        } else if name.ends_with(".rs") {
            text.push_str(
                &std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}")),
            );
        }
    }
}

/// The cells of every row of the tables in a Markdown text, the heads included.
pub fn table_rows(markdown: &str) -> Vec<Vec<&str>> {
    let rows = markdown.lines().filter_map(|line| line.trim_end().strip_prefix('|')?.strip_suffix('|'));
    rows.map(|row| row.split('|').map(str::trim).collect()).collect()
}

/// What stands between backticks in a cell.
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
    fn functions_and_modules_are_found_in_the_sources() {
        let sources = Sources::read(&["crates/testkit"]);
        assert!(sources.has_function("functions_and_modules_are_found_in_the_sources"));
        assert!(sources.has_module("named_tests"));
        assert!(!sources.has_module("no_such_module"));
    }
}
