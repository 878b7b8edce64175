//! One HTTP/1.1 connection in clear to one server, used by one closed-loop client: a request
//! is sent when the answer to the previous request is complete. If the server answers
//! `connection: close`, the next request opens a new connection. The time for that counts in
//! the latency of the request, as it would for any client.
//!
//! The connection is written by hand over a socket, because the client shares two cores with
//! the server that it measures. An exchange takes one write and usually one read, without a
//! second task and without a header map. Compared with a hyper connection that saves 3 us of
//! 21 per read and 9 us of 30 per create. The kernel uses most of the rest.

use std::net::SocketAddr;

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// More headers than any Cosmos answer has.
const HEADERS_MAX: usize = 64;
/// The initial size of the buffer: it holds a 1 KB document with its headers. The buffer grows
/// for larger answers.
const BUFFER_START_BYTES: usize = 16 * 1024;
/// The longest answer that is accepted. No answer of the benchmark is longer: a page of 20
/// documents is 25 KB.
const ANSWER_MAX_BYTES: usize = 16 * 1024 * 1024;

pub struct Connection {
    address: SocketAddr,
    stream: Option<TcpStream>,
    /// The received part of the current answer: `received[..filled]`.
    received: Vec<u8>,
    filled: usize,
    /// The body of a chunked answer, without the chunk sizes.
    joined_chunks: Vec<u8>,
}

/// An answer, valid until the next request on its connection.
pub struct Answer<'a> {
    pub status: u16,
    pub body: &'a [u8],
}

/// The parsed head of an answer.
struct Head {
    status: u16,
    head_bytes: usize,
    length: Length,
    /// Whether the server closes the connection after the answer.
    closes_connection: bool,
}

enum Length {
    ContentLength(usize),
    Chunked,
}

impl Connection {
    pub fn new(address: SocketAddr) -> Self {
        let received = vec![0; BUFFER_START_BYTES];
        Self { address, stream: None, received, filled: 0, joined_chunks: Vec::new() }
    }

    /// Sends a complete request and receives the whole answer.
    pub async fn send(&mut self, request: &[u8]) -> anyhow::Result<Answer<'_>> {
        let mut stream = match self.stream.take() {
            Some(open) => open,
            None => connect(self.address).await?,
        };
        stream.write_all(request).await.context("sending a request")?;
        self.filled = 0;
        let head = self.receive_head(&mut stream).await?;
        let is_chunked = match head.length {
            Length::ContentLength(length) => {
                self.receive_to(&mut stream, head.head_bytes + length).await?;
                false
            }
            Length::Chunked => {
                self.receive_chunks(&mut stream, head.head_bytes).await?;
                true
            }
        };
        if !head.closes_connection {
            self.stream = Some(stream);
        }
        let body = match is_chunked {
            true => &self.joined_chunks[..],
            false => &self.received[head.head_bytes..self.filled],
        };
        Ok(Answer { status: head.status, body })
    }

    async fn receive_head(&mut self, stream: &mut TcpStream) -> anyhow::Result<Head> {
        loop {
            self.receive_more(stream).await?;
            if let Some(head) = parse_head(&self.received[..self.filled])? {
                return Ok(head);
            }
        }
    }

    /// Receives until `end` bytes of the answer are there. More bytes are an error.
    async fn receive_to(&mut self, stream: &mut TcpStream, end: usize) -> anyhow::Result<()> {
        while self.filled < end {
            self.receive_more(stream).await?;
        }
        ensure!(self.filled == end, "{} bytes after the end of an answer", self.filled - end);
        Ok(())
    }

    /// Receives a chunked body that begins at `start`, and joins the chunks.
    async fn receive_chunks(&mut self, stream: &mut TcpStream, start: usize) -> anyhow::Result<()> {
        self.joined_chunks.clear();
        let mut at = start;
        loop {
            match httparse::parse_chunk_size(&self.received[at..self.filled]) {
                Ok(httparse::Status::Partial) => self.receive_more(stream).await?,
                Ok(httparse::Status::Complete((line, size))) => {
                    let data = at + line;
                    // The data is followed by a line break. There are no trailers.
                    let end = data + usize::try_from(size)? + 2;
                    while self.filled < end {
                        self.receive_more(stream).await?;
                    }
                    self.joined_chunks.extend_from_slice(&self.received[data..end - 2]);
                    at = end;
                    if size == 0 {
                        return Ok(());
                    }
                }
                Err(_) => bail!("an answer with a broken chunk size"),
            }
        }
    }

    async fn receive_more(&mut self, stream: &mut TcpStream) -> anyhow::Result<()> {
        if self.filled == self.received.len() {
            ensure!(self.filled < ANSWER_MAX_BYTES, "an answer of more than {ANSWER_MAX_BYTES} bytes");
            self.received.resize(self.filled * 2, 0);
        }
        let count = stream.read(&mut self.received[self.filled..]).await.context("reading an answer")?;
        ensure!(count > 0, "the server closed the connection in the middle of an exchange");
        self.filled += count;
        Ok(())
    }
}

async fn connect(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Parses the head of an answer. `None` while the head is incomplete.
fn parse_head(received: &[u8]) -> anyhow::Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head_bytes) =
        response.parse(received).context("parsing the head of an answer")?
    else {
        return Ok(None);
    };
    let mut head = Head {
        status: response.code.context("an answer without a status")?,
        head_bytes,
        length: Length::ContentLength(0),
        closes_connection: false,
    };
    for header in response.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            head.length = Length::ContentLength(std::str::from_utf8(header.value)?.trim().parse()?);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            head.length = Length::Chunked;
        } else if header.name.eq_ignore_ascii_case("connection") {
            head.closes_connection = header.value.eq_ignore_ascii_case(b"close");
        }
    }
    Ok(Some(head))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Serves the answers, each written in the pieces between its `|`, and returns what the
    /// client received. After an answer with `close` the next one has a new connection.
    async fn check(answers: &'static [&'static str]) -> anyhow::Result<Vec<(u16, String)>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut connection = Connection::new(listener.local_addr()?);
        let server = tokio::spawn(async move {
            let mut stream = None;
            for answer in answers {
                let mut open = match stream.take() {
                    Some(open) => open,
                    None => listener.accept().await?.0,
                };
                let mut request = [0; 4];
                open.read_exact(&mut request).await?;
                for part in answer.split('|') {
                    open.write_all(part.as_bytes()).await?;
                    open.flush().await?;
                    tokio::task::yield_now().await;
                }
                stream = (!answer.contains("close")).then_some(open);
            }
            std::io::Result::Ok(())
        });
        let mut seen = Vec::new();
        for _ in answers {
            let answer = connection.send(b"ping").await?;
            seen.push((answer.status, String::from_utf8_lossy(answer.body).into_owned()));
        }
        server.await??;
        Ok(seen)
    }

    #[tokio::test]
    async fn a_connection_that_stays_open_serves_answers_split_anywhere() {
        let seen = check(&[
            "HTTP/1.1 200 OK\r\ncontent-len|gth: 5\r\n\r|\nhel|lo",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r|\nab|c\r\n2\r\nde\r\n0\r|\n\r\n",
            "HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok",
        ])
        .await
        .expect("four answers");
        assert_eq!(
            seen,
            [(200, "hello".into()), (404, "".into()), (200, "abcde".into()), (201, "ok".into())]
        );
    }

    #[tokio::test]
    async fn a_closed_connection_is_opened_again() {
        let seen = check(&[
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nOK",
        ])
        .await
        .expect("two answers");
        assert_eq!(seen, [(200, "ok".into()), (200, "OK".into())]);
    }
}
