//! `perihelion completions`: the completions of a shell, generated from the arguments.

use std::time::Instant;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use crate::exit::{self, Failure};
use crate::process::print;

const EXAMPLES: &str = "\
Examples:
  perihelion completions bash > ~/.local/share/bash-completion/completions/perihelion
  perihelion completions zsh > ~/.zfunc/_perihelion
  perihelion completions fish > ~/.config/fish/completions/perihelion.fish";

/// Print the completions of a shell
#[derive(Clone, Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", exit::HELP))]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: CompletionsArgs, _started_at: Instant) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "perihelion", &mut text);
    print(&String::from_utf8_lossy(&text))
}
