//! `Request`: a request, read whole within limits.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;

use super::{Parameters, Peer};

/// The longest address. Its longest part is the continuation of a list, which has a few hundred bytes.
const ADDRESS_BYTES_MAX: usize = 16 * 1024;

/// The largest form. An item has at most 2 MiB, and each of its bytes may be encoded in three.
pub(crate) const FORM_BYTES_MAX: usize = 7 * 1024 * 1024;

/// How long a form may take to arrive.
const FORM_TIMEOUT: Duration = Duration::from_secs(30);

/// A request that was read whole.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// The parameters of the address.
    pub(crate) query: Parameters,
    pub(crate) headers: HeaderMap,
    /// The fields of the form that was sent.
    pub(crate) form: Parameters,
    /// The other side of the connection.
    pub(crate) peer: Peer,
}

impl Request {
    /// The request without its form, which [`Request::read_form`] reads later.
    pub(crate) fn head(mut parts: http::request::Parts) -> Result<Request, StatusCode> {
        let address_bytes = parts.uri.path_and_query().map_or(0, |address| address.as_str().len());
        if address_bytes > ADDRESS_BYTES_MAX {
            return Err(StatusCode::URI_TOO_LONG);
        }
        Ok(Request {
            path: parts.uri.path().to_owned(),
            query: Parameters::parse(parts.uri.query().unwrap_or_default()),
            method: parts.method,
            headers: parts.headers,
            form: Parameters::default(),
            peer: parts.extensions.remove().unwrap_or_default(),
        })
    }

    /// Reads the form of a POST, of at most `bytes_max` bytes.
    pub(crate) async fn read_form(&mut self, body: Incoming, bytes_max: usize) -> Result<(), StatusCode> {
        let is_form = self.header("content-type").starts_with("application/x-www-form-urlencoded");
        if !is_form {
            return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
        let collected = Limited::new(body, bytes_max).collect();
        let collected = tokio::time::timeout(FORM_TIMEOUT, collected).await;
        let bytes: Bytes = collected
            .map_err(|_| StatusCode::REQUEST_TIMEOUT)?
            .map_err(|error| match error.is::<LengthLimitError>() {
                true => StatusCode::PAYLOAD_TOO_LARGE,
                false => StatusCode::BAD_REQUEST,
            })?
            .to_bytes();
        self.form = Parameters::parse(&String::from_utf8_lossy(&bytes));
        Ok(())
    }

    /// A header; empty if it is missing or is not a text.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The value of a cookie.
    pub(crate) fn cookie(&self, name: &str) -> Option<&str> {
        let all = self.headers.get_all(header::COOKIE).into_iter();
        let mut pairs = all.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(';'));
        pairs.find_map(|pair| {
            pair.trim().split_once('=').filter(|(key, _)| *key == name).map(|(_, value)| value)
        })
    }

    /// The token of a program: `Authorization: Bearer TOKEN`.
    pub(crate) fn bearer_token(&self) -> Option<&str> {
        let (scheme, token) = self.header("authorization").split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    }

    /// Whether the browser asks for the server-sent events of this page.
    pub(crate) fn wants_events(&self) -> bool {
        self.method == Method::GET && self.header("accept").starts_with("text/event-stream")
    }
}
