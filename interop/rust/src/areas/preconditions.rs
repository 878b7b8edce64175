//! Preconditions: writes under an etag, and reads that are answered with 304.

use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::options::{ItemReadOptions, ItemWriteOptions, Precondition};

use crate::check::{Outcome, Problem, checks, code, refused, required, same};
use crate::world::{Item, World, item};

checks![
    a_replace_by_the_current_etag_succeeds_once,
    an_upsert_by_a_stale_etag_is_refused,
    a_delete_by_a_stale_etag_is_refused,
    one_of_many_writers_with_the_same_etag_wins,
    a_read_of_an_unchanged_item_is_not_modified,
];

/// The options of a write that is done only if the item has this etag.
fn if_match(etag: &str) -> Option<ItemWriteOptions> {
    Some(ItemWriteOptions::default().with_precondition(Precondition::if_match(etag.to_owned())))
}

/// Creates an item with rank 1 and returns its etag.
async fn first_version(container: &ContainerClient) -> Result<String, Problem> {
    let created = container.create_item("a", "1", item("a", "1", 1), None).await?;
    Ok(required(created.headers().etag(), "the etag")?.to_string())
}

/// The rank of the item.
async fn rank(container: &ContainerClient) -> Result<i64, Problem> {
    Ok(container.read_item("a", "1", None).await?.into_model::<Item>()?.rank)
}

async fn a_replace_by_the_current_etag_succeeds_once(world: &World) -> Outcome {
    let container = world.container().await?;
    let etag = first_version(&container).await?;
    let replaced = container.replace_item("a", "1", item("a", "1", 2), if_match(&etag)).await?;
    same!(code(replaced.status()), 200);
    same!(refused(container.replace_item("a", "1", item("a", "1", 3), if_match(&etag)).await)?, 412);
    same!(rank(&container).await?, 2);
    Ok(())
}

async fn an_upsert_by_a_stale_etag_is_refused(world: &World) -> Outcome {
    let container = world.container().await?;
    let etag = first_version(&container).await?;
    let upserted = container.upsert_item("a", "1", item("a", "1", 2), if_match(&etag)).await?;
    same!(code(upserted.status()), 200);
    same!(refused(container.upsert_item("a", "1", item("a", "1", 3), if_match(&etag)).await)?, 412);
    same!(rank(&container).await?, 2);
    Ok(())
}

async fn a_delete_by_a_stale_etag_is_refused(world: &World) -> Outcome {
    let container = world.container().await?;
    let stale = first_version(&container).await?;
    let replaced = container.replace_item("a", "1", item("a", "1", 2), None).await?;
    let current = required(replaced.headers().etag(), "the etag")?.to_string();
    same!(refused(container.delete_item("a", "1", if_match(&stale)).await)?, 412);
    same!(rank(&container).await?, 2);
    same!(code(container.delete_item("a", "1", if_match(&current)).await?.status()), 204);
    Ok(())
}

async fn one_of_many_writers_with_the_same_etag_wins(world: &World) -> Outcome {
    let container = world.container().await?;
    let etag = first_version(&container).await?;
    let write = |value| {
        let (container, options) = (container.clone(), if_match(&etag));
        async move { container.replace_item("a", "1", item("a", "1", value), options).await }
    };
    let answers = futures::future::join_all((10..26).map(write)).await;
    let mut codes: Vec<u16> = answers
        .into_iter()
        .map(|answer| match answer {
            Ok(answer) => code(answer.status()),
            Err(error) => code(error.status()),
        })
        .collect();
    codes.sort_unstable();
    let mut wanted = vec![412; 16];
    wanted[0] = 200;
    same!(codes, wanted);
    Ok(())
}

async fn a_read_of_an_unchanged_item_is_not_modified(world: &World) -> Outcome {
    let container = world.container().await?;
    let etag = first_version(&container).await?;
    let if_none_match = || {
        let condition = Precondition::if_none_match(etag.clone());
        Some(ItemReadOptions::default().with_precondition(condition))
    };
    let read = container.read_item("a", "1", if_none_match()).await?;
    same!(code(read.status()), 304);
    container.replace_item("a", "1", item("a", "1", 2), None).await?;
    let read = container.read_item("a", "1", if_none_match()).await?;
    same!(code(read.status()), 200);
    same!(read.into_model::<Item>()?.rank, 2);
    Ok(())
}
