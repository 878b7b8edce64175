//! A transport over any HTTP client of Azure's SDK (`azure_core::http::HttpClient`), for
//! programs that must send all their traffic through one client. Needs the feature `azure-core`.
//!
//! Such a client does not say whether a request was sent. The only exception is the error kind
//! `Connection`, which azure_core defines as "never sent". After any other failure the request
//! was perhaps sent, so the driver does not repeat a write that is not safe to repeat. The
//! client also has its own connections, without the health checks of
//! [`HttpTransport`](super::HttpTransport).

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use ::azure_core::error::ErrorKind;
use ::azure_core::http::headers::{HeaderName as AzureName, HeaderValue as AzureValue};
use ::azure_core::http::{
    AsyncRawResponse, AsyncResponseBody, HttpClient, Method as AzureMethod, Request as AzureRequest, Url,
};
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Request, Response, Sent, Transport};
use tokio::time::{Instant, timeout_at};

use super::limits::BODY_BYTES_MAX;

/// Sends requests with an HTTP client of Azure's SDK.
///
/// ```
/// # use std::sync::Arc;
/// # use perihelion_driver::transport::AzureHttpTransport;
/// # use perihelion_driver::{Credential, Driver, DriverOptions, Error};
/// # async fn example(client: Arc<dyn azure_core::http::HttpClient>) -> Result<Driver, Error> {
/// use perihelion_driver::transport::AnyTransport;
/// # let endpoint = perihelion_wire::transport::Endpoint::parse("https://localhost:8081").unwrap();
///
/// let transport = AnyTransport::foreign(AzureHttpTransport::new(client));
/// Driver::open(endpoint, Credential::emulator(), transport, DriverOptions::default()).await
/// # }
/// ```
pub struct AzureHttpTransport {
    client: Arc<dyn HttpClient>,
    allow_cleartext: bool,
}

impl AzureHttpTransport {
    /// A transport over this client.
    pub fn new(client: Arc<dyn HttpClient>) -> Self {
        AzureHttpTransport { client, allow_cleartext: false }
    }

    /// Allows requests without TLS to other machines (default: refused). Keys and tokens can be
    /// read on the way.
    pub fn with_allow_cleartext(mut self, is_allowed: bool) -> Self {
        self.allow_cleartext = is_allowed;
        self
    }

    /// Refuses an endpoint without TLS on another machine, unless that is allowed.
    fn check_allowed(&self, endpoint: &Endpoint) -> Result<(), Failure> {
        if endpoint.is_tls() || endpoint.is_loopback() || self.allow_cleartext {
            return Ok(());
        }
        let text = format!(
            "{endpoint}: not sending without TLS to another machine; \
             use https, or allow it with AzureHttpTransport::with_allow_cleartext"
        );
        Err(Failure::new(FailureKind::Connect, Sent::No, text))
    }

    async fn exchange(&self, endpoint: &Endpoint, request: &AzureRequest) -> Result<Response, Failure> {
        match self.client.execute_request(request).await {
            Ok(response) => into_response(endpoint, response).await,
            Err(error) => {
                let (kind, sent) = match error.kind() {
                    ErrorKind::Connection => (FailureKind::Connect, Sent::No),
                    ErrorKind::Io => (FailureKind::Closed, Sent::Unknown),
                    _ => (FailureKind::Protocol, Sent::Unknown),
                };
                Err(Failure::new(kind, sent, format!("{endpoint}: the HTTP client failed: {error}")))
            }
        }
    }
}

impl Transport for AzureHttpTransport {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        let (endpoint, deadline) = (request.endpoint.clone(), Instant::from_std(request.deadline));
        self.check_allowed(&endpoint)?;
        let request = azure_request(request)?;
        timeout_at(deadline, self.exchange(&endpoint, &request)).await.unwrap_or_else(|_| {
            let text = format!("{endpoint}: no answer by the deadline");
            Err(Failure::new(FailureKind::Timeout, Sent::Unknown, text))
        })
    }
}

/// The request as Azure's SDK writes it. An error means that the SDK cannot express the request.
fn azure_request(request: Request) -> Result<AzureRequest, Failure> {
    let Request { endpoint, method, target, headers, body, .. } = request;
    let refuse = |text: &str| {
        let text = format!("{endpoint}: {text}; use the driver's own transport for it");
        Failure::new(FailureKind::Protocol, Sent::No, text)
    };
    let url: Url = endpoint
        .uri(target.clone())
        .to_string()
        .parse()
        .map_err(|_| refuse("the HTTP client cannot express this URL"))?;
    // A `Url` is normalised: the id `..`, which is written as `%2E%2E`, would name the parent.
    if url.path() != target.path() || url.query() != target.query() {
        return Err(refuse("the HTTP client would change the path of this request"));
    }
    let method = azure_method(&method).ok_or_else(|| refuse("the HTTP client does not have this method"))?;
    let mut azure = AzureRequest::new(url, method);
    for (name, value) in &headers {
        let value = value.to_str().map_err(|_| refuse("a header of this request is not ASCII"))?;
        azure.insert_header(AzureName::from(name.as_str().to_owned()), AzureValue::from(value.to_owned()));
    }
    azure.set_body(body);
    Ok(azure)
}

fn azure_method(method: &Method) -> Option<AzureMethod> {
    Some(match *method {
        Method::GET => AzureMethod::Get,
        Method::POST => AzureMethod::Post,
        Method::PUT => AzureMethod::Put,
        Method::PATCH => AzureMethod::Patch,
        Method::DELETE => AzureMethod::Delete,
        Method::HEAD => AzureMethod::Head,
        _ => return None,
    })
}

async fn into_response(endpoint: &Endpoint, response: AsyncRawResponse) -> Result<Response, Failure> {
    let (status, headers, body) = response.deconstruct();
    let body = collect(endpoint, body).await?;
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(status.into()).map_err(|_| {
        let text = format!("{endpoint}: {status} is not a status");
        Failure::new(FailureKind::Protocol, Sent::Yes, text)
    })?;
    let map: &mut HeaderMap = response.headers_mut();
    for (name, value) in headers.iter() {
        let name = HeaderName::from_bytes(name.as_str().as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value.as_str())) {
            map.append(name, value);
        }
    }
    Ok(response)
}

/// Reads the body of an answer, up to the limit of all transports.
async fn collect(endpoint: &Endpoint, mut body: AsyncResponseBody) -> Result<Bytes, Failure> {
    let mut collected = BytesMut::new();
    while let Some(part) = poll_fn(|context| Pin::new(&mut body).poll_next(context)).await {
        let part = part.map_err(|error| {
            let text = format!("{endpoint}: the answer broke off: {error}");
            Failure::new(FailureKind::Closed, Sent::Yes, text)
        })?;
        if collected.len() + part.len() > BODY_BYTES_MAX {
            let text = format!("{endpoint}: the answer is longer than {BODY_BYTES_MAX} bytes");
            return Err(Failure::new(FailureKind::Protocol, Sent::Yes, text));
        }
        collected.extend_from_slice(&part);
    }
    Ok(collected.freeze())
}

impl fmt::Debug for AzureHttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AzureHttpTransport").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
