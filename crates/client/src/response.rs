//! Responses as the caller gets them: an [`Item`] for a document that was read, a
//! [`Written`] for a write. Each has a [`Receipt`] with status, etag, charge and
//! diagnostics. Values are parsed straight from the response's bytes.

use bytes::Bytes;
use http::HeaderMap;
use perihelion_driver::diagnostics::Diagnostics;
use perihelion_driver::{Response, Status};
use perihelion_wire::headers;
use serde::de::DeserializeOwned;

use crate::{Error, Etag};

/// The status, headers, etag, charge, session token and diagnostics of a response.
#[derive(Debug, Clone)]
pub struct Receipt {
    status: Status,
    headers: HeaderMap,
    etag: Option<Etag>,
    charge: f64,
    diagnostics: Diagnostics,
}

impl Receipt {
    /// The receipt and the body of a response.
    pub(crate) fn split(response: Response) -> (Receipt, Bytes) {
        let receipt = Receipt {
            status: response.status,
            etag: response.headers.get(&headers::ETAG).and_then(Etag::from_header),
            charge: response.charge(),
            headers: response.headers,
            diagnostics: response.diagnostics,
        };
        (receipt, response.body)
    }

    /// The status: 200, 201 for a new document, 204 for a deletion.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The etag of the response: the version that was read or written, or the position
    /// after a page of a change feed. `None` after a deletion.
    pub fn etag(&self) -> Option<&Etag> {
        self.etag.as_ref()
    }

    fn required_etag(&self) -> Result<&Etag, Error> {
        self.etag.as_ref().ok_or_else(|| Error::answer("the response has no etag"))
    }

    /// The request units of this response. [`Diagnostics::charge`] also counts failed
    /// attempts.
    pub fn charge(&self) -> f64 {
        self.charge
    }

    /// The session token of the response. Another process that passes it to
    /// [`ItemOptions::with_session_token`](crate::ItemOptions::with_session_token)
    /// reads what this response read or wrote. This client stores session tokens
    /// itself; it needs no token to read its own writes.
    pub fn session_token(&self) -> Option<&str> {
        self.header(headers::SESSION_TOKEN.as_str())
    }

    /// All headers of the response, for values that this type has no method for. The names
    /// are those of the service's REST interface, in lower case.
    ///
    /// ```no_run
    /// # async fn example(orders: perihelion_client::Container) -> Result<(), perihelion_client::Error> {
    /// # let order = serde_json::json!({"id": "7", "customer": "ada"});
    /// let written = orders.upsert("ada", &order).await?;
    /// let lsn = written.receipt().header("lsn");
    /// for (name, value) in written.receipt().headers() {
    ///     println!("{name}: {value:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// A header of the response as text; `None` when it is absent or not ASCII.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Attempts, regions, timings.
    pub fn diagnostics(&self) -> &Diagnostics {
        &self.diagnostics
    }
}

/// A document that was read, or the document in the response to a write.
#[derive(Debug, Clone)]
pub struct Item<T> {
    /// The document.
    pub value: T,
    receipt: Receipt,
}

impl<T> Item<T> {
    /// The document without its receipt.
    pub fn into_value(self) -> T {
        self.value
    }

    /// The version that was read. Fails when the response has no etag; the service sends
    /// an etag with every document.
    pub fn etag(&self) -> Result<&Etag, Error> {
        self.receipt.required_etag()
    }

    /// Request units.
    pub fn charge(&self) -> f64 {
        self.receipt.charge
    }

    /// Status, session token and diagnostics of the response.
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }
}

impl<T: DeserializeOwned> Item<T> {
    /// Parses the document of a response. `what` names the document in the error.
    pub(crate) fn read(response: Response, what: &dyn std::fmt::Display) -> Result<Self, Error> {
        let (receipt, body) = Receipt::split(response);
        let value =
            decode(&body, what).map_err(|error| error.with_diagnostics(receipt.diagnostics.clone()))?;
        Ok(Item { value, receipt })
    }
}

/// A write that was applied, with its response. If that response was lost, and the
/// [witness](crate::ItemOptions::with_witness) showed that the write was applied, this
/// type has the response to the read of the witness: the status is 200, and etag and
/// body are those of the document with the witness.
#[derive(Debug, Clone)]
pub struct Written {
    receipt: Receipt,
    body: Bytes,
}

impl Written {
    pub(crate) fn new(response: Response) -> Self {
        let (receipt, body) = Receipt::split(response);
        Written { receipt, body }
    }

    /// Whether the status is 201: the document was created. An upsert creates or
    /// replaces.
    pub fn is_new(&self) -> bool {
        self.receipt.status.code == 201
    }

    /// The version that was written. Fails after a deletion.
    pub fn etag(&self) -> Result<&Etag, Error> {
        self.receipt.required_etag()
    }

    /// Request units.
    pub fn charge(&self) -> f64 {
        self.receipt.charge
    }

    /// Status, session token and diagnostics of the response.
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// The document as the service now stores it, as JSON text. Empty after a
    /// deletion, and when the option
    /// [`content_on_write`](crate::ItemOptions::with_content_on_write) is off.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The document as the service now stores it. Fails when [`Written::body`] is empty.
    pub fn into_item<T: DeserializeOwned>(self) -> Result<Item<T>, Error> {
        if self.body.is_empty() {
            return Err(Error::answer(
                "the response has no document: the write was a deletion, or content_on_write is off",
            ));
        }
        let value = decode(&self.body, &"the written document")
            .map_err(|error| error.with_diagnostics(self.receipt.diagnostics.clone()))?;
        Ok(Item { value, receipt: self.receipt })
    }
}

/// Parses a value from JSON. `what` names the value in the error.
pub(crate) fn decode<T: DeserializeOwned>(body: &[u8], what: &dyn std::fmt::Display) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| decode_error::<T>(what, &error))
}

/// The error for a write that the service has answered with success, and whose answer cannot be
/// read because of `cause`. The write was probably applied, so the error is ambiguous.
#[cold]
pub(crate) fn unreadable_write(cause: &Error, answer: Response) -> Error {
    let text = format!("{}; the change was probably applied: read it before repeating it", cause.message());
    Error::ambiguous_answer(text, answer)
}

/// Turns a parsed JSON value into a `T`. `what` names the value in the error.
pub(crate) fn decode_value<T: DeserializeOwned>(
    value: perihelion_model::json::Value,
    what: &dyn std::fmt::Display,
) -> Result<T, Error> {
    T::deserialize(value).map_err(|error| decode_error::<T>(what, &error))
}

#[cold]
fn decode_error<T>(what: &dyn std::fmt::Display, error: &dyn std::fmt::Display) -> Error {
    Error::answer(format!("{what} cannot be parsed as {}: {error}", std::any::type_name::<T>()))
}

/// Writes a value as JSON.
pub(crate) fn encode<T: serde::Serialize + ?Sized>(value: &T) -> Result<Bytes, Error> {
    match serde_json::to_vec(value) {
        Ok(text) => Ok(text.into()),
        Err(error) => Err(encode_error::<T>(&error)),
    }
}

#[cold]
pub(crate) fn encode_error<T: ?Sized>(error: &serde_json::Error) -> Error {
    Error::input(format!("{} cannot be written as JSON: {error}", std::any::type_name::<T>()))
}
