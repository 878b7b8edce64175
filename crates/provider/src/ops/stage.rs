//! Turns that are too large for one batch: chunks, bundles and outboxes are
//! written first, where nobody looks at them, and the commit makes them count.
//!
//! What always holds: staged ids carry the commit's nonce and are only ever
//! created, so that a stale turn's cannot meet a committed one's; they expire
//! unless they are committed, and the commit itself ends that.

use std::collections::HashMap;

use tokio::time::Instant;

use crate::documents::{Bundle, Chunk, Outbox, kind};
use crate::failure::Failure;
use crate::inner::Inner;
use crate::plan::TurnPlan;
use crate::store::{patiently, quiet};

/// How long staged documents wait for their commit: longer than any lock.
const STAGED_TTL_SECONDS: u32 = 24 * 3600;

/// Writes the large documents of a plan, which then is small.
pub(crate) async fn stage(inner: &Inner, plan: &mut TurnPlan, until: Instant) -> Result<(), Failure> {
    rename(plan);
    let instance = plan.state.instance_id.as_str();
    let ttl = Some(STAGED_TTL_SECONDS);
    for chunk in &plan.chunks {
        create(inner, instance, &Chunk { ttl, ..chunk.clone() }, until).await?;
    }
    for bundle in &plan.bundles {
        let staged = Bundle { ttl, kind: kind::STAGED.to_owned(), ..bundle.clone() };
        create(inner, instance, &staged, until).await?;
    }
    for outbox in &plan.outboxes {
        let staged = Outbox { ttl, kind: kind::STAGED.to_owned(), ..outbox.clone() };
        create(inner, instance, &staged, until).await?;
    }
    plan.is_staged = true;
    Ok(())
}

/// Gives the documents ids that no other commit has, where they are named too.
fn rename(plan: &mut TurnPlan) {
    let nonce = plan.state.ack.clone();
    let mut names = HashMap::new();
    let mut renamed = |id: &mut String| {
        let new = format!("{id}:{nonce}");
        names.insert(std::mem::replace(id, new.clone()), new);
    };
    plan.chunks.iter_mut().for_each(|chunk| renamed(&mut chunk.id));
    plan.bundles.iter_mut().for_each(|bundle| renamed(&mut bundle.id));
    plan.outboxes.iter_mut().for_each(|outbox| renamed(&mut outbox.id));
    let past = plan.past.iter_mut().flat_map(|past| &mut past.execution.chunks);
    for name in plan.state.execution.chunks.iter_mut().chain(&mut plan.state.bundles).chain(past) {
        if let Some(new) = names.get(name) {
            name.clone_from(new);
        }
    }
}

async fn create<T: serde::Serialize>(
    inner: &Inner,
    instance: &str,
    document: &T,
    until: Instant,
) -> Result<(), Failure> {
    let attempt = || async {
        match inner.store.container.create_with(instance, document, &quiet()).await {
            // Of that id there is only this one.
            Err(error) if !error.is_conflict() => Err(Failure::from(error)),
            _ => Ok(()),
        }
    };
    match patiently(until, attempt).await {
        Err(Failure::Storage(error)) if error.status().is_some_and(|status| status.code == 413) => {
            Err(Failure::Refused(format!("a single value of the turn is too large to be stored: {error}")))
        }
        outcome => outcome,
    }
}
