//! Parses the command line. The parsed parts are in the order of [`Part::ALL`], in whatever
//! order the command line names them.

use crate::part::{Part, Scope};

pub(crate) const HELP: &str = "\
Runs all tests and checks of the repository.

Usage: cargo xtask test [--quick | --only PART,PART...]
       cargo xtask modules [CRATE]
       cargo xtask bench [ARGUMENT...]
       cargo xtask sim scale|faults [ARGUMENT...]
       cargo xtask fuzz [--target NAME,NAME...] [--inputs N] [ARGUMENT...]

test    runs every part except versions, or the parts that are named. Installs what they
        need. Ends with a table of where the time went and the line
        \"N passed, N failed, N skipped\". A failing part does not stop the parts after it.

  --quick     house and unit only, without the slow tests: for use while code is
              being changed

  house       module cycles, module arrows in ARCHITECTURE.md, paths out of the
              checkout, mod.rs, file sizes
  fmt         formatting: the workspace, bench, interop and compat
  clippy      lints without warnings: the workspace and bench
  unit        unit and integration tests (cargo-nextest when installed)
  oldest      the provider on duroxide 0.1.29, with that version's validations
  doc         examples in the documentation
  python      the official Python SDK against the server
  javascript  the official JavaScript SDK against the server
  browser     the dashboard in chromium, which is installed with apt if it is missing
  rust        the official Rust SDK against the server
  holes       cases in which the published provider is known to fail, on the server
  migration   workflows that the published provider began, moved and finished by ours
  package     the size of the program that is shipped: less than 30 MB with certificates.
              Skipped when cargo build --profile dist has not built it
  versions    the provider of the version before and this one, on one container. Runs only
              when it is named: it builds that version, which takes minutes. Skipped when
              git has not got that version and cannot fetch it

modules prints which top-level modules of a crate use which others, one line per
        module: \"module -> used, used\"; without a name, the modules of all crates

bench   runs the side-by-side benchmarks of bench/: \"emulators\" (the default),
        \"clients\", \"providers\" or \"transactions\"; see bench/README.md for the arguments

sim     runs simulations in virtual time: \"scale\" (many processes and partitions under
        load) or \"faults\" (random faults and kills); \"cargo xtask sim scale --help\"
        lists the arguments and their defaults

fuzz    gives changed examples to everything that reads bytes from outside (SQL, JSON,
        tokens, requests, stored files); \"cargo xtask fuzz --help\" lists the arguments

Exit codes:
  0  everything passed
  1  something failed
  2  wrong usage
";

/// What the command line asks for.
#[derive(Debug, PartialEq)]
pub(crate) enum Invocation {
    Help,
    Test { parts: Vec<Part>, scope: Scope },
    Modules { name: Option<String> },
    Bench { words: Vec<String> },
    Sim { words: Vec<String> },
    Fuzz { words: Vec<String> },
}

pub(crate) fn parse(words: &[String]) -> Result<Invocation, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => Err("no command is named".to_owned()),
        ["help" | "-h" | "--help", ..] | ["test", "-h" | "--help"] => Ok(Invocation::Help),
        ["test"] => Ok(Invocation::Test { parts: Part::whole_run(), scope: Scope::Whole }),
        ["test", "--quick"] => Ok(Invocation::Test { parts: Part::QUICK.to_vec(), scope: Scope::Quick }),
        ["test", "--only"] => Err("--only wants a list of parts".to_owned()),
        ["test", "--only", list] => parse_parts(list),
        ["test", word] if word.starts_with("--only=") => parse_parts(&word["--only=".len()..]),
        ["test", rest @ ..] => Err(format!("test does not understand: {}", rest.join(" "))),
        ["modules"] => Ok(Invocation::Modules { name: None }),
        ["modules", name] if !name.starts_with('-') => {
            Ok(Invocation::Modules { name: Some((*name).to_owned()) })
        }
        ["modules", rest @ ..] => Err(format!("modules takes the name of one crate: {}", rest.join(" "))),
        ["bench", rest @ ..] => {
            Ok(Invocation::Bench { words: rest.iter().map(|word| (*word).to_owned()).collect() })
        }
        ["sim"] => Err("sim wants a simulation: scale or faults".to_owned()),
        ["sim", rest @ ..] => {
            Ok(Invocation::Sim { words: rest.iter().map(|word| (*word).to_owned()).collect() })
        }
        ["fuzz", rest @ ..] => {
            Ok(Invocation::Fuzz { words: rest.iter().map(|word| (*word).to_owned()).collect() })
        }
        [other, ..] => Err(format!("there is no command {other}")),
    }
}

fn parse_parts(list: &str) -> Result<Invocation, String> {
    let mut named = Vec::new();
    for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        match Part::ALL.into_iter().find(|part| part.name() == name) {
            Some(part) => named.push(part),
            None => return Err(format!("there is no part {name}")),
        }
    }
    if named.is_empty() {
        return Err("--only names no part".to_owned());
    }
    let parts = Part::ALL.into_iter().filter(|part| named.contains(part)).collect();
    Ok(Invocation::Test { parts, scope: Scope::Whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command_line: &str, expected: Result<Invocation, &str>) {
        let words: Vec<String> = command_line.split_whitespace().map(str::to_owned).collect();
        assert_eq!(parse(&words), expected.map_err(str::to_owned), "{command_line}");
    }

    #[test]
    fn test_alone_means_every_part_except_versions() {
        check("test", Ok(Invocation::Test { parts: Part::whole_run(), scope: Scope::Whole }));
    }

    #[test]
    fn quick_means_two_parts_without_their_slow_tests() {
        let parts = vec![Part::House, Part::Unit];
        check("test --quick", Ok(Invocation::Test { parts, scope: Scope::Quick }));
        check("test --quick --only fmt", Err("test does not understand: --quick --only fmt"));
    }

    #[test]
    fn named_parts_run_once_and_in_the_fixed_order() {
        let parts = || vec![Part::Fmt, Part::Doc];
        let expected = || Ok(Invocation::Test { parts: parts(), scope: Scope::Whole });
        check("test --only doc,fmt,doc", expected());
        check("test --only=doc,fmt", expected());
    }

    #[test]
    fn help_is_understood_with_and_without_a_command() {
        check("--help", Ok(Invocation::Help));
        check("test --help", Ok(Invocation::Help));
    }

    #[test]
    fn the_arguments_after_bench_are_passed_to_the_benchmark() {
        let words = vec!["emulators".to_owned(), "--quick".to_owned()];
        check("bench emulators --quick", Ok(Invocation::Bench { words }));
    }

    #[test]
    fn the_arguments_after_sim_are_passed_to_the_simulation() {
        let words = vec!["scale".to_owned(), "--quick".to_owned()];
        check("sim scale --quick", Ok(Invocation::Sim { words }));
        check("sim", Err("sim wants a simulation: scale or faults"));
    }

    #[test]
    fn modules_takes_one_crate_or_none() {
        check("modules", Ok(Invocation::Modules { name: None }));
        check("modules engine", Ok(Invocation::Modules { name: Some("engine".to_owned()) }));
        check("modules a b", Err("modules takes the name of one crate: a b"));
    }

    #[test]
    fn a_part_that_does_not_exist_is_refused() {
        check("test --only fmt,lint", Err("there is no part lint"));
        check("test --only ,", Err("--only names no part"));
        check("test --fast", Err("test does not understand: --fast"));
        check("tset", Err("there is no command tset"));
        check("", Err("no command is named"));
    }

    #[test]
    fn the_help_names_every_part() {
        for part in Part::ALL {
            assert!(HELP.contains(&format!("\n  {} ", part.name())), "{}", part.name());
        }
    }
}
