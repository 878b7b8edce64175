//! A small HTTP/1.1 client for tests that look at the wire: one connection,
//! signed requests, complete responses. The client adds the headers that every client of
//! the service sends (host, version, date, signature) and nothing else, so that a test shows
//! all that matters. Tests write names of headers in lower case.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use perihelion_model::json::{self, Style, Value};
use perihelion_wire::signature::{MasterKey, SignedDate};
use perihelion_wire::{date, path};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

/// The version under which the conformance cases were recorded.
pub const VERSION: &str = "2018-12-31";

/// A server that takes longer to respond has hung.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// A client of one address, signing with the emulator's key.
pub struct HttpClient {
    address: SocketAddr,
    key: MasterKey,
    connection: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

/// A request as a test writes it: without the headers that the client adds.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    omitted: Vec<String>,
    body: Bytes,
}

/// A response, read to its end.
#[derive(Debug)]
pub struct HttpResponse {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// A response whose body is still to be read. Its connection is closed on drop.
pub struct UnreadResponse {
    /// The HTTP status.
    pub status: u16,
    body: Incoming,
    _connection: SendRequest<Full<Bytes>>,
}

impl UnreadResponse {
    /// Reads the next part of the body. Returns its length; `None` at the end of the body, or if
    /// the connection ends before the body is complete.
    pub async fn read_some(&mut self) -> Option<usize> {
        let frame = self.body.frame().await?.ok()?;
        Some(frame.data_ref().map_or(0, Bytes::len))
    }
}

impl HttpRequest {
    /// A request without headers and body.
    pub fn new(method: &str, path: impl Into<String>) -> HttpRequest {
        HttpRequest {
            method: method.to_owned(),
            path: path.into(),
            headers: Vec::new(),
            omitted: Vec::new(),
            body: Bytes::new(),
        }
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: impl Into<String>) -> HttpRequest {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Leaves out a header that the client adds by itself.
    pub fn omit(mut self, name: &str) -> HttpRequest {
        self.omitted.push(name.to_owned());
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Bytes>) -> HttpRequest {
        self.body = body.into();
        self
    }

    /// Sets a JSON body and its content type.
    pub fn json(self, body: &Value) -> HttpRequest {
        self.header("content-type", "application/json").body(json::to_text(body, Style::Point))
    }

    /// Whether the test sets or omits this header, so that the client does not add it.
    fn sets_or_omits(&self, name: &str) -> bool {
        self.headers.iter().any(|(set, _)| set == name) || self.omitted.iter().any(|omitted| omitted == name)
    }
}

impl HttpResponse {
    /// The value of a header; `None` if it is missing or not text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The body as JSON.
    pub fn json(&self) -> Result<Value, json::ParseError> {
        json::parse(&self.body)
    }

    /// The body as text.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }
}

impl HttpClient {
    /// A client that connects with its first request.
    pub fn new(address: SocketAddr) -> HttpClient {
        HttpClient { address, key: MasterKey::emulator(), connection: Mutex::new(None) }
    }

    /// Sends a request and reads the response to its end. Requests wait for each other. The
    /// error is the text of an invalid request, a failed connection or a timeout.
    pub async fn send(&self, request: &HttpRequest) -> Result<HttpResponse, String> {
        let request = self.signed(request)?;
        let mut connection = self.connection.lock().await;
        let mut sender = match connection.take() {
            Some(sender) if !sender.is_closed() => sender,
            _ => self.connect().await?,
        };
        let exchange = async {
            sender.ready().await.map_err(|error| error.to_string())?;
            let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
            Ok(HttpResponse { status: parts.status.as_u16(), headers: parts.headers, body })
        };
        let response = tokio::time::timeout(RESPONSE_TIMEOUT, exchange)
            .await
            .unwrap_or_else(|_| Err(format!("no response within {RESPONSE_TIMEOUT:?}")))?;
        *connection = Some(sender);
        Ok(response)
    }

    /// Sends a request on a connection of its own and leaves the body of the response unread.
    pub async fn send_unread(&self, request: &HttpRequest) -> Result<UnreadResponse, String> {
        let request = self.signed(request)?;
        let mut sender = self.connect().await?;
        let exchange = async {
            sender.ready().await.map_err(|error| error.to_string())?;
            sender.send_request(request).await.map_err(|error| error.to_string())
        };
        let response = tokio::time::timeout(RESPONSE_TIMEOUT, exchange)
            .await
            .unwrap_or_else(|_| Err(format!("no response within {RESPONSE_TIMEOUT:?}")))?;
        let (parts, body) = response.into_parts();
        Ok(UnreadResponse { status: parts.status.as_u16(), body, _connection: sender })
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let stream =
            TcpStream::connect(self.address).await.map_err(|error| format!("no connection: {error}"))?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        // The task ends when the sender is dropped or the server closes.
        tokio::spawn(connection);
        Ok(sender)
    }

    fn signed(&self, request: &HttpRequest) -> Result<Request<Full<Bytes>>, String> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let date = date::format(now.as_secs());
        let mut builder = Request::builder().method(request.method.as_str()).uri(request.path.as_str());
        if !request.sets_or_omits("host") {
            builder = builder.header("host", self.address.to_string());
        }
        for (name, value) in &request.headers {
            builder = builder.header(name.as_str(), value.as_str());
        }
        for (name, value) in [
            ("x-ms-version", VERSION.to_owned()),
            ("x-ms-date", date.clone()),
            ("authorization", self.authorization(request, &date)),
        ] {
            if !request.sets_or_omits(name) {
                builder = builder.header(name, value);
            }
        }
        builder.body(Full::new(request.body.clone())).map_err(|error| error.to_string())
    }

    /// The signature. A path that is not a resource of the service is signed as
    /// it is written.
    fn authorization(&self, request: &HttpRequest, date: &str) -> String {
        let bare_path = request.path.split('?').next().unwrap_or_default();
        let (resource_type, link) = match path::parse(bare_path) {
            Ok(resource) => (resource.resource_type(), resource.signing_link()),
            Err(_) => ("", bare_path.trim_matches('/').to_owned()),
        };
        self.key.authorization(&request.method, resource_type, &link, SignedDate::MsDate(date))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_the_test_sets_is_the_only_one() {
        let client = HttpClient::new(([127, 0, 0, 1], 8081).into());
        let hosts = |request: &HttpRequest| {
            let signed = client.signed(request).unwrap();
            signed.headers().get_all("host").into_iter().cloned().collect::<Vec<_>>()
        };
        let request = HttpRequest::new("GET", "/");
        assert_eq!(hosts(&request), ["127.0.0.1:8081"]);
        assert_eq!(hosts(&request.header("host", "other.example")), ["other.example"]);
    }
}
