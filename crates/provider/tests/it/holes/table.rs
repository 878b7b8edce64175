//! Checks `docs/provider-holes.md`: every hole, every interleaving and every trouble at scale has
//! a row, and every name there is a test or a case.

use perihelion_testkit::named_tests::{Sources, in_backticks, table_rows};
use perihelion_testkit::repository;

/// Holes of the published crate, numbered from 1.
const HOLES: usize = 42;

/// Groups of interleavings: the letter of a group, and how many interleavings the group has.
const INTERLEAVINGS: [(char, usize); 6] = [('L', 7), ('T', 5), ('M', 6), ('F', 8), ('N', 3), ('S', 28)];

/// Troubles at scale, numbered from 0.
const TROUBLES: usize = 17;

macro_rules! names {
    ($($module:ident :: $case:ident : $verdict:ident $words:literal,)+) => {
        [$(stringify!($case)),+]
    };
}

/// The names of the cases. A macro makes a test of each of them.
const CASES: &[&str] = &crate::cases::each_case!(names);

/// The rows of the tables without their heads.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let rows = table_rows(text).into_iter();
    rows.filter(|cells| cells.len() == 3 && cells[0] != "no." && !cells[0].starts_with("---")).collect()
}

#[test]
fn every_hole_interleaving_and_trouble_has_a_test_that_exists() {
    let text = repository::read("docs/provider-holes.md");
    let rows = rows(&text);
    let numbers: Vec<&str> = rows.iter().map(|cells| cells[0]).collect();
    let interleavings = INTERLEAVINGS
        .into_iter()
        .flat_map(|(letter, count)| (1..=count).map(move |n| format!("{letter}{n}")));
    let troubles = (0..TROUBLES).map(|n| n.to_string());
    let expected: Vec<String> =
        (1..=HOLES).map(|n| n.to_string()).chain(interleavings).chain(troubles).collect();
    assert_eq!(numbers, expected, "the tables need one row each, in order");

    let sources = Sources::read(&["crates", "interop/holes/cases"]);
    for cells in &rows {
        let tests = in_backticks(cells[2]);
        assert!(!tests.is_empty(), "{} names no test", cells[0]);
        for test in tests {
            let is_test = CASES.contains(&test) || sources.has_test(test);
            assert!(is_test, "{} names {test}, which is not a test", cells[0]);
        }
    }
}
