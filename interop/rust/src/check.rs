//! `Check`: one check, the report of its outcome, and the macros that checks use. A check does
//! not panic. It returns the problem that it found.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use azure_data_cosmos::CosmosStatus;

use crate::world::World;

/// The time limit of a check. A check that takes longer counts as failed. The slowest check
/// takes a few seconds.
const CHECK_LIMIT: Duration = Duration::from_secs(90);

pub(crate) use perihelion_interop_common::Problem;

pub(crate) type Outcome = Result<(), Problem>;
pub(crate) type CheckFuture<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// One check. Its name is the path of its function.
#[derive(Clone, Copy)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) run: for<'a> fn(&'a World) -> CheckFuture<'a>,
}

/// Makes the function `checks`, which returns the checks of an area, from their functions.
macro_rules! checks {
    ($($function:ident),* $(,)?) => {
        pub(crate) fn checks() -> Vec<crate::check::Check> {
            vec![$(crate::check::Check {
                name: concat!(module_path!(), "::", stringify!($function)),
                run: |world| Box::pin($function(world)),
            }),*]
        }
    };
}

/// Ends the check with both values unless they are equal.
macro_rules! same {
    ($found:expr, $wanted:expr) => {
        match (&$found, &$wanted) {
            (found, wanted) => {
                if found != wanted {
                    return Err(format!(
                        "line {}: {} is {found:?}, wanted {wanted:?}",
                        line!(),
                        stringify!($found)
                    )
                    .into());
                }
            }
        }
    };
}

/// Ends the check with the condition unless it holds.
macro_rules! holds {
    ($condition:expr) => {
        let is_true: bool = $condition;
        if !is_true {
            return Err(format!("line {}: does not hold: {}", line!(), stringify!($condition)).into());
        }
    };
    ($condition:expr, $($about:tt)+) => {
        let is_true: bool = $condition;
        if !is_true {
            return Err(format!(
                "line {}: does not hold: {} ({})",
                line!(),
                stringify!($condition),
                format!($($about)+)
            )
            .into());
        }
    };
}

pub(crate) use {checks, holds, same};

/// The HTTP status code of a status.
pub(crate) fn code(status: CosmosStatus) -> u16 {
    u16::from(status.status_code())
}

/// The status code of an answer that has to be a refusal. It is a problem if the request was
/// accepted.
pub(crate) fn refused<T>(answer: azure_data_cosmos::Result<T>) -> Result<u16, Problem> {
    match answer {
        Ok(_) => Err("the request was accepted and should have been refused".into()),
        Err(error) => Ok(code(error.status())),
    }
}

/// The value of an option. It is a problem if there is none. `what` names the value.
pub(crate) fn required<T>(value: Option<T>, what: &str) -> Result<T, Problem> {
    value.ok_or_else(|| format!("{what} is missing").into())
}

/// The number of checks that passed and that failed.
#[derive(Default)]
pub(crate) struct Score {
    passed: u32,
    failed: u32,
}

impl Score {
    /// Runs a check, and counts and prints its outcome.
    pub(crate) async fn run(&mut self, world: &World, check: Check) {
        let name = readable_name(check.name);
        let outcome = match tokio::time::timeout(CHECK_LIMIT, (check.run)(world)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(format!("not done after {} s", CHECK_LIMIT.as_secs()).into()),
        };
        match outcome {
            Ok(()) => {
                self.passed += 1;
                println!("ok   [{}] {name}", world.name());
            }
            Err(problem) => self.fail(world.name(), &name, &*problem),
        }
    }

    pub(crate) fn fail(&mut self, world: &str, name: &str, problem: &(dyn Error + Send + Sync)) {
        self.failed += 1;
        println!("FAIL [{world}] {name}: {}", one_line(&problem.to_string()));
    }

    pub(crate) fn is_good(&self) -> bool {
        self.failed == 0
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, 0 skipped", self.passed, self.failed)
    }
}

/// The name of a check for readers: `items: a b` for `crate::areas::items::a_b`.
fn readable_name(name: &str) -> String {
    let mut words = name.rsplit("::");
    let check = words.next().unwrap_or_default().replace('_', " ");
    let area = words.next().unwrap_or_default().replace('_', " ");
    format!("{area}: {check}")
}

/// The beginning of a text on one line. The SDK's errors have diagnostics of many lines.
fn one_line(text: &str) -> String {
    const SHOWN_CHARACTERS_MAX: usize = 600;
    let flat: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    flat.chars().take(SHOWN_CHARACTERS_MAX).collect()
}
