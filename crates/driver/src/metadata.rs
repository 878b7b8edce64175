//! Metadata: what the driver must know about an account and a container before it
//! can send an operation to them.
//!
//! - `account`: reads the account's regions and keeps them up to date
//! - `container`: a container's names, its current metadata and its sessions
//! - `refresh`: reads a container's metadata, in one task for all operations that need it
//! - `learning`: the task that reads a container's metadata, and how operations wait for it
//! - `sessions`: how far this client has seen the writes of each range of a container
//!
//! Metadata is read with requests, and the pipeline that sends requests needs
//! metadata. To avoid a circle of modules, this module only declares the requests
//! ([`MetadataRequests`]), and the pipeline implements them.

mod account;
mod container;
mod learning;
mod refresh;
mod sessions;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use tokio::time::Instant;

use crate::error::Error;
use crate::response::Response;
use crate::routing::account::Location;

pub(crate) use account::{AccountReader, probe};
pub use container::{Container, ContainerMetadata, VectorPath};
pub(crate) use refresh::{load, refresh, try_refresh};
pub(crate) use sessions::TokenTooLong;

/// A request for metadata. It is boxed, so that the future of an operation that needs
/// no such request stays small.
pub(crate) type MetadataRequest<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// The requests that read metadata.
pub(crate) trait MetadataRequests: Send + Sync + 'static {
    /// Starts a task that belongs to no operation. The task gets a reference to this value, to
    /// send requests with it.
    fn spawn_shared<F>(&self, task: impl FnOnce(Arc<Self>) -> F)
    where
        F: Future<Output = ()> + Send + 'static;

    /// The time for reading the metadata of a container, retries included.
    fn metadata_timeout(&self) -> Duration;

    /// Waits until the credential can sign requests: an access token may have to be fetched.
    fn wait_for_credential(&self, deadline: Instant) -> MetadataRequest<'_, ()>;

    /// Reads the account document from one location, in one attempt.
    fn read_account<'a>(&'a self, location: &'a Location, deadline: Instant) -> MetadataRequest<'a, Bytes>;

    /// Called after the account was read successfully: the transport negotiates the protocol of the
    /// endpoints again.
    fn account_was_read(&self);

    /// Reads the properties of a container.
    fn read_container<'a>(
        &'a self,
        container: &'a Arc<Container>,
        deadline: Instant,
    ) -> MetadataRequest<'a, Response>;

    /// Reads one page of a container's partition key ranges: the page after
    /// `etag`, or the first one.
    fn read_ranges<'a>(
        &'a self,
        container: &'a Arc<Container>,
        etag: Option<HeaderValue>,
        deadline: Instant,
    ) -> MetadataRequest<'a, Response>;
}
