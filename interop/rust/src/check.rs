//! What a check is, how its result is told, and the few words that checks are
//! written in. A check never panics: it returns what it found wrong.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use azure_data_cosmos::CosmosStatus;

use crate::world::World;

/// A check that takes longer hangs; the slowest takes a few seconds.
const CHECK_LIMIT: Duration = Duration::from_secs(90);

pub(crate) type Problem = Box<dyn Error + Send + Sync>;
pub(crate) type Outcome = Result<(), Problem>;
pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

#[derive(Clone, Copy)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) run: for<'a> fn(&'a World) -> Running<'a>,
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

/// The two are equal, or the check ends with both.
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

/// The condition holds, or the check ends with it.
macro_rules! holds {
    ($condition:expr) => {
        let is_so: bool = $condition;
        if !is_so {
            return Err(format!("line {}: not so: {}", line!(), stringify!($condition)).into());
        }
    };
    ($condition:expr, $($about:tt)+) => {
        let is_so: bool = $condition;
        if !is_so {
            return Err(format!(
                "line {}: not so: {} ({})",
                line!(),
                stringify!($condition),
                format!($($about)+)
            )
            .into());
        }
    };
}

pub(crate) use {checks, holds, same};

/// A status as the numbers that the documentation uses.
pub(crate) fn code(status: CosmosStatus) -> u16 {
    u16::from(status.status_code())
}

/// The status of a refusal; an answer where a refusal was due is a problem.
pub(crate) fn refused<T>(answer: azure_data_cosmos::Result<T>) -> Result<u16, Problem> {
    match answer {
        Ok(_) => Err("it was accepted, a refusal was due".into()),
        Err(error) => Ok(code(error.status())),
    }
}

/// `None` where a value was due is a problem.
pub(crate) fn due<T>(value: Option<T>, what: &str) -> Result<T, Problem> {
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
