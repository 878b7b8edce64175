//! Functions that run a query and collect its results, for the checks.

use std::num::NonZeroU32;

use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::options::{MaxItemCountHint, QueryOptions};
use azure_data_cosmos::{FeedScope, Query};
use futures::TryStreamExt;
use serde::de::DeserializeOwned;

use crate::check::{Problem, required};

/// All results of a query within a scope.
pub(crate) async fn query_all<T: DeserializeOwned + Send + 'static>(
    container: &ContainerClient,
    scope: FeedScope,
    query: impl Into<Query>,
) -> Result<Vec<T>, Problem> {
    query_all_with(container, scope, query, QueryOptions::default()).await
}

/// All results of a query within a scope, with these options.
pub(crate) async fn query_all_with<T: DeserializeOwned + Send + 'static>(
    container: &ContainerClient,
    scope: FeedScope,
    query: impl Into<Query>,
    options: QueryOptions,
) -> Result<Vec<T>, Problem> {
    Ok(container.query_items::<T>(query, scope, Some(options)).await?.try_collect().await?)
}

/// Options for pages of at most `count` items.
pub(crate) fn pages_of(count: u32) -> Result<QueryOptions, Problem> {
    let count = required(NonZeroU32::new(count), "a page size")?;
    Ok(QueryOptions::default().with_max_item_count(MaxItemCountHint::Limit(count)))
}
