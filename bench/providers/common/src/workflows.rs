//! The workflows of our own workloads. They do as little work as possible, so that the
//! figures depend on the provider.

use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, OrchestrationContext, OrchestrationRegistry};

/// The name of the workflow with one activity that does nothing.
pub const SMALLEST: &str = "Smallest";
/// The name of the workflow with as many activities at once as its input says.
pub const FAN_OUT: &str = "FanOut";
/// The name of the workflow with as many sub-orchestrations at once as its input says. A
/// sub-orchestration does nothing.
pub const CHILDREN: &str = "Children";

const CHILD: &str = "Child";
const NO_OP: &str = "NoOp";

pub fn activities() -> ActivityRegistry {
    ActivityRegistry::builder()
        .register(NO_OP, |_: ActivityContext, input: String| async move { Ok(input) })
        .build()
}

pub fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register(SMALLEST, smallest)
        .register(FAN_OUT, fan_out)
        .register(CHILDREN, children)
        .register(CHILD, |_: OrchestrationContext, input: String| async move { Ok(input) })
        .build()
}

async fn smallest(context: OrchestrationContext, input: String) -> Result<String, String> {
    context.schedule_activity(NO_OP, input).await
}

async fn fan_out(context: OrchestrationContext, input: String) -> Result<String, String> {
    let count = parse_count(&input)?;
    let parts = (0..count).map(|number| context.schedule_activity(NO_OP, number.to_string())).collect();
    count_correct(context.join(parts).await)
}

async fn children(context: OrchestrationContext, input: String) -> Result<String, String> {
    let count = parse_count(&input)?;
    let parts =
        (0..count).map(|number| context.schedule_sub_orchestration(CHILD, number.to_string())).collect();
    count_correct(context.join(parts).await)
}

/// The number of parts, which is the input of a workflow.
fn parse_count(input: &str) -> Result<usize, String> {
    input.parse().map_err(|_| format!("`{input}` is not a number of parts"))
}

/// The number of parts that returned their input.
fn count_correct(results: Vec<Result<String, String>>) -> Result<String, String> {
    let correct = results.iter().enumerate().filter(|(number, result)| **result == Ok(number.to_string()));
    Ok(correct.count().to_string())
}
