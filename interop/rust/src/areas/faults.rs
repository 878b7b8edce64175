//! Retries of the SDK: our error answers have the form that makes the SDK retry exactly where it
//! should.

use serde_json::{Value, json};

use crate::check::{Outcome, checks, code, refused, same};
use crate::world::{Item, World, item, name_of};

checks![
    a_throttled_request_is_tried_again,
    an_unavailable_server_is_tried_again,
    a_449_is_tried_again,
    a_refusal_is_not_tried_again,
];

/// A fault rule for an operation on one container, which is applied `count` times. `more` has
/// further members of the rule.
fn fault(operation: &str, container: &str, count: u32, status: u16, more: &Value) -> Value {
    let mut fault = json!({
        "operation": operation, "database": "interop", "container": container, "count": count, "status": status
    });
    if let (Some(fault), Some(more)) = (fault.as_object_mut(), more.as_object()) {
        fault.extend(more.clone());
    }
    fault
}

async fn a_throttled_request_is_tried_again(world: &World) -> Outcome {
    let container = world.container().await?;
    let name = name_of(&container).await?;
    let more = json!({"subStatus": 3200, "retryAfterMs": 5});
    world.management().inject(&fault("create_item", &name, 3, 429, &more)).await?;
    let before = world.management().request_count("create_item").await?;
    let created = container.create_item("a", "1", item("a", "1", 1), None).await?;
    same!(code(created.status()), 201);
    same!(world.management().request_count("create_item").await? - before, 4);
    world.management().clear_faults().await?;
    Ok(())
}

async fn an_unavailable_server_is_tried_again(world: &World) -> Outcome {
    let container = world.container().await?;
    container.create_item("a", "1", item("a", "1", 1), None).await?;
    let name = name_of(&container).await?;
    world.management().inject(&fault("read_item", &name, 1, 503, &json!({}))).await?;
    same!(container.read_item("a", "1", None).await?.into_model::<Item>()?.rank, 1);
    world.management().clear_faults().await?;
    Ok(())
}

async fn a_449_is_tried_again(world: &World) -> Outcome {
    let container = world.container().await?;
    let name = name_of(&container).await?;
    world.management().inject(&fault("upsert_item", &name, 2, 449, &json!({}))).await?;
    let upserted = container.upsert_item("a", "1", item("a", "1", 1), None).await?;
    same!(code(upserted.status()), 201);
    world.management().clear_faults().await?;
    Ok(())
}

async fn a_refusal_is_not_tried_again(world: &World) -> Outcome {
    let container = world.container().await?;
    let name = name_of(&container).await?;
    world.management().inject(&fault("create_item", &name, 1, 403, &json!({"subStatus": 1014}))).await?;
    let before = world.management().request_count("create_item").await?;
    same!(refused(container.create_item("a", "1", item("a", "1", 1), None).await)?, 403);
    same!(world.management().request_count("create_item").await? - before, 1);
    world.management().clear_faults().await?;
    Ok(())
}
