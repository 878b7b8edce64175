//! Read transactions: point reads from one snapshot of the whole store.

use std::sync::Arc;

use perihelion_wire::status;

use super::{DistributedRead, READ_BYTES_MAX};
use crate::catalog::{Catalog, Container};
use crate::documents::{self, ItemOutcome, Target};
use crate::keys::ContainerNumber;
use crate::refusal::Refusal;
use crate::session::check_session;
use crate::state::ContainerState;
use crate::storage::View;
use crate::writer::state_in;

/// Reads all documents. The outer refusal is for the whole transaction: the store failed, or the
/// documents are too large. Its charge is for the documents that were read. `now` is in seconds
/// since 1970.
pub(crate) fn read(
    view: &dyn View,
    reads: &[DistributedRead],
    now: u64,
) -> Result<Vec<Result<ItemOutcome, Refusal>>, Refusal> {
    let mut snapshot = Snapshot { view, states: Vec::new(), catalog: None, now };
    let (mut results, mut bytes, mut charge) = (Vec::with_capacity(reads.len()), 0, 0.0);
    for read in reads {
        let result = snapshot.read(read);
        match &result {
            Ok(outcome) => {
                bytes += outcome.body.len();
                charge += outcome.charge;
            }
            Err(refusal) if refusal.status >= status::INTERNAL_SERVER_ERROR.code => {
                return Err(refusal.clone());
            }
            Err(refusal) => charge += refusal.charge,
        }
        if bytes > READ_BYTES_MAX {
            return Err(Refusal::gateway(
                status::TOO_LARGE,
                format!(
                    "The documents of the transaction have more than {READ_BYTES_MAX} bytes. Divide the transaction into several."
                ),
            )
            .with_charge(charge));
        }
        results.push(result);
    }
    Ok(results)
}

/// A view, with the container states and the catalog that earlier reads of the transaction loaded.
struct Snapshot<'v> {
    view: &'v dyn View,
    states: Vec<(ContainerNumber, ContainerState)>,
    /// The catalog of the view; read only when a range was split after the caller looked up its
    /// containers.
    catalog: Option<Catalog>,
    now: u64,
}

impl Snapshot<'_> {
    fn read(&mut self, read: &DistributedRead) -> Result<ItemOutcome, Refusal> {
        let container = read.container.as_ref().map_err(Refusal::clone)?;
        let session = read.session.as_ref().map_err(Refusal::clone)?;
        let mut target = Target::resolve(container, read.partition_key.clone())?;
        let index = self.index_of_state(container)?;
        if self.states[index].1.range(target.range.id).is_none() {
            target = Target::resolve(&self.current(container)?, read.partition_key.clone())?;
        }
        let (_, state) = &self.states[index];
        check_session(&target.container, state, session, &[target.range.id])?;
        documents::read_item(self.view, &target, &read.id, &read.precondition, state, self.now)
    }

    /// The index of the container's state in `states`. Loads the state if it is not there yet.
    fn index_of_state(&mut self, container: &Container) -> Result<usize, Refusal> {
        if let Some(index) = self.states.iter().position(|(number, _)| *number == container.number()) {
            return Ok(index);
        }
        self.states.push((container.number(), state_in(self.view, container)?));
        Ok(self.states.len() - 1)
    }

    /// The container as it is in the view.
    fn current(&mut self, container: &Container) -> Result<Arc<Container>, Refusal> {
        let catalog = match &mut self.catalog {
            Some(catalog) => catalog,
            empty => empty.insert(Catalog::load(self.view)?),
        };
        catalog.container_by_number(container.number()).cloned().ok_or_else(Refusal::no_such_resource)
    }
}
