//! The command line of a client program. It is parsed by hand: an argument parser
//! would be a dependency of every client and distort the cost of the libraries.

use std::str::FromStr;
use std::time::Duration;

use crate::Problem;

/// The operation that a run repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    Create,
    /// Creates many documents in one bulk.
    Bulk,
}

/// How long a phase of a run lasts: a duration (`1500ms`), or a total number of operations
/// (`1500`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    Time(Duration),
    Operations(u64),
}

#[derive(Clone, Debug)]
pub struct Arguments {
    pub operation: Operation,
    pub endpoint: String,
    pub database: String,
    pub container: String,
    /// The number of concurrent operations.
    pub concurrency: u64,
    /// The number of threads of the tokio runtime.
    pub workers: usize,
    pub warm_up: Span,
    pub measured: Span,
    /// The number of the run, unique among the runs on one container. It is part of new ids,
    /// so that they are unique.
    pub run: u64,
}

/// The name and the value of one option.
type Pair = (String, String);

impl Arguments {
    /// Parses the command line. Every option is required, because a default could differ
    /// from what the program that starts this one expects to measure.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Problem> {
        let operation = match words.next().as_deref() {
            Some("read") => Operation::Read,
            Some("create") => Operation::Create,
            Some("bulk") => Operation::Bulk,
            _ => return Err("the first word is read, create or bulk".into()),
        };
        let mut pairs: Vec<Pair> = Vec::new();
        while let Some(name) = words.next() {
            let value = words.next().ok_or_else(|| format!("{name} wants a value"))?;
            pairs.push((name, value));
        }
        let arguments = Self {
            operation,
            endpoint: take(&mut pairs, "--endpoint")?,
            database: take(&mut pairs, "--database")?,
            container: take(&mut pairs, "--container")?,
            concurrency: take(&mut pairs, "--concurrency")?,
            workers: take(&mut pairs, "--workers")?,
            warm_up: take(&mut pairs, "--warm-up")?,
            measured: take(&mut pairs, "--measured")?,
            run: take(&mut pairs, "--run")?,
        };
        match pairs.first() {
            Some((name, _)) => Err(format!("there is no option {name}").into()),
            None if arguments.concurrency == 0 || arguments.workers == 0 => {
                Err("--concurrency and --workers are at least 1".into())
            }
            None => Ok(arguments),
        }
    }
}

/// Removes the option with this name and parses its value.
fn take<T: FromStr>(pairs: &mut Vec<Pair>, name: &str) -> Result<T, Problem> {
    let index = pairs.iter().position(|(given, _)| given == name);
    let (_, value) = pairs.swap_remove(index.ok_or_else(|| format!("{name} is missing"))?);
    value.parse().map_err(|_| format!("{name} cannot be {value}").into())
}

impl FromStr for Span {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_suffix("ms") {
            Some(millis) => Ok(Span::Time(Duration::from_millis(millis.parse()?))),
            None => Ok(Span::Operations(text.parse()?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "create --endpoint https://127.0.0.1:1/ --database d --container c --concurrency 16 \
        --workers 2 --warm-up 100 --measured 1500ms --run 7";

    fn parse(text: &str) -> Result<Arguments, String> {
        Arguments::parse(text.split_whitespace().map(str::to_owned)).map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_full_command_line_is_understood() {
        let arguments = parse(GOOD).expect("a good command line");
        assert_eq!(arguments.operation, Operation::Create);
        assert_eq!(arguments.warm_up, Span::Operations(100));
        assert_eq!(arguments.measured, Span::Time(Duration::from_millis(1500)));
        assert_eq!((arguments.concurrency, arguments.workers, arguments.run), (16, 2, 7));
    }

    #[test]
    fn a_missing_unknown_or_wrong_option_is_refused() {
        let refused = |text: &str| parse(text).expect_err("a refusal");
        assert_eq!(refused("delete"), "the first word is read, create or bulk");
        assert_eq!(refused(&GOOD.replace("--run 7", "")), "--run is missing");
        assert_eq!(refused(&format!("{GOOD} --fast yes")), "there is no option --fast");
        assert_eq!(refused(&GOOD.replace("1500ms", "soon")), "--measured cannot be soon");
        assert_eq!(
            refused(&GOOD.replace("--workers 2", "--workers 0")),
            "--concurrency and --workers are at least 1"
        );
    }
}
