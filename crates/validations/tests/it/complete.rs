//! Compares the lists with the source of the duroxide that this build uses:
//! every public validation is listed, and nothing else is. The source is found
//! in cargo's registry by the version in the lock file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A validation: its module, its name.
type Validation = (String, String);

/// Panics with the difference when the lists together are not duroxide's suite.
pub(crate) fn check(lists: &[&[(&str, &str)]]) {
    let names = || lists.iter().copied().flatten();
    let listed: BTreeSet<Validation> =
        names().map(|(module, name)| ((*module).to_owned(), (*name).to_owned())).collect();
    assert_eq!(listed.len(), names().count(), "a validation is listed twice");
    let public = public_validations(&source_of_duroxide());
    let forgotten: Vec<_> = public.difference(&listed).collect();
    let unknown: Vec<_> = listed.difference(&public).collect();
    assert!(forgotten.is_empty() && unknown.is_empty(), "forgotten: {forgotten:?}; unknown: {unknown:?}");
}

#[test]
fn only_public_functions_at_the_left_margin_are_validations() {
    let source =
        "pub async fn one<F>(f: &F) {\n    pub fn inner() {}\n}\nasync fn helper() {}\npub fn two() {}\n";
    assert_eq!(public_functions(source).collect::<Vec<_>>(), ["one", "two"]);
}

/// The public functions of the suite's modules.
fn public_validations(duroxide: &Path) -> BTreeSet<Validation> {
    let suite = duroxide.join("src/provider_validation");
    let entries = std::fs::read_dir(&suite).unwrap_or_else(|error| panic!("{}: {error}", suite.display()));
    let mut found = BTreeSet::new();
    for entry in entries {
        let path = entry.expect("the suite's directory is readable").path();
        let module = path.file_stem().and_then(|stem| stem.to_str()).expect("modules have plain names");
        if module == "mod" {
            continue;
        }
        let source = std::fs::read_to_string(&path).expect("the suite's modules are single files");
        found.extend(public_functions(&source).map(|name| (module.to_owned(), name.to_owned())));
    }
    found
}

fn public_functions(source: &str) -> impl Iterator<Item = &str> {
    source.lines().filter_map(|line| {
        let rest = line.strip_prefix("pub async fn ").or_else(|| line.strip_prefix("pub fn "))?;
        rest.split(['<', '(']).next()
    })
}

/// The directory in which cargo unpacked duroxide.
fn source_of_duroxide() -> PathBuf {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .find_map(|directory| std::fs::read_to_string(directory.join("Cargo.lock")).ok())
        .expect("the workspace has a lock file");
    let version = locked_version(&lock, "duroxide").expect("the lock file names duroxide");
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| {
        let home = std::env::var_os("HOME").or_else(|| std::env::var_os("USERPROFILE"))?;
        Some(PathBuf::from(home).join(".cargo"))
    });
    let registries = home.expect("cargo has a home").join("registry/src");
    let entries =
        std::fs::read_dir(&registries).unwrap_or_else(|error| panic!("{}: {error}", registries.display()));
    entries
        .filter_map(|entry| Some(entry.ok()?.path().join(format!("duroxide-{version}"))))
        .find(|path| path.is_dir())
        .unwrap_or_else(|| panic!("duroxide {version} is not in {}", registries.display()))
}

fn locked_version<'a>(lock: &'a str, name: &str) -> Option<&'a str> {
    let (_, package) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    package.split('"').next()
}
