//! Scenarios: what a user does with the workflows of `workflows`. Most scenarios take few
//! requests, so that a test can let each of their requests fail in many ways.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use duroxide::runtime::OrchestrationStatus;

use crate::process::User;
use crate::virtual_clock;
use crate::workflows::{
    CROWD_LANE_COUNT, CROWD_LANE_STEPS, FAN_WIDTH, LARGE_INPUT_BYTES, LARGE_INPUT_COUNT, READY,
    WIDE_FAN_WIDTH,
};

/// The time between two checks of a user that waits.
const POLL_INTERVAL: Duration = Duration::from_millis(400);

/// How long the provider itself tries to start an instance. A start must not fail sooner.
const PROVIDER_TRIES_FOR: Duration = Duration::from_secs(20);

/// The most calls that start one instance. No outage of a run lasts as long as three calls.
const START_CALLS_MAX: usize = 3;

/// How a workflow must end.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// Completed with this output.
    Output(String),
    /// Cancelled, by its user or together with its parent.
    Cancelled,
    /// Failed as poison, because every attempt at a turn killed the process.
    Poison,
}

/// The instances of a scenario, and how each must end.
pub type Endings = Vec<(String, Ending)>;

type ScenarioFuture<'u> = Pin<Box<dyn Future<Output = Result<Endings, String>> + Send + 'u>>;

/// One scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    /// Runs the scenario and returns how its instances must end. The instances may still be
    /// running when the function returns. The names of all instances begin with the `String`.
    pub run: for<'u> fn(&'u User, String) -> ScenarioFuture<'u>,
}

impl std::fmt::Debug for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! scenario {
    ($name:literal, $run:path) => {
        Scenario { name: $name, run: |user, name| Box::pin($run(user, name)) }
    };
}

/// Scenarios of few requests, each with its name and its function.
pub const SMALL: [Scenario; 13] = [
    scenario!("chain", chain),
    scenario!("timer", timer),
    scenario!("retry", retry),
    scenario!("parent", parent),
    scenario!("detach", detach),
    scenario!("approval", approval),
    scenario!("inbox", inbox),
    scenario!("eternal", eternal),
    scenario!("race", race),
    scenario!("session", session),
    scenario!("slow", slow),
    scenario!("cancel", cancel),
    scenario!("stats", stats),
];

/// A fan-out of so many activities that a turn commits them in a bundle.
pub const FAN_OUT: Scenario = scenario!("fan", fan);

/// A fan-out whose bundle takes several steps to unpack.
pub const WIDE_FAN: Scenario = scenario!("wide", wide);

/// Two workflows whose turns run in several processes at the same time.
pub const CROWDED: Scenario = scenario!("crowd", crowd);

/// A workflow that kills every process that runs it.
pub const DEADLY: Scenario = scenario!("deadly", deadly);

/// A turn that is too large for one commit and must be staged.
pub const STAGED: Scenario = scenario!("large", large);

/// The scenario with this name: one of [`SMALL`], [`FAN_OUT`], [`STAGED`], or `parked`, in
/// which a parent and its child do not end.
pub fn by_name(name: &str) -> Scenario {
    const PARKED: Scenario = scenario!("parked", parked);
    let all = SMALL.into_iter().chain([FAN_OUT, STAGED, PARKED]);
    all.into_iter().find(|scenario| scenario.name == name).expect("a scenario of that name")
}

/// The expected ending of an instance that completes with this output.
fn completes(instance: impl Into<String>, output: impl Into<String>) -> (String, Ending) {
    (instance.into(), Ending::Output(output.into()))
}

/// Starts an instance with its name as input. A start may be repeated: an instance that exists ignores
/// it. So the user calls again when an outage has lasted longer than the provider tries.
pub async fn start(user: &User, instance: &str, orchestration: &str) -> Result<(), String> {
    for _ in 1..START_CALLS_MAX {
        let called_at = virtual_clock::elapsed();
        match user.client.start_orchestration(instance, orchestration, instance).await {
            Ok(()) => return Ok(()),
            Err(error) if error.is_retryable() && waited_for_outage(called_at) => {}
            Err(error) => return Err(format!("start of {instance}: {error}")),
        }
    }
    let started = user.client.start_orchestration(instance, orchestration, instance).await;
    started.map_err(|error| format!("start of {instance}: {error}"))
}

/// Whether a call that began at this time has taken as long as the provider tries.
fn waited_for_outage(called_at: Duration) -> bool {
    virtual_clock::elapsed().saturating_sub(called_at) >= PROVIDER_TRIES_FOR
}

/// Waits until the custom status of an instance says that it is ready for its user.
async fn wait_until_ready(user: &User, instance: &str) {
    while user.state(instance).await["customStatus"] != READY {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Waits until all instances have ended.
pub async fn wait_until_ended(user: &User, endings: &Endings) {
    for (instance, _) in endings {
        while !matches!(user.state(instance).await["status"].as_str(), Some("Completed" | "Failed")) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Starts an instance that must complete with this output.
async fn start_and_expect(
    user: &User,
    name: &str,
    orchestration: &str,
    output: String,
) -> Result<Endings, String> {
    start(user, name, orchestration).await?;
    Ok(vec![completes(name, output)])
}

async fn chain(user: &User, name: String) -> Result<Endings, String> {
    start_and_expect(user, &name, "Chain", format!("{name}/1 {name}/2")).await
}

async fn timer(user: &User, name: String) -> Result<Endings, String> {
    start_and_expect(user, &name, "Timer", format!("{name}/1")).await
}

async fn retry(user: &User, name: String) -> Result<Endings, String> {
    start_and_expect(user, &name, "Retry", format!("{name}/1")).await
}

async fn parent(user: &User, name: String) -> Result<Endings, String> {
    let (one, two) = (format!("{name}-a"), format!("{name}-b"));
    let mut endings = start_and_expect(user, &name, "Parent", format!("{one}/1 {two}/1")).await?;
    for child in [one, two] {
        let output = format!("{child}/1");
        endings.push(completes(child, output));
    }
    Ok(endings)
}

async fn detach(user: &User, name: String) -> Result<Endings, String> {
    let mut endings = start_and_expect(user, &name, "Detach", format!("{name} has detached")).await?;
    endings.push(completes(format!("{name}-d"), format!("{name}-d/1")));
    Ok(endings)
}

async fn approval(user: &User, name: String) -> Result<Endings, String> {
    let endings = start_and_expect(user, &name, "Approval", format!("{name} granted")).await?;
    wait_until_ready(user, &name).await;
    let raised = user.client.raise_event(&name, "approval", "granted").await;
    raised.map_err(|error| format!("event: {error}"))?;
    Ok(endings)
}

/// Sends three messages to the queue `inbox` of an instance.
async fn enqueue(user: &User, name: &str) -> Result<(), String> {
    for message in ["one", "two", "three"] {
        let sent = user.client.enqueue_event(name, "inbox", message).await;
        sent.map_err(|error| format!("message {message}: {error}"))?;
    }
    Ok(())
}

async fn inbox(user: &User, name: String) -> Result<Endings, String> {
    let endings = start_and_expect(user, &name, "Inbox", "one two three".to_owned()).await?;
    wait_until_ready(user, &name).await;
    enqueue(user, &name).await?;
    Ok(endings)
}

async fn eternal(user: &User, name: String) -> Result<Endings, String> {
    let endings = start_and_expect(user, &name, "Eternal", format!("one,two,three, {name}/1")).await?;
    wait_until_ready(user, &name).await;
    enqueue(user, &name).await?;
    Ok(endings)
}

async fn race(user: &User, name: String) -> Result<Endings, String> {
    start_and_expect(user, &name, "Race", format!("timer {name}/1")).await
}

async fn session(user: &User, name: String) -> Result<Endings, String> {
    start_and_expect(user, &name, "Session", format!("{name}/1 {name}/2 {name}/3")).await
}

async fn slow(user: &User, name: String) -> Result<Endings, String> {
    start_and_expect(user, &name, "Slow", format!("{name}/slow")).await
}

async fn fan(user: &User, name: String) -> Result<Endings, String> {
    start_and_expect(user, &name, "Fan", format!("{FAN_WIDTH} of {name}")).await
}

async fn wide(user: &User, name: String) -> Result<Endings, String> {
    start_and_expect(user, &name, "Fan", format!("{WIDE_FAN_WIDTH} of {name}")).await
}

async fn crowd(user: &User, name: String) -> Result<Endings, String> {
    let (one, two) = (format!("{name}-1"), format!("{name}-2"));
    let output = format!("{} steps, one two three", CROWD_LANE_COUNT * CROWD_LANE_STEPS);
    let mut endings = start_and_expect(user, &one, "Crowd", output.clone()).await?;
    endings.extend(start_and_expect(user, &two, "Crowd", output).await?);
    for message in ["one", "two", "three"] {
        tokio::time::sleep(POLL_INTERVAL).await;
        for instance in [&one, &two] {
            let sent = user.client.enqueue_event(instance, "inbox", message).await;
            sent.map_err(|error| format!("message {message}: {error}"))?;
        }
    }
    Ok(endings)
}

async fn deadly(user: &User, name: String) -> Result<Endings, String> {
    start(user, &name, "Deadly").await?;
    Ok(vec![(name, Ending::Poison)])
}

async fn large(user: &User, name: String) -> Result<Endings, String> {
    let bytes = LARGE_INPUT_BYTES + name.len() + "/0|".len();
    let outputs: Vec<String> = (0..LARGE_INPUT_COUNT).map(|step| format!("{name}/{step}:{bytes}")).collect();
    start_and_expect(user, &name, "Large", outputs.join(" ")).await
}

/// The user cancels a running parent. The child and the child's activity are cancelled with
/// it.
async fn cancel(user: &User, name: String) -> Result<Endings, String> {
    start(user, &name, "Family").await?;
    wait_until_ready(user, &name).await;
    // By then the child has usually started its activity.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let cancelled = user.client.cancel_instance(&name, "no longer needed").await;
    cancelled.map_err(|error| format!("cancel: {error}"))?;
    let child = format!("{name}-stuck");
    Ok(vec![(name, Ending::Cancelled), (child, Ending::Cancelled)])
}

/// Starts a parent and waits until its child runs, too. Both keep running.
async fn parked(user: &User, name: String) -> Result<Endings, String> {
    start(user, &name, "Family").await?;
    wait_until_ready(user, &name).await;
    while user.state(&format!("{name}-stuck")).await["status"] != "Running" {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    tokio::time::sleep(POLL_INTERVAL).await;
    Ok(Endings::new())
}

/// Repeats a call until it succeeds.
async fn until_answered<T, E, F: Future<Output = Result<T, E>>>(mut call: impl FnMut() -> F) -> T {
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

/// Calls the reading methods of duroxide's client after a workflow has ended.
async fn stats(user: &User, name: String) -> Result<Endings, String> {
    let endings = start_and_expect(user, &name, "Chain", format!("{name}/1 {name}/2")).await?;
    wait_until_ended(user, &endings).await;
    let failed = |error| format!("read: {error}");
    let value = user.client.get_kv_value(&name, "first").await.map_err(failed)?;
    let all = user.client.get_kv_all_values(&name).await.map_err(failed)?;
    let stats = user.client.get_orchestration_stats(&name).await.map_err(failed)?;
    let status = user.client.get_orchestration_status(&name).await.map_err(failed)?;
    // Management methods do not wait for the end of an outage.
    let history = until_answered(|| user.client.read_execution_history(&name, 1)).await;
    let info = until_answered(|| user.client.get_instance_info(&name)).await;
    let tree = until_answered(|| user.client.get_instance_tree(&name)).await;
    if value != Some(format!("{name}/1")) || all.len() != 1 || stats.is_none() {
        return Err(format!("values {value:?} {all:?}, stats {stats:?}"));
    }
    // At least the start and the end of the workflow, and two events for each of its two activities.
    if !matches!(status, OrchestrationStatus::Completed { .. }) || history.len() < 6 {
        return Err(format!("status {status:?}, {} events", history.len()));
    }
    if info.status != "Completed" || tree.all_ids.len() != 1 {
        return Err(format!("info {info:?}, tree {tree:?}"));
    }
    Ok(endings)
}
