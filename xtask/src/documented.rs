//! Tests that the commands of cargo which the documentation names exist: in blocks, also in those that
//! are not run, and within sentences. The commands of the program `perihelion` are checked by the tests
//! of `crates/cli`, which run it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::args;
use crate::checkout::Checkout;

/// Directories with packages.
const PACKAGES: [&str; 2] = ["crates", "."];

/// Words that stand for others, and a word for which each of them may stand.
const PLACEHOLDERS: [(&str, &str); 2] = [("PART,PART", "house"), ("…", "")];

/// The programs that `cargo xtask` starts with further arguments, and their sources.
const STARTED: [(&str, &str); 3] =
    [("bench", "bench/src"), ("sim", "crates/simulation/src/bin/sim"), ("fuzz", "crates/fuzz/src")];

/// The packages of the workspace that are not `perihelion-` and the name of their directory.
const OTHER_NAMES: [(&str, &str); 2] = [("duroxide-cdb", "provider"), ("perihelion", "cli")];

#[test]
fn every_command_of_cargo_in_the_documentation_exists() {
    let mut count = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        for (number, line) in text.lines().enumerate() {
            for command in commands(line) {
                count += 1;
                if let Some(why) = objection(&command) {
                    panic!("{}:{}: {command}: {why}", page.display(), number + 1);
                }
            }
        }
    }
    assert!(count > 50, "only {count} commands were found");
}

#[test]
fn a_command_that_does_not_exist_is_found() {
    for (command, why) in [
        ("cargo xtask tset", "there is no command tset"),
        ("cargo xtask test --only lint", "there is no part lint"),
        ("cargo xtask bench providers --quik", "bench/src has no option --quik"),
        ("cargo xtask sim crowd", "there is no sim crowd"),
        ("cargo run -p perihelion-clint --example items", "there is no package perihelion-clint"),
        ("cargo run -p perihelion-client --example item", "there is no example item"),
        ("cargo test -p duroxide-cdb --test all", "there is no test all"),
        ("cargo run --profile fast -- stress", "there is no profile fast"),
        ("cargo run -p perihelion-client --features faults", "there is no feature faults"),
        ("cargo install --path crates/command", "there is no directory crates/command"),
        ("cargo rnu", "cargo rnu is not known here"),
    ] {
        assert_eq!(objection(command).as_deref(), Some(why), "{command}");
    }
}

fn root() -> PathBuf {
    Checkout::of_this_program().path("")
}

fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).expect("the directory docs");
    let mut pages: Vec<PathBuf> = docs.map(|entry| entry.expect("a file").path()).collect();
    pages.retain(|page| page.extension().is_some_and(|it| it == "md"));
    pages.extend(["README.md", "CONTRIBUTING.md"].map(|name| root().join(name)));
    pages
}

/// The commands of cargo in a line: the line itself, or code spans.
fn commands(line: &str) -> Vec<String> {
    let own = line.trim_start_matches("$ ");
    let spans = line.split('`').skip(1).step_by(2);
    let all = spans.chain(own.starts_with("cargo ").then_some(own));
    let without_comment = |text: &str| text.split(" # ").next().unwrap_or_default().trim().to_owned();
    all.filter(|text| text.starts_with("cargo ")).map(without_comment).collect()
}

/// Why a command does not exist; `None` if it does.
fn objection(command: &str) -> Option<String> {
    // A second command may follow.
    let command = command.split(" && ").next().unwrap_or_default();
    let replace = |word: &str| {
        let found = PLACEHOLDERS.iter().find(|(placeholder, _)| *placeholder == word);
        found.map_or(word, |(_, with)| with).to_owned()
    };
    let words: Vec<String> =
        command.split_whitespace().skip(1).map(replace).filter(|word| !word.is_empty()).collect();
    match words.first().map(String::as_str) {
        Some("xtask") => xtask(&words[1..]),
        Some("run" | "test" | "build" | "doc" | "install" | "nextest") => cargo(&words[1..]),
        _ => Some(format!("{command} is not known here")),
    }
}

fn xtask(words: &[String]) -> Option<String> {
    let name = words.first()?;
    let Some((_, source)) = STARTED.iter().find(|(started, _)| started == name) else {
        return args::parse(words).err();
    };
    let rest = &words[1..];
    // Each benchmark and each simulation is a file; the fuzzer has no further names.
    if let Some(part) = rest.first().filter(|word| *name != "fuzz" && !word.starts_with("--"))
        && !root().join(source).join(format!("{part}.rs")).is_file()
    {
        return Some(format!("there is no {name} {part}"));
    }
    let text = sources(&root().join(source));
    // Options are the fields of a struct.
    let field = |option: &str| format!(" {}: ", option.replace('-', "_"));
    let options = rest.iter().filter_map(|word| word.strip_prefix("--"));
    let mut unknown = options.filter(|option| *option != "help" && !text.contains(&field(option)));
    unknown.next().map(|option| format!("{source} has no option --{option}"))
}

/// The text of all files of a directory.
fn sources(directory: &Path) -> String {
    let entries = fs::read_dir(directory).expect("a directory");
    entries
        .map(|entry| entry.expect("a file").path())
        .map(|path| match path.is_dir() {
            true => sources(&path),
            false => fs::read_to_string(path).expect("a file of text"),
        })
        .collect()
}

/// Checks the names that the options of cargo have.
fn cargo(words: &[String]) -> Option<String> {
    let own: Vec<&str> = words.iter().map(String::as_str).take_while(|word| *word != "--").collect();
    let value = |option: &str| own.windows(2).find_map(|pair| (pair[0] == option).then_some(pair[1]));
    if let Some(path) = value("--path").or(value("--manifest-path"))
        && !root().join(path).exists()
    {
        return Some(format!("there is no directory {path}"));
    }
    if let Some(profile) = value("--profile") {
        let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml");
        if !manifest.contains(&format!("[profile.{profile}]")) {
            return Some(format!("there is no profile {profile}"));
        }
    }
    let package = value("-p")?;
    let Some(directory) = directory_of(package) else {
        return Some(format!("there is no package {package}"));
    };
    let target = |kind: &str, name: &str| {
        let base = directory.join(kind);
        let file = base.join(format!("{name}.rs"));
        file.is_file() || base.join(name).join("main.rs").is_file()
    };
    if let Some(name) = value("--example").filter(|name| !target("examples", name)) {
        return Some(format!("there is no example {name}"));
    }
    if let Some(name) = value("--test").filter(|name| !target("tests", name)) {
        return Some(format!("there is no test {name}"));
    }
    let manifest = fs::read_to_string(directory.join("Cargo.toml")).expect("Cargo.toml");
    let is_feature = |name: &str| manifest.lines().any(|line| line.starts_with(&format!("{name} = [")));
    let missing = value("--features").filter(|name| !is_feature(name));
    missing.map(|name| format!("there is no feature {name}"))
}

/// The directory of a package.
fn directory_of(package: &str) -> Option<PathBuf> {
    let other = OTHER_NAMES.iter().find(|(name, _)| *name == package).map(|(_, directory)| *directory);
    let short = other.unwrap_or_else(|| package.trim_start_matches("perihelion-"));
    let directories = PACKAGES.iter().map(|parent| root().join(parent).join(short));
    let is_package = |directory: &PathBuf| {
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).unwrap_or_default();
        manifest.contains(&format!("\nname = \"{package}\"\n"))
    };
    directories.into_iter().find(is_package)
}
