//! `docs/provider-holes.md` says which test closes which hole: every hole and
//! every interleaving has a row, and every test it names exists.

use std::path::{Path, PathBuf};

/// Holes of the published crate, numbered from 1.
const HOLES: usize = 42;

/// Groups of interleavings: the letter of a group and how many it has.
const INTERLEAVINGS: [(char, usize); 5] = [('L', 6), ('T', 5), ('M', 6), ('F', 8), ('N', 3)];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The cells of every row, but for heads and lines.
fn rows(text: &str) -> Vec<Vec<String>> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let cells = |row: &str| row.split(" | ").map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    rows.map(cells).filter(|cells| cells.len() == 3 && cells[0] != "no.").collect()
}

fn sources(directory: &Path, found: &mut String) {
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() && name != "target" {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            found.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_hole_and_interleaving_has_a_test_that_exists() {
    let text = std::fs::read_to_string(repository().join("docs/provider-holes.md")).unwrap();
    let rows = rows(&text);
    let numbers: Vec<&str> = rows.iter().map(|cells| cells[0].as_str()).collect();
    let interleavings = INTERLEAVINGS
        .into_iter()
        .flat_map(|(letter, count)| (1..=count).map(move |n| format!("{letter}{n}")));
    let expected: Vec<String> = (1..=HOLES).map(|n| n.to_string()).chain(interleavings).collect();
    assert_eq!(numbers, expected, "a row for each, in order");

    let mut code = String::new();
    sources(&repository().join("crates"), &mut code);
    sources(&repository().join("interop/holes/cases"), &mut code);
    for cells in &rows {
        let tests: Vec<&str> = cells[2].split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "{} names no test", cells[0]);
        for test in tests {
            assert!(code.contains(&format!("fn {test}(")), "{} names {test}, which does not exist", cells[0]);
        }
    }
}
