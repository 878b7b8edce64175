//! The command line of a provider program: a workload and a location. No option has a
//! default, because a default could differ from what the runner (the program of `bench/`
//! that starts this one) expects to measure.

use std::path::PathBuf;
use std::str::FromStr;

use crate::Problem;

/// The workload to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// duroxide's own stress harness.
    Stress { dispatchers: usize, seconds: u64 },
    /// duroxide's own harness of large payloads.
    Payload { dispatchers: usize, seconds: u64 },
    /// Several clients. Each starts its next workflow when its previous one has ended.
    Loop { clients: usize, seconds: u64 },
    /// `count` smallest workflows, one after the other.
    Smallest { count: usize },
    /// One workflow with `count` activities at once.
    FanOut { count: usize },
    /// One workflow with `count` sub-orchestrations at once.
    Children { count: usize },
    /// `count` smallest workflows. The runner reads the server's counters before and after
    /// them, and says by a line on standard input when it has done so.
    Counted { count: usize },
}

/// Where the provider stores its data. A program uses only the members that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The program's name of the provider or storage to use.
    pub name: String,
    /// An empty directory.
    pub directory: PathBuf,
    /// A server's address, if there is a server.
    pub endpoint: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    pub workload: Workload,
    pub location: Location,
    /// The number of threads of the tokio runtime.
    pub workers: usize,
}

/// The name and the value of one option.
type Pair = (String, String);

impl Arguments {
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Problem> {
        let workload = words.next().ok_or("the first word is the workload")?;
        let mut pairs: Vec<Pair> = Vec::new();
        while let Some(name) = words.next() {
            let value = words.next().ok_or_else(|| format!("{name} wants a value"))?;
            pairs.push((name, value));
        }
        let arguments = Self {
            workload: parse_workload(&workload, &mut pairs)?,
            location: Location {
                name: take(&mut pairs, "--location")?,
                directory: take(&mut pairs, "--directory")?,
                endpoint: take(&mut pairs, "--endpoint")?,
            },
            workers: take(&mut pairs, "--workers")?,
        };
        match pairs.first() {
            Some((name, _)) => Err(format!("there is no option {name}").into()),
            None if arguments.workers == 0 => Err("--workers is at least 1".into()),
            None => Ok(arguments),
        }
    }
}

fn parse_workload(word: &str, pairs: &mut Vec<Pair>) -> Result<Workload, Problem> {
    Ok(match word {
        "stress" => Workload::Stress {
            dispatchers: take(pairs, "--dispatchers")?,
            seconds: take(pairs, "--seconds")?,
        },
        "payload" => Workload::Payload {
            dispatchers: take(pairs, "--dispatchers")?,
            seconds: take(pairs, "--seconds")?,
        },
        "loop" => Workload::Loop { clients: take(pairs, "--clients")?, seconds: take(pairs, "--seconds")? },
        "smallest" => Workload::Smallest { count: take(pairs, "--count")? },
        "fan-out" => Workload::FanOut { count: take(pairs, "--count")? },
        "children" => Workload::Children { count: take(pairs, "--count")? },
        "counted" => Workload::Counted { count: take(pairs, "--count")? },
        _ => return Err(format!("there is no workload {word}").into()),
    })
}

/// Removes the option with this name and parses its value.
fn take<T: FromStr>(pairs: &mut Vec<Pair>, name: &str) -> Result<T, Problem> {
    let index = pairs.iter().position(|(given, _)| given == name);
    let (_, value) = pairs.swap_remove(index.ok_or_else(|| format!("{name} is missing"))?);
    value.parse().map_err(|_| format!("{name} cannot be {value}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "loop --clients 20 --seconds 3 --location sqlite --directory /tmp/x --endpoint - --workers 2";

    fn parse(text: &str) -> Result<Arguments, String> {
        Arguments::parse(text.split_whitespace().map(str::to_owned)).map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_full_command_line_is_understood() {
        let arguments = parse(GOOD).expect("a good command line");
        assert_eq!(arguments.workload, Workload::Loop { clients: 20, seconds: 3 });
        assert_eq!((arguments.location.name.as_str(), arguments.workers), ("sqlite", 2));
    }

    #[test]
    fn a_missing_unknown_or_wrong_option_is_refused() {
        let refused = |text: &str| parse(text).expect_err("a refusal");
        assert_eq!(refused("dance"), "there is no workload dance");
        assert_eq!(refused(&GOOD.replace("--seconds 3", "")), "--seconds is missing");
        assert_eq!(refused(&format!("{GOOD} --fast yes")), "there is no option --fast");
        assert_eq!(refused(&GOOD.replace("--clients 20", "--clients many")), "--clients cannot be many");
        assert_eq!(refused(&GOOD.replace("--workers 2", "--workers 0")), "--workers is at least 1");
    }
}
