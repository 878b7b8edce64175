//! Compares the bulk mode of our client with its single creates. Both create the same number of
//! documents, and take turns. The SDK has no bulk mode.

use std::collections::BTreeMap;

use anyhow::Context;
use perihelion_bench_client::Operation;
use serde_json::{Value, json};

use super::programs::{Built, Program, Run};
use super::rounds::{Cell, measure};
use super::{Environment, Plan};
use crate::rotation::rotated;
use crate::setup::{create_container, delete_container};

/// How many single creates run at once.
const CREATES_AT_ONCE: u64 = 64;
/// The documents that are created before the measurement.
const WARM_UP: &str = "2000";

/// The figures of both ways to create the documents.
pub struct Bulk {
    pub bulk: Cell,
    pub creates: Cell,
}

impl Bulk {
    /// A figure of the bulk divided by that of the single creates, repeat by repeat.
    pub fn ratios(&self, of: fn(&Cell) -> &Vec<f64>) -> Vec<f64> {
        of(&self.bulk).iter().zip(of(&self.creates)).map(|(bulk, creates)| bulk / creates).collect()
    }

    pub fn json(&self) -> Value {
        let figures = |cell: &Cell| json!({ "perSecond": cell.rates, "clientCpuUs": cell.cpu_us });
        json!({ "bulk": figures(&self.bulk), "singleCreates": figures(&self.creates) })
    }
}

/// Measures both ways in every repeat. `None` if our client is not measured.
pub async fn run(
    environment: &Environment,
    plan: &Plan,
    built: &BTreeMap<Program, Built>,
) -> anyhow::Result<Option<Bulk>> {
    let Some(ours) = built.get(&Program::Ours) else { return Ok(None) };
    let mut figures = Bulk { bulk: Cell::default(), creates: Cell::default() };
    let documents = plan.bulk_documents.to_string();
    for repeat in 1..=plan.repeats {
        for operation in rotated(&[Operation::Bulk, Operation::Create], repeat) {
            let (cell, concurrency) = match operation {
                Operation::Bulk => (&mut figures.bulk, 1),
                _ => (&mut figures.creates, CREATES_AT_ONCE),
            };
            // A new container, so that both write into an empty one.
            let container = format!("bulk{repeat}");
            create_container(&environment.server, &container).await?;
            let run = Run {
                operation,
                container: &container,
                concurrency,
                workers: plan.workers,
                warm_up: WARM_UP,
                measured: &documents,
                number: 1,
            };
            measure(environment, &run, ours, cell).await.with_context(|| format!("{operation:?}"))?;
            delete_container(&environment.server, &container).await?;
        }
        eprintln!("  repeat {repeat} of {}: bulk of {documents} documents", plan.repeats);
    }
    Ok(Some(figures))
}
