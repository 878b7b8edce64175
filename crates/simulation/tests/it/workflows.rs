//! The workflows of the simulation: each uses one feature for which the runtime needs
//! the provider. Outputs say what happened, and the inputs of activities are
//! unique, so that the activity log can tell them apart.

use std::time::Duration;

use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{
    ActivityContext, BackoffStrategy, Either2, OrchestrationContext, OrchestrationRegistry, RetryPolicy,
};

use crate::activity_log::ActivityLog;
use crate::network::SimulatedTransport;

/// The tag of some activities. All workers fetch activities with it and without a tag.
pub(crate) const TAG: &str = "gpu";

/// The number of activities of a fan-out: more than a turn commits one by one, so they are
/// put in a bundle.
pub(crate) const FAN: usize = 34;

/// The number of activities of a wide fan-out: unpacking creates them in three steps.
pub(crate) const WIDE: usize = 210;

/// The number of lanes of a crowded workflow, and of the steps of each lane. A lane runs one
/// activity after the other.
pub(crate) const CROWD: (usize, usize) = (3, 4);

/// The number of large inputs and the bytes of each: too large for one commit.
pub(crate) const LARGE: usize = 3;
const LARGE_BYTES: usize = 700_000;

/// The lanes of a busy workflow: as many activities are always under way.
const LANES: usize = 3;

/// The most steps of a lane, so that a workflow that is never stopped ends, too.
const LANE_STEPS: usize = 400;

/// The custom status of a workflow that is ready for what its user does.
pub(crate) const READY: &str = "ready";

/// The duration of a slow activity: longer than a lock, which has to be renewed.
const SLOW: Duration = Duration::from_secs(7);

/// The duration of an endless activity: only a cancellation ends it.
const ENDLESS: Duration = Duration::from_secs(3600);

pub(crate) fn registries(
    activity_log: &ActivityLog,
    transport: &SimulatedTransport,
) -> (ActivityRegistry, OrchestrationRegistry) {
    let [step, slow, flaky, endless, large, pause] = [0; 6].map(|_| activity_log.clone());
    let transport = transport.clone();
    let activities = ActivityRegistry::builder()
        .register("Step", move |_: ActivityContext, input: String| {
            step.record(&input);
            async move { Ok(input) }
        })
        .register("Slow", move |_: ActivityContext, input: String| {
            slow.record(&input);
            async move {
                tokio::time::sleep(SLOW).await;
                Ok(input)
            }
        })
        .register("Pause", move |_: ActivityContext, input: String| {
            pause.record(&input);
            async move {
                tokio::time::sleep(pause_of(&input)).await;
                Ok(input)
            }
        })
        .register("Flaky", move |_: ActivityContext, input: String| {
            let run = flaky.record(&input);
            async move { if run < 2 { Err("not yet".to_owned()) } else { Ok(input) } }
        })
        .register("Endless", move |context: ActivityContext, input: String| {
            endless.record(&input);
            async move {
                let _ = tokio::time::timeout(ENDLESS, context.cancelled()).await;
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
        .register("Chain", chain)
        .register("Timer", timer)
        .register("Retry", retry)
        .register("Parent", parent)
        .register("Child", child)
        .register("Detach", detach)
        .register("Approval", approval)
        .register("Inbox", inbox)
        .register("Eternal", eternal)
        .register("Race", race)
        .register("Session", session)
        .register("Fan", fan)
        .register("Large", large_turn)
        .register("Slow", slow_step)
        .register("Stuck", stuck)
        .register("Family", family)
        .register("Busy", busy)
        .register("Crowd", crowd)
        .register("Deadly", move |context, name| deadly(context, name, transport.clone()))
        .build();
    (activities, orchestrations)
}

/// Two steps, a status, key-value pairs, a tag.
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

/// Three executions: each runs an activity, takes a message, and passes both on.
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

/// A timer wins over an activity, which is cancelled.
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

async fn fan(context: OrchestrationContext, name: String) -> Result<String, String> {
    let width = if name.starts_with("wide") { WIDE } else { FAN };
    let steps = (0..width).map(|step| context.schedule_activity("Step", format!("{name}/{step}"))).collect();
    let mut count = 0;
    for outcome in context.join(steps).await {
        count += usize::from(outcome?.starts_with(&name));
    }
    Ok(format!("{count} of {name}"))
}

/// A turn whose activities have inputs that are too large for one commit.
async fn large_turn(context: OrchestrationContext, name: String) -> Result<String, String> {
    let filler = "x".repeat(LARGE_BYTES);
    let steps = (0..LARGE)
        .map(|step| context.schedule_activity("Large", format!("{name}/{step}|{filler}")))
        .collect();
    let outcomes: Result<Vec<String>, String> = context.join(steps).await.into_iter().collect();
    Ok(outcomes?.join(" "))
}

async fn slow_step(context: OrchestrationContext, name: String) -> Result<String, String> {
    context.schedule_activity("Slow", format!("{name}/slow")).await
}

/// Runs until it is cancelled; its child is cancelled with it.
async fn family(context: OrchestrationContext, name: String) -> Result<String, String> {
    context.set_custom_status(READY);
    let child = format!("{name}-stuck");
    context.schedule_sub_orchestration_with_id("Stuck", child.clone(), child).await
}

async fn stuck(context: OrchestrationContext, name: String) -> Result<String, String> {
    context.schedule_activity("Endless", format!("{name}/endless")).await
}

/// Runs activities in lanes without a pause until its user stops it: a turn is
/// always under way or about to be.
async fn busy(context: OrchestrationContext, name: String) -> Result<String, String> {
    context.set_custom_status(READY);
    let lane = |lane: usize| {
        let (context, name) = (context.clone(), name.clone());
        async move {
            for step in 0..LANE_STEPS {
                let input = format!("{name}/{lane}.{step}");
                if let Err(error) = context.schedule_activity("Step", input).await {
                    return error;
                }
            }
            "no stop event".to_owned()
        }
    };
    let lanes = context.join((0..LANES).map(lane).collect());
    match context.select2(context.schedule_wait("stop"), lanes).await {
        Either2::First(word) => Ok(word),
        Either2::Second(ends) => Err(ends.join(", ")),
    }
}

/// Runs activities in lanes while a user fills a queue. Several processes run the
/// activities, so turns of all processes are under way at the same time.
async fn crowd(context: OrchestrationContext, name: String) -> Result<String, String> {
    context.set_custom_status(READY);
    let lane = |lane: usize| {
        let (context, name) = (context.clone(), name.clone());
        async move {
            for step in 0..CROWD.1 {
                context.schedule_activity("Pause", format!("{name}/{lane}.{step}")).await?;
            }
            Ok::<usize, String>(CROWD.1)
        }
    };
    let inbox = async {
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(context.dequeue_event("inbox").await);
        }
        all.join(" ")
    };
    let (steps, messages) = context.join2(context.join((0..CROWD.0).map(lane).collect()), inbox).await;
    let steps: Result<Vec<usize>, String> = steps.into_iter().collect();
    Ok(format!("{} steps, {messages}", steps?.into_iter().sum::<usize>()))
}

/// The duration of a pause: less than 0.7 seconds, derived from the input.
fn pause_of(input: &str) -> Duration {
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
    transport.die();
    std::future::pending().await
}
