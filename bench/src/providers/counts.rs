//! Counts requests and request units per smallest workflow, from the server's counters. The
//! provider program says when its workflows begin and when they have ended, and the counters
//! are read at both moments. No client polls for the workflows, so all requests are the
//! provider's. Fetches that returned nothing are reported separately.

use std::collections::BTreeMap;
use std::process::Stdio;

use anyhow::{Context, ensure};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout};

use super::environment::Environment;
use super::places::Place;
use super::plan::Plan;
use crate::counters::read_counters;

/// The counts per workflow.
pub struct Count {
    pub requests: f64,
    pub request_units: f64,
    /// Fetches of the runtime that returned nothing.
    pub empty_fetches: f64,
    /// Requests by the server's name of the operation.
    pub operations: BTreeMap<String, f64>,
}

/// The counts of all places. A count that fails is reported and left out.
pub async fn all(environment: &Environment, plan: &Plan) -> BTreeMap<Place, Count> {
    let mut counts = BTreeMap::new();
    for place in &plan.counts {
        eprintln!("counting requests: {}", place.name());
        match count_place(environment, *place, plan.counted_workflows).await {
            Ok(count) => drop(counts.insert(*place, count)),
            Err(error) => eprintln!("FAILED: counting by {}: {error:#}", place.name()),
        }
    }
    counts
}

async fn count_place(environment: &Environment, place: Place, workflows: usize) -> anyhow::Result<Count> {
    let setting = environment.prepare(place).await?;
    let address = setting.server.as_ref().context("requests are counted by a server")?.address;
    let arguments = ["counted".to_owned(), "--count".to_owned(), workflows.to_string()];
    let mut command = environment.command(place, &setting, &arguments)?;
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().context("a child without stdin")?;
    let mut stdout = BufReader::new(child.stdout.take().context("a child without stdout")?).lines();
    expect_line(&mut stdout, "ready").await?;
    let before = read_counters(address).await?;
    send_line(&mut stdin).await?;
    expect_line(&mut stdout, "done").await?;
    let after = read_counters(address).await?;
    send_line(&mut stdin).await?;
    let figures = stdout.next_line().await?.context("the program ended without figures")?;
    let figures: Value = serde_json::from_str(&figures)?;
    ensure!(child.wait().await?.success(), "the program failed");
    setting.remove().await?;
    Ok(difference(&before, &after, &figures, workflows as f64))
}

/// Reads a line, which must be this word.
async fn expect_line(stdout: &mut Lines<BufReader<ChildStdout>>, word: &str) -> anyhow::Result<()> {
    let line = stdout.next_line().await?.with_context(|| format!("the program ended before `{word}`"))?;
    ensure!(line == word, "the program printed `{line}` instead of `{word}`");
    Ok(())
}

async fn send_line(stdin: &mut ChildStdin) -> anyhow::Result<()> {
    stdin.write_all(b"\n").await?;
    Ok(stdin.flush().await?)
}

/// The counts per workflow from the counters before and after the workflows.
fn difference(before: &Value, after: &Value, figures: &Value, workflows: f64) -> Count {
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let per_workflow = |name: &str| (number(&after[name]) - number(&before[name])) / workflows;
    let operations = after["operations"].as_object().into_iter().flatten().map(|(name, counter)| {
        let earlier = number(&before["operations"][name]["requests"]);
        (name.clone(), (number(&counter["requests"]) - earlier) / workflows)
    });
    Count {
        requests: per_workflow("requests"),
        request_units: per_workflow("requestUnits"),
        empty_fetches: number(&figures["emptyFetches"]) / workflows,
        operations: operations.filter(|(_, count)| *count > 0.0).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_count_is_the_difference_per_workflow() {
        let before =
            json!({ "requests": 10, "requestUnits": 5.0, "operations": { "batch": { "requests": 4 } } });
        let after = json!({ "requests": 30, "requestUnits": 45.0,
            "operations": { "batch": { "requests": 14 }, "query": { "requests": 10 } } });
        let count = difference(&before, &after, &json!({ "emptyFetches": 5 }), 10.0);
        assert_eq!((count.requests, count.request_units, count.empty_fetches), (2.0, 4.0, 0.5));
        assert_eq!(count.operations, BTreeMap::from([("batch".into(), 1.0), ("query".into(), 1.0)]));
    }
}
