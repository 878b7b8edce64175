//! COMPAT.md names tests; they must exist.

use perihelion_testkit::named_tests::{Sources, in_backticks, table_rows};
use perihelion_testkit::repository;

/// The names between backticks in the last cell of every row.
fn named_in_rows(text: &str) -> Vec<&str> {
    let rows = table_rows(text);
    rows.iter().filter_map(|cells| cells.last().copied()).flat_map(in_backticks).collect()
}

#[test]
fn every_test_named_in_compat_md_exists() {
    let text = repository::read("COMPAT.md");
    let sources = Sources::read(&["crates"]);
    let named = named_in_rows(text.split("## Known differences").next().unwrap());
    assert!(named.len() > 40, "{named:?}");
    for name in named {
        let exists = match name.rsplit("::").next() {
            Some(function) if name.contains("::") && function != "tests" => sources.has_function(function),
            _ if name.contains('/') => {
                repository::root().join(name).exists()
                    || ["query", "wire", "engine"]
                        .iter()
                        .any(|krate| repository::root().join("crates").join(krate).join(name).exists())
            }
            Some(module) => {
                let module = module.split("::").next().unwrap_or(module);
                sources.has_module(module) || sources.has_function(module) || module == "tests"
            }
            None => false,
        };
        assert!(exists, "COMPAT.md names {name}, which does not exist");
    }
}
