//! `TokenService`: a small HTTP server that stands in for the authority of Entra ID or for the
//! service of a managed identity. It gives the same answer to every request, and keeps the requests.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use crate::program::{TIMEOUT, text};

pub(crate) struct TokenService {
    url: String,
    requests: Receiver<String>,
}

impl TokenService {
    /// Starts a service that answers with this status and body.
    pub(crate) fn start(status: &'static str, body: &str) -> TokenService {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (send, requests) = channel();
        let answer =
            format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let request = read_request(&mut stream);
                // The request is kept before the answer is sent, so it is here when the client ends.
                if send.send(request).is_err() {
                    return;
                }
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        TokenService { url, requests }
    }

    /// The URL without a slash at its end.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Takes the next request: its head and its body.
    pub(crate) fn request(&self) -> String {
        self.requests.recv_timeout(TIMEOUT).expect("the service was asked")
    }

    /// Takes all requests that were not taken yet, and returns their number.
    pub(crate) fn new_requests(&self) -> usize {
        self.requests.try_iter().count()
    }
}

/// Reads one request, with as many bytes of the body as its head says.
fn read_request(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        let read = stream.read(&mut part).unwrap_or(0);
        bytes.extend_from_slice(&part[..read]);
        let request = text(&bytes);
        let body_bytes = request.split_once("\r\n\r\n").map(|(head, body)| {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            (body.len(), length.map_or(0, |length| length.parse().expect("a length")))
        });
        if read == 0 || body_bytes.is_some_and(|(has, needs)| has >= needs) {
            return request;
        }
    }
}
