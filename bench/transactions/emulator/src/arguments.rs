//! The command line. It is parsed by hand, as in the client programs. Every option is required,
//! because a default could differ from what the program that starts this one expects to measure.

use std::str::FromStr;
use std::time::Duration;

use perihelion_bench_client::Problem;

use crate::shape::Shape;
use crate::target::Target;

/// The physical partitions of every container, and so the most partitions of a shape.
pub(crate) const PARTITIONS_MAX: u64 = 16;
/// The most operations of a transaction, on our side and in the SDK's preview.
const OPERATIONS_MAX: u64 = 100;

pub(crate) struct Arguments {
    pub(crate) targets: Vec<Target>,
    pub(crate) shapes: Vec<Shape>,
    /// The number of concurrent transactions.
    pub(crate) clients: u64,
    /// The number of threads of the tokio runtime.
    pub(crate) workers: usize,
    /// The number of measurements of each row. One more comes before them and is discarded.
    pub(crate) repeats: usize,
    pub(crate) warm_up: Duration,
    pub(crate) window: Duration,
}

/// The name and the value of one option.
type Pair = (String, String);

impl Arguments {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Problem> {
        let mut pairs: Vec<Pair> = Vec::new();
        while let Some(name) = words.next() {
            let value = words.next().ok_or_else(|| format!("{name} wants a value"))?;
            pairs.push((name, value));
        }
        let (operations, partitions) = (list(&mut pairs, "--operations")?, list(&mut pairs, "--partitions")?);
        let arguments = Self {
            targets: list(&mut pairs, "--targets")?,
            shapes: shapes(&operations, &partitions)?,
            clients: number(&mut pairs, "--clients")?,
            workers: number(&mut pairs, "--workers")?,
            repeats: number(&mut pairs, "--repeats")?,
            warm_up: Duration::from_millis(number(&mut pairs, "--warm-up-ms")?),
            window: Duration::from_millis(number(&mut pairs, "--window-ms")?),
        };
        match pairs.first() {
            Some((name, _)) => Err(format!("there is no option {name}").into()),
            None if arguments.clients == 0 || arguments.workers == 0 || arguments.window.is_zero() => {
                Err("--clients, --workers and --window-ms are at least 1".into())
            }
            None => Ok(arguments),
        }
    }
}

/// All combinations of the two lists.
fn shapes(operations: &[u64], partitions: &[u64]) -> Result<Vec<Shape>, Problem> {
    if !operations.iter().all(|number| (1..=OPERATIONS_MAX).contains(number)) {
        return Err(format!("--operations: a transaction has 1 to {OPERATIONS_MAX}").into());
    }
    if !partitions.iter().all(|number| (1..=PARTITIONS_MAX).contains(number)) {
        return Err(format!("--partitions: 1 to {PARTITIONS_MAX}").into());
    }
    let shapes = operations.iter().flat_map(|operations| {
        partitions.iter().map(|partitions| Shape { operations: *operations, partitions: *partitions })
    });
    Ok(shapes.collect())
}

/// Removes the option with this name.
fn take(pairs: &mut Vec<Pair>, name: &str) -> Result<String, Problem> {
    let index = pairs.iter().position(|(given, _)| given == name);
    Ok(pairs.swap_remove(index.ok_or_else(|| format!("{name} is missing"))?).1)
}

fn number<T: FromStr>(pairs: &mut Vec<Pair>, name: &str) -> Result<T, Problem> {
    let value = take(pairs, name)?;
    value.parse().map_err(|_| format!("{name} cannot be {value}").into())
}

/// The values of an option, which commas separate.
fn list<T: FromStr>(pairs: &mut Vec<Pair>, name: &str) -> Result<Vec<T>, Problem> {
    let values = take(pairs, name)?;
    let parsed = values.split(',').map(|value| {
        value.parse().map_err(|_| Problem::from(format!("{name} cannot have the value {value}")))
    });
    parsed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "--targets sdk,embedded --operations 2,20 --partitions 1,16 --clients 16 --workers 2 \
        --repeats 3 --warm-up-ms 100 --window-ms 500";

    fn parse(text: &str) -> Result<Arguments, String> {
        Arguments::parse(text.split_whitespace().map(str::to_owned)).map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_full_command_line_is_understood() {
        let arguments = parse(GOOD).expect("a good command line");
        assert_eq!(arguments.targets, [Target::Sdk, Target::Embedded]);
        let shapes = [(2, 1), (2, 16), (20, 1), (20, 16)];
        assert_eq!(arguments.shapes, shapes.map(|(operations, partitions)| Shape { operations, partitions }));
        assert_eq!((arguments.clients, arguments.workers, arguments.repeats), (16, 2, 3));
        assert_eq!((arguments.warm_up.as_millis(), arguments.window.as_millis()), (100, 500));
    }

    #[test]
    fn a_wrong_command_line_is_refused_with_the_option_in_the_text() {
        for (part, replacement, message) in [
            ("--clients 16", "", "--clients is missing"),
            ("--clients 16", "--clients many", "--clients cannot be many"),
            ("--clients 16", "--clients 0", "--clients, --workers"),
            ("sdk,embedded", "sdk,azure", "--targets cannot have the value azure"),
            ("--operations 2", "--operations 101", "--operations: a transaction has 1 to 100"),
            ("1,16", "1,17", "--partitions: 1 to 16"),
            ("--repeats 3", "--repeats 3 --quick yes", "there is no option --quick"),
            ("--window-ms 500", "--window-ms", "--window-ms wants a value"),
        ] {
            let refused = parse(&GOOD.replace(part, replacement)).err().expect("a refusal");
            assert!(refused.contains(message), "{refused}");
        }
    }
}
