//! One measurement: warm up, run the closed loop, report the figures.

use std::fmt;
use std::sync::Arc;

use crate::allocations::{self, Allocations};
use crate::drive::{LoopClient, Names, Sample, drive};
use crate::{Arguments, Client, Problem, cpu_of};

pub(crate) struct Figures {
    sample: Sample,
    cpu_us: f64,
    /// Allocations per operation: their number and their bytes.
    allocations: Option<(f64, f64)>,
}

pub(crate) async fn measure<C: Client>(client: C, arguments: &Arguments) -> Result<Figures, Problem> {
    let names = Arc::new(Names::new());
    let mut clients = (0..arguments.concurrency)
        .map(|number| {
            LoopClient::new(client.clone(), arguments.operation, Arc::clone(&names), arguments.run, number)
        })
        .collect::<Result<Vec<_>, _>>()?;
    drive(&mut clients, arguments.warm_up).await?;
    let before = (cpu_of("self")?, allocations::so_far());
    let sample = drive(&mut clients, arguments.measured).await?;
    let after = (allocations::so_far(), cpu_of("self")?);
    let operations = sample.latencies.count() as f64;
    if operations == 0.0 {
        return Err("no operation was answered within the time".into());
    }
    let per_operation = |(before, after): (Allocations, Allocations)| {
        ((after.count - before.count) as f64 / operations, (after.bytes - before.bytes) as f64 / operations)
    };
    Ok(Figures {
        sample,
        cpu_us: (after.1 - before.0).as_secs_f64() * 1e6 / operations,
        allocations: before.1.zip(after.0).map(per_operation),
    })
}

/// One line of JSON.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let latencies = &self.sample.latencies;
        let (allocations, bytes) = self.allocations.unzip();
        let line = serde_json::json!({
            "operations": latencies.count(),
            "perSecond": latencies.count() as f64 / self.sample.elapsed.as_secs_f64(),
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
