//! Replays: the same idempotency token gets the original answer. The SDK makes a new token for
//! every transaction, so these checks use the driver under it, which lets a program choose the
//! token.

use std::sync::Arc;

use azure_data_cosmos_driver::CosmosDriver;
use azure_data_cosmos_driver::models::{
    ContainerReference, DistributedTransactionOperation, DistributedTransactionOperationKind,
    DistributedTransactionRequest, DistributedTransactionResponse, DistributedTransactionResultBody,
    DistributedTransactionTarget, DistributedTransactionType,
};
use azure_data_cosmos_driver::options::OperationOptions;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::check::{Outcome, Problem, checks, holds, required, same};
use crate::world::{Item, World, item, name_of};

checks![
    a_replayed_commit_gets_the_original_answer,
    a_replayed_abort_gets_the_original_answer,
    another_process_may_replay_a_token,
    a_token_with_other_operations_is_refused,
    a_replay_returns_the_answer_that_was_lost,
    answers_without_results_are_repeated_with_the_same_token,
    refusals_without_results_are_not_repeated,
];

/// A counter in a container, and the driver.
struct Counter {
    driver: Arc<CosmosDriver>,
    sdk: azure_data_cosmos::clients::ContainerClient,
    container: ContainerReference,
}

impl Counter {
    /// A new container with the document `x/n`, whose rank is the counter.
    async fn new(world: &World) -> Result<Self, Problem> {
        let sdk = world.container().await?;
        sdk.create_item("x", "n", item("x", "n", 0), None).await?;
        let driver = world.driver().await?;
        let container =
            driver.resolve_container("interop", &name_of(&sdk).await?, OperationOptions::default()).await?;
        Ok(Self { driver, sdk, container })
    }

    fn operation(
        &self,
        kind: DistributedTransactionOperationKind,
        pk: &'static str,
        id: &'static str,
        body: Option<&Value>,
    ) -> DistributedTransactionOperation {
        let target = DistributedTransactionTarget::new(self.container.clone(), pk, id);
        let operation = DistributedTransactionOperation::new(kind, target);
        match body {
            Some(body) => operation.with_resource_body(body.to_string()),
            None => operation,
        }
    }

    fn create(&self, pk: &'static str, id: &'static str) -> DistributedTransactionOperation {
        let document = json!({"id": id, "pk": pk, "rank": 0});
        self.operation(DistributedTransactionOperationKind::Create, pk, id, Some(&document))
    }

    /// Adds one to the counter. Only the token keeps a repetition from adding one more.
    fn increment(&self) -> DistributedTransactionOperation {
        let patch = json!({"operations": [{"op": "incr", "path": "/rank", "value": 1}]});
        self.operation(DistributedTransactionOperationKind::Patch, "x", "n", Some(&patch))
    }

    async fn commit(
        &self,
        request: DistributedTransactionRequest,
    ) -> azure_data_cosmos_driver::Result<DistributedTransactionResponse> {
        self.driver.execute_distributed_transaction(request, OperationOptions::default()).await
    }

    /// The counter and its etag, as a transaction reads them. In an account with several regions, a
    /// point read may be answered by a region that does not have the last write yet.
    async fn read(&self) -> Result<(i64, String), Problem> {
        let read = self.operation(DistributedTransactionOperationKind::Read, "x", "n", None);
        let request = DistributedTransactionRequest::new(DistributedTransactionType::Read, vec![read]);
        let answer = self.commit(request).await?;
        let result = required(answer.operation_results.first(), "the result")?;
        let DistributedTransactionResultBody::Bytes(document) = &result.resource_body else {
            return Err("the read returned no document".into());
        };
        let etag = required(result.etag.as_ref(), "the etag")?.to_string();
        Ok((serde_json::from_slice::<Item>(document)?.rank, etag))
    }

    async fn value(&self) -> Result<i64, Problem> {
        Ok(self.read().await?.0)
    }
}

fn write(operations: Vec<DistributedTransactionOperation>) -> DistributedTransactionRequest {
    DistributedTransactionRequest::new(DistributedTransactionType::Write, operations)
}

/// The status and the sub-status of an answer; sub-status 0 if it has none.
fn envelope(answer: &DistributedTransactionResponse) -> (u16, u16) {
    let sub_status = answer.sub_status_code.map_or(0, |sub_status| sub_status.value());
    (u16::from(answer.status_code), sub_status)
}

/// The parts of an answer that a replay repeats.
fn parts(answer: &DistributedTransactionResponse) -> (u16, u16, Uuid, String, Vec<Value>) {
    let (status, sub_status) = envelope(answer);
    let results = answer.operation_results.iter();
    let results = results.map(|result| Value::Object(result.raw_response.clone())).collect();
    (status, sub_status, answer.idempotency_token, format!("{:?}", answer.request_charge), results)
}

/// Between the two requests the driver learns session tokens, and stamps the second request
/// with them. The server recognises the transaction nevertheless.
async fn a_replayed_commit_gets_the_original_answer(world: &World) -> Outcome {
    let counter = Counter::new(world).await?;
    let request = write(vec![counter.increment(), counter.create("y", "1")]);
    let first = counter.commit(request.clone()).await?;
    same!((envelope(&first), first.idempotency_token), ((200, 0), request.idempotency_token));
    same!(
        first.operation_results.iter().map(|result| u16::from(result.status_code)).collect::<Vec<_>>(),
        [200, 201]
    );
    for _ in 0..2 {
        same!(parts(&counter.commit(request.clone()).await?), parts(&first));
    }
    // A transaction between them changes the session tokens once more.
    same!(envelope(&counter.commit(write(vec![counter.increment()])).await?), (200, 0));
    same!(parts(&counter.commit(request).await?), parts(&first));
    same!(counter.value().await?, 2);
    Ok(())
}

async fn a_replayed_abort_gets_the_original_answer(world: &World) -> Outcome {
    let counter = Counter::new(world).await?;
    let request = write(vec![counter.increment(), counter.create("x", "n")]);
    let first = counter.commit(request.clone()).await?;
    same!(envelope(&first), (452, 5421));
    // The id is free now, but the token has its outcome.
    counter.sdk.delete_item("x", "n", None).await?;
    let again = counter.commit(request).await?;
    same!(parts(&again), parts(&first));
    Ok(())
}

async fn another_process_may_replay_a_token(world: &World) -> Outcome {
    let counter = Counter::new(world).await?;
    let request = write(vec![counter.increment()]);
    let first = counter.commit(request.clone()).await?;
    let other = Counter { driver: world.driver().await?, ..counter };
    same!(parts(&other.commit(request).await?), parts(&first));
    same!(other.value().await?, 1);
    Ok(())
}

async fn a_token_with_other_operations_is_refused(world: &World) -> Outcome {
    let counter = Counter::new(world).await?;
    let request = write(vec![counter.increment()]);
    same!(envelope(&counter.commit(request.clone()).await?), (200, 0));
    let mut other = write(vec![counter.increment(), counter.create("y", "1")]);
    other.idempotency_token = request.idempotency_token;
    let answer = counter.commit(other).await?;
    same!(envelope(&answer), (400, 5410));
    holds!(answer.operation_results.iter().all(|result| u16::from(result.status_code) == 400));
    same!(counter.value().await?, 1);
    Ok(())
}

/// The SDK does not repeat a transaction whose answer is lost: a program does, with its token.
async fn a_replay_returns_the_answer_that_was_lost(world: &World) -> Outcome {
    let counter = Counter::new(world).await?;
    let request = write(vec![counter.increment()]);
    world.management().inject(&json!({"operation": "transaction", "drop": "after"})).await?;
    let lost = counter.commit(request.clone()).await;
    world.management().clear_faults().await?;
    holds!(lost.is_err());
    same!(counter.value().await?, 1);
    let answer = counter.commit(request).await?;
    same!(envelope(&answer), (200, 0));
    let etag = required(answer.operation_results[0].etag.as_ref(), "the etag")?.to_string();
    same!(counter.read().await?, (1, etag));
    Ok(())
}

async fn answers_without_results_are_repeated_with_the_same_token(world: &World) -> Outcome {
    let counter = Counter::new(world).await?;
    let faults: [(u16, u32, u64); 6] =
        [(408, 0, 2), (449, 5352, 2), (429, 3200, 3), (500, 5411, 2), (500, 5412, 1), (500, 5413, 1)];
    for (round, (status, sub_status, count)) in (1..).zip(faults) {
        let fault = json!({"operation": "transaction", "status": status, "subStatus": sub_status, "count": count,
                           "retryAfterMs": 5});
        world.management().inject(&fault).await?;
        let before = world.management().request_count("transaction").await?;
        let answer = counter.commit(write(vec![counter.increment()])).await?;
        same!((status, sub_status, envelope(&answer)), (status, sub_status, (200, 0)));
        same!(world.management().request_count("transaction").await? - before, count + 1);
        same!(counter.value().await?, round);
        world.management().clear_faults().await?;
    }
    Ok(())
}

async fn refusals_without_results_are_not_repeated(world: &World) -> Outcome {
    let counter = Counter::new(world).await?;
    for sub_status in 5405..=5410 {
        let fault = json!({"operation": "transaction", "status": 400, "subStatus": sub_status, "count": 1});
        world.management().inject(&fault).await?;
        let before = world.management().request_count("transaction").await?;
        let answer = counter.commit(write(vec![counter.increment()])).await?;
        same!(envelope(&answer), (400, sub_status));
        same!(world.management().request_count("transaction").await? - before, 1);
        world.management().clear_faults().await?;
    }
    same!(counter.value().await?, 0);
    Ok(())
}
