//! Stages: a subquery in FROM that needs all documents at once runs as a statement
//! of its own.
//!
//! `FROM (SELECT VALUE c.x FROM c)` depends on one document at a time and is
//! bound like any other source. With DISTINCT, groups, ORDER BY, TOP or OFFSET
//! the subquery needs all documents: it becomes a statement of its own, and
//! the outer statement reads its rows in place of documents. A subquery without
//! FROM becomes a statement of its own too, because it reads no document.
//! (Microsoft's SDK also separates such a subquery: azure-cosmos-dotnet-v3 pull
//! request 2079 extracts the DISTINCT of
//! `SELECT VALUE COUNT(1) FROM (SELECT DISTINCT …)` and counts its rows.)

use super::group::is_grouped;
use crate::ast::{Collection, Select};

/// The subquery in FROM that has to run before the select. Only the first source of FROM
/// can be such a subquery.
pub(crate) fn subquery_to_run_first(select: &Select) -> Option<&Select> {
    let Collection::Subquery { select: inner, .. } = select.from.as_ref()?.first.collection() else {
        return None;
    };
    (is_stage(inner) || subquery_to_run_first(inner).is_some()).then_some(inner)
}

/// Whether the select has to run before the outer select: it needs all documents at
/// once, or it reads no document.
fn is_stage(select: &Select) -> bool {
    select.from.is_none()
        || select.distinct
        || select.top.is_some()
        || select.window.is_some()
        || select.order_by.is_some()
        || is_grouped(select)
}
