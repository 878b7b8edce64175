//! COMPAT.md names tests; they must exist.

use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What stands between backticks in the rows of the first table.
fn named_in_rows(text: &str) -> Vec<String> {
    let rows = text.lines().filter(|line| line.starts_with('|'));
    let last_cells = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next());
    last_cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
        .collect()
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
fn every_test_named_in_compat_md_exists() {
    let text = std::fs::read_to_string(repository().join("COMPAT.md")).unwrap();
    let mut code = String::new();
    sources(&repository().join("crates"), &mut code);
    let named = named_in_rows(text.split("## Known differences").next().unwrap());
    assert!(named.len() > 40, "{named:?}");
    for name in named {
        let exists = match name.rsplit("::").next() {
            Some(function) if name.contains("::") && function != "tests" => {
                code.contains(&format!("fn {function}("))
            }
            _ if name.contains('/') => {
                repository().join(&name).exists()
                    || ["query", "wire", "engine"]
                        .iter()
                        .any(|krate| repository().join("crates").join(krate).join(&name).exists())
            }
            Some(module) => {
                let module = module.split("::").next().unwrap_or(module);
                code.contains(&format!("mod {module};"))
                    || code.contains(&format!("fn {module}("))
                    || module == "tests"
            }
            None => false,
        };
        assert!(exists, "COMPAT.md names {name}, which does not exist");
    }
}
