//! The socket of a connection, with a switch by which a fault acts on the whole connection.
//!
//! What always holds:
//! - Once a switch is muted, no byte of its connection is sent any more.
//! - A connection that was broken does not work again.
//! - [`Switch::ended`] returns when the socket was dropped. Then the connection has really ended.
//! - Over HTTP/2, garbage begins between two frames. Within a frame it would change the body of an
//!   answer unnoticed, which TLS prevents in a real network.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

use crate::fault_injection::ConnectionFault;

/// The modes of a socket. A working socket sends and reads all bytes.
const WORKING: u8 = 0;
/// Written bytes are thrown away. Arriving bytes are read.
const MUTED: u8 = 1;
/// Reads and writes fail.
const DROPPED: u8 = 2;
/// Written bytes are thrown away, and no bytes are read.
const SILENT: u8 = 3;
/// Written bytes are thrown away. Once the current frame has ended, reads return [`GARBAGE_BYTE`]s.
const GARBAGE: u8 = 4;

/// Neither a valid frame of HTTP/2 nor an answer of HTTP/1.1 begins with this byte.
const GARBAGE_BYTE: u8 = 0xff;

/// The switch of one connection. Without a state it belongs to a connection that no fault can
/// hit.
#[derive(Clone, Default)]
pub(in crate::transport) struct Switch(Option<Arc<State>>);

struct State {
    mode: AtomicU8,
    /// The mode of a muted socket after the next write; `MUTED` if it stays muted.
    after_write: AtomicU8,
    /// The task that waits for bytes.
    reader: Mutex<Option<Waker>>,
    has_ended: watch::Sender<bool>,
}

impl Switch {
    pub(super) fn new() -> Self {
        Switch(Some(Arc::new(State {
            mode: AtomicU8::new(WORKING),
            after_write: AtomicU8::new(MUTED),
            reader: Mutex::default(),
            has_ended: watch::Sender::new(false),
        })))
    }

    /// Throws away all bytes that are written from now on. A request that is handed to the
    /// connection after this does not reach the peer.
    pub(super) fn mute(&self) {
        if let Some(state) = &self.0 {
            // A connection that is broken already stays as it is.
            let _ = state.mode.compare_exchange(WORKING, MUTED, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Throws away the next bytes that are written, and breaks the connection after that.
    pub(super) fn break_at_next_write(&self, fault: ConnectionFault) {
        if let Some(state) = &self.0 {
            state.after_write.store(mode_of(fault), Ordering::SeqCst);
            self.mute();
        }
    }

    /// Breaks the connection.
    pub(super) fn break_by(&self, fault: ConnectionFault) {
        if let Some(state) = &self.0 {
            state.set(mode_of(fault));
        }
    }

    /// Waits until the socket was dropped.
    pub(super) async fn ended(&self) {
        if let Some(state) = &self.0 {
            // The state owns the sender, so waiting does not fail.
            let _ = state.has_ended.subscribe().wait_for(|has_ended| *has_ended).await;
        }
    }
}

impl State {
    fn set(&self, mode: u8) {
        self.mode.store(mode, Ordering::SeqCst);
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Stores the task that waits for bytes. In most cases the same task is stored already.
    fn store_reader(&self, waker: &Waker) {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if !reader.as_ref().is_some_and(|stored| stored.will_wake(waker)) {
            *reader = Some(waker.clone());
        }
    }
}

fn mode_of(fault: ConnectionFault) -> u8 {
    match fault {
        ConnectionFault::Drop => DROPPED,
        ConnectionFault::Silence => SILENT,
        ConnectionFault::Garbage => GARBAGE,
    }
}

/// A socket with a switch.
pub(in crate::transport) struct Socket<T> {
    io: T,
    switch: Switch,
    /// Finds the ends of the arriving frames; `None` over HTTP/1.1.
    frames: Option<Frames>,
}

impl<T> Socket<T> {
    pub(super) fn new(io: T, switch: Switch, frames: Option<Frames>) -> Self {
        Socket { io, switch, frames }
    }

    /// The result of a write that the switch does not let through; `None` if the bytes are sent.
    /// A flush and a shutdown are writes of no bytes: they do not change the mode of a muted socket.
    fn intercept_write(&self, length: usize) -> Option<Poll<io::Result<usize>>> {
        let state = self.switch.0.as_ref()?;
        match state.mode.load(Ordering::SeqCst) {
            WORKING => return None,
            DROPPED => return Some(Poll::Ready(Err(dropped()))),
            MUTED if length > 0 => {
                let next = state.after_write.load(Ordering::SeqCst);
                if next != MUTED {
                    state.set(next);
                }
            }
            _ => {}
        }
        Some(Poll::Ready(Ok(length)))
    }
}

fn dropped() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "connection reset (injected)")
}

impl<T> Drop for Socket<T> {
    fn drop(&mut self) {
        if let Some(state) = &self.switch.0 {
            state.has_ended.send_replace(true);
        }
    }
}

/// Finds the ends of HTTP/2 frames in the arriving bytes.
#[derive(Default)]
pub(super) struct Frames {
    /// The first bytes of the frame's head.
    head: [u8; Frames::HEAD_BYTES],
    head_length: usize,
    payload_left: usize,
}

impl Frames {
    /// The length of the head of each frame (RFC 9113, section 4.1).
    const HEAD_BYTES: usize = 9;

    fn advance(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.payload_left > 0 {
                let length = self.payload_left.min(bytes.len());
                self.payload_left -= length;
                bytes = &bytes[length..];
                continue;
            }
            let length = (Frames::HEAD_BYTES - self.head_length).min(bytes.len());
            self.head[self.head_length..][..length].copy_from_slice(&bytes[..length]);
            self.head_length += length;
            bytes = &bytes[length..];
            if self.head_length == Frames::HEAD_BYTES {
                let [high, middle, low, ..] = self.head;
                self.payload_left = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
                self.head_length = 0;
            }
        }
    }

    /// How many bytes are left until the frame, or its head, ends; 0 between two frames.
    fn left(&self) -> usize {
        match self.head_length {
            0 => self.payload_left,
            length => Frames::HEAD_BYTES - length,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Socket<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Socket { io, switch, frames } = self.get_mut();
        let Some(state) = &switch.0 else { return Pin::new(io).poll_read(cx, buffer) };
        // The loop runs again only if the mode changes while the waker is stored.
        loop {
            let mode = state.mode.load(Ordering::SeqCst);
            let is_read = matches!(mode, WORKING | MUTED);
            if is_read && poll_io(io, frames.as_mut(), cx, buffer)?.is_ready() {
                return Poll::Ready(Ok(()));
            }
            // How many bytes of the frame that has begun to arrive are missing.
            let frame_bytes_left = frames.as_ref().map_or(0, Frames::left);
            match mode {
                DROPPED => return Poll::Ready(Err(dropped())),
                // A frame that has begun arrives unchanged.
                GARBAGE if frame_bytes_left > 0 => {
                    let length = frame_bytes_left.min(buffer.remaining());
                    let mut rest = ReadBuf::new(buffer.initialize_unfilled_to(length));
                    let polled = poll_io(io, frames.as_mut(), cx, &mut rest);
                    let length = rest.filled().len();
                    buffer.advance(length);
                    return polled;
                }
                GARBAGE => {
                    let length = buffer.initialize_unfilled().len();
                    buffer.initialize_unfilled().fill(GARBAGE_BYTE);
                    buffer.advance(length);
                    return Poll::Ready(Ok(()));
                }
                _ => {}
            }
            state.store_reader(cx.waker());
            let now = state.mode.load(Ordering::SeqCst);
            if now == mode || (mode == WORKING && now == MUTED) {
                return Poll::Pending;
            }
        }
    }
}

/// Reads the bytes that have arrived.
fn poll_io<T: AsyncRead + Unpin>(
    io: &mut T,
    frames: Option<&mut Frames>,
    cx: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    let before = buffer.filled().len();
    let polled = Pin::new(io).poll_read(cx, buffer);
    if let Some(frames) = frames {
        frames.advance(&buffer.filled()[before..]);
    }
    polled
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Socket<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.intercept_write(bytes.len()) {
            Some(written) => written,
            None => Pin::new(&mut self.io).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.intercept_write(0) {
            Some(written) => written.map_ok(|_| ()),
            None => Pin::new(&mut self.io).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.intercept_write(0) {
            // The peer sees the end of the connection when the socket is dropped.
            Some(_) => Poll::Ready(Ok(())),
            None => Pin::new(&mut self.io).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.intercept_write(parts.iter().map(|part| part.len()).sum()) {
            Some(written) => written,
            None => Pin::new(&mut self.io).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// A frame of HTTP/2 with this payload.
    fn frame(payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0, 0, payload.len() as u8, 0, 0, 0, 0, 0, 1];
        frame.extend_from_slice(payload);
        frame
    }

    #[tokio::test]
    async fn garbage_begins_where_a_frame_ends() {
        let bytes = [frame(b"one"), frame(b""), frame(b"two")].concat();
        // Garbage is switched on after `read` bytes, for every possible number.
        for read in 0..=bytes.len() {
            let (client, mut server) = duplex(1024);
            let switch = Switch::new();
            let mut socket = Socket::new(client, switch.clone(), Some(Frames::default()));
            server.write_all(&bytes).await.unwrap();
            let mut received = vec![0; read];
            socket.read_exact(&mut received).await.unwrap();
            switch.break_by(ConnectionFault::Garbage);
            let mut rest = [0; 40];
            socket.read_exact(&mut rest).await.unwrap();
            received.extend_from_slice(&rest);
            let begin = received.iter().position(|byte| *byte == GARBAGE_BYTE).unwrap();
            // The frames end after 12, 21 and 33 bytes.
            assert!([0, 12, 21, 33].contains(&begin), "after {read} bytes, garbage begins at {begin}");
            assert!(begin >= read && received[..begin] == bytes[..begin], "after {read} bytes");
        }
    }

    #[tokio::test]
    async fn a_muted_socket_sends_nothing_and_breaks_at_its_next_write() {
        let (client, mut server) = duplex(1024);
        let switch = Switch::new();
        let mut socket = Socket::new(client, switch.clone(), None);
        socket.write_all(b"sent").await.unwrap();
        switch.break_at_next_write(ConnectionFault::Drop);
        socket.write_all(b"lost").await.unwrap();
        assert_eq!(socket.read_u8().await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert!(socket.write_all(b"late").await.is_err());
        drop(socket);
        switch.ended().await;
        let mut received = Vec::new();
        server.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, b"sent");
    }

    #[tokio::test]
    async fn a_waiting_reader_notices_that_its_connection_is_broken() {
        let (client, _server) = duplex(1024);
        let switch = Switch::new();
        let mut socket = Socket::new(client, switch.clone(), None);
        let reading = tokio::spawn(async move { socket.read_u8().await });
        tokio::task::yield_now().await;
        switch.break_by(ConnectionFault::Drop);
        assert!(reading.await.unwrap().is_err());
    }
}
