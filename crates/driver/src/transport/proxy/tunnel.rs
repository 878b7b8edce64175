//! Opens a tunnel through a proxy: a TCP connection to the proxy, and `CONNECT`.

use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Sent};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zeroize::Zeroizing;

use super::super::dial::dial;
use super::Proxy;

/// The most bytes of the heads of all answers to one `CONNECT`. A peer that sends more is not a
/// proxy.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Opens a tunnel to the endpoint. Nothing of a request is sent.
pub(in super::super) async fn open_tunnel(proxy: &Proxy, endpoint: &Endpoint) -> Result<TcpStream, Failure> {
    let mut stream = dial(&proxy.host, proxy.port, &format!("{endpoint}: the proxy {proxy}")).await?;
    let broken = |error: std::io::Error| {
        failure(format!("{endpoint}: the connection to the proxy {proxy} broke: {error}"))
    };
    stream.write_all(connect_request(proxy, endpoint).as_bytes()).await.map_err(broken)?;
    let mut head = Vec::new();
    let mut bytes_left = HEAD_BYTES_MAX;
    let status = loop {
        // The head is read one byte at a time, because the bytes after it belong to the endpoint.
        while !is_whole(&head) {
            bytes_left = bytes_left.checked_sub(1).ok_or_else(|| {
                failure(format!("{endpoint}: the proxy {proxy} answered with too long a head"))
            })?;
            head.push(stream.read_u8().await.map_err(broken)?);
        }
        match status_of(&head) {
            // The final answer follows.
            Some(100..=199) => head.clear(),
            status => break status,
        }
    };
    match status {
        Some(200..=299) => Ok(stream),
        Some(status) => Err(failure(refusal_text(proxy, endpoint, status))),
        None => Err(failure(format!("{endpoint}: the proxy {proxy} did not answer in HTTP/1.1"))),
    }
}

/// Whether the head of an answer ends with its empty line. Some proxies end lines without CR.
fn is_whole(head: &[u8]) -> bool {
    head.ends_with(b"\r\n\r\n") || head.ends_with(b"\n\n")
}

fn connect_request(proxy: &Proxy, endpoint: &Endpoint) -> Zeroizing<String> {
    // The host of the authority has the brackets of an IPv6 address.
    let target = format!("{}:{}", endpoint.authority().host(), endpoint.port());
    let authorization = proxy.authorization.as_deref().map_or("", String::as_str);
    let mut text = Zeroizing::new(String::with_capacity(2 * target.len() + authorization.len() + 80));
    for part in ["CONNECT ", &target, " HTTP/1.1\r\nhost: ", &target, "\r\n"] {
        text.push_str(part);
    }
    if !authorization.is_empty() {
        for part in ["proxy-authorization: ", authorization, "\r\n"] {
            text.push_str(part);
        }
    }
    text.push_str("\r\n");
    text
}

/// The status of an HTTP/1.x answer.
fn status_of(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| b"\r\n".contains(byte)).next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let is_http1 = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
    let status = words.next()?.parse().ok()?;
    is_http1.then_some(status)
}

fn refusal_text(proxy: &Proxy, endpoint: &Endpoint, status: u16) -> String {
    let advice = match (status, proxy.authorization.is_some()) {
        (407, true) => "it does not accept the user and password in its address",
        (407, false) => "it asks for a user and a password; write them as http://user:password@host:port",
        (403 | 405, _) => "it does not allow connections to this host and port",
        (_, _) => "it probably could not reach the host",
    };
    format!("{endpoint}: the proxy {proxy} refused the connection with {status}: {advice}")
}

fn failure(text: String) -> Failure {
    Failure::new(FailureKind::Connect, Sent::No, text)
}
