//! The plan of a run, fixed before the run starts: which workloads run on which places, and
//! for how long.

use clap::ValueEnum;

use super::Options;
use super::places::Place;

/// A part of a run. `--only` selects parts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Part {
    /// duroxide's stress harness with 1, 2 and 4 dispatchers, and as many workers.
    Stress,
    /// duroxide's harness of large payloads.
    Payload,
    /// 20 clients in a closed loop.
    Loop,
    /// Workflows of the smallest kind, one after the other.
    Smallest,
    /// 1,000 activities at once.
    FanOut,
    /// 200 sub-orchestrations at once.
    Children,
    /// Requests and RU per smallest workflow.
    Counts,
}

impl Part {
    pub const ALL: [Part; 7] =
        [Part::Stress, Part::Payload, Part::Loop, Part::Smallest, Part::FanOut, Part::Children, Part::Counts];
}

/// One workload: the arguments for the programs, and the figure that is compared.
pub struct Workload {
    pub name: String,
    pub part: Part,
    /// The workload and its options on the command line of a program.
    pub arguments: Vec<String>,
    /// The name of the figure in a program's output.
    pub figure: &'static str,
    pub unit: &'static str,
    /// The number of decimals of the figure in the table.
    pub digits: usize,
    pub places: Vec<Place>,
}

pub struct Plan {
    pub repeats: usize,
    pub workers: usize,
    pub workloads: Vec<Workload>,
    /// The places on which requests are counted.
    pub counts: Vec<Place>,
    /// The number of workflows in one count.
    pub counted_workflows: usize,
}

/// The numbers of dispatchers and workers with which the stress harness runs.
pub const STRESS_DISPATCHERS: [usize; 3] = [1, 2, 4];

impl Plan {
    pub fn new(options: &Options) -> Self {
        let is_quick = options.quick;
        let choose = |full: u64, short: u64| if is_quick { short } else { full };
        let mut workloads = Vec::new();
        for dispatchers in STRESS_DISPATCHERS {
            workloads.push(harness("stress", Part::Stress, dispatchers, choose(4, 2)));
        }
        workloads.push(harness("payload", Part::Payload, 1, choose(4, 2)));
        workloads.push(closed_loop(20, choose(3, 2)));
        workloads.push(smallest(choose(20, 8)));
        workloads.push(wide("fan-out", Part::FanOut, "1,000 activities at once", 1000, 2));
        workloads.push(wide("children", Part::Children, "200 sub-orchestrations at once", 200, 3));
        workloads.retain(|workload| options.only.contains(&workload.part));
        for workload in &mut workloads {
            if options.everywhere {
                workload.places = Place::ALL.to_vec();
            }
            workload.places.retain(|place| options.places.contains(place));
        }
        workloads.retain(|workload| !workload.places.is_empty());
        let counts = [Place::Published, Place::Wire].into_iter();
        let counts = counts.filter(|place| options.places.contains(place));
        Self {
            repeats: options.repeats.unwrap_or(if is_quick { 2 } else { 3 }).max(1),
            workers: options.workers,
            workloads,
            counts: if options.only.contains(&Part::Counts) { counts.collect() } else { Vec::new() },
            counted_workflows: if is_quick { 10 } else { 30 },
        }
    }

    /// All places of the plan, each once.
    pub fn places(&self) -> Vec<Place> {
        let timed = self.workloads.iter().flat_map(|workload| &workload.places);
        let mut places: Vec<Place> = timed.chain(&self.counts).copied().collect();
        places.sort_unstable();
        places.dedup();
        places
    }
}

/// The words of a program's command line.
fn arguments(workload: &str, options: &[(&str, u64)]) -> Vec<String> {
    let options = options.iter().flat_map(|(name, value)| [format!("--{name}"), value.to_string()]);
    std::iter::once(workload.to_owned()).chain(options).collect()
}

/// A workload of one of duroxide's harnesses. PostgreSQL and the published crate are left out,
/// because no goal needs their figures (docs/benchmarks.md).
fn harness(word: &str, part: Part, dispatchers: usize, seconds: u64) -> Workload {
    use Place::{Ceiling, Clear, Durable, Memory, Sqlite, Wire};
    let places = match part {
        Part::Stress => vec![Ceiling, Sqlite, Memory, Durable, Wire, Clear],
        _ => vec![Ceiling, Sqlite, Memory, Durable, Wire],
    };
    Workload {
        name: format!("{word} {dispatchers}/{dispatchers}"),
        part,
        arguments: arguments(word, &[("dispatchers", dispatchers as u64), ("seconds", seconds)]),
        figure: "perSecond",
        unit: "workflows/s",
        digits: 1,
        places,
    }
}

fn closed_loop(clients: u64, seconds: u64) -> Workload {
    Workload {
        name: format!("closed loop, {clients} clients"),
        part: Part::Loop,
        arguments: arguments("loop", &[("clients", clients), ("seconds", seconds)]),
        figure: "perSecond",
        unit: "workflows/s",
        digits: 0,
        places: Place::ALL.to_vec(),
    }
}

fn smallest(count: u64) -> Workload {
    use Place::{Ceiling, Durable, Memory, Postgres, Sqlite, Wire};
    Workload {
        name: "smallest, commit to commit".into(),
        part: Part::Smallest,
        arguments: arguments("smallest", &[("count", count)]),
        figure: "commitP50Ms",
        unit: "p50 ms",
        digits: 2,
        places: vec![Ceiling, Sqlite, Postgres, Memory, Durable, Wire],
    }
}

/// A workload of one workflow with `count` parts at once.
fn wide(word: &str, part: Part, name: &str, count: u64, digits: usize) -> Workload {
    use Place::{Ceiling, Durable, Memory, Sqlite, Wire};
    Workload {
        name: name.into(),
        part,
        arguments: arguments(word, &[("count", count)]),
        figure: "seconds",
        unit: "s",
        digits,
        places: vec![Ceiling, Sqlite, Memory, Durable, Wire],
    }
}
