//! Sends one request for a token. With TLS the driver's transport is used, which verifies
//! certificates and knows proxies. Without TLS the request goes directly over HTTP/1.1, because
//! managed identities are services of the machine itself and may not know HTTP/2.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use perihelion_driver::transport::{HttpOptions, HttpTransport};
use perihelion_wire::transport::{self, Endpoint, Route, Transport};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// The most bytes of an answer. A token has a few kilobytes.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// How long a request may take. The driver waits 30 s for a token. The longest sequence of waits is shorter
/// (5 s for the metadata service, then 20 s for the Azure CLI), so that the user sees our own error.
#[derive(Clone, Copy)]
pub(super) struct Waits {
    connect: Duration,
    total: Duration,
}

impl Default for Waits {
    fn default() -> Waits {
        Waits { connect: Duration::from_secs(5), total: Duration::from_secs(20) }
    }
}

impl Waits {
    /// The waits for the metadata service. They are short, because the service is on the same machine
    /// and answers within milliseconds. On a machine outside Azure each command waits in vain.
    pub(super) fn imds() -> Waits {
        Waits { connect: Duration::from_secs(1), total: Duration::from_secs(5) }
    }
}

/// A request for a token.
pub(super) struct TokenRequest {
    pub(super) method: Method,
    pub(super) url: Uri,
    pub(super) header: (HeaderName, HeaderValue),
    pub(super) body: String,
}

/// An answer with any status.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

/// Sends a request. The error says what failed, and has no secret.
pub(super) async fn send(request: TokenRequest, waits: Waits) -> Result<Answer, String> {
    let origin = match (request.url.scheme_str(), request.url.authority()) {
        (Some(scheme), Some(authority)) => format!("{scheme}://{authority}"),
        _ => String::new(),
    };
    let endpoint = Endpoint::parse(&origin).map_err(|error| error.to_string())?;
    let sent = async {
        match endpoint.is_tls() {
            true => send_over_tls(request, &endpoint, waits).await,
            false => send_in_clear(request, &endpoint, waits).await,
        }
    };
    let in_time = timeout(waits.total, sent).await;
    in_time.unwrap_or_else(|_| Err(format!("{endpoint}: no answer within {} s", waits.total.as_secs())))
}

async fn send_over_tls(request: TokenRequest, endpoint: &Endpoint, waits: Waits) -> Result<Answer, String> {
    let options = HttpOptions::default().with_connect_timeout(waits.connect);
    let transport = HttpTransport::new(options).map_err(|error| error.to_string())?;
    let target = request.url.into_parts().path_and_query.ok_or("the URL has no path")?;
    let request = transport::Request {
        endpoint: endpoint.clone(),
        method: request.method,
        target,
        headers: HeaderMap::from_iter([request.header]),
        body: request.body.into(),
        deadline: (Instant::now() + waits.total).into_std(),
        route: Route::default(),
    };
    let response = transport.send(request).await.map_err(|failure| failure.to_string())?;
    Ok(Answer { status: response.status(), body: response.into_body() })
}

async fn send_in_clear(request: TokenRequest, endpoint: &Endpoint, waits: Waits) -> Result<Answer, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{endpoint}: {error}");
    let stream = timeout(waits.connect, TcpStream::connect((endpoint.host(), endpoint.port()))).await;
    let stream = stream
        .map_err(|_| format!("{endpoint}: no connection within {} s", waits.connect.as_secs()))?
        .map_err(|error| failed(&error))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    let target = request.url.path_and_query().map_or("/", |target| target.as_str());
    let (name, value) = request.header;
    let request = Request::builder()
        .method(request.method)
        .uri(target)
        .header(header::HOST, endpoint.authority().as_str())
        .header(name, value)
        .body(Full::<Bytes>::from(request.body))
        .map_err(|error| failed(&error))?;
    // The connection ends when the sender and the answer are dropped.
    let answer = async move {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let (status, body) = (response.status(), response.into_body());
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| error.to_string())?;
        Ok(Answer { status, body: body.to_bytes() })
    };
    let (answer, _) = tokio::join!(answer, connection);
    answer.map_err(|error: String| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(url: String) -> TokenRequest {
        TokenRequest {
            method: Method::GET,
            url: url.parse().unwrap(),
            header: (header::ACCEPT, HeaderValue::from_static("application/json")),
            body: String::new(),
        }
    }

    #[tokio::test]
    async fn the_wait_for_a_service_that_does_not_answer_is_limited() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = silent.local_addr().unwrap();
        let waits = Waits { connect: Duration::from_secs(10), total: Duration::from_millis(50) };
        for scheme in ["http", "https"] {
            let sent = send(request(format!("{scheme}://{address}/")), waits);
            let sent = timeout(Duration::from_secs(10), sent).await.expect("it ends in time");
            let Err(why) = sent else { panic!("an answer over {scheme}") };
            assert!(why.contains(&address.to_string()), "{why}");
        }
    }
}
