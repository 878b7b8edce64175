//! The server itself, checked after all other checks of a world.

use crate::check::{Outcome, checks, same};
use crate::world::{Item, World, item};

checks![the_server_still_answers, the_server_has_not_panicked];

async fn the_server_still_answers(world: &World) -> Outcome {
    let container = world.container().await?;
    container.create_item("a", "1", item("a", "1", 1), None).await?;
    same!(container.read_item("a", "1", None).await?.into_model::<Item>()?.rank, 1);
    Ok(())
}

async fn the_server_has_not_panicked(world: &World) -> Outcome {
    same!(world.server_panics(), 0);
    Ok(())
}
