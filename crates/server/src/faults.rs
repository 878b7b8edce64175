//! Fault injection: a rule says which requests fail, how often, and how.
//!
//! A rule: `{"operation","database","container","range","region","count","probability",
//! "status","subStatus","retryAfterMs","delayMs","drop":"before"|"after",
//! "when":"before"|"after","name"}`. All members are optional. `before`, the default,
//! means that the request is not carried out; `after` means that it is carried out and
//! its answer is lost (`drop`) or replaced (`status`). The delay comes first in both
//! cases. With a delay alone the request is carried out. A `drop` overrides `status` and
//! `when`. The `name` has no effect. Only rules for transactions may have the further members of
//! the module `transaction`.
//!
//! A rule with a `range` hits requests to that physical partition, and after a split
//! requests to its children. The server determines the ranges of a request only when there
//! is a rule with a `range` whose other members match.

mod transaction;

use std::cell::LazyCell;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use perihelion_engine::{Layer, RangeId, Refusal};
use perihelion_model::json::{Object, Value, object};
use perihelion_wire::path::Resource;
use perihelion_wire::status::{self, Status};

pub(crate) use self::transaction::{InjectedResults, TransactionFault};
use crate::net::Hangup;
use crate::operation::Operation;
use crate::regions::RegionNames;

/// The most rules at a time. A test that adds more has a mistake.
const RULES_MAX: usize = 256;
/// The longest delay of a rule, in milliseconds. A longer delay is shortened to this length.
const DELAY_MS_MAX: u64 = 60_000;
/// The largest number in a rule: JSON numbers are read as `i64`.
const NUMBER_MAX: u64 = i64::MAX as u64;

/// All rules, tried in the order in which they were added.
#[derive(Default)]
pub(crate) struct FaultRules {
    /// While this is false, requests do not take the lock of the rules.
    has_rules: AtomicBool,
    rules: Mutex<Vec<Rule>>,
}

#[derive(Debug, Clone)]
struct Rule {
    id: u64,
    operation: Option<Operation>,
    database: Option<String>,
    container: Option<String>,
    range: Option<RangeId>,
    /// The index of the region.
    region: Option<usize>,
    /// How many more requests the rule hits; `None` for no limit.
    hits_left: Option<u64>,
    /// How many requests the rule has hit.
    hits: u64,
    /// From 0 to 1: how likely the rule hits a request that it matches.
    probability: f64,
    fault: Fault,
}

/// What happens to a request that a rule hits.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fault {
    delay: Duration,
    effect: Effect,
    when: When,
}

/// What happens to a request besides the delay.
#[derive(Debug, Clone, PartialEq)]
enum Effect {
    None,
    Status { status: u16, sub_status: Option<u32>, retry_after_ms: Option<u64> },
    Transaction(TransactionFault),
    Drop,
}

/// Whether the effect comes before or after the request is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Before,
    After,
}

impl Fault {
    pub(crate) async fn delay(&self) {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
    }

    /// The outcome of a request that is not carried out: a refusal that is sent, or a dropped
    /// connection. `None` when the request is to be carried out.
    pub(crate) fn instead_of_serving(&self) -> Option<Result<Refusal, Hangup>> {
        if self.when == When::Before { self.outcome() } else { None }
    }

    /// The outcome that replaces the answer of a request that was carried out; `None`
    /// when its own answer is to be sent.
    pub(crate) fn after_serving(&self) -> Option<Result<Refusal, Hangup>> {
        if self.when == When::After { self.outcome() } else { None }
    }

    /// The results in the answer to a transaction that is not carried out; `None` when the rule
    /// does not ask for such an answer.
    pub(crate) fn results_instead_of_serving(&self) -> Option<InjectedResults> {
        match self.effect {
            Effect::Transaction(TransactionFault::Results(results)) if self.when == When::Before => {
                Some(results)
            }
            Effect::Transaction(_) | Effect::None | Effect::Status { .. } | Effect::Drop => None,
        }
    }

    /// The change to the answer of a transaction that was carried out; `None` for no change.
    pub(crate) fn transaction_fault_after_serving(&self) -> Option<TransactionFault> {
        match self.effect {
            Effect::Transaction(TransactionFault::Results(_)) if self.when == When::Before => None,
            Effect::Transaction(fault) => Some(fault),
            Effect::None | Effect::Status { .. } | Effect::Drop => None,
        }
    }

    fn outcome(&self) -> Option<Result<Refusal, Hangup>> {
        match self.effect {
            Effect::None | Effect::Transaction(_) => None,
            Effect::Drop => Some(Err(match self.when {
                When::Before => Hangup::Unserved,
                When::After => Hangup::Served,
            })),
            Effect::Status { status, sub_status, retry_after_ms } => {
                let mut refusal =
                    Refusal::new(status, Layer::Backend, "This answer was injected by a fault rule.");
                refusal.sub_status = sub_status;
                refusal.retry_after_ms = retry_after_ms;
                Some(Ok(refusal))
            }
        }
    }
}

impl FaultRules {
    pub(crate) fn add(&self, body: &Object, regions: &RegionNames) -> Result<u64, Refusal> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        if rules.len() >= RULES_MAX {
            return Err(bad_request(&format!(
                "There are {RULES_MAX} fault rules already; delete them first."
            )));
        }
        let id = rules.last().map_or(1, |rule| rule.id + 1);
        rules.push(Rule::parse(id, body, regions)?);
        self.has_rules.store(true, Ordering::Release);
        Ok(id)
    }

    pub(crate) fn clear(&self) {
        // The lock is held over both statements, so that a rule that is added meanwhile stays in force.
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.clear();
        self.has_rules.store(false, Ordering::Release);
    }

    /// The fault of the first rule that hits this request, if any. Counts the hit. A rule
    /// for a database or a container compares its name with the path.
    ///
    /// `find_ranges` returns the ids of the ranges that the request is addressed to, and of
    /// the ranges that these were split from. It is called at most once, and only when all other
    /// members of a rule with a `range` match. The rule's probability is drawn after that.
    pub(crate) fn pick(
        &self,
        operation: Operation,
        resource: &Resource,
        region: usize,
        find_ranges: impl FnOnce() -> Vec<RangeId>,
    ) -> Option<Fault> {
        if !self.has_rules.load(Ordering::Acquire) {
            return None;
        }
        let ranges = LazyCell::new(find_ranges);
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let rule = rules.iter_mut().find(|rule| {
            rule.matches(operation, resource, region)
                && rule.range.is_none_or(|wanted| ranges.contains(&wanted))
                && rule.is_chosen_at_random()
        })?;
        rule.hits += 1;
        rule.hits_left = rule.hits_left.map(|left| left - 1);
        Some(rule.fault.clone())
    }

    pub(crate) fn report(&self) -> Value {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let report = rules.iter().map(|rule| {
            object([
                ("id", rule.id.into()),
                ("operation", rule.operation.map_or("any", Operation::name).into()),
                ("hits", rule.hits.into()),
                ("left", rule.hits_left.map_or(Value::Null, Into::into)),
            ])
        });
        object([("faults", Value::Array(report.collect()))])
    }
}

impl Rule {
    fn parse(id: u64, body: &Object, regions: &RegionNames) -> Result<Self, Refusal> {
        const MEMBERS: [&str; 17] = [
            "operation",
            "database",
            "container",
            "range",
            "region",
            "count",
            "probability",
            "status",
            "subStatus",
            "retryAfterMs",
            "delayMs",
            "drop",
            "when",
            "name",
            transaction::MEMBERS[0],
            transaction::MEMBERS[1],
            transaction::MEMBERS[2],
        ];
        if let Some((name, _)) = body.iter().find(|(name, _)| !MEMBERS.contains(name)) {
            return Err(bad_request(&format!(
                "'{name}' is not a member of a fault rule. The members are {}.",
                MEMBERS.join(", ")
            )));
        }
        let operation = match text(body, "operation")? {
            None | Some("any") => None,
            Some(name) => Some(Operation::parse(name).ok_or_else(|| {
                let known: Vec<&str> = Operation::ALL.iter().map(|operation| operation.name()).collect();
                bad_request(&format!("'{name}' is not an operation. Use any, {}.", known.join(", ")))
            })?),
        };
        let region = match text(body, "region")? {
            None => None,
            Some(name) => {
                let unknown =
                    || bad_request(&format!("'{name}' is not a region. The regions are {regions}."));
                Some(regions.find(name).ok_or_else(unknown)?)
            }
        };
        let probability = body.get("probability").map_or(Some(1.0), Value::as_f64);
        let probability = probability.filter(|value| (0.0..=1.0).contains(value));
        text(body, "name")?;
        Ok(Rule {
            id,
            operation,
            database: text(body, "database")?.map(str::to_owned),
            container: text(body, "container")?.map(str::to_owned),
            range: parse_range(body)?,
            region,
            hits_left: number(body, "count", NUMBER_MAX)?,
            hits: 0,
            probability: probability
                .ok_or_else(|| bad_request("'probability' must be a number from 0 to 1."))?,
            fault: parse_fault(body, operation)?,
        })
    }

    /// Whether all members of the rule match, apart from its range and its probability.
    fn matches(&self, operation: Operation, resource: &Resource, region: usize) -> bool {
        let container = || resource.container().map(|(_, name)| name);
        self.hits_left != Some(0)
            && self.region.is_none_or(|wanted| wanted == region)
            && self.operation.is_none_or(|wanted| wanted == operation)
            && self.database.as_deref().is_none_or(|wanted| Some(wanted) == resource.database())
            && self.container.as_deref().is_none_or(|wanted| Some(wanted) == container())
    }

    fn is_chosen_at_random(&self) -> bool {
        self.probability >= 1.0 || random() < self.probability
    }
}

/// The id of a range, as a number or as text: the service writes ids of ranges as text.
fn parse_range(body: &Object) -> Result<Option<RangeId>, Refusal> {
    let id: Option<RangeId> = match body.get("range") {
        None => return Ok(None),
        Some(Value::String(id)) => id.parse().ok(),
        Some(value) => value.as_i64().and_then(|id| RangeId::try_from(id).ok()),
    };
    id.map(Some).ok_or_else(|| {
        bad_request(
            "'range' must be the id of a partition key range, such as \"0\". GET /dbs/{database}/colls/{container}/pkranges lists the ids.",
        )
    })
}

/// The delay, the effect, and whether the effect comes before or after the request is carried
/// out. All members are checked, also those that a `drop` overrides.
fn parse_fault(body: &Object, operation: Option<Operation>) -> Result<Fault, Refusal> {
    let delay_ms = number(body, "delayMs", NUMBER_MAX)?.unwrap_or(0).min(DELAY_MS_MAX);
    let delay = Duration::from_millis(delay_ms);
    let (drop, when) = (parse_when(body, "drop")?, parse_when(body, "when")?);
    let answer = parse_answer(body)?;
    let (status, retry_after_ms) = match answer {
        Effect::Status { status, sub_status, retry_after_ms } => {
            (Some(Status::new(status, sub_status.unwrap_or(0))), retry_after_ms)
        }
        Effect::None | Effect::Transaction(_) | Effect::Drop => (None, None),
    };
    let answer = match transaction::parse(body, operation, status, retry_after_ms)? {
        Some(fault) => {
            transaction::check_when(fault, when)?;
            Effect::Transaction(fault)
        }
        None => answer,
    };
    Ok(match drop {
        Some(when) => Fault { delay, effect: Effect::Drop, when },
        None => Fault { delay, effect: answer, when: when.unwrap_or(When::Before) },
    })
}

/// The answer that `status` asks for; `Effect::None` without it.
fn parse_answer(body: &Object) -> Result<Effect, Refusal> {
    let sub_status = number(body, "subStatus", u32::MAX.into())?.and_then(|value| u32::try_from(value).ok());
    let retry_after_ms = number(body, "retryAfterMs", NUMBER_MAX)?;
    let Some(value) = body.get("status") else { return Ok(Effect::None) };
    let status = value.as_i64().and_then(|status| u16::try_from(status).ok());
    let status = status.filter(|status| (400..600).contains(status));
    Ok(Effect::Status {
        status: status.ok_or_else(|| bad_request("'status' must be a whole number from 400 to 599."))?,
        sub_status,
        retry_after_ms,
    })
}

fn parse_when(body: &Object, name: &str) -> Result<Option<When>, Refusal> {
    match text(body, name)? {
        None => Ok(None),
        Some("before") => Ok(Some(When::Before)),
        Some("after") => Ok(Some(When::After)),
        Some(other) => {
            Err(bad_request(&format!("'{name}' must be \"before\" or \"after\", not \"{other}\".")))
        }
    }
}

/// The text of a member; `None` when the rule does not have the member.
fn text<'b>(body: &'b Object, name: &str) -> Result<Option<&'b str>, Refusal> {
    let Some(value) = body.get(name) else { return Ok(None) };
    value
        .as_str()
        .map(Some)
        .ok_or_else(|| bad_request(&format!("'{name}' must be a string. Leave it out if it is not needed.")))
}

/// The number of a member; `None` when the rule does not have the member.
fn number(body: &Object, name: &str, max: u64) -> Result<Option<u64>, Refusal> {
    let Some(value) = body.get(name) else { return Ok(None) };
    let number = value.as_i64().and_then(|value| u64::try_from(value).ok()).filter(|value| *value <= max);
    number.map(Some).ok_or_else(|| {
        bad_request(&format!(
            "'{name}' must be a whole number from 0 to {max}, without quotes. Leave it out if it is not needed."
        ))
    })
}

fn bad_request(message: &str) -> Refusal {
    Refusal::gateway(status::BAD_REQUEST, message)
}

/// A random number from 0 to 1, without 1. It is random because every `RandomState`
/// has keys of its own.
fn random() -> f64 {
    let bits = RandomState::new().hash_one("fault") >> 11;
    bits as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests;
