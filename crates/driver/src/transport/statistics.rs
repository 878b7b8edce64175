//! `TransportStatistics`: the connections, streams, requests and bytes that a transport has in
//! use at one moment. Tests use them to check that nothing leaks, and programs to see how their
//! load is spread.

use perihelion_wire::transport::Endpoint;

/// The connections, streams, requests and bytes that a transport has in use at one moment. The
/// counters are read one after the other, so they may not match each other exactly while requests
/// are under way.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TransportStatistics {
    /// The endpoints that requests were sent to, in the order of their first use.
    pub endpoints: Vec<EndpointStatistics>,
}

/// The connections, streams, requests and bytes that are in use at one endpoint.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EndpointStatistics {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// The HTTP/2 connections that take requests, and suspect ones, in the order in which they
    /// were opened.
    pub shards: Vec<ShardStatistics>,
    /// All open HTTP/2 connections, also those that only finish their requests.
    pub connections_open: usize,
    /// Connections that are being opened in the background.
    pub connections_opening: usize,
    /// HTTP/1.1 connections in use, or being opened by the request that needs them.
    pub http1_in_use: usize,
    /// HTTP/1.1 connections that wait for a request.
    pub http1_idle: usize,
    /// Requests that have neither an answer nor a failure.
    pub requests_in_flight: usize,
    /// Requests that wait for a stream or for the first connection.
    pub requests_waiting: usize,
    /// Bytes of answers that have not arrived completely.
    pub buffered_bytes: usize,
}

/// The use and the health of one HTTP/2 connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ShardStatistics {
    /// The connections to an endpoint are numbered from 1, in the order in which they were
    /// opened.
    pub number: u64,
    /// Streams in use.
    pub streams_in_use: usize,
    /// Streams that are allowed.
    pub streams_max: usize,
    /// Whether the connection takes requests. A silent connection does not.
    pub is_usable: bool,
    /// Requests that failed on this connection since its last answer.
    pub failures: u32,
}

impl TransportStatistics {
    pub(super) fn new(endpoints: Vec<EndpointStatistics>) -> Self {
        TransportStatistics { endpoints }
    }

    /// Requests at all endpoints that have neither an answer nor a failure.
    pub fn requests_in_flight(&self) -> usize {
        self.endpoints.iter().map(|endpoint| endpoint.requests_in_flight).sum()
    }

    /// Whether no request is under way: no stream and no HTTP/1.1 connection is in use, no
    /// request waits, and no bytes are held for an answer.
    pub fn is_idle(&self) -> bool {
        self.endpoints.iter().all(EndpointStatistics::is_idle)
    }
}

impl EndpointStatistics {
    /// Whether no request to this endpoint is under way.
    pub fn is_idle(&self) -> bool {
        self.requests_in_flight == 0
            && self.requests_waiting == 0
            && self.http1_in_use == 0
            && self.buffered_bytes == 0
            && self.shards.iter().all(|shard| shard.streams_in_use == 0)
    }
}
