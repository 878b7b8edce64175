//! A check, the report of its result, and the macros that checks use. A check
//! never panics: it returns the problem that it found.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use azure_data_cosmos::CosmosStatus;

use crate::world::World;

/// A check that takes longer than this is considered hung. The slowest takes a few seconds.
const CHECK_LIMIT: Duration = Duration::from_secs(90);

pub(crate) use perihelion_interop_common::Problem;

pub(crate) type Outcome = Result<(), Problem>;
pub(crate) type CheckFuture<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

#[derive(Clone, Copy)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) run: for<'a> fn(&'a World) -> CheckFuture<'a>,
}

/// Lists the checks of an area by their functions.
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
        let is_so: bool = $condition;
        if !is_so {
            return Err(format!("line {}: does not hold: {}", line!(), stringify!($condition)).into());
        }
    };
    ($condition:expr, $($about:tt)+) => {
        let is_so: bool = $condition;
        if !is_so {
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

/// The status of a refusal. It is a problem if the request was accepted.
pub(crate) fn refused<T>(answer: azure_data_cosmos::Result<T>) -> Result<u16, Problem> {
    match answer {
        Ok(_) => Err("the request was accepted and should have been refused".into()),
        Err(error) => Ok(code(error.status())),
    }
}

/// The value. It is a problem if there is none.
pub(crate) fn required<T>(value: Option<T>, what: &str) -> Result<T, Problem> {
    value.ok_or_else(|| format!("{what} is missing").into())
}

#[derive(Default)]
pub(crate) struct Score {
    passed: u32,
    failed: u32,
}

impl Score {
    pub(crate) async fn run(&mut self, world: &World, check: Check) {
        let name = readable(check.name);
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

/// `crate::areas::items::a_b` reads `items: a b`.
fn readable(name: &str) -> String {
    let mut words = name.rsplit("::");
    let check = words.next().unwrap_or_default().replace('_', " ");
    let area = words.next().unwrap_or_default().replace('_', " ");
    format!("{area}: {check}")
}

/// The SDK's errors carry diagnostics over many lines.
fn one_line(text: &str) -> String {
    const SHOWN_MAX: usize = 600;
    let flat: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    flat.chars().take(SHOWN_MAX).collect()
}
