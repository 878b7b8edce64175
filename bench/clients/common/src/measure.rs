//! One measurement: warms up, runs the closed loop, and returns the figures.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::allocations::{self, Allocations};
use crate::bulk::Loader;
use crate::drive::{LoopClient, Names, Sample, drive};
use crate::{Arguments, Client, Operation, Problem, cpu_of};

/// The figures of one measurement.
pub(crate) struct Figures {
    sample: Sample,
    /// CPU microseconds of this process per operation.
    cpu_us: f64,
    /// The number and the bytes of the allocations per operation. `None` if the program does
    /// not count them.
    allocations: Option<(f64, f64)>,
}

pub(crate) async fn measure<C: Client>(client: C, arguments: &Arguments) -> Result<Figures, Problem> {
    let names = Arc::new(Names::new());
    if arguments.operation == Operation::Bulk {
        let mut loader = Loader::new(client, &names, arguments.run)?;
        loader.load(arguments.warm_up).await?;
        let meter = Meter::start()?;
        return meter.stop(loader.load(arguments.measured).await?);
    }
    let mut clients = (0..arguments.concurrency)
        .map(|number| {
            LoopClient::new(client.clone(), arguments.operation, Arc::clone(&names), arguments.run, number)
        })
        .collect::<Result<Vec<_>, _>>()?;
    drive(&mut clients, arguments.warm_up).await?;
    let meter = Meter::start()?;
    meter.stop(drive(&mut clients, arguments.measured).await?)
}

/// The resources that this process had used when the measurement began.
struct Meter {
    cpu: Duration,
    allocations: Option<Allocations>,
}

impl Meter {
    fn start() -> Result<Self, Problem> {
        Ok(Self { cpu: cpu_of("self")?, allocations: allocations::so_far() })
    }

    fn stop(self, sample: Sample) -> Result<Figures, Problem> {
        let (allocations_after, cpu_after) = (allocations::so_far(), cpu_of("self")?);
        if sample.operations == 0 {
            return Err("no operation was answered within the time".into());
        }
        let operations = sample.operations as f64;
        let per_operation = |(before, after): (Allocations, Allocations)| {
            (
                (after.count - before.count) as f64 / operations,
                (after.bytes - before.bytes) as f64 / operations,
            )
        };
        Ok(Figures {
            sample,
            cpu_us: (cpu_after - self.cpu).as_secs_f64() * 1e6 / operations,
            allocations: self.allocations.zip(allocations_after).map(per_operation),
        })
    }
}

/// Prints the figures as one line of JSON.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let latencies = &self.sample.latencies;
        let (allocations, bytes) = self.allocations.unzip();
        let line = serde_json::json!({
            "operations": self.sample.operations,
            "perSecond": self.sample.operations as f64 / self.sample.elapsed.as_secs_f64(),
            "p50Ms": latencies.quantile_ms(0.5),
            "p99Ms": latencies.quantile_ms(0.99),
            "maxMs": latencies.quantile_ms(1.0),
            "cpuUs": self.cpu_us,
            "allocations": allocations,
            "allocatedBytes": bytes,
        });
        line.fmt(f)
    }
}
