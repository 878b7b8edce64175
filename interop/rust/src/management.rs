//! The few requests that a check makes beside the SDK, to the server's
//! management interface: counters, faults and splits. HTTP/1.1 in clear with
//! one connection per request needs no library.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::check::Problem;

pub(crate) struct Management {
    port: u16,
}

impl Management {
    pub(crate) fn of(port: u16) -> Self {
        Self { port }
    }

    /// How many requests of a kind the server has answered.
    pub(crate) async fn count(&self, operation: &str) -> Result<u64, Problem> {
        let counters = self.ask("GET", "counters", "").await?;
        Ok(counters["operations"][operation]["requests"].as_u64().unwrap_or(0))
    }

    pub(crate) async fn split(&self, container: &str, range: &str) -> Result<Value, Problem> {
        let body = serde_json::json!({"database": "interop", "container": container, "range": range});
        self.ask("POST", "split", &body.to_string()).await
    }

    /// Injects a fault into the requests of one container.
    pub(crate) async fn inject(&self, fault: &Value) -> Result<Value, Problem> {
        self.ask("POST", "faults", &fault.to_string()).await
    }

    pub(crate) async fn heal(&self) -> Result<Value, Problem> {
        self.ask("DELETE", "faults", "").await
    }

    async fn ask(&self, verb: &str, path: &str, body: &str) -> Result<Value, Problem> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let request = format!(
            "{verb} /_perihelion/{path} HTTP/1.1\r\nhost: localhost:{}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.port,
            body.len()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("the answer has no head")?;
        if !head.starts_with("HTTP/1.1 200") {
            return Err(format!("{verb} {path} was answered: {head} {body}").into());
        }
        Ok(serde_json::from_str(body)?)
    }
}
