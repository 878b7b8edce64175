//! The workflows of the simulation. Most of them use one feature for which the runtime needs
//! the provider. The output of a workflow says what happened. The inputs of activities are
//! unique, so that the activity log can tell the activities apart.

use std::collections::BTreeSet;
use std::time::Duration;

use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{
    ActivityContext, BackoffStrategy, Either2, OrchestrationContext, OrchestrationRegistry, RetryPolicy,
};

use crate::activity_log::ActivityLog;
use crate::network::SimulatedTransport;

/// The tag of some activities. All workers fetch activities with this tag and activities
/// without a tag.
pub const TAG: &str = "gpu";

/// The number of activities of a fan-out: so many that the turn commits them as one bundle.
pub const FAN_WIDTH: usize = 34;

/// The number of activities of a wide fan-out: unpacking their bundle takes three batches.
pub const WIDE_FAN_WIDTH: usize = 210;

/// The number of lanes of a crowded workflow. A lane runs one activity after the other; the
/// lanes run side by side.
pub const CROWD_LANE_COUNT: usize = 3;

/// The number of activities in each lane of a crowded workflow.
pub const CROWD_LANE_STEPS: usize = 4;

/// The number of large inputs in one turn. Together they are too large for one commit.
pub const LARGE_INPUT_COUNT: usize = 3;

/// The number of filler bytes in a large input.
pub const LARGE_INPUT_BYTES: usize = 700_000;

/// The number of lanes of a busy workflow, and so of activities that are always under way.
const BUSY_LANES: usize = 3;

/// The most activities in a lane of a busy workflow. The limit ends a workflow that is never
/// stopped.
const BUSY_LANE_STEPS_MAX: usize = 400;

/// The custom status of a workflow that waits for a call of its user.
pub const READY: &str = "ready";

/// The duration of a slow activity: longer than a lock, so that the lock has to be renewed.
const SLOW_DURATION: Duration = Duration::from_secs(7);

/// The duration of an endless activity that is never cancelled: longer than any run.
const ENDLESS_DURATION: Duration = Duration::from_secs(3600);

/// The orchestrations and activities that a process registers: all but some.
#[derive(Debug, Clone, Default)]
pub struct Registered {
    missing_orchestrations: BTreeSet<&'static str>,
    missing_activities: BTreeSet<&'static str>,
}

impl Registered {
    /// All orchestrations but these, and all activities but these.
    pub fn without(
        missing_orchestrations: BTreeSet<&'static str>,
        missing_activities: BTreeSet<&'static str>,
    ) -> Self {
        Registered { missing_orchestrations, missing_activities }
    }

    fn orchestration(&self, name: &'static str) -> String {
        name_in_registry(name, self.missing_orchestrations.contains(name))
    }

    fn activity(&self, name: &'static str) -> String {
        name_in_registry(name, self.missing_activities.contains(name))
    }
}

/// The name under which a process registers an orchestration or activity. A missing one is
/// registered under another name, which no workflow uses.
fn name_in_registry(name: &str, is_missing: bool) -> String {
    if is_missing { format!("{name} of another release") } else { name.to_owned() }
}

/// The activities and orchestrations that a worker registers. Every activity records its runs
/// in the log. The workflow `Deadly` kills its process through the transport.
pub fn registries(
    activity_log: &ActivityLog,
    transport: &SimulatedTransport,
    registered: &Registered,
) -> (ActivityRegistry, OrchestrationRegistry) {
    let [step, slow, flaky, endless, large, pause] = [0; 6].map(|_| activity_log.clone());
    let transport = transport.clone();
    let activities = ActivityRegistry::builder()
        .register(registered.activity("Step"), move |_: ActivityContext, input: String| {
            step.record(&input);
            async move { Ok(input) }
        })
        .register(registered.activity("Slow"), move |_: ActivityContext, input: String| {
            slow.record(&input);
            async move {
                tokio::time::sleep(SLOW_DURATION).await;
                Ok(input)
            }
        })
        .register("Pause", move |_: ActivityContext, input: String| {
            pause.record(&input);
            async move {
                tokio::time::sleep(pause_duration(&input)).await;
                Ok(input)
            }
        })
        .register(registered.activity("Flaky"), move |_: ActivityContext, input: String| {
            let run_count = flaky.record(&input);
            async move { if run_count == 1 { Err("not yet".to_owned()) } else { Ok(input) } }
        })
        .register(registered.activity("Endless"), move |context: ActivityContext, input: String| {
            endless.record(&input);
            async move {
                let _ = tokio::time::timeout(ENDLESS_DURATION, context.cancelled()).await;
                Err(format!("{input} was cancelled"))
            }
        })
        .register("Large", move |_: ActivityContext, input: String| {
            let name = input.split('|').next().unwrap_or_default().to_owned();
            large.record(&name);
            async move { Ok(format!("{name}:{}", input.len())) }
        })
        .build();
    let orchestrations = OrchestrationRegistry::builder()
        .register(registered.orchestration("Chain"), chain)
        .register(registered.orchestration("Timer"), timer)
        .register(registered.orchestration("Retry"), retry)
        .register(registered.orchestration("Parent"), parent)
        .register(registered.orchestration("Child"), child)
        .register(registered.orchestration("Detach"), detach)
        .register(registered.orchestration("Approval"), approval)
        .register(registered.orchestration("Inbox"), inbox)
        .register(registered.orchestration("Eternal"), eternal)
        .register(registered.orchestration("Race"), race)
        .register(registered.orchestration("Session"), session)
        .register(registered.orchestration("Fan"), fan)
        .register(registered.orchestration("Large"), large_turn)
        .register(registered.orchestration("Slow"), slow_step)
        .register(registered.orchestration("Stuck"), stuck)
        .register(registered.orchestration("Family"), family)
        .register(registered.orchestration("Busy"), busy)
        .register(registered.orchestration("Crowd"), crowd)
        .register("Deadly", move |context, name| deadly(context, name, transport.clone()))
        .build();
    (activities, orchestrations)
}

/// Two activities, one of them with a tag; a custom status; a key-value pair.
async fn chain(context: OrchestrationContext, name: String) -> Result<String, String> {
    context.set_custom_status("begun");
    let first = context.schedule_activity("Step", format!("{name}/1")).await?;
    context.set_kv_value("first", &first);
    let second = context.schedule_activity("Step", format!("{name}/2")).with_tag(TAG).await?;
    let stored = context.get_kv_value("first").unwrap_or_default();
    Ok(format!("{stored} {second}"))
}

async fn timer(context: OrchestrationContext, name: String) -> Result<String, String> {
    context.schedule_timer(Duration::from_millis(1500)).await;
    context.schedule_activity("Step", format!("{name}/1")).await
}

async fn retry(context: OrchestrationContext, name: String) -> Result<String, String> {
    let policy =
        RetryPolicy::new(5).with_backoff(BackoffStrategy::Fixed { delay: Duration::from_millis(200) });
    context.schedule_activity_with_retry("Flaky", format!("{name}/1"), policy).await
}

async fn parent(context: OrchestrationContext, name: String) -> Result<String, String> {
    let one = context.schedule_sub_orchestration_with_id("Child", format!("{name}-a"), format!("{name}-a"));
    let two = context.schedule_sub_orchestration_with_id("Child", format!("{name}-b"), format!("{name}-b"));
    let (one, two) = context.join2(one, two).await;
    Ok(format!("{} {}", one?, two?))
}

async fn child(context: OrchestrationContext, name: String) -> Result<String, String> {
    context.schedule_activity("Step", format!("{name}/1")).await
}

/// Starts another workflow and does not wait for it.
async fn detach(context: OrchestrationContext, name: String) -> Result<String, String> {
    context.schedule_orchestration("Child", format!("{name}-d"), format!("{name}-d"));
    Ok(format!("{name} has detached"))
}

async fn approval(context: OrchestrationContext, name: String) -> Result<String, String> {
    context.set_custom_status(READY);
    let granted = context.schedule_wait("approval").await;
    Ok(format!("{name} {granted}"))
}

/// Takes three messages from its queue, in order.
async fn inbox(context: OrchestrationContext, _: String) -> Result<String, String> {
    context.set_custom_status(READY);
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(context.dequeue_event("inbox").await);
    }
    Ok(all.join(" "))
}

/// Three executions. Each runs an activity, stores its result as a key-value pair, takes a
/// message, and passes the messages so far to the next execution.
async fn eternal(context: OrchestrationContext, state: String) -> Result<String, String> {
    let (name, so_far) = state.split_once('|').unwrap_or((state.as_str(), ""));
    let round = context.execution_id();
    context.set_custom_status(READY);
    let step = context.schedule_activity("Step", format!("{name}/{round}")).await?;
    let message = context.dequeue_event("inbox").await;
    context.set_kv_value(format!("round{round}"), &step);
    let so_far = format!("{so_far}{message},");
    if round < 3 {
        return context.continue_as_new(format!("{name}|{so_far}")).await;
    }
    let first = context.get_kv_value("round1").unwrap_or_default();
    Ok(format!("{so_far} {first}"))
}

/// A timer wins against an activity that does not end. The activity is then cancelled.
async fn race(context: OrchestrationContext, name: String) -> Result<String, String> {
    let endless = context.schedule_activity("Endless", format!("{name}/endless"));
    let timer = context.schedule_timer(Duration::from_millis(1200));
    let winner = match context.select2(endless, timer).await {
        Either2::First(_) => "activity",
        Either2::Second(()) => "timer",
    };
    let step = context.schedule_activity("Step", format!("{name}/1")).await?;
    Ok(format!("{winner} {step}"))
}

async fn session(context: OrchestrationContext, name: String) -> Result<String, String> {
    let mut all = Vec::new();
    for step in 1..=3 {
        let input = format!("{name}/{step}");
        all.push(context.schedule_activity_on_session("Step", input, format!("session of {name}")).await?);
    }
    Ok(all.join(" "))
}

/// Runs many activities at once. An instance whose name begins with `wide` runs more.
async fn fan(context: OrchestrationContext, name: String) -> Result<String, String> {
    let width = if name.starts_with("wide") { WIDE_FAN_WIDTH } else { FAN_WIDTH };
    let steps = (0..width).map(|step| context.schedule_activity("Step", format!("{name}/{step}"))).collect();
    let mut count = 0;
    for outcome in context.join(steps).await {
        count += usize::from(outcome?.starts_with(&name));
    }
    Ok(format!("{count} of {name}"))
}

/// A turn whose activities have inputs that are too large for one commit.
async fn large_turn(context: OrchestrationContext, name: String) -> Result<String, String> {
    let filler = "x".repeat(LARGE_INPUT_BYTES);
    let steps = (0..LARGE_INPUT_COUNT)
        .map(|step| context.schedule_activity("Large", format!("{name}/{step}|{filler}")))
        .collect();
    let outcomes: Result<Vec<String>, String> = context.join(steps).await.into_iter().collect();
    Ok(outcomes?.join(" "))
}

async fn slow_step(context: OrchestrationContext, name: String) -> Result<String, String> {
    context.schedule_activity("Slow", format!("{name}/slow")).await
}

/// Waits for a child that does not end, until the user cancels both.
async fn family(context: OrchestrationContext, name: String) -> Result<String, String> {
    context.set_custom_status(READY);
    let child = format!("{name}-stuck");
    context.schedule_sub_orchestration_with_id("Stuck", child.clone(), child).await
}

/// Runs an activity that does not end.
async fn stuck(context: OrchestrationContext, name: String) -> Result<String, String> {
    context.schedule_activity("Endless", format!("{name}/endless")).await
}

/// Runs activities in lanes without a pause until an event stops the workflow. A turn is
/// always under way or about to begin.
async fn busy(context: OrchestrationContext, name: String) -> Result<String, String> {
    context.set_custom_status(READY);
    let lane = |lane: usize| {
        let (context, name) = (context.clone(), name.clone());
        async move {
            for step in 0..BUSY_LANE_STEPS_MAX {
                let input = format!("{name}/{lane}.{step}");
                if let Err(error) = context.schedule_activity("Step", input).await {
                    return error;
                }
            }
            "no stop event".to_owned()
        }
    };
    let lanes = context.join((0..BUSY_LANES).map(lane).collect());
    match context.select2(context.schedule_wait("stop"), lanes).await {
        Either2::First(event) => Ok(event),
        Either2::Second(lane_ends) => Err(lane_ends.join(", ")),
    }
}

/// Runs activities in lanes and takes three messages from its queue at the same time. Several
/// processes run the activities, so turns of all processes are under way at once.
async fn crowd(context: OrchestrationContext, name: String) -> Result<String, String> {
    context.set_custom_status(READY);
    let lane = |lane: usize| {
        let (context, name) = (context.clone(), name.clone());
        async move {
            for step in 0..CROWD_LANE_STEPS {
                context.schedule_activity("Pause", format!("{name}/{lane}.{step}")).await?;
            }
            Ok::<usize, String>(CROWD_LANE_STEPS)
        }
    };
    let inbox = async {
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(context.dequeue_event("inbox").await);
        }
        all.join(" ")
    };
    let lanes = context.join((0..CROWD_LANE_COUNT).map(lane).collect());
    let (steps, messages) = context.join2(lanes, inbox).await;
    let steps: Result<Vec<usize>, String> = steps.into_iter().collect();
    Ok(format!("{} steps, {messages}", steps?.into_iter().sum::<usize>()))
}

/// The duration of the activity `Pause`: less than 0.7 seconds, derived from the input.
fn pause_duration(input: &str) -> Duration {
    let sum = input.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    Duration::from_millis(sum % 700)
}

/// A workflow whose second turn always kills the process that runs it.
async fn deadly(
    context: OrchestrationContext,
    name: String,
    transport: SimulatedTransport,
) -> Result<String, String> {
    context.schedule_activity("Step", format!("{name}/1")).await?;
    transport.kill_process();
    std::future::pending().await
}
