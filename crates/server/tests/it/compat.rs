//! Checks that the tests that COMPAT.md names exist.

use std::collections::BTreeMap;

use perihelion_testkit::named_tests::{Sources, in_backticks, table_rows};
use perihelion_testkit::repository;

/// The crate of a test that is named without a crate.
const DEFAULT_CRATE: &str = "crates/server";

/// The tests and directories that a row's last cell names, each as its crate and its
/// name: "`items::a`, crates/cli `help::b`".
fn named_items(cell: &str) -> Vec<(&str, &str)> {
    let items = cell.split(", ").flat_map(|item| {
        let krate = item.split('`').next().unwrap_or_default().trim();
        let krate = if krate.is_empty() { DEFAULT_CRATE } else { krate };
        in_backticks(item).into_iter().map(move |name| (krate, name))
    });
    items.collect()
}

#[test]
fn every_test_named_in_compat_md_exists() {
    let text = repository::read("COMPAT.md");
    let supported = text.split("## Known differences").next().unwrap();
    // The first two rows are the head of the table and the line under it.
    let rows = table_rows(supported).into_iter().skip(2);
    let mut sources: BTreeMap<&str, Sources> = BTreeMap::new();
    let (mut count, mut missing) = (0, Vec::new());
    for row in rows {
        let named = named_items(row.last().copied().unwrap_or_default());
        assert!(!named.is_empty(), "the row {:?} names no test", row[0]);
        for (krate, name) in named {
            count += 1;
            let exists = if name.starts_with("interop/") {
                repository::root().join(name).is_dir()
            } else {
                sources.entry(krate).or_insert_with(|| Sources::read(&[krate])).has_test(name)
            };
            if !exists {
                missing.push(format!("{krate} {name}"));
            }
        }
    }
    assert!(count > 40, "only {count} tests are named");
    assert!(missing.is_empty(), "COMPAT.md names tests that do not exist: {missing:#?}");
}
