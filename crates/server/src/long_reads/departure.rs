//! `Departure`: tells a long read that its client has left. A write whose client has left goes on
//! ([`run_to_end`]).
//!
//! hyper drops the future of a request when the connection closes or the stream is reset, and so does
//! a caller in the same process that has waited long enough. Both can do so only while the future is
//! pending, not while it computes. So a long read runs on a blocking thread of its own, and the future
//! waits for its outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use perihelion_engine::Refusal;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::watch;
use tokio::task::JoinError;

use super::RETRY_AFTER_MS;

/// Whether the client of a read has left. Clones tell of the same client.
#[derive(Debug, Clone, Default)]
pub(super) struct Departure(Arc<AtomicBool>);

impl Departure {
    pub(super) fn has_left(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Notes on drop that the client has left. Dropped with the future of the request. If the read has
/// ended by then, the note has no effect.
struct NoteOnDrop(Departure);

impl Drop for NoteOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a long read on a thread of its own, so that the read learns when the future is dropped. A
/// single-threaded runtime (as in the simulation) has no other thread, so the future itself runs the
/// read. `running` is dropped last: after the read and everything that the read holds, such as the store.
pub(super) async fn run_apart<T: Send + 'static>(
    running: watch::Receiver<()>,
    read: impl FnOnce(&Departure) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let departure = Departure::default();
    if Handle::current().runtime_flavor() != RuntimeFlavor::MultiThread {
        return read(&departure);
    }
    let _note = NoteOnDrop(departure.clone());
    let on_thread = move || {
        // Dropped last, also if the read panics.
        let _running = running;
        read(&departure)
    };
    outcome_of(tokio::task::spawn_blocking(on_thread).await)
}

/// Runs a write in a task of its own, so that it goes on to its end although the future is dropped.
/// `running` is dropped after the write and everything that the write holds, such as the store.
pub(super) async fn run_to_end<T: Send + 'static>(
    running: watch::Receiver<()>,
    write: impl Future<Output = Result<T, Refusal>> + Send + 'static,
) -> Result<T, Refusal> {
    let task = async move {
        let outcome = write.await;
        drop(running);
        outcome
    };
    outcome_of(tokio::spawn(task).await)
}

fn outcome_of<T>(ended: Result<Result<T, Refusal>, JoinError>) -> Result<T, Refusal> {
    ended.unwrap_or_else(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        // The runtime ends.
        Err(_) => Err(Refusal::throttled(RETRY_AFTER_MS)),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::{Duration, Instant};

    use bytes::Bytes;
    use http::{Request, Response};
    use perihelion_engine::{PageEnd, PageLimits};
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpStream;

    use super::*;
    use crate::long_reads::{Bill, LongReads, ReadKind, WorkPerDocument};
    use crate::memory::MemoryBudget;
    use crate::net::{Handler, Hangup, Limits, Listener, Peer, Rejection, bind};

    /// After this time a read of the test ends by itself. The test fails if it has to wait for half of
    /// this time.
    const TIMEOUT: Duration = Duration::from_secs(20);

    /// Answers each request after a long read that does not end by itself before [`TIMEOUT`].
    struct Reader {
        reads: Arc<LongReads>,
        counts: Arc<Counts>,
        end: PageEnd,
    }

    #[derive(Default)]
    struct Counts {
        /// How many long reads have begun.
        begun: AtomicUsize,
        /// How many reads were told to end.
        ended: AtomicUsize,
    }

    impl Handler for Reader {
        async fn handle(&self, request: Request<Bytes>, peer: Peer) -> Result<Response<Bytes>, Hangup> {
            let (end, counts, began_at) = (self.end, Arc::clone(&self.counts), Instant::now());
            // The first call is the first slice, which is cut because the read takes long.
            let calls = AtomicUsize::new(0);
            let read = move |limits: PageLimits<'_>| {
                let is_long = calls.fetch_add(1, Ordering::SeqCst) > 0;
                counts.begun.fetch_add(usize::from(is_long), Ordering::SeqCst);
                while began_at.elapsed() < TIMEOUT {
                    if let Err(refusal) = (limits.checkpoint)(end) {
                        counts.ended.fetch_add(usize::from(is_long), Ordering::SeqCst);
                        return Err(refusal);
                    }
                }
                Ok(())
            };
            let kind = ReadKind {
                work: WorkPerDocument::Little,
                is_of_one_partition: true,
                connection: Some(peer.remote),
            };
            assert!(request.body().is_empty());
            let _ = self.reads.run(kind, Bill::free(), read).await;
            Ok(Response::new(Bytes::new()))
        }

        fn reject(&self, rejection: Rejection) -> Response<Bytes> {
            panic!("{rejection:?}")
        }
    }

    /// Story of a bug: a query whose client had left ran on for up to two minutes. Clients that sent a
    /// slow query again and again, and gave up each time, kept all turns busy.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_long_read_ends_when_its_client_closes_the_connection() {
        for end in [PageEnd::Cheap, PageEnd::Costly] {
            let limits = Limits::default();
            let memory = MemoryBudget::new(limits.body_bytes_total);
            let reads = LongReads::new(Arc::clone(&memory));
            let turns = reads.turns.free();
            let counts = Arc::new(Counts::default());
            let handler = Arc::new(Reader { reads: Arc::clone(&reads), counts: Arc::clone(&counts), end });
            let sockets = bind("127.0.0.1", 0).await.unwrap();
            let listener = Listener::start(sockets, None, limits, memory, handler).unwrap();
            let mut clients = Vec::new();
            for _ in 0..turns {
                let mut client = TcpStream::connect(listener.local_addr()).await.unwrap();
                client.write_all(b"GET /long HTTP/1.1\r\n\r\n").await.unwrap();
                clients.push(client);
            }
            let wait_until = async |is_true: &dyn Fn() -> bool| {
                let began_at = Instant::now();
                while !is_true() {
                    assert!(began_at.elapsed() < TIMEOUT / 2, "the reads go on");
                    tokio::task::yield_now().await;
                }
            };
            // A read that still waits for a processor would end without being counted in `ended`.
            wait_until(&|| counts.begun.load(Ordering::SeqCst) == turns).await;
            assert_eq!(counts.ended.load(Ordering::SeqCst), 0);
            drop(clients);
            wait_until(&|| reads.turns.free() == turns).await;
            assert_eq!(counts.ended.load(Ordering::SeqCst), turns);
            listener.drain(Duration::ZERO).await;
        }
    }
}
