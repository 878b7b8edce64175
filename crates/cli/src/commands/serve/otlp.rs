//! Exports the server's metrics to a collector of OpenTelemetry (`--otlp-endpoint`): OTLP over HTTP,
//! as JSON, to `/v1/metrics`. The protocol is small, so this module needs no library for it. The
//! exporter speaks HTTP/1.1 in clear, for a collector on the same machine or in the same network; a
//! collector can pass metrics on over TLS.
//!
//! Only one export runs at a time. An export that fails is not repeated: all numbers are cumulative, so
//! the next export has them too.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use perihelion_model::metrics::Exported;
use perihelion_server::Server;
use perihelion_wire::transport::Endpoint;
use tokio::net::TcpStream;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::exit::Failure;

/// How often metrics are exported. Collectors expect an export every minute or more often.
const INTERVAL: Duration = Duration::from_secs(10);

/// How long an export may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long the last export may take. It is a part of the time in which a server has to end.
const LAST_TIMEOUT: Duration = Duration::from_secs(1);

/// The shortest time between two warnings about failed exports.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// The path at which a collector takes metrics.
const PATH: &str = "/v1/metrics";

/// The exporter of one server.
pub(super) struct Exporter {
    collector: Endpoint,
    started_at: SystemTime,
    warned_at: Option<Instant>,
}

impl Exporter {
    /// An exporter to the collector at this URL. Nothing is sent yet.
    pub(super) fn new(url: &str) -> Result<Exporter, Failure> {
        let wrong = |why: String| {
            Failure::usage(format!("--otlp-endpoint: {why}"), "write it like http://127.0.0.1:4318")
        };
        let collector = Endpoint::parse(url).map_err(|error| wrong(error.to_string()))?;
        if collector.is_tls() {
            return Err(wrong("metrics are exported over http only".to_owned()));
        }
        Ok(Exporter { collector, started_at: SystemTime::now(), warned_at: None })
    }

    /// Exports again and again. Never returns.
    pub(super) async fn run(&mut self, server: &Server) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.export(server, TIMEOUT).await;
        }
    }

    /// Exports the metrics for the last time, before the server ends.
    pub(super) async fn export_last(&mut self, server: &Server) {
        self.export(server, LAST_TIMEOUT).await;
    }

    async fn export(&mut self, server: &Server, time_max: Duration) {
        let Err(why) = self.send(server, time_max).await else { return };
        if self.warned_at.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
            self.warned_at = Some(Instant::now());
            let collector = self.collector.authority().as_str();
            tracing::warn!(collector, why, "metrics were not exported; later exports have them too");
        }
    }

    async fn send(&self, server: &Server, time_max: Duration) -> Result<(), String> {
        let exported = Exported {
            service: "perihelion",
            version: env!("CARGO_PKG_VERSION"),
            started_at: nanoseconds(self.started_at),
            read_at: nanoseconds(SystemTime::now()),
        };
        let body = server.metrics().otlp_json(&exported);
        let answered = timeout(time_max, post(&self.collector, body)).await;
        let status = answered.map_err(|_| format!("no answer within {time_max:?}"))??;
        match status.is_success() {
            true => Ok(()),
            false => Err(status.to_string()),
        }
    }
}

/// Sends an export over a connection of its own. Returns the status of the answer.
async fn post(collector: &Endpoint, body: String) -> Result<StatusCode, String> {
    let stream = TcpStream::connect((collector.host(), collector.port())).await;
    let stream = stream.map_err(|error| error.to_string())?;
    let connected = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = connected.map_err(|error| error.to_string())?;
    let request = Request::post(PATH)
        .header(header::HOST, collector.authority().as_str())
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::<Bytes>::from(body))
        .map_err(|error| error.to_string())?;
    // The connection ends when the sender and the answer are dropped.
    let answer = async move { sender.send_request(request).await.map(|answer| answer.status()) };
    let (status, _) = tokio::join!(answer, connection);
    status.map_err(|error| error.to_string())
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
