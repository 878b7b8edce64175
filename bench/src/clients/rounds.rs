//! The timed part: point reads and creates at every concurrency. The clients take turns after
//! every measurement, so that other load on the machine affects all clients. Every
//! measurement is a separate process with its own warm-up. Every repeat has a new container.

use std::collections::BTreeMap;

use anyhow::Context;
use perihelion_bench_client::Operation;
use tokio::process::Command;

use super::programs::{Built, Program, Run};
use super::{Environment, Plan};
use crate::rotation::rotated;
use crate::setup::{create_container, delete_container, load_readable};

/// The figures of one client in one row: for each figure one number per repeat, in the order
/// of the repeats.
#[derive(Default)]
pub struct Cell {
    /// Operations per second.
    pub rates: Vec<f64>,
    pub p50_ms: Vec<f64>,
    pub p99_ms: Vec<f64>,
    pub max_ms: Vec<f64>,
    /// CPU microseconds of the client per operation.
    pub cpu_us: Vec<f64>,
}

/// The figures of one workload at one concurrency, by client.
pub struct Row {
    pub operation: Operation,
    pub concurrency: u64,
    pub cells: BTreeMap<Program, Cell>,
}

impl Row {
    pub fn workload(&self) -> &'static str {
        match self.operation {
            Operation::Read => "point read",
            Operation::Create => "create",
            Operation::Bulk => "bulk",
        }
    }
}

/// Measures every row in every repeat.
pub async fn run(
    environment: &Environment,
    plan: &Plan,
    built: &BTreeMap<Program, Built>,
) -> anyhow::Result<Vec<Row>> {
    let mut rows: Vec<Row> = [Operation::Read, Operation::Create]
        .into_iter()
        .flat_map(|operation| plan.concurrency.iter().map(move |concurrency| (operation, *concurrency)))
        .map(|(operation, concurrency)| Row { operation, concurrency, cells: BTreeMap::new() })
        .collect();
    let mut run_number = 0;
    for repeat in 1..=plan.repeats {
        let container = format!("clients{repeat}");
        create_container(&environment.server, &container).await?;
        load_readable(&environment.server, &container).await?;
        for row in &mut rows {
            for program in rotated(&plan.clients, repeat) {
                run_number += 1;
                let run = Run {
                    operation: row.operation,
                    container: &container,
                    concurrency: row.concurrency,
                    workers: plan.workers,
                    warm_up: &plan.warm_up,
                    measured: &plan.measured,
                    number: run_number,
                };
                measure(environment, &run, &built[&program], row.cells.entry(program).or_default())
                    .await
                    .with_context(|| format!("{} by {}", row.workload(), program.name()))?;
            }
            eprintln!(
                "  repeat {repeat} of {}: {}, {} at once",
                plan.repeats,
                row.workload(),
                row.concurrency
            );
        }
        delete_container(&environment.server, &container).await?;
    }
    Ok(rows)
}

pub async fn measure(
    environment: &Environment,
    run: &Run<'_>,
    built: &Built,
    cell: &mut Cell,
) -> anyhow::Result<()> {
    let figures = run.execute(Command::new(&built.plain), environment).await?;
    cell.rates.push(figures.get("perSecond")?);
    cell.p50_ms.push(figures.get("p50Ms")?);
    cell.p99_ms.push(figures.get("p99Ms")?);
    cell.max_ms.push(figures.get("maxMs")?);
    cell.cpu_us.push(figures.get("cpuUs")?);
    Ok(())
}
