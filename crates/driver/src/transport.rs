//! Transports: how requests are sent.
//!
//! [`HttpTransport`] is the default: HTTP/2 or HTTP/1.1, over TLS except where the
//! endpoint is `http://`. An application may have a transport of its own, and a program
//! that embeds the database uses the server's in-process transport; both are
//! [`AnyTransport::Foreign`].
//!
//! - `http`, `resends`: the default transport; sends a request, and sends it again if that is safe
//! - `connections`, `waiters`, `growth`: the connections to one endpoint, the requests that
//!   wait for them, and how many there are
//! - `shard`, `slots`, `vitals`: one HTTP/2 connection, its streams and its vital signs
//! - `supervise`, `health`, `starvation`, `incidents`: whether a connection is healthy, and
//!   what its end means
//! - `connect`, `dial`, `proxy`, `tls`, `client_certificate`: open a connection
//! - `options`, `environment`: the options of the default transport
//! - `flight`, `carried_span`, `transfer`, `http1`, `http2`: carry out requests on a connection
//! - `statistics`: the connections, streams, requests and bytes in use at one moment
//! - `faults`: injected faults, with the cargo feature `fault-injection`

#[cfg(feature = "azure-core")]
mod azure_core;
mod body;
mod carried_span;
mod client_certificate;
mod connect;
mod connections;
mod dial;
mod environment;
#[cfg(feature = "fault-injection")]
mod faults;
#[cfg(not(feature = "fault-injection"))]
#[path = "transport/no_faults.rs"]
mod faults;
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
mod proxy;
mod resends;
mod shard;
mod slots;
mod starvation;
mod statistics;
mod supervise;
mod task;
mod tls;
mod transfer;
mod vitals;
mod waiters;

use std::fmt;
use std::sync::Arc;

use perihelion_wire::transport::{DynTransport, Failure, FailureKind, Request, Response, Sent, Transport};
use tokio::time::{Instant, timeout_at};

/// The TLS library, for [`HttpOptions::with_crypto_provider`] and
/// [`HttpOptions::with_tls_config`].
pub use rustls;

#[cfg(feature = "azure-core")]
pub use self::azure_core::AzureHttpTransport;
pub use self::client_certificate::ClientCertificate;
pub use self::http::HttpTransport;
pub use self::options::{BadHttpOptions, HttpOptions};
pub use self::proxy::{Proxy, ProxyChoice};
pub(crate) use self::resends::Resends;
pub use self::statistics::{EndpointStatistics, ShardStatistics, TransportStatistics};
pub(crate) use self::transfer::Delivered;

/// The transport of a driver.
#[non_exhaustive]
pub enum AnyTransport {
    /// The default transport.
    Http(HttpTransport),
    /// The application's transport, or the in-process server's.
    Foreign(Arc<dyn DynTransport>),
}

impl AnyTransport {
    /// Called after each read of the account. The transport negotiates the protocol of the
    /// endpoints again, because it may have changed.
    pub(crate) fn account_was_read(&self) {
        match self {
            AnyTransport::Http(transport) => transport.negotiate_again(),
            AnyTransport::Foreign(_) => {}
        }
    }

    /// A transport of the application's own.
    pub fn foreign(transport: impl Transport + 'static) -> Self {
        AnyTransport::Foreign(Arc::new(transport))
    }

    /// The statistics of the default transport; `None` for the application's transport.
    pub fn statistics(&self) -> Option<TransportStatistics> {
        match self {
            AnyTransport::Http(transport) => Some(transport.statistics()),
            AnyTransport::Foreign(_) => None,
        }
    }
}

impl AnyTransport {
    /// Whether the driver may send a request again when its connection has ended. The
    /// application's transport decides by itself whether it sends a request again.
    pub(crate) fn allows_resends(&self) -> bool {
        match self {
            AnyTransport::Http(_) => true,
            AnyTransport::Foreign(_) => false,
        }
    }

    /// Sends a request once, and tells how it was carried.
    pub(crate) async fn deliver(&self, request: Request) -> Delivered {
        match self {
            AnyTransport::Http(transport) => transport.deliver(request).await,
            AnyTransport::Foreign(transport) => {
                // The transport should keep the deadline itself. If it does not, the
                // operation must still end.
                let deadline = Instant::from_std(request.deadline);
                let result = timeout_at(deadline, transport.send_boxed(request)).await;
                Delivered::from(result.unwrap_or_else(|_| {
                    let text = "the transport has not answered by the deadline";
                    Err(Failure::new(FailureKind::Timeout, Sent::Unknown, text))
                }))
            }
        }
    }
}

impl Transport for AnyTransport {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        match self {
            AnyTransport::Http(transport) => transport.send(request).await,
            AnyTransport::Foreign(_) => self.deliver(request).await.result,
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
