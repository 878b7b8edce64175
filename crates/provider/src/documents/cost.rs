//! The cost of an instance: request units and requests, in total and by turn. A charge is known
//! only after its request. So the next commit stores it, which needs no further request.
//!
//! Two rules for the stored form:
//!
//! - The charges of all turns are one text, because a container may index every path. Each leaf of a
//!   document then costs 0.8 RU with each commit. The total is two numbers, because the query that
//!   lists instances returns it.
//! - No workflow needs its cost. So a cost in an unknown form is read as zero, and never makes its
//!   document unreadable.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

/// Request units and the number of requests. Stored as a text such as `1250 2`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Value", into = "String")]
pub(crate) struct Charge {
    /// Hundredths of a request unit: the service reports charges with two decimals.
    pub(crate) centi_ru: u64,
    pub(crate) requests: u64,
}

impl Charge {
    pub(crate) fn is_zero(&self) -> bool {
        *self == Charge::default()
    }

    pub(crate) fn plus(self, other: Charge) -> Charge {
        Charge {
            centi_ru: self.centi_ru.saturating_add(other.centi_ru),
            requests: self.requests.saturating_add(other.requests),
        }
    }
}

/// Reads both forms: a text, and an array of two numbers.
impl From<Value> for Charge {
    fn from(stored: Value) -> Self {
        let numbers = match &stored {
            Value::String(text) => numbers(text),
            Value::Array(numbers) => numbers.iter().map(Value::as_u64).collect(),
            _ => None,
        };
        match numbers.as_deref() {
            Some(&[centi_ru, requests]) => Charge { centi_ru, requests },
            _ => Charge::default(),
        }
    }
}

impl From<Charge> for String {
    fn from(Charge { centi_ru, requests }: Charge) -> Self {
        format!("{centi_ru} {requests}")
    }
}

/// The numbers of a text, which are separated by spaces; `None` if it has anything else.
fn numbers(text: &str) -> Option<Vec<u64>> {
    text.split(' ').map(|number| number.parse().ok()).collect()
}

/// The most turns in a state. A turn takes about 25 bytes, and every commit writes all of them again.
/// Turns leave the state only when events move to a chunk, so turns that add no events would stay.
const TURNS_MAX: usize = 64;

/// The cost of an instance, as its state stores it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Value")]
pub(crate) struct InstanceCost {
    /// The charge of all turns, including those of past executions.
    #[serde(rename = "all", serialize_with = "serialize_as_array")]
    pub(crate) total: Charge,
    /// The turns whose events are in the state document. When the events move to a chunk, their
    /// turns move too.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "stored_turns::serialize")]
    pub(crate) turns: Vec<TurnCharge>,
}

fn serialize_as_array<S: Serializer>(charge: &Charge, serializer: S) -> Result<S::Ok, S::Error> {
    (charge.centi_ru, charge.requests).serialize(serializer)
}

impl From<Value> for InstanceCost {
    fn from(mut stored: Value) -> Self {
        let mut take = |name| stored.get_mut(name).map(Value::take).unwrap_or_default();
        InstanceCost { total: take("all").into(), turns: stored_turns::parse(&take("turns")) }
    }
}

impl InstanceCost {
    pub(crate) fn is_empty(&self) -> bool {
        self.total.is_zero() && self.turns.is_empty()
    }

    /// Adds the charge of the turn with this commit. If there are too many turns, the two oldest
    /// become one entry.
    pub(crate) fn add(&mut self, commit_number: u64, committed_at_ms: u64, charge: Charge) {
        if charge.is_zero() {
            return;
        }
        self.total = self.total.plus(charge);
        self.turns.push(TurnCharge { commit_number, committed_at_ms, charge });
        if self.turns.len() > TURNS_MAX {
            let oldest = self.turns.remove(0);
            self.turns[0].charge = self.turns[0].charge.plus(oldest.charge);
        }
    }
}

/// The charge of one turn: its commit and all requests after it up to the next commit, which
/// stores the charge. These requests are the work on the turn's activities and messages, and the
/// fetch of the next turn. Turn 0 is the start of the instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TurnCharge {
    pub(crate) commit_number: u64,
    /// Milliseconds since 1970; 0 for turn 0, which has no commit.
    pub(crate) committed_at_ms: u64,
    pub(crate) charge: Charge,
}

/// The stored form of charges of turns: one text with four numbers for each turn, such as
/// `0 0 1250 2;1 1763456789012 3000 3`. Turns in another form are left out.
pub(crate) mod stored_turns {
    use serde::{Deserialize, Deserializer, Serializer};
    use serde_json::Value;

    use super::{Charge, TurnCharge, numbers};

    pub(crate) fn serialize<S: Serializer>(turns: &[TurnCharge], serializer: S) -> Result<S::Ok, S::Error> {
        let text = |turn: &TurnCharge| {
            let TurnCharge { commit_number, committed_at_ms, charge } = turn;
            format!("{commit_number} {committed_at_ms} {}", String::from(*charge))
        };
        serializer.serialize_str(&turns.iter().map(text).collect::<Vec<_>>().join(";"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(stored: D) -> Result<Vec<TurnCharge>, D::Error> {
        Ok(parse(&Value::deserialize(stored)?))
    }

    pub(super) fn parse(stored: &Value) -> Vec<TurnCharge> {
        let turn = |text: &str| match numbers(text)?.as_slice() {
            &[commit_number, committed_at_ms, centi_ru, requests] => {
                Some(TurnCharge { commit_number, committed_at_ms, charge: Charge { centi_ru, requests } })
            }
            _ => None,
        };
        stored.as_str().unwrap_or_default().split(';').filter_map(turn).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_charges_of_all_turns_are_one_text() {
        let mut cost = InstanceCost::default();
        cost.add(0, 0, Charge { centi_ru: 1250, requests: 2 });
        cost.add(1, 77, Charge { centi_ru: 3000, requests: 3 });
        let text = serde_json::to_string(&cost).unwrap();
        assert_eq!(text, r#"{"all":[4250,5],"turns":"0 0 1250 2;1 77 3000 3"}"#);
        assert_eq!(serde_json::from_str::<InstanceCost>(&text).unwrap(), cost);
        let charge = serde_json::to_string(&cost.total).unwrap();
        assert_eq!(charge, r#""4250 5""#);
        assert_eq!(serde_json::from_str::<Charge>(&charge).unwrap(), cost.total);
    }

    #[test]
    fn a_cost_in_an_unknown_form_is_read_as_zero() {
        for stored in ["null", "1.5", "[1]", "[1.5,2]", "[1,2,3]", r#""1 2 3""#, r#""-1 2""#, r#""""#, "{}"] {
            assert!(serde_json::from_str::<Charge>(stored).unwrap().is_zero(), "{stored}");
            assert!(serde_json::from_str::<InstanceCost>(stored).unwrap().is_empty(), "{stored}");
        }
        let partly_known = r#"{"all":[150,2],"turns":"0 0 100 1;1 7;2 8 50 1 9;3 9 50 1","mean":1}"#;
        let cost = serde_json::from_str::<InstanceCost>(partly_known).unwrap();
        assert_eq!(cost.total, Charge { centi_ru: 150, requests: 2 });
        assert_eq!(cost.turns.iter().map(|turn| turn.commit_number).collect::<Vec<u64>>(), [0, 3]);
    }

    #[test]
    fn the_turns_of_a_state_are_bounded_and_their_sum_stays_right() {
        let mut cost = InstanceCost::default();
        for number in 0..40_000 {
            cost.add(number, 1_000 + number, Charge { centi_ru: 1200, requests: 1 });
        }
        assert_eq!(cost.turns.len(), TURNS_MAX);
        let sum = cost.turns.iter().fold(Charge::default(), |sum, turn| sum.plus(turn.charge));
        assert_eq!((sum, sum.requests), (cost.total, 40_000));
        assert_eq!(cost.turns.last().map(|turn| turn.commit_number), Some(39_999));
    }

    #[test]
    fn the_charge_of_a_turn_without_requests_is_not_stored() {
        let mut cost = InstanceCost::default();
        cost.add(1, 77, Charge::default());
        assert!(cost.is_empty());
    }
}
