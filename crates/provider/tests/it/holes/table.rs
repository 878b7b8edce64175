//! Checks `docs/provider-holes.md`: every hole and every interleaving has a row, and every
//! test named there exists.

use perihelion_testkit::named_tests::{Sources, in_backticks, table_rows};
use perihelion_testkit::repository;

/// Holes of the published crate, numbered from 1.
const HOLES: usize = 42;

/// Groups of interleavings: the letter of a group and how many it has.
const INTERLEAVINGS: [(char, usize); 6] = [('L', 7), ('T', 5), ('M', 6), ('F', 8), ('N', 3), ('S', 26)];

/// The rows of the tables without their heads.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let rows = table_rows(text).into_iter();
    rows.filter(|cells| cells.len() == 3 && cells[0] != "no." && !cells[0].starts_with("---")).collect()
}

#[test]
fn every_hole_and_interleaving_has_a_test_that_exists() {
    let text = repository::read("docs/provider-holes.md");
    let rows = rows(&text);
    let numbers: Vec<&str> = rows.iter().map(|cells| cells[0]).collect();
    let interleavings = INTERLEAVINGS
        .into_iter()
        .flat_map(|(letter, count)| (1..=count).map(move |n| format!("{letter}{n}")));
    let expected: Vec<String> = (1..=HOLES).map(|n| n.to_string()).chain(interleavings).collect();
    assert_eq!(numbers, expected, "the table needs one row per hole, in order");

    let sources = Sources::read(&["crates", "interop/holes/cases"]);
    for cells in &rows {
        let tests = in_backticks(cells[2]);
        assert!(!tests.is_empty(), "{} names no test", cells[0]);
        for test in tests {
            assert!(sources.has_function(test), "{} names {test}, which does not exist", cells[0]);
        }
    }
}
