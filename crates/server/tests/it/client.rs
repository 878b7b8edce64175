//! A small HTTP/1.1 client for tests: one connection, signed requests, answers
//! whole. It adds what every client of the service sends (version, date,
//! signature) and nothing else, so that a test shows all that matters.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use perihelion_model::json::{self, Style, Value};
use perihelion_wire::signature::{MasterKey, SignedDate};
use perihelion_wire::{date, path};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

/// The version under which the conformance cases were recorded.
pub(crate) const VERSION: &str = "2018-12-31";

/// An answer that takes longer is a hung server.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    address: SocketAddr,
    key: MasterKey,
    connection: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

/// A request as a test writes it down.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    omitted: Vec<String>,
    body: Bytes,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Call {
    pub(crate) fn new(method: &str, path: impl Into<String>) -> Call {
        Call {
            method: method.to_owned(),
            path: path.into(),
            headers: Vec::new(),
            omitted: Vec::new(),
            body: Bytes::new(),
        }
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> Call {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Leaves out a header that the client adds by itself.
    pub(crate) fn omit(mut self, name: &str) -> Call {
        self.omitted.push(name.to_owned());
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Call {
        self.body = body.into();
        self
    }

    pub(crate) fn json(self, body: &Value) -> Call {
        self.header("content-type", "application/json").body(json::to_text(body, Style::Point))
    }

    fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(set, _)| set == name) || self.omitted.iter().any(|omitted| omitted == name)
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub(crate) fn json(&self) -> Result<Value, json::ParseError> {
        json::parse(&self.body)
    }

    pub(crate) fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Client {
        Client { address, key: MasterKey::emulator(), connection: Mutex::new(None) }
    }

    /// Sends a request and reads the answer to its end. An error is the
    /// transport's, in words.
    pub(crate) async fn send(&self, call: &Call) -> Result<Answer, String> {
        let request = self.signed(call)?;
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
            Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
        };
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, exchange)
            .await
            .unwrap_or_else(|_| Err(format!("no answer within {ANSWER_TIMEOUT:?}")))?;
        *connection = Some(sender);
        Ok(answer)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let stream =
            TcpStream::connect(self.address).await.map_err(|error| format!("no connection: {error}"))?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        // The task ends when the sender is dropped or the server hangs up.
        tokio::spawn(connection);
        Ok(sender)
    }

    fn signed(&self, call: &Call) -> Result<Request<Full<Bytes>>, String> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let date = date::format(now.as_secs());
        let mut builder = Request::builder().method(call.method.as_str()).uri(call.path.as_str());
        if !call.omitted.iter().any(|omitted| omitted == "host") {
            builder = builder.header("host", self.address.to_string());
        }
        for (name, value) in &call.headers {
            builder = builder.header(name.as_str(), value.as_str());
        }
        for (name, value) in [
            ("x-ms-version", VERSION.to_owned()),
            ("x-ms-date", date.clone()),
            ("authorization", self.authorization(call, &date)),
        ] {
            if !call.has(name) {
                builder = builder.header(name, value);
            }
        }
        builder.body(Full::new(call.body.clone())).map_err(|error| error.to_string())
    }

    /// A path that addresses nothing is signed by itself, as a client would
    /// that knows no better.
    fn authorization(&self, call: &Call, date: &str) -> String {
        let bare_path = call.path.split('?').next().unwrap_or_default();
        let (resource_type, link) = match path::parse(bare_path) {
            Ok(resource) => (resource.resource_type(), resource.signing_link()),
            Err(_) => ("", bare_path.trim_matches('/').to_owned()),
        };
        self.key.authorization(&call.method, resource_type, &link, SignedDate::MsDate(date))
    }
}
