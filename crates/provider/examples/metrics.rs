//! Metrics of a provider. Runs twenty workflows on the engine in this process, lists the
//! three that were updated last, and prints calls, requests, request units (RU) and latency
//! of each provider method.
//!
//! `cargo run -p duroxide-cdb --example metrics`

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};
use duroxide_cdb::{CosmosDBProvider, ListOptions, ListOrder, ProviderMetrics};

const WORKFLOW_COUNT: usize = 20;
/// The longest time to wait for one workflow.
const TIME_LIMIT: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let provider = Arc::new(CosmosDBProvider::embedded_in_memory().await?);
    let activities = ActivityRegistry::builder()
        .register("greet", |_: ActivityContext, name: String| async move { Ok(format!("hello {name}")) })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("greeting", |context: OrchestrationContext, name: String| async move {
            context.schedule_activity("greet", name).await
        })
        .build();
    let runtime = Runtime::start_with_store(provider.clone(), activities, orchestrations).await;
    let client = Client::new(provider.clone());
    for n in 0..WORKFLOW_COUNT {
        client.start_orchestration(&format!("greeting-{n}"), "greeting", "ada").await?;
    }
    for n in 0..WORKFLOW_COUNT {
        client.wait_for_orchestration(&format!("greeting-{n}"), TIME_LIMIT).await?;
    }
    runtime.shutdown(None).await;

    let recent =
        ListOptions::new().with_status("Completed").with_order(ListOrder::RecentFirst).with_page_size(3);
    for instance in provider.list(&recent).await?.instances {
        println!(
            "{} {} after {} ms",
            instance.instance_id,
            instance.status,
            instance.updated_at - instance.created_at
        );
    }
    print_metrics(&provider.metrics());
    Ok(())
}

fn print_metrics(metrics: &ProviderMetrics) {
    println!("\n{:<30}{:>7}{:>10}{:>10}{:>10}{:>12}", "method", "calls", "requests", "RU", "p50", "p99");
    for (name, method) in &metrics.methods {
        let (p50, p99) = (method.latency.quantile(0.5), method.latency.quantile(0.99));
        println!(
            "{name:<30}{:>7}{:>10}{:>10.1}{:>10.1?}{:>12.1?}",
            method.calls, method.requests, method.request_units, p50, p99
        );
    }
    let per_workflow = |count: f64| count / WORKFLOW_COUNT as f64;
    println!(
        "\nper workflow: {:.1} requests, {:.1} RU; in total {} polls, {} fetches from hints, {} conflicts, {} retries, {} steals",
        per_workflow(metrics.requests as f64),
        per_workflow(metrics.request_units),
        metrics.polls,
        metrics.fetches_from_hints,
        metrics.conflicts,
        metrics.retries,
        metrics.steals,
    );
}
