//! Operations on one document, one function each; the methods of
//! [`Container`](crate::Container) call them.
//!
//! When a response is lost, the driver repeats an operation only if that is safe. The
//! driver knows this from the verb and the etag. For a patch it depends on the body,
//! which the driver does not parse, so [`patch`] tells the driver.

mod options;
mod repeat;

use bytes::Bytes;
use perihelion_driver::Response;
use perihelion_driver::operation::{KeyScope, Operation, Scope, Target, Verb};
use perihelion_model::partition_key::PartitionKey;
use perihelion_wire::headers;
use serde::de::DeserializeOwned;

pub use options::ItemOptions;
pub(crate) use options::witness;
pub use repeat::Repeat;

use crate::handle::ContainerHandle;
use crate::patch::Patch;
use crate::response::{Item, Written};
use crate::{Error, Etag};

pub(crate) async fn create(
    container: &ContainerHandle,
    key: PartitionKey,
    body: Bytes,
    options: &ItemOptions,
) -> Result<Written, Error> {
    write(container, Verb::Create, Target::items(container.driver_container()), key, body, options).await
}

pub(crate) async fn upsert(
    container: &ContainerHandle,
    key: PartitionKey,
    body: Bytes,
    options: &ItemOptions,
) -> Result<Written, Error> {
    write(container, Verb::Upsert, Target::items(container.driver_container()), key, body, options).await
}

pub(crate) async fn replace(
    container: &ContainerHandle,
    key: PartitionKey,
    id: &str,
    body: Bytes,
    options: &ItemOptions,
) -> Result<Written, Error> {
    write(container, Verb::Replace, item_target(container, id)?, key, body, options).await
}

pub(crate) async fn delete(
    container: &ContainerHandle,
    key: PartitionKey,
    id: &str,
    options: &ItemOptions,
) -> Result<Written, Error> {
    write(container, Verb::Delete, item_target(container, id)?, key, Bytes::new(), options).await
}

pub(crate) async fn patch(
    container: &ContainerHandle,
    key: PartitionKey,
    id: &str,
    patch: &Patch,
    options: &ItemOptions,
) -> Result<Written, Error> {
    let scope = Scope::Key(KeyScope::new(key));
    let operation = Operation::new(Verb::Patch, item_target(container, id)?, scope, patch.body()?);
    send(container, operation.with_idempotency(patch.idempotency()), options).await.map(Written::new)
}

pub(crate) async fn read<T: DeserializeOwned>(
    container: &ContainerHandle,
    key: PartitionKey,
    id: &str,
    options: &ItemOptions,
) -> Result<Item<T>, Error> {
    let operation = read_operation(container, key, id)?;
    let response = send(container, operation, options).await?;
    Item::read(response, &DocumentName { container, id })
}

/// `None` when the document does not exist. A missing container and all other failures are
/// errors.
pub(crate) async fn find<T: DeserializeOwned>(
    container: &ContainerHandle,
    key: PartitionKey,
    id: &str,
    options: &ItemOptions,
) -> Result<Option<Item<T>>, Error> {
    match read(container, key, id, options).await {
        Ok(item) => Ok(Some(item)),
        Err(error) if error.is_document_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// `None` when the document still has this etag.
pub(crate) async fn read_if_changed<T: DeserializeOwned>(
    container: &ContainerHandle,
    key: PartitionKey,
    id: &str,
    seen: &Etag,
    options: &ItemOptions,
) -> Result<Option<Item<T>>, Error> {
    let operation = read_operation(container, key, id)?.with_header(headers::IF_NONE_MATCH, seen.header());
    let response = send(container, operation, options).await?;
    if response.status.code == http::StatusCode::NOT_MODIFIED.as_u16() {
        return Ok(None);
    }
    Item::read(response, &DocumentName { container, id }).map(Some)
}

fn read_operation(container: &ContainerHandle, key: PartitionKey, id: &str) -> Result<Operation, Error> {
    Ok(Operation::new(Verb::Read, item_target(container, id)?, Scope::Key(KeyScope::new(key)), Bytes::new()))
}

async fn write(
    container: &ContainerHandle,
    verb: Verb,
    target: Target,
    key: PartitionKey,
    body: Bytes,
    options: &ItemOptions,
) -> Result<Written, Error> {
    let operation = Operation::new(verb, target, Scope::Key(KeyScope::new(key)), body);
    send(container, operation, options).await.map(Written::new)
}

async fn send(
    container: &ContainerHandle,
    operation: Operation,
    options: &ItemOptions,
) -> Result<Response, Error> {
    let operation = options.apply(operation);
    container.execute(&operation, &options.operation).await
}

/// The target of one document. An empty id would address all documents.
fn item_target(container: &ContainerHandle, id: &str) -> Result<Target, Error> {
    if id.is_empty() {
        return Err(Error::input("the id of a document is empty"));
    }
    Ok(Target::item(container.driver_container(), id))
}

/// The name of a document, for error messages.
struct DocumentName<'a> {
    container: &'a ContainerHandle,
    id: &'a str,
}

impl std::fmt::Display for DocumentName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let DocumentName { container, id } = self;
        write!(f, "document `{id}` of {}/{}", container.database_name(), container.name())
    }
}
