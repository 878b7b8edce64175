//! Sessions: the activities of a session run on one machine and use what is in its
//! memory. Here two machines edit four documents, and every document is loaded once.
//!
//! The first activity of a session runs anywhere. Its machine then owns the session, until it
//! dies or the session is idle for five minutes. After that another machine takes over, and
//! its memory is empty: an activity must be able to load again what it needs.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{Runtime, RuntimeOptions};
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};

/// The longest time to wait for a workflow.
const TIME_LIMIT: Duration = Duration::from_secs(60);

const DOCUMENTS: usize = 4;

/// The memory of a machine: the words of each document that is loaded, by session.
type Memory = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

pub(crate) async fn run(store: Arc<dyn Provider>) -> Result<(), Box<dyn Error>> {
    let memories = [Memory::default(), Memory::default()];
    // Two runtimes stand for two machines.
    let first = start_machine(store.clone(), "machine-1", &memories[0]).await;
    let second = start_machine(store.clone(), "machine-2", &memories[1]).await;
    let client = Client::new(store);

    for n in 1..=DOCUMENTS {
        client.start_orchestration(&format!("document-{n}"), "edit", "to be or not to be").await?;
    }
    for n in 1..=DOCUMENTS {
        let instance = format!("document-{n}");
        let output: String = client.wait_for_orchestration_typed(&instance, TIME_LIMIT).await??;
        println!("{instance}: {output}");
        assert!(output.ends_with("has: to be or not to be"), "{output}");
    }
    // No document is in the memory of both machines.
    let loaded = memories.iter().map(|memory| memory.lock().expect("no holder panics").len());
    assert_eq!(loaded.sum::<usize>(), DOCUMENTS);

    first.shutdown(None).await;
    second.shutdown(None).await;
    Ok(())
}

async fn start_machine(store: Arc<dyn Provider>, name: &'static str, memory: &Memory) -> Arc<Runtime> {
    let memory = Arc::clone(memory);
    let activities = ActivityRegistry::builder()
        .register("append", move |context: ActivityContext, word: String| {
            let memory = Arc::clone(&memory);
            async move { append(name, &memory, &context, word) }
        })
        .build();
    let orchestrations = OrchestrationRegistry::builder().register("edit", edit).build();
    let options = RuntimeOptions {
        // All workers of this machine own its sessions together. A machine that starts again
        // under the same name has its sessions back at once.
        worker_node_id: Some(name.to_owned()),
        ..RuntimeOptions::default()
    };
    Runtime::start_with_options(store, activities, orchestrations, options).await
}

/// Appends words to a document, one activity per word.
async fn edit(context: OrchestrationContext, text: String) -> Result<String, String> {
    let session = context.new_guid().await?;
    let mut edited = String::new();
    for word in text.split(' ') {
        edited = context.schedule_activity_on_session("append", word, &session).await?;
    }
    Ok(edited)
}

fn append(
    machine: &str,
    memory: &Mutex<BTreeMap<String, Vec<String>>>,
    context: &ActivityContext,
    word: String,
) -> Result<String, String> {
    let session = context.session_id().ok_or("this activity needs a session")?;
    let mut memory = memory.lock().expect("no holder panics");
    let words = memory.entry(session.to_owned()).or_default();
    words.push(word);
    Ok(format!("{machine} has: {}", words.join(" ")))
}
