//! Operations on databases and containers themselves, one function each.

use bytes::Bytes;
use http::StatusCode;
use perihelion_driver::operation::{
    Idempotency, KeyScope, Link, Operation, ResourceKind, Scope, Target, Verb,
};
use perihelion_driver::{Driver, OperationOptions, Response};
use perihelion_model::partition_key::PartitionKey;
use serde_json::json;

use crate::Error;
use crate::handle::ContainerHandle;
use crate::properties::{ContainerProperties, DatabaseProperties};
use crate::response::{Receipt, decode, encode, unreadable_write};
use crate::throughput::Throughput;

/// How often `create_*_if_missing` reads a resource and then tries to create it. The second
/// round reads what the first round or another process has created. A third round is needed
/// only if the resource is deleted between two rounds, or if the region that answers the reads does
/// not have it yet.
const CREATE_ROUNDS_MAX: u32 = 3;

pub(crate) async fn create_database(
    driver: &Driver,
    name: &str,
    throughput: Option<Throughput>,
) -> Result<(), Error> {
    let body = encode(&json!({ "id": name }))?;
    let mut operation = Operation::new(Verb::Create, Target::databases(), Scope::Unpartitioned, body);
    if let Some(throughput) = throughput {
        operation = throughput.apply(operation);
    }
    send(driver, &operation).await.map(drop)
}

/// Creates a database unless it exists. Reads the database first, because it usually
/// exists, and because some credentials may read databases but not create them.
pub(crate) async fn create_database_if_missing(driver: &Driver, name: &str) -> Result<(), Error> {
    let mut rounds = 1;
    loop {
        match read_database(driver, name).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        match create_database(driver, name, None).await {
            Err(error) if is_already_exists(&error) => return Ok(()),
            Err(error) if error.is_ambiguous() && rounds < CREATE_ROUNDS_MAX => rounds += 1,
            outcome => return outcome,
        }
    }
}

/// Whether a create was refused because the resource exists: another process has created
/// it meanwhile, or the response to an earlier attempt of this create was lost. The driver
/// reports the second case as ambiguous.
fn is_already_exists(error: &Error) -> bool {
    error.status().is_some_and(|status| status.code == StatusCode::CONFLICT.as_u16())
}

pub(crate) async fn read_database(driver: &Driver, name: &str) -> Result<DatabaseProperties, Error> {
    let operation = operation_without_body(Verb::Read, Target::database(name));
    let (receipt, body) = Receipt::split(send(driver, &operation).await?);
    let properties = decode(&body, &format_args!("database `{name}`"))?;
    Ok(DatabaseProperties { receipt: Some(Box::new(receipt)), ..properties })
}

pub(crate) async fn delete_database(driver: &Driver, name: &str) -> Result<(), Error> {
    send(driver, &operation_without_body(Verb::Delete, Target::database(name))).await.map(drop)
}

pub(crate) async fn create_container(
    driver: &Driver,
    database: &str,
    properties: &ContainerProperties,
) -> Result<(), Error> {
    let body = encode(properties)?;
    let mut operation =
        Operation::new(Verb::Create, Target::containers(database), Scope::Unpartitioned, body);
    if let Some(throughput) = properties.throughput {
        operation = throughput.apply(operation);
    }
    send(driver, &operation).await.map(drop)
}

/// Creates a container unless it exists. An existing container must have the same
/// partition key paths.
pub(crate) async fn create_container_if_missing(
    container: &ContainerHandle,
    properties: &ContainerProperties,
) -> Result<(), Error> {
    let mut rounds = 1;
    loop {
        match read_container(container).await {
            Ok(existing) => return check_partition_key(&existing, properties),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        match create_container(container.driver(), container.database_name(), properties).await {
            Err(error)
                if (is_already_exists(&error) || error.is_ambiguous()) && rounds < CREATE_ROUNDS_MAX =>
            {
                rounds += 1;
            }
            outcome => return outcome,
        }
    }
}

fn check_partition_key(existing: &ContainerProperties, wanted: &ContainerProperties) -> Result<(), Error> {
    if existing.partition_key.paths == wanted.partition_key.paths {
        return Ok(());
    }
    let paths = |properties: &ContainerProperties| properties.partition_key.paths.join(", ");
    Err(Error::input(format!(
        "container `{}` exists with the partition key {}, not {}: use another name or this key",
        existing.id,
        paths(existing),
        paths(wanted)
    )))
}

pub(crate) async fn read_container(container: &ContainerHandle) -> Result<ContainerProperties, Error> {
    let operation = operation_without_body(Verb::Read, Target::container(container.driver_container()));
    let response = send(container.driver(), &operation).await?;
    let properties = decode_container(container, &response)?;
    Ok(with_receipt(properties, response))
}

fn decode_container(container: &ContainerHandle, response: &Response) -> Result<ContainerProperties, Error> {
    decode(&response.body, &format_args!("container `{}`", container.name()))
}

fn with_receipt(properties: ContainerProperties, response: Response) -> ContainerProperties {
    let (receipt, _) = Receipt::split(response);
    ContainerProperties { receipt: Some(Box::new(receipt)), ..properties }
}

pub(crate) async fn replace_container(
    container: &ContainerHandle,
    properties: &ContainerProperties,
) -> Result<ContainerProperties, Error> {
    if properties.id != container.name() {
        return Err(Error::input(format!(
            "the properties of `{}` cannot replace those of `{}`",
            properties.id,
            container.name()
        )));
    }
    let target = Target::container(container.driver_container());
    let mut operation = Operation::new(Verb::Replace, target, Scope::Unpartitioned, encode(properties)?);
    if let Some(etag) = &properties.etag {
        operation = operation.with_if_match(etag.header());
    }
    let response = send(container.driver(), &operation).await?;
    match decode_container(container, &response) {
        Ok(properties) => Ok(with_receipt(properties, response)),
        Err(error) => Err(unreadable_write(&error, response)),
    }
}

pub(crate) async fn delete_container(container: &ContainerHandle) -> Result<(), Error> {
    let operation = operation_without_body(Verb::Delete, Target::container(container.driver_container()));
    send(container.driver(), &operation).await.map(drop)
}

/// Asks the service to delete all documents of a partition key. The request is
/// signed like a request to the container, as in the official SDKs.
pub(crate) async fn delete_partition(container: &ContainerHandle, key: PartitionKey) -> Result<(), Error> {
    let driver_container = container.driver_container();
    let path = format!("{}/operations/partitionkeydelete", driver_container.path());
    let path = path.parse().map_err(|_| Error::input("the container's name is not a path"))?;
    let target = Target {
        kind: ResourceKind::Container,
        path,
        link: Link::Text(driver_container.link().into()),
        container: None,
    };
    let operation = Operation::new(Verb::Create, target, Scope::Key(KeyScope::new(key)), Bytes::new())
        .with_idempotency(Idempotency::Idempotent);
    send(container.driver(), &operation).await.map(drop)
}

fn operation_without_body(verb: Verb, target: Target) -> Operation {
    Operation::new(verb, target, Scope::Unpartitioned, Bytes::new())
}

async fn send(driver: &Driver, operation: &Operation) -> Result<Response, Error> {
    driver.execute(operation, &OperationOptions::default()).await
}
