//! The rows of a page while they are turned into the caller's type.
//!
//! When a row cannot be parsed as `T`, the call fails, and the row is skipped. The other rows of
//! its page stay here, in their order, and the next call returns them. So every call makes
//! progress, and a bad row does not hide other rows.

use perihelion_model::json::Value;
use serde::de::DeserializeOwned;

use super::page::{Continuation, Page, PageCost};
use crate::Error;
use crate::response::decode_value;

/// A page that was received. Some of its rows may be parsed already.
#[derive(Debug)]
pub(super) struct ReceivedPage<T> {
    parsed: Vec<T>,
    unparsed: std::vec::IntoIter<Value>,
    continuation: Continuation,
    cost: PageCost,
}

impl<T> ReceivedPage<T> {
    /// A page whose rows are not parsed yet.
    pub(super) fn new(rows: Vec<Value>, continuation: Continuation, cost: PageCost) -> Self {
        ReceivedPage {
            parsed: Vec::with_capacity(rows.len()),
            unparsed: rows.into_iter(),
            continuation,
            cost,
        }
    }

    /// A page whose rows are all parsed.
    pub(super) fn parsed(rows: Vec<T>, continuation: Continuation, cost: PageCost) -> Self {
        ReceivedPage { parsed: rows, unparsed: Vec::new().into_iter(), continuation, cost }
    }

    /// The cost. It is zero afterwards.
    pub(super) fn take_cost(&mut self) -> PageCost {
        std::mem::take(&mut self.cost)
    }

    /// The rows that were not parsed, and the cost.
    pub(super) fn into_parts(self) -> (std::vec::IntoIter<Value>, PageCost) {
        (self.unparsed, self.cost)
    }
}

impl<T: DeserializeOwned> ReceivedPage<T> {
    /// Parses all rows. After an error the bad row is removed, and the next call goes on with the
    /// row after it.
    pub(super) fn parse(&mut self) -> Result<(), Error> {
        for row in self.unparsed.by_ref() {
            self.parsed.push(decode_value(row, &"a row of the query result")?);
        }
        Ok(())
    }

    /// The page with this cost, which is taken; `None` if it has no rows left. All rows must be parsed.
    pub(super) fn into_page(self, cost: &mut PageCost) -> Option<Page<T>> {
        debug_assert!(self.unparsed.len() == 0, "all rows are parsed");
        let ReceivedPage { parsed, continuation, .. } = self;
        (!parsed.is_empty()).then(|| Page::new(parsed, continuation, std::mem::take(cost)))
    }
}
