//! Prepares a server for a workload: creates the database, containers, and the documents for
//! point reads. Every answer is checked.

use anyhow::{Context, ensure};
use perihelion_bench_client::{READ_KEYS, READABLE_DOCUMENTS, readable_id};
use serde_json::Value;

use crate::documents::{Fields, create_batch, document};
use crate::load::{Answer, Connection};
use crate::requests::{Partition, Requests};
use crate::targets::Server;

pub const OK: u16 = 200;
pub const CREATED: u16 = 201;
pub const NO_CONTENT: u16 = 204;

pub async fn create_database(server: &Server) -> anyhow::Result<()> {
    let mut requests = Requests::new(server.address)?;
    let mut connection = Connection::new(server.address);
    let answer = connection.send(requests.create_database()?).await?;
    expect_status(&answer, CREATED).context("creating a database")
}

pub async fn create_container(server: &Server, container: &str) -> anyhow::Result<()> {
    let mut requests = Requests::new(server.address)?;
    let mut connection = Connection::new(server.address);
    let answer = connection.send(requests.create_container(container)?).await?;
    expect_status(&answer, CREATED).context("creating a container")
}

pub async fn delete_container(server: &Server, container: &str) -> anyhow::Result<()> {
    let mut requests = Requests::new(server.address)?;
    let mut connection = Connection::new(server.address);
    let answer = connection.send(requests.delete_container(container)?).await?;
    expect_status(&answer, NO_CONTENT).context("deleting a container")
}

/// The partitions of the documents for point reads.
pub fn readable_partitions(container: &str) -> impl Iterator<Item = Partition> {
    (0..READ_KEYS).map(move |number| Partition::new(container, &format!("k-{number}")))
}

/// Creates the documents for point reads.
pub async fn load_readable(server: &Server, container: &str) -> anyhow::Result<()> {
    let mut requests = Requests::new(server.address)?;
    let mut connection = Connection::new(server.address);
    for (key, partition) in readable_partitions(container).enumerate() {
        let body = readable_batch(&partition, key as u64);
        let answer = connection.send(requests.batch(&partition, &body)?).await?;
        expect_status(&answer, OK)?;
        expect_created(&serde_json::from_slice(answer.body)?, READABLE_DOCUMENTS / READ_KEYS)?;
    }
    Ok(())
}

/// The body of one batch that creates all documents for point reads of one partition key.
fn readable_batch(partition: &Partition, key: u64) -> String {
    let numbers = (key..READABLE_DOCUMENTS).step_by(READ_KEYS as usize);
    create_batch(numbers.map(|number| {
        let id = readable_id(number);
        document(&Fields { id: &id, key: &partition.key, number, visible_at: number })
    }))
}

pub fn expect_status(answer: &Answer<'_>, expected: u16) -> anyhow::Result<()> {
    ensure!(
        answer.status == expected,
        "answered {} instead of {expected}: {}",
        answer.status,
        String::from_utf8_lossy(&answer.body[..answer.body.len().min(500)])
    );
    Ok(())
}

/// Checks that all operations of a batch created a document. The peer answers 200 even if an
/// operation failed, so the results are counted.
pub fn expect_created(body: &Value, operations: u64) -> anyhow::Result<()> {
    let created = body
        .as_array()
        .map_or(0, |results| results.iter().filter(|result| result["statusCode"] == 201).count());
    ensure!(created as u64 == operations, "a batch created {created} of {operations} documents: {body}");
    Ok(())
}
