//! Requests to the server's management interface, over HTTP/1.1 in clear with one connection
//! per request. They are written by hand, so that no HTTP library is needed.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Problem;

/// The longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Sends one request and returns the JSON of the answer. A status other than 200 to 209 is a
/// problem. `path` is the part after `/_perihelion/`.
pub async fn manage(port: u16, method: &str, path: &str, body: &str) -> Result<Value, Problem> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!(
        "{method} /_perihelion/{path} HTTP/1.1\r\nhost: localhost:{port}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("the answer has no head")?;
    if !head.starts_with("HTTP/1.1 20") {
        return Err(format!("{method} {path} was answered: {head} {body}").into());
    }
    Ok(serde_json::from_str(body)?)
}
