//! `Relay`: a relay between the SDK and the server. It changes nothing, and records two
//! things that the SDK sends in clear: whether a connection is HTTP/2, and the first byte of
//! each body. The server writes the host of the request into the account document, so the
//! SDK sends all requests through the relay.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::check::Problem;

const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The bytes of an HTTP/2 frame's head: length (3), type (1), flags (1), stream (4). See RFC
/// 9113, section 4.1.
const FRAME_HEAD_BYTES: usize = 9;
const FRAME_TYPE_DATA: u8 = 0;

/// What a relay has recorded.
#[derive(Debug, Default, Clone)]
pub(crate) struct RecordedTraffic {
    pub(crate) http2_connections: u32,
    pub(crate) other_connections: u32,
    /// The first byte of every body that is not empty, in order of arrival.
    pub(crate) first_body_bytes: Vec<u8>,
}

pub(crate) struct Relay {
    port: u16,
    recorded: Arc<Mutex<RecordedTraffic>>,
    /// The task that accepts connections.
    accepting: JoinHandle<()>,
}

impl Relay {
    /// Starts a relay to the server on this port.
    pub(crate) async fn start(server_port: u16) -> Result<Self, Problem> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let recorded = Arc::new(Mutex::new(RecordedTraffic::default()));
        let shared = Arc::clone(&recorded);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(relay(client, server_port, Arc::clone(&shared)));
            }
        });
        Ok(Self { port, recorded, accepting })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// What was recorded so far.
    pub(crate) fn recorded(&self) -> RecordedTraffic {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn relay(client: TcpStream, server_port: u16, recorded: Arc<Mutex<RecordedTraffic>>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)).await else {
        return;
    };
    let (from_client, mut to_client) = client.into_split();
    let (mut from_server, to_server) = server.into_split();
    let answers = tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    // An error means that one side has closed the connection, which it may do at any time.
    let _ended = relay_and_record(from_client, to_server, &recorded).await;
    let _ended = answers.await;
}

async fn relay_and_record(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    recorded: &Mutex<RecordedTraffic>,
) -> std::io::Result<()> {
    let mut opening = vec![0; HTTP2_PREFACE.len()];
    from.read_exact(&mut opening).await?;
    to.write_all(&opening).await?;
    let is_http2 = opening == HTTP2_PREFACE;
    {
        let mut recorded = recorded.lock().unwrap_or_else(PoisonError::into_inner);
        if is_http2 { recorded.http2_connections += 1 } else { recorded.other_connections += 1 }
    }
    if !is_http2 {
        tokio::io::copy(&mut from, &mut to).await?;
        return Ok(());
    }
    loop {
        let mut head = [0; FRAME_HEAD_BYTES];
        from.read_exact(&mut head).await?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        from.read_exact(&mut payload).await?;
        if head[3] == FRAME_TYPE_DATA
            && let Some(first) = payload.first()
        {
            // The bodies of the checks fit in one frame, so each frame is a whole body.
            recorded.lock().unwrap_or_else(PoisonError::into_inner).first_body_bytes.push(*first);
        }
        to.write_all(&head).await?;
        to.write_all(&payload).await?;
    }
}
