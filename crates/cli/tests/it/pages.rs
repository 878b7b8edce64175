//! The commands of README.md, CONTRIBUTING.md and `docs/` are run as a reader would type them.
//!
//! Every block of commands (```console, ```sh, ```bash) is run in the order of its page, in a shell, against
//! the server of a `World`, and every command must succeed. A block that is not run has a mark on
//! the line before it, `<!-- not run: why -->`. The reason is for the next author, so it must have a
//! minimum length. The commands of `docs/cli.md` are run by `verbs`, which also compares their
//! output. Commands within sentences, as code spans, are only parsed by the program. Those with `curl`
//! are run after the blocks of their page. Blocks in other languages have marks that say what runs
//! them (`code`).
//!
//! A reader's machine has the program on its path and its server on port 8081. Here the path leads
//! to the program under test, and 8081 is replaced by the port of the world's server. The test ends
//! a command that runs until Ctrl-C as soon as the command works: a server when it listens, `--watch`
//! when it has printed a line.

mod block;
mod code;
mod inline;
mod shell;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use perihelion_testkit::ScratchDirectory;
use regex_lite::Regex;

pub(crate) use self::block::Block;
use self::code::Code;
use self::shell::Shell;
use crate::program::{RunningServer, command};
use crate::verbs::World;

/// The page whose commands `verbs` runs.
const RUN_BY_VERBS: &str = "cli.md";

/// The fewest characters of a reason.
const REASON_CHARACTERS_MIN: usize = 20;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files of `docs/`.
fn manuals() -> Vec<PathBuf> {
    let documents = std::fs::read_dir(root().join("docs")).expect("the directory docs");
    let mut pages: Vec<PathBuf> = documents.map(|entry| entry.expect("a file").path()).collect();
    pages.retain(|page| page.extension().is_some_and(|it| it == "md"));
    pages.sort();
    pages
}

/// The files of `docs/`, README.md and CONTRIBUTING.md.
fn documents() -> Vec<PathBuf> {
    let mut pages = manuals();
    pages.extend(["README.md", "CONTRIBUTING.md"].map(|name| root().join(name)));
    pages
}

/// The documents whose commands are run here.
fn pages() -> Vec<PathBuf> {
    let mut pages = documents();
    pages.retain(|page| !page.ends_with(RUN_BY_VERBS));
    pages
}

fn text_of(page: &Path) -> String {
    std::fs::read_to_string(page).expect("a page")
}

fn blocks(page: &Path) -> Vec<Block> {
    Block::all(&text_of(page))
}

#[test]
fn every_command_of_the_documentation_succeeds() {
    let mut failures = Vec::new();
    let mut commands = 0;
    for page in pages() {
        let blocks = blocks(&page).into_iter().filter(|block| block.reason.is_none());
        let mut run: Vec<block::Command> = blocks.flat_map(|block| block.commands).collect();
        run.extend(inline::commands(&text_of(&page), "curl"));
        if run.is_empty() {
            continue;
        }
        // Each page has a world of its own, so that no page depends on another.
        let world = World::start();
        let shell = Shell(&world);
        for command in &run {
            commands += 1;
            if let Err(why) = shell.run(&command.text) {
                failures.push(format!("{}:{}: {}\n{why}", page.display(), command.line, command.text));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert!(commands > 10, "only {commands} commands were found");
}

#[test]
fn a_block_that_is_not_run_says_why() {
    for page in pages() {
        for block in blocks(&page) {
            let Some(reason) = block.reason else { continue };
            let place = format!("{}:{}", page.display(), block.line);
            assert!(reason.chars().count() >= REASON_CHARACTERS_MIN, "{place}: the reason is {reason:?}");
        }
    }
}

#[test]
fn the_program_understands_every_command_within_a_sentence() {
    let scratch = ScratchDirectory::new();
    // What the program prints if it refuses a command line, which ends with `--help`.
    let refusal = |help: &str| {
        let mut shell = std::process::Command::new("sh");
        let program = env!("CARGO_BIN_EXE_perihelion");
        let text = help.replacen("perihelion", program, 1);
        shell.args(["-c", &text]).env_clear().env("XDG_CACHE_HOME", scratch.path());
        let output = shell.output().expect("a shell");
        (!output.status.success()).then(|| crate::program::text(&output.stderr))
    };
    // The command lines, each with the place of its span.
    let mut places: Vec<(String, String)> = Vec::new();
    for page in documents() {
        for command in inline::commands(&text_of(&page), "perihelion") {
            let place = format!("{}:{}", page.display(), command.line);
            places.extend(inline::help_of(&command.text).into_iter().map(|help| (help, place.clone())));
        }
        for command in inline::commands(&text_of(&page), "cargo") {
            // Without `-p`, `cargo run` runs the program `perihelion`.
            let arguments = command.text.split_once(" -- ").map(|(_, arguments)| arguments);
            let is_own = command.text.starts_with("cargo run ") && !command.text.contains(" -p ");
            let Some(arguments) = arguments.filter(|_| is_own) else { continue };
            let place = format!("{}:{}", page.display(), command.line);
            places.push((format!("perihelion {arguments} --help"), place));
        }
    }
    assert!(places.len() > 50, "only {} commands were found", places.len());
    let unique: BTreeSet<&String> = places.iter().map(|(help, _)| help).collect();
    for help in unique {
        let Some(why) = refusal(help) else { continue };
        let place = places.iter().find(|(other, _)| other == help).map(|(_, place)| place);
        panic!("{}: {help}\n{why}", place.expect("a place"));
    }
    assert!(refusal("perihelion workflow list --wach --help").is_some(), "a misspelt option is refused");
}

#[test]
fn every_block_of_code_has_a_valid_mark() {
    let mut objections = Vec::new();
    for page in documents() {
        let name = page.file_name().and_then(|name| name.to_str()).expect("a name");
        for code in Code::all(&text_of(&page)) {
            let objection = code.objection(name, &root());
            objections.extend(objection.map(|why| format!("{}:{}: {why}", page.display(), code.line)));
        }
    }
    assert!(objections.is_empty(), "{}", objections.join("\n"));
}

/// The pages of `docs/` to which a page has a link.
fn links(page: &Path) -> BTreeSet<String> {
    let link = Regex::new(r"\]\((?:docs/)?([a-z.-]+)[)#]").expect("a pattern");
    let text = text_of(page);
    let is_page = |target: &String| Path::new(target).extension().is_some_and(|it| it == "md");
    link.captures_iter(&text).map(|found| found[1].to_owned()).filter(is_page).collect()
}

#[test]
fn every_page_of_the_documentation_is_two_clicks_from_readme() {
    let docs = root().join("docs");
    let mut reached = links(&root().join("README.md"));
    for page in reached.clone() {
        reached.extend(links(&docs.join(page)));
    }
    for page in manuals() {
        let name = page.file_name().and_then(|name| name.to_str()).expect("a name");
        assert!(reached.contains(name), "docs/{name} is not reached from README.md by two clicks");
    }
}

#[test]
fn the_banner_in_readme_is_the_banner_of_the_program() {
    let readme = text_of(&root().join("README.md"));
    let (_, shown) = readme.split_once("$ cargo run --release -- dev\n").expect("the first command");
    let (shown, _) = shown.split_once("```").expect("the end of the block");
    let scratch = ScratchDirectory::new();
    let server = RunningServer::start(&mut command(&scratch, &["dev", "--port", "0"]));
    // README.md does not show the carriage return at the end of the last line.
    let banner = server.banner().replace('\r', "");
    let banner = banner.replace(&scratch.path().display().to_string(), "~/.cache");
    // Ports, times and versions differ.
    let without_digits = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
    assert_eq!(without_digits(shown), without_digits(&banner));
}
