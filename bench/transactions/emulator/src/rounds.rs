//! All measurements of a run. The targets take turns after every measurement, and each repeat
//! begins with another target, so that other load on the machine affects all of them. Every
//! measurement has a new store, so that all repeats measure the same.

use std::collections::BTreeMap;

use perihelion_bench_client::Problem;
use serde_json::{Value, json};

use crate::arguments::{Arguments, PARTITIONS_MAX};
use crate::emulator::Emulator;
use crate::measure::{Sample, Work, measure};
use crate::ours::OurStore;
use crate::sdk::SdkStore;
use crate::shape::Shape;
use crate::target::Target;

/// The samples of each shape, target and work, in the order of the repeats. A shape is given by
/// its index.
type Samples = BTreeMap<(usize, Target), Vec<Vec<Sample>>>;

/// Measures everything and returns the figures.
pub(crate) async fn run(arguments: &Arguments) -> Result<Value, Problem> {
    let mut samples = Samples::new();
    for repeat in 0..=arguments.repeats {
        let mut order = arguments.targets.clone();
        order.rotate_left(repeat % arguments.targets.len().max(1));
        for (index, shape) in arguments.shapes.iter().enumerate() {
            for target in &order {
                let measured = measure_target(*target, *shape, arguments).await;
                let measured = measured.map_err(|problem| format!("{shape:?} on {target:?}: {problem}"))?;
                // The first repeat only warms up.
                if repeat > 0 {
                    samples.entry((index, *target)).or_default().push(measured);
                }
            }
        }
        eprintln!("  repeat {repeat} of {}", arguments.repeats);
    }
    Ok(figures(arguments, &samples))
}

async fn measure_target(target: Target, shape: Shape, arguments: &Arguments) -> Result<Vec<Sample>, Problem> {
    match target {
        Target::Sdk => {
            let emulator = Emulator::new()?;
            let keys = OurStore::on_emulator(&emulator).await?.keys().await?;
            measure(SdkStore::open(&emulator).await?, keys, shape, arguments).await
        }
        Target::Client => {
            let store = OurStore::on_emulator(&Emulator::new()?).await?;
            let keys = store.keys().await?;
            measure(store, keys, shape, arguments).await
        }
        Target::Embedded => {
            let (store, engine) = OurStore::embedded().await?;
            let keys = store.keys().await?;
            let measured = measure(store, keys, shape, arguments).await;
            engine.close().await;
            measured
        }
    }
}

fn figures(arguments: &Arguments, samples: &Samples) -> Value {
    let row = |(index, shape): (usize, &Shape), work: usize| {
        let targets: serde_json::Map<String, Value> = arguments
            .targets
            .iter()
            .filter_map(|target| Some((*target, samples.get(&(index, *target))?)))
            .map(|(target, repeats)| (target.name().to_owned(), target_figures(repeats, work)))
            .collect();
        json!({
            "work": Work::ALL[work].name(),
            "operations": shape.operations,
            "partitions": shape.partitions,
            "targets": targets,
        })
    };
    let works = 0..Work::ALL.len();
    let rows = works.flat_map(|work| arguments.shapes.iter().enumerate().map(move |shape| row(shape, work)));
    json!({
        "clients": arguments.clients,
        "workers": arguments.workers,
        "windowMs": arguments.window.as_millis() as u64,
        "physicalPartitions": PARTITIONS_MAX,
        "rows": rows.collect::<Vec<_>>(),
    })
}

fn target_figures(repeats: &[Vec<Sample>], work: usize) -> Value {
    let all = |figure: fn(&Sample) -> f64| {
        repeats.iter().filter_map(|samples| samples.get(work)).map(figure).collect::<Vec<_>>()
    };
    json!({
        "operationsPerSecond": all(|sample| sample.operations_per_second),
        "p50Ms": all(|sample| sample.p50_ms),
        "p99Ms": all(|sample| sample.p99_ms),
    })
}
