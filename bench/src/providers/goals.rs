//! The goals for our provider. Each compares the figures of two places within the
//! same repeat.

use super::places::Place;
use super::plan::Part;
use crate::goal::{Bound, Goal};

/// A goal for every workload of a part.
pub struct Promise {
    part: Part,
    above: Place,
    below: Place,
    bound: fn(f64) -> Bound,
    value: f64,
}

const fn promise(part: Part, above: Place, below: Place, bound: fn(f64) -> Bound, value: f64) -> Promise {
    Promise { part, above, below, bound, value }
}

pub const PROMISES: [Promise; 13] = [
    promise(Part::Stress, Place::Memory, Place::Ceiling, Bound::AtLeast, 0.9),
    promise(Part::Stress, Place::Durable, Place::Ceiling, Bound::AtLeast, 0.8),
    promise(Part::Stress, Place::Wire, Place::Ceiling, Bound::AtLeast, 0.8),
    promise(Part::Stress, Place::Clear, Place::Ceiling, Bound::AtLeast, 0.8),
    promise(Part::Loop, Place::Wire, Place::Published, Bound::AtLeast, 5.0),
    promise(Part::Loop, Place::Durable, Place::Sqlite, Bound::AtLeast, 10.0),
    promise(Part::Loop, Place::Durable, Place::Postgres, Bound::AtLeast, 3.0),
    promise(Part::Smallest, Place::Durable, Place::Sqlite, Bound::AtMost, 0.1),
    promise(Part::FanOut, Place::Durable, Place::Sqlite, Bound::AtMost, 0.25),
    promise(Part::Children, Place::Durable, Place::Sqlite, Bound::AtMost, 1.0),
    promise(Part::Payload, Place::Durable, Place::Sqlite, Bound::AtLeast, 3.0),
    promise(Part::Payload, Place::Memory, Place::Sqlite, Bound::AtLeast, 3.0),
    promise(Part::Payload, Place::Wire, Place::Sqlite, Bound::AtLeast, 3.0),
];

impl Promise {
    pub fn part(&self) -> Part {
        self.part
    }

    /// The goal for one workload; `ratio` is the median over the repeats.
    pub fn goal(&self, workload: &str, ratio: impl FnOnce(Place, Place) -> Option<f64>) -> Goal {
        Goal {
            name: format!("{workload}: {} / {}", self.above.name(), self.below.name()),
            value: ratio(self.above, self.below),
            bound: (self.bound)(self.value),
        }
    }
}
