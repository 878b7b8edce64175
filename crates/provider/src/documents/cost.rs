//! What an instance has cost: request units and requests, in all and by turn. A charge is known
//! only after its request, so it is stored with the next commit, which costs no request more.

use serde::{Deserialize, Serialize};

/// Request units and the number of requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u64)", into = "(u64, u64)")]
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

impl From<(u64, u64)> for Charge {
    fn from((centi_ru, requests): (u64, u64)) -> Self {
        Charge { centi_ru, requests }
    }
}

impl From<Charge> for (u64, u64) {
    fn from(charge: Charge) -> Self {
        (charge.centi_ru, charge.requests)
    }
}

/// The most turns in a state. A turn takes about 35 bytes, and every commit rewrites them. Most
/// turns add events and move to a chunk with them; turns without events do not.
const TURNS_MAX: usize = 64;

/// The cost of an instance, as its state stores it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct InstanceCost {
    /// All turns, those of past executions included.
    #[serde(rename = "all")]
    pub(crate) total: Charge,
    /// The turns whose events are in the state document. When the events move to a chunk, their
    /// turns move too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) turns: Vec<TurnCharge>,
}

impl InstanceCost {
    pub(crate) fn is_empty(&self) -> bool {
        self.total.is_zero() && self.turns.is_empty()
    }

    /// Adds the charge of the turn that ended with this commit. If there are too many turns, the
    /// two oldest become one.
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

/// The charge of one turn: of its commit and everything after it up to the next commit, which
/// stores the charge. That is the work on the turn's activities and messages, and the fetch of
/// the next turn. Turn 0 is the start of the instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u64, Charge)", into = "(u64, u64, Charge)")]
pub(crate) struct TurnCharge {
    pub(crate) commit_number: u64,
    /// Milliseconds since 1970; 0 for turn 0, which has no commit.
    pub(crate) committed_at_ms: u64,
    pub(crate) charge: Charge,
}

impl From<(u64, u64, Charge)> for TurnCharge {
    fn from((commit_number, committed_at_ms, charge): (u64, u64, Charge)) -> Self {
        TurnCharge { commit_number, committed_at_ms, charge }
    }
}

impl From<TurnCharge> for (u64, u64, Charge) {
    fn from(turn: TurnCharge) -> Self {
        (turn.commit_number, turn.committed_at_ms, turn.charge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_stored_as_short_arrays_of_numbers() {
        let mut cost = InstanceCost::default();
        cost.add(0, 0, Charge { centi_ru: 1250, requests: 2 });
        cost.add(1, 77, Charge { centi_ru: 3000, requests: 3 });
        let text = serde_json::to_string(&cost).unwrap();
        assert_eq!(text, r#"{"all":[4250,5],"turns":[[0,0,[1250,2]],[1,77,[3000,3]]]}"#);
        assert_eq!(serde_json::from_str::<InstanceCost>(&text).unwrap(), cost);
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
    fn a_turn_without_requests_is_not_stored() {
        let mut cost = InstanceCost::default();
        cost.add(1, 77, Charge::default());
        assert!(cost.is_empty());
    }
}
