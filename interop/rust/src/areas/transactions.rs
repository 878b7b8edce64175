//! Distributed transactions of the SDK (its feature `unstable_dtx`): commits, aborts and reads,
//! with the results of their operations.

use azure_data_cosmos::clients::{
    ContainerClient, DistributedTransactionOperationOptions, DistributedTransactionPatchOperationOptions,
};
use azure_data_cosmos::models::{PatchInstructions, PatchOperation};
use azure_data_cosmos::options::Precondition;
use azure_data_cosmos::{DistributedReadTransaction, DistributedWriteTransaction};

use crate::check::{Outcome, Problem, checks, code, holds, refused, required, same};
use crate::transaction::{etags, read_of, results, statuses};
use crate::world::{Item, World, item};

checks![
    a_commit_over_two_containers_writes_everything,
    a_conflict_aborts_the_transaction,
    a_stale_etag_aborts_the_transaction,
    a_missing_document_aborts_the_transaction,
    every_failed_operation_has_its_own_status,
    a_patch_with_a_condition_commits_or_aborts,
    a_read_transaction_returns_the_documents,
    a_missing_document_fails_the_read_transaction,
    reads_with_several_failures_show_the_first_status,
    unchanged_documents_are_not_sent,
    a_transaction_sees_the_writes_of_its_session,
    the_session_token_of_a_commit_is_accepted_from_another_client,
    a_transaction_without_operations_is_not_sent,
    a_hundred_operations_commit_and_one_more_does_not,
    an_item_with_another_id_in_its_body_is_not_sent,
];

/// Two containers of one account.
async fn two_containers(world: &World) -> Result<(ContainerClient, ContainerClient), Problem> {
    Ok((world.container().await?, world.container().await?))
}

fn if_match(etag: &str) -> Option<DistributedTransactionOperationOptions> {
    let precondition = Precondition::if_match(etag.to_owned());
    Some(DistributedTransactionOperationOptions::default().with_precondition(precondition))
}

fn if_none_match(etag: &str) -> Option<DistributedTransactionOperationOptions> {
    let precondition = Precondition::if_none_match(etag.to_owned());
    Some(DistributedTransactionOperationOptions::default().with_precondition(precondition))
}

async fn rank_of(container: &ContainerClient, pk: &str, id: &str) -> Result<i64, Problem> {
    let read = container.read_item(pk.to_owned(), id, None).await?;
    Ok(read.into_model::<Item>()?.rank)
}

async fn a_commit_over_two_containers_writes_everything(world: &World) -> Outcome {
    let (a, b) = two_containers(world).await?;
    for (container, pk, id) in [(&a, "x", "replaced"), (&b, "y", "gone"), (&b, "z", "patched")] {
        container.create_item(pk.to_owned(), id, item(pk, id, 1), None).await?;
    }
    let add = PatchInstructions::from(vec![PatchOperation::increment("/rank", 41i64)]);
    let transaction = DistributedWriteTransaction::new()
        .create_item(&a, "w", "created", item("w", "created", 2), None)?
        .replace_item(&a, "x", "replaced", item("x", "replaced", 3), None)?
        .upsert_item(&b, "v", "upserted", item("v", "upserted", 4), None)?
        .delete_item(&b, "y", "gone", None)
        .patch_item(&b, "z", "patched", add, None)?;
    let answer = world.client.commit_distributed_write(transaction).await?;
    same!((code(answer.status()), answer.status().sub_status().is_none()), (200, true));
    holds!(answer.is_success_status_code() && answer.is_completed_status_code());
    same!(statuses(&answer), vec![(201, 0), (200, 0), (201, 0), (204, 0), (200, 0)]);
    same!((answer.is_retriable(), answer.error_message()), (false, None));
    holds!(answer.activity_id().is_some_and(|id| !id.is_empty()));
    let mut sum = 0.0;
    for result in results(&answer)? {
        holds!(result.etag().is_some() == (u16::from(result.status_code()) != 204));
        let range = required(result.partition_key_range_id(), "the range")?;
        let token = required(result.session_token(), "the session token")?;
        holds!(token.as_str().starts_with(&format!("{range}:")), "{}", token.as_str());
        let charge = required(result.request_charge(), "the charge of an operation")?;
        holds!(charge > 0.0);
        sum += charge;
        same!(result.resource::<Item>()?, None);
    }
    let charge = required(answer.request_charge(), "the charge")?;
    holds!((charge - sum).abs() < 0.02, "{charge} is not the sum {sum}");
    for (container, pk, id, rank) in [
        (&a, "w", "created", 2),
        (&a, "x", "replaced", 3),
        (&b, "v", "upserted", 4),
        (&b, "z", "patched", 42),
    ] {
        same!(rank_of(container, pk, id).await?, rank);
    }
    same!(refused(b.read_item("y", "gone", None).await)?, 404);
    Ok(())
}

/// Checks that the transaction is aborted with these results, and that the first of its
/// operations, the creation of `x/new`, wrote nothing.
async fn check_aborted(
    world: &World,
    container: &ContainerClient,
    transaction: DistributedWriteTransaction,
    wanted: &[(u16, u16)],
) -> Outcome {
    let answer = world.client.commit_distributed_write(transaction).await?;
    let sub_status = answer.status().sub_status().map(|sub| sub.value());
    same!((code(answer.status()), sub_status), (452, Some(5421)));
    holds!(!answer.is_success_status_code() && !answer.is_completed_status_code() && !answer.is_retriable());
    same!(statuses(&answer), wanted.to_vec());
    holds!(required(answer.diagnostic_string(), "the diagnostic text")?.contains("Operation"));
    holds!(required(answer.request_charge(), "the charge")? > 0.0);
    for result in results(&answer)? {
        same!((result.etag(), result.session_token().is_some()), (None, false));
    }
    same!(refused(container.read_item("x", "new", None).await)?, 404);
    Ok(())
}

fn with_new(container: &ContainerClient) -> Result<DistributedWriteTransaction, Problem> {
    Ok(DistributedWriteTransaction::new().create_item(container, "x", "new", item("x", "new", 1), None)?)
}

async fn a_conflict_aborts_the_transaction(world: &World) -> Outcome {
    let (a, b) = two_containers(world).await?;
    b.create_item("y", "there", item("y", "there", 1), None).await?;
    let transaction = with_new(&a)?.create_item(&b, "y", "there", item("y", "there", 2), None)?;
    check_aborted(world, &a, transaction, &[(453, 5415), (409, 0)]).await?;
    same!(rank_of(&b, "y", "there").await?, 1);
    Ok(())
}

async fn a_stale_etag_aborts_the_transaction(world: &World) -> Outcome {
    let (a, b) = two_containers(world).await?;
    let created = b.create_item("y", "1", item("y", "1", 1), None).await?;
    let stale = required(created.headers().etag(), "the etag")?.to_string();
    b.replace_item("y", "1", item("y", "1", 2), None).await?;
    let replace = with_new(&a)?.replace_item(&b, "y", "1", item("y", "1", 3), if_match(&stale))?;
    check_aborted(world, &a, replace, &[(453, 5415), (412, 0)]).await?;
    let delete = with_new(&a)?.delete_item(&b, "y", "1", if_match(&stale));
    check_aborted(world, &a, delete, &[(453, 5415), (412, 0)]).await?;
    same!(rank_of(&b, "y", "1").await?, 2);
    // The etag of a commit is that of the document.
    let current = b.read_item("y", "1", None).await?;
    let current = required(current.headers().etag(), "the etag")?.to_string();
    let replace = DistributedWriteTransaction::new().replace_item(
        &b,
        "y",
        "1",
        item("y", "1", 3),
        if_match(&current),
    )?;
    let answer = world.client.commit_distributed_write(replace).await?;
    same!(statuses(&answer), vec![(200, 0)]);
    let read = b.read_item("y", "1", None).await?;
    same!(Some(etags(&answer)[0].clone()), read.headers().etag().map(ToString::to_string));
    Ok(())
}

async fn a_missing_document_aborts_the_transaction(world: &World) -> Outcome {
    let (a, b) = two_containers(world).await?;
    let replace = with_new(&a)?.replace_item(&b, "y", "no", item("y", "no", 1), None)?;
    check_aborted(world, &a, replace, &[(453, 5415), (404, 0)]).await?;
    let delete = with_new(&a)?.delete_item(&b, "y", "no", None);
    check_aborted(world, &a, delete, &[(453, 5415), (404, 0)]).await
}

async fn every_failed_operation_has_its_own_status(world: &World) -> Outcome {
    let (a, b) = two_containers(world).await?;
    a.create_item("y", "there", item("y", "there", 1), None).await?;
    let transaction = with_new(&a)?
        .create_item(&a, "y", "there", item("y", "there", 2), None)?
        .delete_item(&b, "z", "no", None)
        .upsert_item(&b, "u", "1", item("u", "1", 1), None)?;
    check_aborted(world, &a, transaction, &[(453, 5415), (409, 0), (404, 0), (453, 5415)]).await?;
    same!(refused(b.read_item("u", "1", None).await)?, 404);
    Ok(())
}

async fn a_patch_with_a_condition_commits_or_aborts(world: &World) -> Outcome {
    let (a, b) = two_containers(world).await?;
    b.create_item("y", "1", item("y", "1", 10), None).await?;
    let take_ten = || PatchInstructions::from(vec![PatchOperation::increment("/rank", -10i64)]);
    let if_enough = || {
        let options = DistributedTransactionPatchOperationOptions::default();
        Some(options.with_filter_predicate("from c where c.rank >= 10"))
    };
    let transaction = with_new(&a)?.patch_item(&b, "y", "1", take_ten(), if_enough())?;
    let answer = world.client.commit_distributed_write(transaction).await?;
    same!(statuses(&answer), vec![(201, 0), (200, 0)]);
    same!(rank_of(&b, "y", "1").await?, 0);
    a.delete_item("x", "new", None).await?;
    let transaction = with_new(&a)?.patch_item(&b, "y", "1", take_ten(), if_enough())?;
    check_aborted(world, &a, transaction, &[(453, 5415), (412, 1110)]).await?;
    same!(rank_of(&b, "y", "1").await?, 0);
    Ok(())
}

async fn a_read_transaction_returns_the_documents(world: &World) -> Outcome {
    let (a, b) = two_containers(world).await?;
    let created = a.create_item("x", "1", item("x", "1", 1), None).await?;
    b.create_item("y", "2", item("y", "2", 2), None).await?;
    let answer = world.client.execute_distributed_read(read_of(&[(&a, "x", "1"), (&b, "y", "2")])).await?;
    same!((code(answer.status()), statuses(&answer)), (200, vec![(200, 0), (200, 0)]));
    for (result, wanted) in results(&answer)?.into_iter().zip([item("x", "1", 1), item("y", "2", 2)]) {
        same!(result.resource::<Item>()?, Some(wanted));
        holds!(required(result.session_token(), "the session token")?.as_str().contains(':'));
        holds!(required(result.request_charge(), "the charge")? > 0.0);
    }
    same!(Some(etags(&answer)[0].clone()), created.headers().etag().map(ToString::to_string));
    Ok(())
}

async fn a_missing_document_fails_the_read_transaction(world: &World) -> Outcome {
    let (a, b) = two_containers(world).await?;
    a.create_item("x", "1", item("x", "1", 1), None).await?;
    let reads = read_of(&[(&a, "x", "1"), (&b, "y", "no")]);
    let answer = world.client.execute_distributed_read(reads).await?;
    same!((code(answer.status()), statuses(&answer)), (404, vec![(424, 0), (404, 0)]));
    holds!(!answer.is_success_status_code() && !answer.is_retriable());
    same!(required(answer.operation_result(0), "the first result")?.resource::<Item>()?, None);
    Ok(())
}

/// The server answers 207, and the SDK shows the status of the first operation that failed.
async fn reads_with_several_failures_show_the_first_status(world: &World) -> Outcome {
    let (a, b) = two_containers(world).await?;
    let created = a.create_item("x", "1", item("x", "1", 1), None).await?;
    let stale = required(created.headers().etag(), "the etag")?.to_string();
    a.replace_item("x", "1", item("x", "1", 2), None).await?;
    let reads = DistributedReadTransaction::new()
        .read_item(&a, "x", "1", None)
        .read_item(&a, "x", "1", if_match(&stale))
        .read_item(&b, "y", "no", None);
    let answer = world.client.execute_distributed_read(reads).await?;
    same!((code(answer.status()), statuses(&answer)), (412, vec![(424, 0), (412, 0), (404, 0)]));
    Ok(())
}

async fn unchanged_documents_are_not_sent(world: &World) -> Outcome {
    let (a, b) = two_containers(world).await?;
    let transaction = DistributedWriteTransaction::new()
        .create_item(&a, "x", "1", item("x", "1", 1), None)?
        .create_item(&b, "y", "2", item("y", "2", 2), None)?;
    let seen = etags(&world.client.commit_distributed_write(transaction).await?);
    let one = DistributedReadTransaction::new()
        .read_item(&a, "x", "1", if_none_match(&seen[0]))
        .read_item(&b, "y", "2", None);
    let answer = world.client.execute_distributed_read(one).await?;
    same!((code(answer.status()), statuses(&answer)), (207, vec![(304, 0), (200, 0)]));
    holds!(answer.is_success_status_code());
    let documents: Vec<Option<Item>> =
        results(&answer)?.iter().map(|result| result.resource()).collect::<Result<_, _>>()?;
    same!(documents, vec![None, Some(item("y", "2", 2))]);
    let all = DistributedReadTransaction::new().read_item(&a, "x", "1", if_none_match(&seen[0])).read_item(
        &b,
        "y",
        "2",
        if_none_match(&seen[1]),
    );
    let answer = world.client.execute_distributed_read(all).await?;
    let sub_status = answer.status().sub_status().map(|sub| sub.value());
    same!((code(answer.status()), sub_status), (200, Some(5425)));
    same!(statuses(&answer), vec![(304, 0), (304, 0)]);
    holds!(results(&answer)?.iter().all(|result| result.is_completed_status_code()));
    Ok(())
}

/// The SDK stamps each operation with the session token of its partition. The server accepts
/// the tokens that it gave, on writes too.
async fn a_transaction_sees_the_writes_of_its_session(world: &World) -> Outcome {
    let (a, b) = two_containers(world).await?;
    for round in 0..3 {
        let transaction = DistributedWriteTransaction::new()
            .upsert_item(&a, "x", "1", item("x", "1", round), None)?
            .upsert_item(&b, "y", "2", item("y", "2", round), None)?;
        same!(code(world.client.commit_distributed_write(transaction).await?.status()), 200);
        let reads = read_of(&[(&a, "x", "1"), (&b, "y", "2")]);
        let answer = world.client.execute_distributed_read(reads).await?;
        for result in results(&answer)? {
            same!(required(result.resource::<Item>()?, "the document")?.rank, round);
        }
    }
    Ok(())
}

async fn the_session_token_of_a_commit_is_accepted_from_another_client(world: &World) -> Outcome {
    let a = world.container().await?;
    let answer = world.client.commit_distributed_write(with_new(&a)?).await?;
    let token = required(results(&answer)?[0].session_token(), "the session token")?.clone();
    let stamped = DistributedTransactionOperationOptions::default().with_session_token(token);
    let reads = DistributedReadTransaction::new().read_item(&a, "x", "new", Some(stamped));
    let other = world.another_client().await?;
    let read = other.execute_distributed_read(reads).await?;
    same!(statuses(&read), vec![(200, 0)]);
    Ok(())
}

async fn a_transaction_without_operations_is_not_sent(world: &World) -> Outcome {
    let before = world.management().request_count("transaction").await?;
    let nothing = DistributedWriteTransaction::new();
    same!(refused(world.client.commit_distributed_write(nothing).await)?, 400);
    let nothing = DistributedReadTransaction::new();
    same!(refused(world.client.execute_distributed_read(nothing).await)?, 400);
    same!(world.management().request_count("transaction").await?, before);
    Ok(())
}

/// The refusal of the whole request has no results. The SDK gives its status to each operation.
async fn a_hundred_operations_commit_and_one_more_does_not(world: &World) -> Outcome {
    let a = world.container().await?;
    let of = |count: i64| {
        (0..count).try_fold(DistributedWriteTransaction::new(), |transaction, n| {
            let (pk, id) = (format!("k{n}"), format!("{count}-{n}"));
            let document = item(&pk, &id, n);
            transaction.create_item(&a, pk, id, document, None)
        })
    };
    let answer = world.client.commit_distributed_write(of(100)?).await?;
    same!((code(answer.status()), statuses(&answer)), (200, vec![(201, 0); 100]));
    let answer = world.client.commit_distributed_write(of(101)?).await?;
    let sub_status = answer.status().sub_status().map(|sub| sub.value());
    same!((code(answer.status()), sub_status), (400, Some(5407)));
    holds!(statuses(&answer).iter().all(|(status, _)| *status == 400));
    same!(refused(a.read_item("k0", "101-0", None).await)?, 404);
    Ok(())
}

async fn an_item_with_another_id_in_its_body_is_not_sent(world: &World) -> Outcome {
    let a = world.container().await?;
    let before = world.management().request_count("transaction").await?;
    let transaction =
        DistributedWriteTransaction::new().create_item(&a, "x", "outer", item("x", "inner", 1), None)?;
    same!(refused(world.client.commit_distributed_write(transaction).await)?, 400);
    same!(world.management().request_count("transaction").await?, before);
    Ok(())
}
