//! `perihelion man`: the manual pages, generated from the arguments.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, CommandFactory};
use clap_mangen::Man;

use super::Cli;
use crate::exit::{self, Failure};
use crate::process::print;

const EXAMPLES: &str = "\
Examples:
  perihelion man | man -l -                             the page of the program
  perihelion man --directory ~/.local/share/man/man1    a page for each command";

/// Print the manual page, or write a page for each command
#[derive(Clone, Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", exit::HELP))]
pub(crate) struct ManArgs {
    /// Write a page for each command into this directory
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

pub(crate) fn run(args: ManArgs, _started_at: Instant) -> Result<(), Failure> {
    let mut command = Cli::command();
    // This gives subcommands their whole names: perihelion-workflow-list.
    command.build();
    match args.directory {
        None => print(&String::from_utf8_lossy(&page(&Man::new(command))?)),
        Some(directory) => {
            std::fs::create_dir_all(&directory).map_err(|error| write_failed(&directory, &error))?;
            write_pages(&directory, &command)
        }
    }
}

fn page(man: &Man) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    man.render(&mut text).map_err(Failure::runtime)?;
    Ok(text)
}

/// Writes the page of a command and those of its subcommands.
fn write_pages(directory: &Path, command: &clap::Command) -> Result<(), Failure> {
    for subcommand in command.get_subcommands().filter(|it| it.get_name() != "help") {
        write_pages(directory, subcommand)?;
    }
    let man = Man::new(command.clone());
    let path = directory.join(man.get_filename());
    std::fs::write(&path, page(&man)?).map_err(|error| write_failed(&path, &error))
}

fn write_failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::runtime(format!("cannot write {}: {error}", path.display()))
}
