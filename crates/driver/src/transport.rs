//! Transports: how requests are sent.
//!
//! [`HttpTransport`] is the default: HTTP/2 or HTTP/1.1, over TLS except where the
//! endpoint is `http://`. An application may have a transport of its own, and a program
//! that embeds the database uses the server's in-process transport; both are
//! [`AnyTransport::Foreign`].
//!
//! - `http`: the default transport; sends a request, again if that is safe
//! - `connections`, `waiters`, `growth`: the connections to one endpoint, the requests that
//!   wait for them, and how many there are
//! - `shard`, `slots`, `vitals`: one HTTP/2 connection, its streams and its vital signs
//! - `supervise`, `health`, `starvation`, `incidents`: whether a connection is healthy, and
//!   what its end means
//! - `connect`, `dial`, `tls`: open a connection
//! - `flight`, `http1`, `http2`: carry out requests on a connection

mod body;
mod connect;
mod connections;
mod dial;
mod flight;
mod growth;
mod health;
mod http;
mod http1;
mod http2;
mod incidents;
mod limits;
mod options;
mod progress;
mod shard;
mod slots;
mod starvation;
mod supervise;
mod task;
mod tls;
mod vitals;
mod waiters;

use std::fmt;
use std::sync::Arc;

use perihelion_wire::transport::{DynTransport, Failure, FailureKind, Request, Response, Sent, Transport};
use tokio::time::{Instant, timeout_at};

pub use self::http::HttpTransport;
pub use self::options::HttpOptions;
pub use self::tls::BadHttpOptions;

/// The transport of a driver.
#[non_exhaustive]
pub enum AnyTransport {
    /// The default transport.
    Http(HttpTransport),
    /// The application's transport, or the in-process server's.
    Foreign(Arc<dyn DynTransport>),
}

impl AnyTransport {
    /// A transport of the application's own.
    pub fn foreign(transport: impl Transport + 'static) -> Self {
        AnyTransport::Foreign(Arc::new(transport))
    }
}

impl Transport for AnyTransport {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        match self {
            AnyTransport::Http(transport) => transport.send(request).await,
            AnyTransport::Foreign(transport) => {
                // The transport should keep the deadline itself. If it does not, the
                // operation must still end.
                let deadline = Instant::from_std(request.deadline);
                timeout_at(deadline, transport.send_boxed(request)).await.unwrap_or_else(|_| {
                    let text = "the transport has not answered by the deadline";
                    Err(Failure::new(FailureKind::Timeout, Sent::Unknown, text))
                })
            }
        }
    }
}

impl From<HttpTransport> for AnyTransport {
    fn from(transport: HttpTransport) -> Self {
        AnyTransport::Http(transport)
    }
}

impl From<Arc<dyn DynTransport>> for AnyTransport {
    fn from(transport: Arc<dyn DynTransport>) -> Self {
        AnyTransport::Foreign(transport)
    }
}

impl fmt::Debug for AnyTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnyTransport::Http(transport) => transport.fmt(f),
            AnyTransport::Foreign(_) => f.write_str("AnyTransport::Foreign(..)"),
        }
    }
}
