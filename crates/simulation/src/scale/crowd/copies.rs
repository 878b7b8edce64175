//! Fills a container with copies: the documents of one workflow that has really run, written
//! again for other instances. A million workflows that really run would take hours.

use std::sync::Arc;

use perihelion_client::{Client, Container, Error, Query};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::process::{CONTAINER, DATABASE, Handoff};
use crate::world::Program;

/// Writes that are under way at the same time.
const WRITES_AT_ONCE: usize = 512;

/// The workflow to copy, and the number of copies.
#[derive(Debug, Clone)]
pub(super) struct Copies {
    /// The orchestration of the workflow.
    pub(super) orchestration: &'static str,
    /// The status that the workflow must have.
    pub(super) status: &'static str,
    /// The number of copies.
    pub(super) count: u64,
}

/// Why copies could not be made.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The program of a host that makes the copies. `copied` gets the number of copies of each
/// workflow, or the reason why they could not be made.
pub(super) fn copy_program(copies: Vec<Copies>, copied: &Handoff<Result<Vec<u64>, String>>) -> Program {
    let copied = copied.clone();
    Arc::new(move |connection| {
        let (copies, copied) = (copies.clone(), copied.clone());
        Box::pin(async move {
            let faultless = connection.without_faults();
            let made = async {
                let client = Client::over(&faultless.endpoint, faultless.transport).await?;
                let container = client.database(DATABASE).container(CONTAINER);
                let mut counts = Vec::new();
                for copies in &copies {
                    make(&container, copies).await?;
                    counts.push(copies.count);
                }
                Ok(counts)
            };
            copied.put(made.await.map_err(|error: Failure| error.to_string()));
        })
    })
}

async fn make(container: &Container, copies: &Copies) -> Result<(), Failure> {
    if copies.count == 0 {
        return Ok(());
    }
    let (instance, documents) = documents_of_one(container, copies).await?;
    let mut writes = JoinSet::new();
    for number in 0..copies.count {
        let copy = format!("copy-{}-{number}", copies.orchestration);
        for document in &documents {
            let document: Value =
                serde_json::from_str(&document.replace(&instance, &copy)).unwrap_or_default();
            let (container, copy) = (container.clone(), copy.clone());
            writes.spawn(async move { container.create(copy.as_str(), &document).await.map(drop) });
        }
        while writes.len() > WRITES_AT_ONCE {
            finish_one(&mut writes).await?;
        }
    }
    while !writes.is_empty() {
        finish_one(&mut writes).await?;
    }
    Ok(())
}

/// Waits until one write has ended.
async fn finish_one(writes: &mut JoinSet<Result<(), Error>>) -> Result<(), Error> {
    match writes.join_next().await {
        Some(Ok(outcome)) => outcome,
        // A panic is counted by the world. Nothing cancels a write.
        Some(Err(_)) | None => Ok(()),
    }
}

/// One instance of the orchestration with the status, and its documents as JSON. No other text in
/// the documents contains the id of the instance, so a replacement of the text renames the instance.
/// Fails if there is no such instance.
async fn documents_of_one(container: &Container, copies: &Copies) -> Result<(String, Vec<String>), Failure> {
    let query =
        Query::new("SELECT TOP 1 VALUE c.instanceId FROM c WHERE c.name = @name AND c.status = @status")
            .with_parameter("@name", copies.orchestration)
            .with_parameter("@status", copies.status);
    let found: Vec<String> = container.query(query).collect().await?;
    let instance = found.into_iter().next().ok_or_else(|| {
        format!("no instance of {} is {}: there is nothing to copy", copies.orchestration, copies.status)
    })?;
    let all = Query::new("SELECT * FROM c").in_partition(instance.as_str());
    let mut documents: Vec<Value> = container.query(all).collect().await?;
    for document in &mut documents {
        if let Some(members) = document.as_object_mut() {
            members.retain(|name, _| !name.starts_with('_'));
        }
    }
    Ok((instance, documents.iter().map(Value::to_string).collect()))
}
