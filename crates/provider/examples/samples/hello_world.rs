//! Hello world: an orchestration calls an activity twice and returns a greeting.
//!
//! An **activity** does work: it may use the network or a disk, and it may fail. An
//! **orchestration** decides which activities run, and when. The result of every activity is
//! stored. When a process dies, another one calls the orchestration again, gives it the
//! stored results, and goes on from there. So an orchestration must make the same decisions
//! every time: everything that can change belongs in activities.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::Runtime;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};

/// The longest time to wait for a workflow.
const TIME_LIMIT: Duration = Duration::from_secs(30);

pub(crate) async fn run(store: Arc<dyn Provider>) -> Result<(), Box<dyn Error>> {
    let activities = ActivityRegistry::builder().register("greet", greet).build();
    let orchestrations = OrchestrationRegistry::builder().register("greetings", greetings).build();
    // The runtime executes workflows, a client starts them. They may be in different processes.
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
    let client = Client::new(store);

    // `greetings-1` is the id of this workflow. A second start with the same id does nothing.
    client.start_orchestration("greetings-1", "greetings", "Ada").await?;
    let output: String = client.wait_for_orchestration_typed("greetings-1", TIME_LIMIT).await??;
    println!("{output}");
    assert_eq!(output, "Hello, Ada! Hello, world!");

    runtime.shutdown(None).await;
    Ok(())
}

async fn greetings(context: OrchestrationContext, name: String) -> Result<String, String> {
    let first = context.schedule_activity("greet", name).await?;
    let second = context.schedule_activity("greet", "world").await?;
    Ok(format!("{first} {second}"))
}

async fn greet(_: ActivityContext, name: String) -> Result<String, String> {
    Ok(format!("Hello, {name}!"))
}
