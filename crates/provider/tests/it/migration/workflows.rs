//! Workflows that the published crate begins and this crate completes. The recorder in
//! `interop/migration` includes this file, so that both run the same code. Therefore the
//! file does not depend on a provider.
//!
//! The activity `Held` never ends in the recorder, which begins the workflows. It returns
//! at once in the test, which completes them.

use std::time::Duration;

use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, OrchestrationContext, OrchestrationRegistry};

/// The program that runs the workflows: the recorder begins them, the test finishes them.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(dead_code, reason = "each program that includes this file uses one variant")]
pub(crate) enum Side {
    Begins,
    Finishes,
}

/// A timer that is still pending when the container is recorded, and short enough for a
/// test to wait for it.
const TIMER: Duration = Duration::from_secs(12);

/// Instances that are waiting when the container is recorded, and the output of each.
#[allow(dead_code, reason = "the recorder does not check outputs")]
pub(crate) const EXPECTED_OUTPUTS: &[(&str, &str)] = &[
    ("activity-1", "first held"),
    ("timer-1", "before the timer, after it"),
    ("event-1", "approved"),
    ("raised-1", "raised"),
    ("parent-1", "child said held"),
    ("eternal-1", "round 3 of lap 1,lap 2, go"),
    ("queue-1", "one two"),
    ("session-1", "held"),
    ("queued-1", "started late"),
    ("spawner-1", "sub said spawned"),
    ("spawned-1", "spawned"),
    ("fan-1", "40 held"),
    ("order::7", "first held"),
];

/// Instances that have ended when the container is recorded, and the output or error of
/// each.
#[allow(dead_code, reason = "the recorder does not check outputs")]
pub(crate) const ENDED: &[(&str, Result<&str, &str>)] =
    &[("done-1", Ok("done")), ("failed-1", Err("it was bound to fail"))];

pub(crate) fn activities(side: Side) -> ActivityRegistry {
    let held = move |_: ActivityContext, input: String| async move {
        if side == Side::Begins {
            std::future::pending::<()>().await;
        }
        Ok(input)
    };
    let step = |_: ActivityContext, input: String| async move { Ok(input) };
    ActivityRegistry::builder().register("Step", step).register("Held", held).build()
}

pub(crate) fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("Activity", activity)
        .register("Timer", timer)
        .register("Event", event)
        .register("Parent", parent)
        .register("Child", child)
        .register("Eternal", eternal)
        .register("Queue", queue)
        .register("Session", session)
        .register("Spawner", spawner)
        .register("Spawned", spawned)
        .register("Fan", fan)
        .register("Done", done)
        .register("Failed", failed)
        .register("Late", late)
        .build()
}

async fn activity(context: OrchestrationContext, _: String) -> Result<String, String> {
    let first = context.schedule_activity("Step", "first").await?;
    let second = context.schedule_activity("Held", "held").await?;
    Ok(format!("{first} {second}"))
}

async fn timer(context: OrchestrationContext, _: String) -> Result<String, String> {
    context.schedule_activity("Step", "before").await?;
    context.schedule_timer(TIMER).await;
    Ok("before the timer, after it".to_owned())
}

async fn event(context: OrchestrationContext, _: String) -> Result<String, String> {
    context.set_custom_status("waiting");
    Ok(context.schedule_wait("approval").await)
}

async fn parent(context: OrchestrationContext, _: String) -> Result<String, String> {
    let said = context.schedule_sub_orchestration_with_id("Child", "child-1", "held").await?;
    Ok(format!("child said {said}"))
}

async fn child(context: OrchestrationContext, input: String) -> Result<String, String> {
    context.schedule_activity("Held", input).await
}

/// Runs three executions. The third reads the values that the first two have set.
async fn eternal(context: OrchestrationContext, input: String) -> Result<String, String> {
    let round: u32 = input.parse().map_err(|_| "no round".to_owned())?;
    if round < 3 {
        context.set_kv_value(format!("lap-{round}"), format!("lap {round}"));
        context.set_custom_status(format!("round {round}"));
        context.schedule_activity("Step", input).await?;
        return context.continue_as_new((round + 1).to_string()).await;
    }
    context.set_kv_value("now", "third");
    let went = context.schedule_wait("approval").await;
    let laps = ["lap-1", "lap-2"].map(|lap| context.get_kv_value(lap).unwrap_or_default());
    Ok(format!("round {round} of {}, {went}", laps.join(",")))
}

async fn queue(context: OrchestrationContext, _: String) -> Result<String, String> {
    let first = context.dequeue_event("inbox").await;
    context.set_custom_status("one is here");
    let second = context.dequeue_event("inbox").await;
    Ok(format!("{first} {second}"))
}

async fn session(context: OrchestrationContext, _: String) -> Result<String, String> {
    context.schedule_activity_on_session("Held", "held", "session-of-1").await
}

/// Starts a detached workflow and a child. Neither start message is delivered when the
/// container is recorded.
async fn spawner(context: OrchestrationContext, _: String) -> Result<String, String> {
    context.schedule_orchestration("Spawned", "spawned-1", "");
    let said = context.schedule_sub_orchestration_with_id("Spawned", "spawned-2", "").await?;
    Ok(format!("sub said {said}"))
}

async fn spawned(_: OrchestrationContext, _: String) -> Result<String, String> {
    Ok("spawned".to_owned())
}

async fn fan(context: OrchestrationContext, _: String) -> Result<String, String> {
    let held = (0..40).map(|n| context.schedule_activity("Held", n.to_string())).collect();
    let results = context.join(held).await;
    Ok(format!("{} held", results.iter().filter(|result| result.is_ok()).count()))
}

async fn done(context: OrchestrationContext, _: String) -> Result<String, String> {
    context.set_kv_value("kept", "value");
    context.set_kv_value("dropped", "value");
    context.clear_kv_value("dropped");
    context.set_custom_status("all done");
    context.schedule_activity("Step", "done").await
}

async fn failed(_: OrchestrationContext, _: String) -> Result<String, String> {
    Err("it was bound to fail".to_owned())
}

async fn late(_: OrchestrationContext, _: String) -> Result<String, String> {
    Ok("started late".to_owned())
}
