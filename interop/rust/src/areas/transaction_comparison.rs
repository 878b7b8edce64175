//! The SDK's live comparison of transactions, with our server as the account: the SDK's driver
//! runs the same transactions on our server and on the emulator inside the driver, and the answers
//! are compared. Values that differ between any two accounts (etags, tokens, charges, LSNs) are
//! only compared by their presence. The known differences are checks of their own.

use std::sync::Arc;

use azure_data_cosmos_driver::CosmosDriver;
use azure_data_cosmos_driver::models::{
    ContainerReference, DistributedTransactionOperation, DistributedTransactionOperationKind as Kind,
    DistributedTransactionRequest, DistributedTransactionResponse, DistributedTransactionTarget,
    DistributedTransactionType, Precondition,
};
use azure_data_cosmos_driver::options::OperationOptions;
use serde_json::{Value, json};

use crate::check::{Outcome, Problem, checks, holds, required, same};
use crate::sdk_emulator::SdkEmulator;
use crate::world::{World, name_of};

checks![
    a_created_document_reads_the_same,
    documents_of_two_containers_read_the_same,
    aborts_have_the_same_results,
    failed_reads_have_the_same_results,
    an_unchanged_snapshot_has_another_status,
    a_replay_has_another_answer,
    a_container_of_another_account_is_refused,
];

/// One of the two accounts, with two containers.
struct Backend {
    driver: Arc<CosmosDriver>,
    containers: [ContainerReference; 2],
}

impl Backend {
    async fn ours(world: &World) -> Result<Self, Problem> {
        let names = [name_of(&world.container().await?).await?, name_of(&world.container().await?).await?];
        Self::of(world.driver().await?, [&names[0], &names[1]]).await
    }

    async fn theirs() -> Result<Self, Problem> {
        Self::of(SdkEmulator::new()?.driver().await?, ["a", "b"]).await
    }

    async fn of(driver: Arc<CosmosDriver>, names: [&str; 2]) -> Result<Self, Problem> {
        let options = OperationOptions::default;
        let first = driver.resolve_container("interop", names[0], options()).await?;
        let second = driver.resolve_container("interop", names[1], options()).await?;
        Ok(Self { driver, containers: [first, second] })
    }

    fn operation(&self, kind: Kind, container: usize, id: &'static str) -> DistributedTransactionOperation {
        let target = DistributedTransactionTarget::new(self.containers[container].clone(), "pk", id);
        let operation = DistributedTransactionOperation::new(kind, target);
        match kind {
            Kind::Create | Kind::Replace | Kind::Upsert => {
                operation.with_resource_body(json!({"id": id, "pk": "pk", "value": 42}).to_string())
            }
            _ => operation,
        }
    }

    async fn run(
        &self,
        operations: Vec<DistributedTransactionOperation>,
    ) -> Result<DistributedTransactionResponse, Problem> {
        let is_read = operations.iter().all(|operation| operation.kind == Kind::Read);
        let kind = if is_read { DistributedTransactionType::Read } else { DistributedTransactionType::Write };
        let request = DistributedTransactionRequest::new(kind, operations);
        Ok(self.driver.execute_distributed_transaction(request, OperationOptions::default()).await?)
    }
}

fn code(answer: &DistributedTransactionResponse) -> u16 {
    u16::from(answer.status_code)
}

/// An answer as far as two accounts must agree: the status, and each result with only the presence
/// of the values that may differ. System properties of documents are left out.
fn comparable(answer: &DistributedTransactionResponse) -> (u16, bool, bool, Vec<Value>) {
    let results = answer.operation_results.iter().map(|result| {
        let mut result = result.raw_response.clone();
        for name in ["eTag", "sessionToken", "partitionKeyRangeId", "requestCharge", "localLsn"] {
            if let Some(value) = result.get_mut(name) {
                *value = json!(if value.is_string() { "a text" } else { "a number" });
            }
        }
        if let Some(document) = result.get_mut("resourceBody").and_then(Value::as_object_mut) {
            document.retain(|name, _| !name.starts_with('_'));
        }
        Value::Object(result)
    });
    (code(answer), answer.activity_id.is_some(), answer.request_charge.is_some(), results.collect())
}

/// The status of an answer and of its results. For a failed transaction, the two accounts have to
/// agree on nothing else.
fn statuses(answer: &DistributedTransactionResponse) -> (u16, Vec<(u16, u16)>) {
    let of = |result: &azure_data_cosmos_driver::models::DistributedTransactionOperationResult| {
        (u16::from(result.status_code), result.sub_status_code.map_or(0, |sub| sub.value()))
    };
    (code(answer), answer.operation_results.iter().map(of).collect())
}

async fn a_created_document_reads_the_same(world: &World) -> Outcome {
    let (ours, theirs) = (Backend::ours(world).await?, Backend::theirs().await?);
    for kind in [Kind::Create, Kind::Replace, Kind::Upsert, Kind::Read, Kind::Delete] {
        let found = ours.run(vec![ours.operation(kind, 0, "1")]).await?;
        let wanted = theirs.run(vec![theirs.operation(kind, 0, "1")]).await?;
        same!((kind, comparable(&found)), (kind, comparable(&wanted)));
        holds!(found.is_success_status_code());
    }
    Ok(())
}

async fn documents_of_two_containers_read_the_same(world: &World) -> Outcome {
    let (ours, theirs) = (Backend::ours(world).await?, Backend::theirs().await?);
    for kind in [Kind::Create, Kind::Read] {
        let both = |backend: &Backend| vec![backend.operation(kind, 0, "1"), backend.operation(kind, 1, "2")];
        let (found, wanted) = (ours.run(both(&ours)).await?, theirs.run(both(&theirs)).await?);
        same!(comparable(&found), comparable(&wanted));
        same!(found.operation_results.len(), 2);
    }
    Ok(())
}

async fn aborts_have_the_same_results(world: &World) -> Outcome {
    let (ours, theirs) = (Backend::ours(world).await?, Backend::theirs().await?);
    for backend in [&ours, &theirs] {
        same!(code(&backend.run(vec![backend.operation(Kind::Create, 1, "there")]).await?), 200);
    }
    for (kind, id) in [(Kind::Create, "there"), (Kind::Replace, "missing"), (Kind::Delete, "missing")] {
        let of = |backend: &Backend| {
            vec![backend.operation(Kind::Create, 0, "new"), backend.operation(kind, 1, id)]
        };
        let (found, wanted) = (ours.run(of(&ours)).await?, theirs.run(of(&theirs)).await?);
        same!((kind, statuses(&found)), (kind, statuses(&wanted)));
        same!(code(&found), 452);
        let stale = |backend: &Backend| {
            let replace = backend.operation(Kind::Replace, 1, "there");
            vec![replace.with_precondition(Precondition::if_match("\"stale\""))]
        };
        let (found, wanted) = (ours.run(stale(&ours)).await?, theirs.run(stale(&theirs)).await?);
        same!(statuses(&found), statuses(&wanted));
    }
    Ok(())
}

async fn failed_reads_have_the_same_results(world: &World) -> Outcome {
    let (ours, theirs) = (Backend::ours(world).await?, Backend::theirs().await?);
    let mut answers = Vec::new();
    for backend in [&ours, &theirs] {
        backend.run(vec![backend.operation(Kind::Create, 0, "1")]).await?;
        let reads = vec![backend.operation(Kind::Read, 0, "1"), backend.operation(Kind::Read, 1, "missing")];
        answers.push(statuses(&backend.run(reads).await?));
    }
    same!(answers[0], answers[1]);
    same!(answers[0].0, 404);
    Ok(())
}

/// The emulator answers 304, as the service once did. Our server answers 200/5425, as the service
/// does now.
async fn an_unchanged_snapshot_has_another_status(world: &World) -> Outcome {
    let (ours, theirs) = (Backend::ours(world).await?, Backend::theirs().await?);
    for (backend, status) in [(&ours, 200), (&theirs, 304)] {
        let created = backend.run(vec![backend.operation(Kind::Create, 0, "1")]).await?;
        let etag = required(created.operation_results[0].etag.clone(), "the etag")?;
        let read = backend.operation(Kind::Read, 0, "1");
        let unchanged = backend.run(vec![read.with_precondition(Precondition::if_none_match(etag))]).await?;
        same!(statuses(&unchanged), (status, vec![(304, 0)]));
    }
    Ok(())
}

/// The emulator keeps no ledger of tokens and carries the transaction out again. Our server gives
/// the original answer.
async fn a_replay_has_another_answer(world: &World) -> Outcome {
    let (ours, theirs) = (Backend::ours(world).await?, Backend::theirs().await?);
    for (backend, status) in [(&ours, 200), (&theirs, 452)] {
        let create = vec![backend.operation(Kind::Create, 0, "1")];
        let request = DistributedTransactionRequest::new(DistributedTransactionType::Write, create);
        let mut found = Vec::new();
        for _ in 0..2 {
            let options = OperationOptions::default();
            found
                .push(code(&backend.driver.execute_distributed_transaction(request.clone(), options).await?));
        }
        same!(found, vec![200, status]);
    }
    Ok(())
}

/// The SDK refuses a container of another account before it sends anything.
async fn a_container_of_another_account_is_refused(world: &World) -> Outcome {
    let other = World::start(world.options()).await?;
    let foreign = other.container().await?;
    let before = world.management().request_count("transaction").await?;
    let write =
        azure_data_cosmos::DistributedWriteTransaction::new().delete_item(&foreign, "pk", "item", None);
    let read = azure_data_cosmos::DistributedReadTransaction::new().read_item(&foreign, "pk", "item", None);
    for refused in [
        world.client.commit_distributed_write(write).await.err(),
        world.client.execute_distributed_read(read).await.err(),
    ] {
        let refused = required(refused, "the refusal")?;
        same!(crate::check::code(refused.status()), 400);
        holds!(refused.to_string().contains("same Cosmos account"));
    }
    same!(world.management().request_count("transaction").await?, before);
    Ok(())
}
