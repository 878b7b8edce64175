//! The results of a batch, one per operation. A document stays unparsed in the
//! response's bytes until [`BatchResult::value`] is called.

use std::borrow::Cow;

use bytes::Bytes;
use perihelion_driver::{Response, Status};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::response::{Receipt, decode};
use crate::{Error, Etag};

/// The results of a batch that was applied, in the order of its operations.
#[derive(Debug, Clone)]
pub struct BatchResults {
    results: Vec<BatchResult>,
    receipt: Receipt,
}

impl BatchResults {
    pub(super) fn new(results: Vec<BatchResult>, response: Response) -> Self {
        BatchResults { results, receipt: Receipt::split(response).0 }
    }

    /// One result per operation. The list is empty when the response was lost and
    /// the witness showed that the batch was applied. In this case, read the documents
    /// to see them.
    pub fn results(&self) -> &[BatchResult] {
        &self.results
    }

    /// The result of one operation, counted from zero.
    pub fn get(&self, index: usize) -> Option<&BatchResult> {
        self.results.get(index)
    }

    /// Request units of the whole batch. When the response was lost, these are the request
    /// units of the read of the witness.
    pub fn charge(&self) -> f64 {
        self.receipt.charge()
    }

    /// Status, session token and diagnostics of the response to the batch. When this
    /// response was lost, they come from the response to the read of the witness.
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }
}

impl<'a> IntoIterator for &'a BatchResults {
    type Item = &'a BatchResult;
    type IntoIter = std::slice::Iter<'a, BatchResult>;

    fn into_iter(self) -> Self::IntoIter {
        self.results.iter()
    }
}

/// The result of one operation of a batch or of a bulk.
#[derive(Debug, Clone)]
pub struct BatchResult {
    status: Status,
    charge: f64,
    etag: Option<Etag>,
    body: Bytes,
}

impl BatchResult {
    /// A result without a document, whose status the client has derived: for example, a repeated
    /// delete that finds no document has succeeded.
    pub(crate) fn without_document(status: Status, charge: f64) -> Self {
        BatchResult { status, charge, etag: None, body: Bytes::new() }
    }

    /// 200, 201 for a new document, 204 for a deletion.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The request units of this operation.
    pub fn charge(&self) -> f64 {
        self.charge
    }

    /// The version that was read or written; `None` after a deletion.
    pub fn etag(&self) -> Option<&Etag> {
        self.etag.as_ref()
    }

    /// The document as JSON text. Empty after a deletion, and after a write when
    /// `content_on_write` is off.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The document.
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, Error> {
        if self.body.is_empty() {
            return Err(Error::answer(
                "this result has no document: the operation was a deletion, or content_on_write is off",
            ));
        }
        decode(&self.body, &"the document in a batch's result")
    }
}

/// One result in the response body.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireResult<'a> {
    status_code: u16,
    #[serde(default)]
    sub_status_code: Option<u32>,
    #[serde(default)]
    request_charge: Option<f64>,
    #[serde(borrow, default)]
    e_tag: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    resource_body: Option<&'a RawValue>,
}

pub(crate) fn parse(body: &Bytes) -> Result<Vec<BatchResult>, Error> {
    let list: Vec<WireResult<'_>> = serde_json::from_slice(body)
        .map_err(|error| Error::answer(format!("the response to a batch cannot be parsed: {error}")))?;
    Ok(list.into_iter().map(|result| BatchResult::new(result, body)).collect())
}

impl BatchResult {
    fn new(wire: WireResult<'_>, body: &Bytes) -> Self {
        let document = wire.resource_body.map(RawValue::get).filter(|text| *text != "null");
        BatchResult {
            status: Status::new(wire.status_code, wire.sub_status_code.unwrap_or(0)),
            charge: wire.request_charge.filter(|charge| *charge >= 0.0).unwrap_or(0.0),
            etag: wire.e_tag.and_then(|etag| Etag::parse(&etag).ok()),
            body: document.map_or_else(Bytes::new, |text| body.slice_ref(text.as_bytes())),
        }
    }
}
