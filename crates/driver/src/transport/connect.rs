//! Opens one connection to an endpoint and finds out its protocol.
//!
//! With TLS, ALPN negotiates the protocol. Without TLS, the driver begins in HTTP/2, unless
//! the last connection to the endpoint was HTTP/1.1. If the peer does not answer in HTTP/2,
//! the driver opens another connection for HTTP/1.1. All this happens within the connect
//! timeout, and no part of a request is sent. Through a proxy, all this happens inside a
//! tunnel.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Sent};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time;

use super::connections::Open;
use super::dial::dial;
use super::http1::Http1Connection;
use super::http2::{self, Http2Support, NewHttp2};
use super::options::{BadHttpOptions, HttpOptions};
use super::proxy::{Proxies, open_tunnel};
use super::tls::{NegotiatedProtocol, Tls};
use crate::variable;

/// Opens connections.
pub(super) struct Connector {
    options: HttpOptions,
    tls: Tls,
    proxies: Proxies,
}

/// A new connection.
pub(super) enum NewConnection {
    Http2(NewHttp2),
    Http1(Http1Connection),
}

/// The protocol of an endpoint, as far as it is known before a connection is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KnownProtocol {
    Unknown,
    /// The last connection to the endpoint was HTTP/1.1. This matters only without TLS.
    Http1,
}

impl Connector {
    pub(super) fn new(options: HttpOptions) -> Result<Self, BadHttpOptions> {
        let options = options.or_environment(variable::of_process)?;
        options.check()?;
        let (tls, proxies) = (Tls::new(&options)?, Proxies::of(&options.proxy)?);
        Ok(Connector { options, tls, proxies })
    }

    pub(super) fn options(&self) -> &HttpOptions {
        &self.options
    }

    /// Refuses an endpoint without TLS on another machine, or behind a proxy on another machine,
    /// unless the options allow it.
    pub(super) fn check_allowed(&self, endpoint: &Endpoint) -> Result<(), Failure> {
        let is_behind_remote_proxy =
            self.proxies.proxy_to(endpoint)?.is_some_and(|proxy| !proxy.is_loopback());
        let stays_on_this_machine = endpoint.is_loopback() && !is_behind_remote_proxy;
        if endpoint.is_tls() || stays_on_this_machine || self.options.allow_cleartext {
            return Ok(());
        }
        let text = format!(
            "{endpoint}: not connecting without TLS to another machine; \
             use https, or allow it with HttpOptions::with_allow_cleartext"
        );
        Err(Failure::new(FailureKind::Connect, Sent::No, text))
    }

    /// Opens one connection within the connect timeout.
    pub(super) async fn open(
        &self,
        endpoint: &Endpoint,
        known: KnownProtocol,
    ) -> Result<NewConnection, Failure> {
        let limit = self.options.connect_timeout;
        match time::timeout(limit, self.open_unbounded(endpoint, known)).await {
            Ok(opened) => opened,
            Err(_) => {
                let text = format!("{endpoint}: no connection within {limit:?}");
                Err(Failure::new(FailureKind::Connect, Sent::No, text))
            }
        }
    }

    /// Opens one connection, however long it takes.
    async fn open_unbounded(
        &self,
        endpoint: &Endpoint,
        known: KnownProtocol,
    ) -> Result<NewConnection, Failure> {
        self.options.faults.connecting(endpoint).await?;
        let tcp = self.dial(endpoint).await?;
        if endpoint.is_tls() {
            // Behind a proxy, the peer's address says nothing about where the endpoint is.
            let is_direct = self.proxies.proxy_to(endpoint)?.is_none();
            let (stream, negotiated) = self.tls.connect(endpoint, tcp, is_direct).await?;
            return match negotiated {
                NegotiatedProtocol::Http2 => self
                    .open_http2(stream, Http2Support::Negotiated)
                    .await
                    .map_err(|error| handshake_failure(endpoint, &error)),
                NegotiatedProtocol::Http1 => self.open_http1(endpoint, stream).await,
            };
        }
        if known == KnownProtocol::Http1 {
            return self.open_http1(endpoint, tcp).await;
        }
        match self.open_http2(tcp, Http2Support::Assumed).await {
            Ok(connection) => Ok(connection),
            Err(error) => {
                tracing::debug!(%endpoint, %error, "the peer does not speak HTTP/2, trying HTTP/1.1");
                self.open_http1(endpoint, self.dial(endpoint).await?).await
            }
        }
    }

    /// Opens a TCP connection to the endpoint, or a tunnel through its proxy.
    async fn dial(&self, endpoint: &Endpoint) -> Result<TcpStream, Failure> {
        match self.proxies.proxy_to(endpoint)? {
            Some(proxy) => open_tunnel(proxy, endpoint).await,
            None => dial(endpoint.host(), endpoint.port(), endpoint).await,
        }
    }

    /// Opens HTTP/2 on a stream of bytes. Injected faults act on the stream by its switch.
    async fn open_http2<T>(&self, io: T, support: Http2Support) -> Result<NewConnection, h2::Error>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (io, switch) = self.options.faults.wrap_http2(io);
        let new = http2::open(io, support).await?;
        Ok(NewConnection::Http2(NewHttp2 { switch, ..new }))
    }

    /// Opens HTTP/1.1 on a stream of bytes. Injected faults act on the stream by its switch.
    async fn open_http1<T>(&self, endpoint: &Endpoint, io: T) -> Result<NewConnection, Failure>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (io, switch) = self.options.faults.wrap_http1(io);
        Http1Connection::open(io, switch)
            .await
            .map(NewConnection::Http1)
            .map_err(|error| handshake_failure(endpoint, &error))
    }
}

/// Opens connections to one endpoint.
pub(super) struct EndpointOpener {
    connector: Arc<Connector>,
    endpoint: Endpoint,
}

impl EndpointOpener {
    pub(super) fn new(connector: Arc<Connector>, endpoint: Endpoint) -> Self {
        EndpointOpener { connector, endpoint }
    }
}

impl Open for EndpointOpener {
    fn open(
        &self,
        known: KnownProtocol,
    ) -> Pin<Box<dyn Future<Output = Result<NewConnection, Failure>> + Send + '_>> {
        Box::pin(self.connector.open(&self.endpoint, known))
    }
}

fn handshake_failure(endpoint: &Endpoint, error: &dyn std::error::Error) -> Failure {
    Failure::new(FailureKind::Connect, Sent::No, format!("{endpoint}: the handshake failed: {error}"))
}
