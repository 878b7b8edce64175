//! `cargo xtask modules`: reads a crate's source and prints which of its top-level modules
//! use which others. Each such use is an *arrow*. Code that is compiled for tests only does
//! not count.
//!
//! A name that the crate's root file imports stands for the module that the name comes
//! from: `crate::Engine` is an arrow to `engine` if lib.rs has `pub use engine::Engine`. A
//! name that the root file itself defines is an arrow to `lib` (or `main`). The root file
//! then counts as a module like the others.

mod graph;
mod source;
mod tokens;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use self::source::Source;
use crate::checkout::Checkout;

pub(crate) use self::graph::Graph;

/// Prints the arrows of one crate, or those of all crates in the form of ARCHITECTURE.md.
/// Cycles go to standard error.
pub(crate) fn run(checkout: &Checkout, name: Option<&str>) -> ExitCode {
    let crates: Vec<PathBuf> = crates(&checkout.path(""));
    let chosen = crates.iter().filter(|directory| name.is_none_or(|name| directory.ends_with(name)));
    let mut is_found = false;
    for directory in chosen {
        is_found = true;
        let graph = match graph_of_crate(directory) {
            Ok(graph) => graph,
            Err(why) => {
                eprintln!("{why}");
                return ExitCode::FAILURE;
            }
        };
        if name.is_some() {
            print!("{}", graph.lines());
        } else if !graph.is_empty() {
            print!("### {}\n\n```text\n{}```\n\n", crate_name(directory), graph.lines());
        }
        for cycle in graph.cycles() {
            eprintln!("cycle in {}: {cycle}", crate_name(directory));
        }
    }
    if is_found {
        return ExitCode::SUCCESS;
    }
    eprintln!("there is no crate {}", name.unwrap_or("at all"));
    ExitCode::FAILURE
}

/// The directories of the workspace's crates: those in `crates/`, and `xtask`.
pub(crate) fn crates(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root.join("crates"));
    let mut found: Vec<PathBuf> = entries.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    found.push(root.join("xtask"));
    found.retain(|directory| directory.join("Cargo.toml").is_file());
    found.sort();
    found
}

/// The name of a crate is the name of its directory.
pub(crate) fn crate_name(directory: &Path) -> String {
    directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The arrows of the crate in that directory.
pub(crate) fn graph_of_crate(directory: &Path) -> Result<Graph, String> {
    let source = directory.join("src");
    let root = ["lib", "main"].into_iter().find(|root| source.join(format!("{root}.rs")).is_file());
    let root = root.ok_or_else(|| format!("{} has neither lib.rs nor main.rs", source.display()))?;
    let mut files = Vec::new();
    read_module(&source.join(format!("{root}.rs")), &source, &[], &mut files)?;
    for (file, _) in &mut files {
        *file = file.strip_prefix(directory).unwrap_or(file).to_owned();
    }
    Ok(collect_arrows(root, &files))
}

/// Reads a module's file and the files of its children. The children are in `directory`.
fn read_module(
    file: &Path,
    directory: &Path,
    module: &[String],
    files: &mut Vec<(PathBuf, Source)>,
) -> Result<(), String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let source = source::read(&text, module);
    let children: Vec<_> =
        source.children.iter().map(|child| (child.module.clone(), child.file.clone())).collect();
    files.push((file.to_owned(), source));
    for (child, named_file) in children {
        // An inline module between the file's module and the child is a directory, too.
        let names = child[module.len()..].iter().collect::<PathBuf>();
        let child_directory = directory.join(names);
        let file = match named_file {
            Some(named_file) => file.with_file_name(named_file),
            None => child_directory.with_extension("rs"),
        };
        let file = if file.is_file() { file } else { child_directory.join("mod.rs") };
        read_module(&file, &child_directory, &child, files)?;
    }
    Ok(())
}

/// The arrows of a crate. `root` is `lib` or `main`, and the first file is the root file.
fn collect_arrows(root: &str, files: &[(PathBuf, Source)]) -> Graph {
    let mut graph = Graph::default();
    let Some((root_file, root_source)) = files.first() else { return graph };
    let modules = &root_source.declared;
    let imports: BTreeMap<&str, &str> = root_source
        .imports
        .iter()
        .filter_map(|(name, path)| Some((name.as_str(), path.first()?.as_str())))
        .collect();
    // The top-level module that a path from the root leads into.
    let module_of = |path: &[String]| -> Option<String> {
        let first = path.first()?;
        if modules.contains(first) {
            return Some(first.clone());
        }
        match imports.get(first.as_str()) {
            Some(module) => modules.iter().find(|name| name == module).cloned(),
            None => Some(root.to_owned()),
        }
    };
    for module in modules {
        graph.add_module(module);
    }
    for (file, source) in files {
        for (from, to) in source.paths.iter().filter(|(from, _)| !from.is_empty()) {
            if let (Some(from), Some(to)) = (from.first(), module_of(to)) {
                graph.add_arrow(from, &to, &file.display().to_string());
            }
        }
    }
    if graph.is_used(root) {
        let imported = root_source.root_words.iter().filter_map(|word| imports.get(word.as_str()).copied());
        let named = root_source.paths.iter().filter(|(from, _)| from.is_empty());
        let named = named.filter_map(|(_, to)| to.first().map(String::as_str));
        for module in imported.chain(named).filter(|name| modules.iter().any(|module| module == name)) {
            graph.add_arrow(root, module, &root_file.display().to_string());
        }
    }
    graph
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::tree::Tree;

    /// Checks the arrows of the crate `x` with these files, each given as path and text.
    fn check(files: &[(&str, &str)], lines: &str) {
        let tree = Tree::new(files);
        let graph = graph_of_crate(&tree.path("crates/x")).expect("the crate is readable");
        assert_eq!(graph.lines(), lines);
    }

    #[test]
    fn arrows_are_read_from_files_in_either_form_and_from_inline_modules() {
        check(
            &[
                ("crates/x/src/lib.rs", "mod a; mod b; pub mod c { pub use crate::a::A; } mod d;"),
                ("crates/x/src/a.rs", "mod inner;"),
                ("crates/x/src/a/inner.rs", "use super::super::b::B; fn f() { self::g() }"),
                ("crates/x/src/b/mod.rs", "use crate::d;\n#[cfg(test)]\nmod tests;"),
                ("crates/x/src/b/tests.rs", "use crate::a;"),
                ("crates/x/src/d.rs", "use std::fmt;"),
            ],
            "a -> b\nb -> d\nc -> a\nd\n",
        );
    }

    #[test]
    fn a_name_at_the_root_stands_for_the_module_that_it_comes_from() {
        check(
            &[
                ("crates/x/src/lib.rs", "mod a; mod b; pub use a::Name; pub use other_crate::Foreign;"),
                ("crates/x/src/a.rs", "pub struct Name;"),
                ("crates/x/src/b.rs", "use crate::{Name, Foreign};"),
            ],
            "a\nb -> a\n",
        );
    }

    #[test]
    fn an_item_that_the_root_defines_makes_the_root_a_module() {
        let files = [
            (
                "crates/x/src/main.rs",
                "mod a; mod b; use crate::a::A; struct Shared(A); fn main() { b::run() }",
            ),
            ("crates/x/src/a.rs", ""),
            ("crates/x/src/b.rs", "use crate::Shared;"),
        ];
        check(&files, "a\nb -> main\nmain -> a, b\n");
        let graph = graph_of_crate(&Tree::new(&files).path("crates/x")).expect("the crate is readable");
        assert_eq!(graph.cycles().len(), 1);
    }
}
