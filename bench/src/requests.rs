//! `Requests`: builds signed requests as bytes, with the headers that an SDK has to send and no
//! others. Documents are addressed by name, and the path of a document is a slash and its
//! resource link. There is one buffer, so a request is valid until the next one is built.

use std::io::Write;
use std::net::SocketAddr;

use perihelion_bench_client::KEY;

use crate::load::Signer;

pub const DATABASE: &str = "bench";

const VERSION: &str = "2020-07-15";
/// The headers of a request with a JSON body.
const JSON_HEADERS: &str = "content-type: application/json\r\n";
/// The headers of an atomic batch.
const BATCH_HEADERS: &str = "content-type: application/json\r\nx-ms-cosmos-is-batch-request: True\r\n\
    x-ms-cosmos-batch-atomic: True\r\nx-ms-cosmos-batch-continue-on-error: False\r\n";
/// The header that asks for answers without documents.
const MINIMAL_HEADER: &str = "prefer: return=minimal\r\n";
/// The headers of a write transaction, without its token.
const TRANSACTION_HEADERS: &str = "content-type: application/json\r\n\
    x-ms-cosmos-operation-type: CommitDistributedTransaction\r\n\
    x-ms-cosmos-resource-type: DistributedTransactionBatch\r\n";
/// The headers of a query. The header with the partition key confines the query to one
/// partition. The flag for cross-partition queries is sent nevertheless, as the JavaScript SDK
/// always does: without the flag the peer parses every query twice.
const QUERY_HEADERS: &str = "content-type: application/query+json\r\nx-ms-documentdb-isquery: True\r\n\
    x-ms-documentdb-query-enablecrosspartition: True\r\n";

pub struct Requests {
    host: String,
    signer: Signer,
    buffer: Vec<u8>,
}

/// A logical partition: a container and a value of its partition key.
#[derive(Clone)]
pub struct Partition {
    pub key: String,
    /// The header line with the partition key.
    key_header: String,
    /// The path of the container's documents: `/dbs/…/colls/…/docs`.
    path: String,
    /// The container's resource link `dbs/…/colls/…`, which the signature covers.
    link: String,
}

impl Partition {
    pub fn new(container: &str, key: &str) -> Self {
        let link = format!("dbs/{DATABASE}/colls/{container}");
        let key_header = format!("x-ms-documentdb-partitionkey: [\"{key}\"]\r\n");
        Self { key: key.into(), key_header, path: format!("/{link}/docs"), link }
    }
}

/// The parts in which requests differ.
struct Parts<'a> {
    verb: Verb,
    path: &'a str,
    resource_type: &'static str,
    link: &'a str,
    headers: [&'a str; 2],
    body: &'a str,
}

#[derive(Clone, Copy)]
enum Verb {
    Get,
    Post,
    Delete,
}

impl Verb {
    /// The method as it is sent, and as it is signed.
    fn spellings(self) -> (&'static str, &'static str) {
        match self {
            Verb::Get => ("GET", "get"),
            Verb::Post => ("POST", "post"),
            Verb::Delete => ("DELETE", "delete"),
        }
    }
}

impl Requests {
    pub fn new(address: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self { host: address.to_string(), signer: Signer::new(KEY)?, buffer: Vec::new() })
    }

    /// Reads the account.
    pub fn account(&mut self) -> anyhow::Result<&[u8]> {
        self.build(&Parts {
            verb: Verb::Get,
            path: "/",
            resource_type: "",
            link: "",
            headers: ["", ""],
            body: "",
        })
    }

    pub fn create_database(&mut self) -> anyhow::Result<&[u8]> {
        let body = format!(r#"{{"id":"{DATABASE}"}}"#);
        let (path, headers) = ("/dbs", [JSON_HEADERS, ""]);
        self.build(&Parts { verb: Verb::Post, path, resource_type: "dbs", link: "", headers, body: &body })
    }

    pub fn create_container(&mut self, container: &str) -> anyhow::Result<&[u8]> {
        let link = format!("dbs/{DATABASE}");
        let path = format!("/{link}/colls");
        let key = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
        let body = format!(r#"{{"id":"{container}","partitionKey":{key}}}"#);
        let headers = [JSON_HEADERS, ""];
        self.build(&Parts {
            verb: Verb::Post,
            path: &path,
            resource_type: "colls",
            link: &link,
            headers,
            body: &body,
        })
    }

    pub fn delete_container(&mut self, container: &str) -> anyhow::Result<&[u8]> {
        let path = format!("/dbs/{DATABASE}/colls/{container}");
        let (link, headers) = (&path[1..], ["", ""]);
        self.build(&Parts {
            verb: Verb::Delete,
            path: &path,
            resource_type: "colls",
            link,
            headers,
            body: "",
        })
    }

    pub fn read(&mut self, partition: &Partition, id: &str) -> anyhow::Result<&[u8]> {
        let path = format!("{}/{id}", partition.path);
        let headers = [partition.key_header.as_str(), ""];
        self.build(&Parts {
            verb: Verb::Get,
            path: &path,
            resource_type: "docs",
            link: &path[1..],
            headers,
            body: "",
        })
    }

    pub fn create(&mut self, partition: &Partition, document: &str) -> anyhow::Result<&[u8]> {
        self.post(partition, JSON_HEADERS, document)
    }

    pub fn batch(&mut self, partition: &Partition, operations: &str) -> anyhow::Result<&[u8]> {
        self.post(partition, BATCH_HEADERS, operations)
    }

    /// A batch whose answer has no documents. The answer of a transaction has none either.
    pub fn minimal_batch(&mut self, partition: &Partition, operations: &str) -> anyhow::Result<&[u8]> {
        self.post(partition, &format!("{BATCH_HEADERS}{MINIMAL_HEADER}"), operations)
    }

    /// A write transaction. Its idempotency token is the number `token`, printed as a UUID.
    pub fn transaction(&mut self, token: u128, body: &str) -> anyhow::Result<&[u8]> {
        let hex = format!("{token:032x}");
        let uuid = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
        let token_header = format!("x-ms-cosmos-idempotency-token: {uuid}\r\n");
        self.build(&Parts {
            verb: Verb::Post,
            path: "/operations/dtc",
            resource_type: "distributedtransactionbatch",
            link: "",
            headers: [TRANSACTION_HEADERS, &token_header],
            body,
        })
    }

    pub fn query(&mut self, partition: &Partition, page_size: usize, body: &str) -> anyhow::Result<&[u8]> {
        self.post(partition, &format!("{QUERY_HEADERS}x-ms-max-item-count: {page_size}\r\n"), body)
    }

    fn post(&mut self, partition: &Partition, headers: &str, body: &str) -> anyhow::Result<&[u8]> {
        let headers = [partition.key_header.as_str(), headers];
        self.build(&Parts {
            verb: Verb::Post,
            path: &partition.path,
            resource_type: "docs",
            link: &partition.link,
            headers,
            body,
        })
    }

    fn build(&mut self, parts: &Parts<'_>) -> anyhow::Result<&[u8]> {
        let Parts { verb, path, resource_type, link, headers: [first, second], body } = parts;
        let (sent_verb, signed_verb) = verb.spellings();
        let signature = self.signer.sign(signed_verb, resource_type, link)?;
        self.buffer.clear();
        write!(
            self.buffer,
            "{sent_verb} {path} HTTP/1.1\r\nhost: {}\r\nx-ms-date: {}\r\nauthorization: {}\r\n\
             x-ms-version: {VERSION}\r\naccept: application/json\r\n{first}{second}",
            self.host, signature.date, signature.authorization
        )?;
        if !body.is_empty() {
            write!(self.buffer, "content-length: {}\r\n", body.len())?;
        }
        self.buffer.extend_from_slice(b"\r\n");
        self.buffer.extend_from_slice(body.as_bytes());
        Ok(&self.buffer)
    }
}
