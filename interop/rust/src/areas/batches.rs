//! Transactional batches: all or nothing, with a result per operation.

use azure_data_cosmos::TransactionalBatch;
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::options::{
    BatchDeleteOptions, BatchOptions, BatchReplaceOptions, ContentResponseOnWrite, OperationOptionsBuilder,
    Precondition,
};

use crate::check::{Outcome, Problem, checks, code, holds, refused, required, same};
use crate::world::{Item, World, item};

checks![
    a_batch_does_all_its_operations,
    a_batch_reads_its_own_writes,
    a_failing_operation_undoes_the_batch,
    a_stale_etag_in_a_batch_undoes_it,
    a_current_etag_in_a_batch_is_honoured,
    a_hundred_operations_fit_and_one_more_does_not,
    a_batch_with_an_item_of_another_partition_does_nothing,
    a_batch_works_with_hierarchical_keys,
];

/// Executes a batch. Returns the status of the answer and the status of each operation.
async fn statuses(
    container: &ContainerClient,
    batch: TransactionalBatch,
) -> Result<(u16, Vec<u16>), Problem> {
    let answer = container.execute_transactional_batch(batch, None).await?;
    let status = code(answer.status());
    let results = answer.into_model()?;
    Ok((status, results.results().iter().map(|result| result.status_code()).collect()))
}

async fn a_batch_does_all_its_operations(world: &World) -> Outcome {
    let container = world.container().await?;
    container.create_item("a", "old", item("a", "old", 1), None).await?;
    container.create_item("a", "gone", item("a", "gone", 1), None).await?;
    let batch = TransactionalBatch::new("a")
        .create_item(item("a", "new", 2))?
        .upsert_item(item("a", "upserted", 3), None)?
        .replace_item("old", item("a", "old", 4), None)?
        .delete_item("gone", None)
        .read_item("old", None);
    same!(statuses(&container, batch).await?, (200, vec![201, 201, 200, 204, 200]));
    for (id, value) in [("new", 2), ("upserted", 3), ("old", 4)] {
        same!(container.read_item("a", id, None).await?.into_model::<Item>()?.rank, value);
    }
    same!(refused(container.read_item("a", "gone", None).await)?, 404);
    Ok(())
}

async fn a_batch_reads_its_own_writes(world: &World) -> Outcome {
    let container = world.container().await?;
    let batch = TransactionalBatch::new("a").create_item(item("a", "1", 7))?.read_item("1", None);
    let with_body = OperationOptionsBuilder::new()
        .with_content_response_on_write(ContentResponseOnWrite::Enabled)
        .build();
    let options = BatchOptions::default().with_operation_options(with_body);
    let results = container.execute_transactional_batch(batch, Some(options)).await?.into_model()?;
    let [created, read] = results.results() else {
        return Err("not two results".into());
    };
    same!(required(created.into_model::<Item>()?, "the created item")?, item("a", "1", 7));
    same!(required(read.into_model::<Item>()?, "the read item")?, item("a", "1", 7));
    same!(created.etag(), read.etag());
    holds!(required(created.request_charge(), "the charge")? > 0.0);
    Ok(())
}

async fn a_failing_operation_undoes_the_batch(world: &World) -> Outcome {
    let container = world.container().await?;
    container.create_item("a", "there", item("a", "there", 1), None).await?;
    let batch = TransactionalBatch::new("a")
        .create_item(item("a", "1", 1))?
        .replace_item("there", item("a", "there", 2), None)?
        .create_item(item("a", "there", 3))?
        .create_item(item("a", "2", 1))?;
    same!(statuses(&container, batch).await?, (207, vec![424, 424, 409, 424]));
    same!(refused(container.read_item("a", "1", None).await)?, 404);
    same!(refused(container.read_item("a", "2", None).await)?, 404);
    same!(container.read_item("a", "there", None).await?.into_model::<Item>()?.rank, 1);
    Ok(())
}

async fn a_stale_etag_in_a_batch_undoes_it(world: &World) -> Outcome {
    let container = world.container().await?;
    let created = container.create_item("a", "1", item("a", "1", 1), None).await?;
    let stale = required(created.headers().etag(), "the etag")?.to_string();
    container.replace_item("a", "1", item("a", "1", 2), None).await?;
    let when = BatchReplaceOptions::default().with_precondition(Precondition::if_match(stale.clone()));
    let batch = TransactionalBatch::new("a").create_item(item("a", "2", 1))?.replace_item(
        "1",
        item("a", "1", 3),
        Some(when),
    )?;
    same!(statuses(&container, batch).await?, (207, vec![424, 412]));
    let when = BatchDeleteOptions::default().with_precondition(Precondition::if_match(stale));
    let batch = TransactionalBatch::new("a").delete_item("1", Some(when)).create_item(item("a", "2", 1))?;
    same!(statuses(&container, batch).await?, (207, vec![412, 424]));
    same!(refused(container.read_item("a", "2", None).await)?, 404);
    same!(container.read_item("a", "1", None).await?.into_model::<Item>()?.rank, 2);
    Ok(())
}

async fn a_current_etag_in_a_batch_is_honoured(world: &World) -> Outcome {
    let container = world.container().await?;
    let created = container.create_item("a", "1", item("a", "1", 1), None).await?;
    let current = required(created.headers().etag(), "the etag")?.to_string();
    let when = BatchReplaceOptions::default().with_precondition(Precondition::if_match(current));
    let batch = TransactionalBatch::new("a").replace_item("1", item("a", "1", 2), Some(when))?;
    same!(statuses(&container, batch).await?, (200, vec![200]));
    Ok(())
}

async fn a_hundred_operations_fit_and_one_more_does_not(world: &World) -> Outcome {
    let container = world.container().await?;
    let of = |count: i64| {
        (0..count).try_fold(TransactionalBatch::new("a"), |batch, n| {
            batch.create_item(item("a", &format!("{count}-{n}"), n))
        })
    };
    let (status, results) = statuses(&container, of(100)?).await?;
    same!((status, results), (200, vec![201; 100]));
    same!(refused(container.execute_transactional_batch(of(101)?, None).await)?, 400);
    same!(refused(container.read_item("a", "101-0", None).await)?, 404);
    Ok(())
}

async fn a_batch_with_an_item_of_another_partition_does_nothing(world: &World) -> Outcome {
    let container = world.container().await?;
    let batch =
        TransactionalBatch::new("a").create_item(item("a", "1", 1))?.create_item(item("b", "2", 1))?;
    match statuses(&container, batch).await {
        Ok((status, results)) => same!((status, results), (207, vec![424, 400])),
        Err(problem) => return Err(problem),
    }
    same!(refused(container.read_item("a", "1", None).await)?, 404);
    Ok(())
}

async fn a_batch_works_with_hierarchical_keys(world: &World) -> Outcome {
    let container = world.container_by(("/pk", "/rank").into()).await?;
    let batch =
        TransactionalBatch::new(("a", 1)).create_item(item("a", "1", 1))?.create_item(item("a", "2", 1))?;
    same!(statuses(&container, batch).await?, (200, vec![201, 201]));
    same!(container.read_item(("a", 1), "2", None).await?.into_model::<Item>()?, item("a", "2", 1));
    Ok(())
}
