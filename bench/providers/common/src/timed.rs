//! Our own workloads: a closed loop, smallest workflows one after the other, one
//! workflow with many parts, and smallest workflows for counting requests. All
//! use the runtime's default options: 2 dispatchers, 2 workers, and a poll every
//! 100 ms if the provider does not wait for work itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use duroxide::providers::Provider;
use duroxide::runtime::{Runtime, RuntimeOptions};
use duroxide::{Client, OrchestrationStatus};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::Problem;
use crate::observed::Observed;
use crate::workflows::{SMALLEST, activities, orchestrations};

/// The longest wait for a workflow. A workflow that takes longer is stuck.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// The number of workflows before the measurement. The first few create connections,
/// statements and files.
const WARM_UP_WORKFLOWS: usize = 3;
/// How long the closed loop runs before the measurement.
const LOOP_WARM_UP: Duration = Duration::from_millis(500);
/// How long the runtime waits for its dispatchers when it stops. Then it aborts them.
const SHUTDOWN_LIMIT_MS: u64 = 200;

async fn start_runtime(provider: Arc<dyn Provider>) -> Arc<Runtime> {
    Runtime::start_with_options(provider, activities(), orchestrations(), RuntimeOptions::default()).await
}

/// Starts a smallest workflow, waits for its end as a client does, and checks its output.
async fn run_smallest(client: &Client, instance: &str) -> Result<(), Problem> {
    client.start_orchestration(instance, SMALLEST, instance).await?;
    expect_output(client.wait_for_orchestration(instance, WAIT_MAX).await?, instance)
}

fn expect_output(status: OrchestrationStatus, expected: &str) -> Result<(), Problem> {
    match status {
        OrchestrationStatus::Completed { output, .. } if output == expected => Ok(()),
        other => Err(format!("instead of completing with {expected}: {other:?}").into()),
    }
}

/// Several clients, each of which starts its next workflow when its previous one has ended.
pub(crate) async fn closed_loop(
    provider: Arc<dyn Provider>,
    clients: usize,
    seconds: u64,
) -> Result<Value, Problem> {
    let runtime = start_runtime(Arc::clone(&provider)).await;
    let begin = Instant::now() + LOOP_WARM_UP;
    let end = begin + Duration::from_secs(seconds);
    let loops: Vec<_> = (0..clients)
        .map(|number| tokio::spawn(one_client(Client::new(Arc::clone(&provider)), number, begin, end)))
        .collect();
    let mut latencies = Vec::new();
    let mut failed = 0;
    for client in loops {
        let (completed, lost) = client.await?;
        latencies.extend(completed);
        failed += lost;
    }
    runtime.shutdown(Some(SHUTDOWN_LIMIT_MS)).await;
    if latencies.is_empty() {
        return Err("no workflow was completed within the time".into());
    }
    Ok(json!({
        "perSecond": latencies.len() as f64 / seconds as f64,
        "p50Ms": quantile_ms(&mut latencies, 0.5),
        "p99Ms": quantile_ms(&mut latencies, 0.99),
        "completed": latencies.len(),
        "failed": failed,
    }))
}

/// Runs one client of the closed loop. Returns the latencies of the workflows that ended
/// between `begin` and `end`, and the number of workflows that were lost.
async fn one_client(client: Client, number: usize, begin: Instant, end: Instant) -> (Vec<Duration>, u64) {
    let mut latencies = Vec::new();
    let mut failed = 0;
    for workflow in 0_u64.. {
        let started = Instant::now();
        if started >= end {
            break;
        }
        match run_smallest(&client, &format!("loop-{number}-{workflow}")).await {
            Ok(()) if (begin..end).contains(&Instant::now()) => latencies.push(started.elapsed()),
            Ok(()) => {}
            Err(problem) => {
                eprintln!("a workflow was lost: {problem}");
                failed += 1;
            }
        }
    }
    (latencies, failed)
}

/// `count` smallest workflows one after the other, measured from commit to commit. Then as
/// many, measured as a waiting client sees them.
pub(crate) async fn smallest(provider: Arc<dyn Provider>, count: usize) -> Result<Value, Problem> {
    let observed = Observed::new(provider);
    let runtime = start_runtime(observed.clone()).await;
    let client = Client::new(observed.clone());
    one_by_one(&observed, &client, "warm", WARM_UP_WORKFLOWS).await?;
    let mut commits = one_by_one(&observed, &client, "commit", count).await?;
    let mut as_seen_by_client = Vec::with_capacity(count);
    for number in 0..count {
        let started = Instant::now();
        run_smallest(&client, &format!("seen-{number}")).await?;
        as_seen_by_client.push(started.elapsed());
    }
    runtime.shutdown(Some(SHUTDOWN_LIMIT_MS)).await;
    Ok(json!({
        "commitP50Ms": quantile_ms(&mut commits, 0.5),
        "commitP99Ms": quantile_ms(&mut commits, 0.99),
        "seenP50Ms": quantile_ms(&mut as_seen_by_client, 0.5),
    }))
}

/// Runs smallest workflows one after the other. Returns the time from the commit of each start
/// to the commit of its end. Between the two, only the runtime uses the provider.
async fn one_by_one(
    observed: &Observed,
    client: &Client,
    name: &str,
    count: usize,
) -> Result<Vec<Duration>, Problem> {
    let mut latencies = Vec::with_capacity(count);
    for number in 0..count {
        let instance = format!("{name}-{number}");
        tokio::time::sleep(pause_before(number)).await;
        let completion = observed.completion(&instance);
        client.start_orchestration(&instance, SMALLEST, instance.as_str()).await?;
        latencies.push(tokio::time::timeout(WAIT_MAX, completion).await??);
    }
    Ok(latencies)
}

/// The pause before the start of a workflow. Real starts are not aligned with the polls of
/// 100 ms, so these pauses go through all phases of a poll.
fn pause_before(number: usize) -> Duration {
    Duration::from_millis((number as u64 * 37) % 100)
}

/// One workflow with many parts: the time from the commit of its start to the
/// commit of its end.
pub(crate) async fn wide(
    provider: Arc<dyn Provider>,
    orchestration: &str,
    count: usize,
) -> Result<Value, Problem> {
    let observed = Observed::new(provider);
    let runtime = start_runtime(observed.clone()).await;
    let client = Client::new(observed.clone());
    one_by_one(&observed, &client, "warm", WARM_UP_WORKFLOWS).await?;
    let completion = observed.completion("wide");
    client.start_orchestration("wide", orchestration, count.to_string()).await?;
    let elapsed = tokio::time::timeout(WAIT_MAX, completion).await??;
    expect_output(client.get_orchestration_status("wide").await?, &count.to_string())?;
    runtime.shutdown(Some(SHUTDOWN_LIMIT_MS)).await;
    Ok(json!({ "seconds": elapsed.as_secs_f64() }))
}

/// Prints `ready`, waits for a line, runs the workflows, prints `done` and waits for a second
/// line. During both waits the runner reads the server's counters.
pub(crate) async fn counted(provider: Arc<dyn Provider>, count: usize) -> Result<Value, Problem> {
    let observed = Observed::new(provider);
    let runtime = start_runtime(observed.clone()).await;
    let client = Client::new(observed.clone());
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    one_by_one(&observed, &client, "warm", WARM_UP_WORKFLOWS).await?;
    println!("ready");
    lines.next_line().await?.ok_or("the runner is gone")?;
    let before = observed.empty_fetches();
    one_by_one(&observed, &client, "counted", count).await?;
    let empty = observed.empty_fetches() - before;
    println!("done");
    lines.next_line().await?.ok_or("the runner is gone")?;
    runtime.shutdown(Some(SHUTDOWN_LIMIT_MS)).await;
    Ok(json!({ "workflows": count, "emptyFetches": empty }))
}

/// The quantile in milliseconds: the least latency that at least this share of the latencies
/// does not exceed.
fn quantile_ms(latencies: &mut [Duration], share: f64) -> f64 {
    latencies.sort_unstable();
    let rank = (latencies.len() as f64 * share).ceil() as usize;
    latencies.get(rank.saturating_sub(1)).map_or(0.0, |latency| latency.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_latencies() {
        let mut latencies: Vec<Duration> = (1..=10).rev().map(Duration::from_millis).collect();
        assert_eq!(quantile_ms(&mut latencies, 0.5), 5.0);
        assert_eq!(quantile_ms(&mut latencies, 0.99), 10.0);
        assert_eq!(quantile_ms(&mut [], 0.5), 0.0);
    }
}
