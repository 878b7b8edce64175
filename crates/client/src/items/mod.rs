//! The exchanges about one document, one function each. The methods of
//! [`Container`](crate::Container) that users call are one-liners over these.
//!
//! What always holds: a write that must not be repeated says so here, because
//! the driver cannot see it in the bytes.

mod options;

use bytes::Bytes;
use perihelion_driver::Response;
use perihelion_driver::operation::{KeyScope, Operation, Scope, Target, Verb};
use perihelion_model::partition_key::PartitionKey;
use perihelion_wire::headers;
use serde::de::DeserializeOwned;

pub use options::ItemOptions;

use crate::answer::{Item, Written};
use crate::container::Container;
use crate::patch::Patch;
use crate::{Error, Etag};

pub(crate) async fn create(
    container: &Container,
    key: PartitionKey,
    body: Bytes,
    options: &ItemOptions,
) -> Result<Written, Error> {
    write(container, Verb::Create, Target::items(container.inner()), key, body, options).await
}

pub(crate) async fn upsert(
    container: &Container,
    key: PartitionKey,
    body: Bytes,
    options: &ItemOptions,
) -> Result<Written, Error> {
    write(container, Verb::Upsert, Target::items(container.inner()), key, body, options).await
}

pub(crate) async fn replace(
    container: &Container,
    key: PartitionKey,
    id: &str,
    body: Bytes,
    options: &ItemOptions,
) -> Result<Written, Error> {
    write(container, Verb::Replace, item(container, id)?, key, body, options).await
}

pub(crate) async fn delete(
    container: &Container,
    key: PartitionKey,
    id: &str,
    options: &ItemOptions,
) -> Result<Written, Error> {
    write(container, Verb::Delete, item(container, id)?, key, Bytes::new(), options).await
}

pub(crate) async fn patch(
    container: &Container,
    key: PartitionKey,
    id: &str,
    patch: &Patch,
    options: &ItemOptions,
) -> Result<Written, Error> {
    let scope = Scope::Key(KeyScope::new(key));
    let operation = Operation::new(Verb::Patch, item(container, id)?, scope, patch.body()?);
    send(container, operation.with_repeat(patch.repeat()), options).await.map(Written::new)
}

pub(crate) async fn read<T: DeserializeOwned>(
    container: &Container,
    key: PartitionKey,
    id: &str,
    options: &ItemOptions,
) -> Result<Item<T>, Error> {
    let operation = reading(container, key, id)?;
    let response = send(container, operation, options).await?;
    Item::read(response, &Named { container, id })
}

/// `None` when there is no such document; all else that fails stays an error.
pub(crate) async fn find<T: DeserializeOwned>(
    container: &Container,
    key: PartitionKey,
    id: &str,
    options: &ItemOptions,
) -> Result<Option<Item<T>>, Error> {
    match read(container, key, id, options).await {
        Ok(item) => Ok(Some(item)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// `None` when the document still has that etag.
pub(crate) async fn read_if_changed<T: DeserializeOwned>(
    container: &Container,
    key: PartitionKey,
    id: &str,
    seen: &Etag,
    options: &ItemOptions,
) -> Result<Option<Item<T>>, Error> {
    let operation = reading(container, key, id)?.with_header(headers::IF_NONE_MATCH, seen.header());
    let response = send(container, operation, options).await?;
    if response.status.code == http::StatusCode::NOT_MODIFIED.as_u16() {
        return Ok(None);
    }
    Item::read(response, &Named { container, id }).map(Some)
}

fn reading(container: &Container, key: PartitionKey, id: &str) -> Result<Operation, Error> {
    Ok(Operation::new(Verb::Read, item(container, id)?, Scope::Key(KeyScope::new(key)), Bytes::new()))
}

async fn write(
    container: &Container,
    verb: Verb,
    target: Target,
    key: PartitionKey,
    body: Bytes,
    options: &ItemOptions,
) -> Result<Written, Error> {
    let operation = Operation::new(verb, target, Scope::Key(KeyScope::new(key)), body);
    send(container, operation, options).await.map(Written::new)
}

async fn send(container: &Container, operation: Operation, options: &ItemOptions) -> Result<Response, Error> {
    let operation = options.apply(operation);
    container.driver().execute(&operation, &options.operation).await
}

/// An empty id would address the feed of documents instead of one of them.
fn item(container: &Container, id: &str) -> Result<Target, Error> {
    if id.is_empty() {
        return Err(Error::input("the id of a document is empty"));
    }
    Ok(Target::item(container.inner(), id))
}

/// A document's name in an error.
struct Named<'a> {
    container: &'a Container,
    id: &'a str,
}

impl std::fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inner = self.container.inner();
        write!(f, "document `{}` of {}/{}", self.id, inner.database(), inner.name())
    }
}
