//! The goals for our provider. Each goal is a bound for the ratio of two places' figures
//! within the same repeat.

use super::places::Place;
use super::plan::Part;
use crate::goal::{Bound, Goal};

/// A goal for every workload of a part.
pub struct RatioGoal {
    part: Part,
    numerator: Place,
    denominator: Place,
    /// Makes the bound from `limit`.
    bound: fn(f64) -> Bound,
    limit: f64,
}

const fn ratio_goal(
    part: Part,
    numerator: Place,
    denominator: Place,
    bound: fn(f64) -> Bound,
    limit: f64,
) -> RatioGoal {
    RatioGoal { part, numerator, denominator, bound, limit }
}

pub const RATIO_GOALS: [RatioGoal; 13] = [
    ratio_goal(Part::Stress, Place::Memory, Place::Ceiling, Bound::AtLeast, 0.9),
    ratio_goal(Part::Stress, Place::Durable, Place::Ceiling, Bound::AtLeast, 0.8),
    ratio_goal(Part::Stress, Place::Wire, Place::Ceiling, Bound::AtLeast, 0.8),
    ratio_goal(Part::Stress, Place::Clear, Place::Ceiling, Bound::AtLeast, 0.8),
    ratio_goal(Part::Loop, Place::Wire, Place::Published, Bound::AtLeast, 5.0),
    ratio_goal(Part::Loop, Place::Durable, Place::Sqlite, Bound::AtLeast, 10.0),
    ratio_goal(Part::Loop, Place::Durable, Place::Postgres, Bound::AtLeast, 3.0),
    ratio_goal(Part::Smallest, Place::Durable, Place::Sqlite, Bound::AtMost, 0.1),
    ratio_goal(Part::FanOut, Place::Durable, Place::Sqlite, Bound::AtMost, 0.25),
    ratio_goal(Part::Children, Place::Durable, Place::Sqlite, Bound::AtMost, 1.0),
    ratio_goal(Part::Payload, Place::Durable, Place::Sqlite, Bound::AtLeast, 3.0),
    ratio_goal(Part::Payload, Place::Memory, Place::Sqlite, Bound::AtLeast, 3.0),
    ratio_goal(Part::Payload, Place::Wire, Place::Sqlite, Bound::AtLeast, 3.0),
];

impl RatioGoal {
    pub fn part(&self) -> Part {
        self.part
    }

    /// The goal for one workload. `ratio` returns the median ratio of two places over the
    /// repeats.
    pub fn goal(&self, workload: &str, ratio: impl FnOnce(Place, Place) -> Option<f64>) -> Goal {
        Goal {
            name: format!("{workload}: {} / {}", self.numerator.name(), self.denominator.name()),
            value: ratio(self.numerator, self.denominator),
            bound: (self.bound)(self.limit),
        }
    }
}
