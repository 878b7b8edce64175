//! The counters of our server: requests and request units since its start. The server must have
//! its management interface.

use std::net::SocketAddr;

use anyhow::ensure;
use serde_json::Value;

use crate::load::Connection;

pub async fn read_counters(address: SocketAddr) -> anyhow::Result<Value> {
    let request = format!("GET /_perihelion/counters HTTP/1.1\r\nhost: {address}\r\n\r\n");
    let mut connection = Connection::new(address);
    let answer = connection.send(request.as_bytes()).await?;
    ensure!(answer.status == 200, "counters answered {}", answer.status);
    Ok(serde_json::from_slice(answer.body)?)
}
