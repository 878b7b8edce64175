//! Statements in stages: a subquery in FROM whose rows are not made document
//! by document.
//!
//! `FROM (SELECT VALUE c.x FROM c)` is a view of each document, and is bound
//! like any other source. With DISTINCT, groups, an order or a window the
//! subquery is about all documents at once: it becomes a statement of its own,
//! and the outer one reads its rows as if they were the documents. (The vendor
//! counts so too: azure-cosmos-dotnet-v3 pull request 2079 lifts the DISTINCT
//! of `SELECT VALUE COUNT(1) FROM (SELECT DISTINCT …)` out and counts its rows.)

use super::group::is_grouped;
use crate::ast::{Collection, Select};

/// The subquery that has to be answered in full before the select can begin.
pub(crate) fn staged_source(select: &Select) -> Option<&Select> {
    let Collection::Subquery { select: inner, .. } = select.from.as_ref()?.first.collection() else {
        return None;
    };
    (is_whole(inner) || staged_source(inner).is_some()).then_some(inner)
}

/// Is it about all documents together, or about none?
fn is_whole(select: &Select) -> bool {
    select.from.is_none()
        || select.distinct
        || select.top.is_some()
        || select.window.is_some()
        || select.order_by.is_some()
        || is_grouped(select)
}
