//! The commands of README.md, CONTRIBUTING.md and `docs/` are run as a reader would type them.
//!
//! Every block of commands (```console, ```sh, ```bash) is run in the order of its page, in a shell, against
//! the server of a `World`, and every command must succeed. A block that is not run has a mark on
//! the line before it, `<!-- not run: why -->`. The reason is for the next author, so it must have a
//! minimum length. The commands of `docs/cli.md` are run by `verbs`, which also compares their
//! output.
//!
//! A reader's machine has the program on its path and its server on port 8081. Here the path leads
//! to the program under test, and 8081 is replaced by the port of the world's server. The test ends
//! a command that runs until Ctrl-C when the command works: a server when it listens, `--watch`
//! after a line.

mod block;
mod shell;

use std::path::{Path, PathBuf};

use perihelion_testkit::ScratchDirectory;

use self::block::Block;
use self::shell::Shell;
use crate::program::{RunningServer, command};
use crate::verbs::World;

/// The page whose commands `verbs` runs.
const RUN_BY_VERBS: &str = "cli.md";

/// The fewest characters of a reason.
const REASON_CHARACTERS_MIN: usize = 20;

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let documents = std::fs::read_dir(root.join("docs")).expect("the directory docs");
    let mut pages: Vec<PathBuf> = documents.map(|entry| entry.expect("a file").path()).collect();
    pages.retain(|page| page.extension().is_some_and(|it| it == "md") && !page.ends_with(RUN_BY_VERBS));
    pages.extend(["README.md", "CONTRIBUTING.md"].map(|name| root.join(name)));
    pages.sort();
    pages
}

fn blocks(page: &Path) -> Vec<Block> {
    Block::all(&std::fs::read_to_string(page).expect("a page"))
}

#[test]
fn every_command_of_the_documentation_succeeds() {
    let mut failures = Vec::new();
    let mut commands = 0;
    for page in pages() {
        let blocks: Vec<Block> = blocks(&page).into_iter().filter(|block| block.reason.is_none()).collect();
        if blocks.is_empty() {
            continue;
        }
        // Each page has a world of its own, so that no page depends on another.
        let world = World::start();
        let shell = Shell(&world);
        for command in blocks.iter().flat_map(|block| &block.commands) {
            commands += 1;
            if let Err(why) = shell.run(&command.text) {
                failures.push(format!("{}:{}: {}\n{why}", page.display(), command.line, command.text));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert!(commands > 15, "only {commands} commands were found");
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
fn the_banner_in_readme_is_the_banner_of_the_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).expect("README.md");
    let (_, shown) = readme.split_once("$ cargo run --release -- dev\n").expect("the first command");
    let (shown, _) = shown.split_once("```").expect("the end of the block");
    let scratch = ScratchDirectory::new();
    let server = RunningServer::start(&mut command(&scratch, &["dev", "--port", "0"]));
    // The carriage return of the last line cannot be seen.
    let banner = server.banner().replace('\r', "");
    let banner = banner.replace(&scratch.path().display().to_string(), "~/.cache");
    // Ports, times and versions differ.
    let without_digits = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
    assert_eq!(without_digits(shown), without_digits(&banner));
}
