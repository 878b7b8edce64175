//! Injected faults over real sockets, in HTTP/2 and in HTTP/1.1 (`connect` faults in HTTP/2 only): what
//! the caller gets, whether the request reaches the peer, and what becomes of the connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use perihelion_driver::fault_injection::{FaultInjector, FaultRule, InjectedAnswer, Protocol};
use perihelion_driver::transport::HttpTransport;
use perihelion_wire::transport::{Failure, FailureKind, Request, Response, Sent, Transport};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::transport_peers::*;

const BODY: &[u8] = b"0123456789";
const HANG_LIMIT: Duration = Duration::from_millis(400);
/// Long enough for the read-hang limit to pass, and short enough to wait for.
const TIMEOUT: Duration = Duration::from_secs(3);

/// A peer that counts the requests that reach it, and a transport with injected faults.
struct Scene {
    peer: Peer,
    /// The number of requests that have reached the peer.
    seen: Arc<AtomicUsize>,
    faults: FaultInjector,
    transport: HttpTransport,
    protocol: Protocol,
}

impl Scene {
    async fn new(protocol: Protocol) -> Scene {
        let seen = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&seen);
        let peer = match protocol {
            Protocol::Http2 => {
                Peer::start("http", move |_, stream| {
                    let counter = Arc::clone(&counter);
                    serve_http2(stream, 20, move |exchange| {
                        counter.fetch_add(1, Ordering::SeqCst);
                        echo(exchange)
                    })
                })
                .await
            }
            Protocol::Http1 => Peer::start("https", move |_, stream| {
                let counter = Arc::clone(&counter);
                async move { serve_counted_http1(accept_tls(stream, &["http/1.1"]).await, &counter).await }
            })
            .await,
        };
        let faults = FaultInjector::with_seed(1);
        let options = options_trusting_peers()
            .with_connect_timeout(Duration::from_millis(500))
            .with_read_hang_limit(HANG_LIMIT)
            .with_ping_timeout(HANG_LIMIT)
            .with_ping_interval(HANG_LIMIT / 4)
            .with_fault_injection(&faults);
        Scene { peer, seen, faults, transport: HttpTransport::new(options).unwrap(), protocol }
    }

    /// Sends a write. The transport does not send a write again.
    async fn send(&self) -> Result<Response, Failure> {
        self.send_within(TIMEOUT).await
    }

    async fn send_within(&self, timeout: Duration) -> Result<Response, Failure> {
        let deadline = (Instant::now() + timeout).into_std();
        self.transport.send(Request { deadline, ..self.peer.post(BODY) }).await
    }

    /// Sends a request that this rule hits. Returns its outcome, whether it reached the peer,
    /// and whether the next request needed a new connection.
    async fn inject(&self, rule: &str) -> (Result<Response, Failure>, bool, bool) {
        self.send().await.unwrap();
        let (seen, connections) = (self.seen.load(Ordering::SeqCst), self.peer.connections());
        let handle = self.faults.add_json(rule).unwrap().remove(0);
        let outcome = self.send().await;
        assert_eq!(handle.hits(), 1, "{rule}");
        let reached = self.seen.load(Ordering::SeqCst) - seen;
        assert!(reached <= 1, "{rule}: a write was sent twice");
        self.faults.clear();
        assert_eq!(self.send().await.unwrap().into_body(), BODY, "{rule}");
        assert!(self.transport.statistics().is_idle(), "{rule}: {:?}", self.transport.statistics());
        (outcome, reached == 1, self.peer.connections() > connections)
    }
}

/// Answers each request with the request's own body, and counts the requests.
async fn serve_counted_http1<T>(stream: T, counter: &AtomicUsize)
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let echo = service_fn(|request: http::Request<Incoming>| async move {
        counter.fetch_add(1, Ordering::SeqCst);
        let body = request.into_body().collect().await?.to_bytes();
        Ok::<_, hyper::Error>(http::Response::new(Full::new(body)))
    });
    // The end of the connection is not checked.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), echo).await;
}

/// The expected outcome of a fault.
#[derive(Debug, Clone, Copy)]
struct Expected {
    kind: FailureKind,
    sent: Sent,
    reaches_peer: bool,
    /// Whether the failure is part of an incident of the whole connection.
    is_incident: bool,
    ends_connection: bool,
}

async fn check_failure(scene: &Scene, rule: &str, expected: Expected) {
    let (outcome, reached, is_connection_new) = scene.inject(rule).await;
    let failure = outcome.unwrap_err();
    let context = format!("{:?} {rule}: {failure}", scene.protocol);
    assert_eq!((failure.kind, failure.sent), (expected.kind, expected.sent), "{context}");
    assert_eq!(reached, expected.reaches_peer, "{context}");
    assert_eq!(failure.incident.is_some(), expected.is_incident, "{context}");
    assert_eq!(is_connection_new, expected.ends_connection, "{context}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_injected_answer_replaces_the_request_or_its_answer() {
    for protocol in [Protocol::Http2, Protocol::Http1] {
        let scene = Scene::new(protocol).await;
        let rule = r#"{"status":449,"subStatus":7,"retryAfterMs":30,"headers":{"x-a":"b"},"body":[1]}"#;
        let (answer, reached, is_connection_new) = scene.inject(rule).await;
        let answer = answer.unwrap();
        assert_eq!((answer.status().as_u16(), &answer.body()[..]), (449, b"[1]".as_slice()));
        for (name, value) in [("x-ms-substatus", "7"), ("x-ms-retry-after-ms", "30"), ("x-a", "b")] {
            assert_eq!(answer.headers()[name], value, "{name}");
        }
        assert!(!reached && !is_connection_new, "{protocol:?}");
        let (answer, reached, _) = scene.inject(r#"{"status":503,"when":"after"}"#).await;
        assert_eq!(answer.unwrap().status().as_u16(), 503);
        assert!(reached, "{protocol:?}: the peer has served the request");
        let answer = InjectedAnswer::new(200).with_body(Bytes::from_static(b"own"));
        scene.faults.add(FaultRule::new().with_answer(answer)).unwrap();
        assert_eq!(scene.send().await.unwrap().into_body(), "own");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_or_a_truncated_answer_leaves_an_http2_connection_open() {
    use {FailureKind::Closed, Protocol::*, Sent::*};
    for protocol in [Http2, Http1] {
        let scene = Scene::new(protocol).await;
        let is_http1 = protocol == Http1;
        let expected = |sent, reaches_peer| Expected {
            kind: Closed,
            sent,
            reaches_peer,
            // An HTTP/1.1 connection cannot be used again after a reset or a truncated answer.
            is_incident: is_http1,
            ends_connection: is_http1,
        };
        check_failure(&scene, r#"{"reset":"before"}"#, expected(Unknown, false)).await;
        check_failure(&scene, r#"{"reset":"after"}"#, expected(Unknown, true)).await;
        check_failure(&scene, r#"{"truncateBodyBytes":4}"#, expected(Yes, true)).await;
        check_failure(&scene, r#"{"truncateBodyBytes":0}"#, expected(Yes, true)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_garbled_or_silent_connection_ends() {
    use FailureKind::{Closed, Protocol as Violation, Timeout};
    // The fault, the failure over HTTP/2 and over HTTP/1.1, and whether the failure over HTTP/1.1 is
    // part of an incident.
    let cases = [
        ("drop", Closed, Closed, true),
        ("garbage", Violation, Violation, false),
        // Only HTTP/2 has pings. With them the transport notices silence before the deadline.
        ("silence", Closed, Timeout, false),
    ];
    for protocol in [Protocol::Http2, Protocol::Http1] {
        let scene = Scene::new(protocol).await;
        let is_http2 = protocol == Protocol::Http2;
        for (fault, http2, http1, is_http1_incident) in cases {
            for (when, reaches_peer) in [("before", false), ("after", true)] {
                let began = Instant::now();
                let expected = Expected {
                    kind: if is_http2 { http2 } else { http1 },
                    sent: Sent::Unknown,
                    reaches_peer,
                    is_incident: is_http2 || is_http1_incident,
                    ends_connection: true,
                };
                check_failure(&scene, &format!(r#"{{"{fault}":"{when}"}}"#), expected).await;
                if is_http2 && fault == "silence" {
                    let took = began.elapsed();
                    assert!((HANG_LIMIT..TIMEOUT).contains(&took), "{took:?}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_requests_of_a_dropped_connection_fail_with_one_incident() {
    let peer = Peer::start("http", |_, stream| serve_http2(stream, 20, never_answer)).await;
    let faults = FaultInjector::with_seed(1);
    let dropping = faults.add_json(r#"{"skip":9,"drop":"before"}"#).unwrap().remove(0);
    let options = options_trusting_peers().with_fault_injection(&faults);
    let transport = Arc::new(HttpTransport::new(options).unwrap());
    let requests: JoinSet<_> = (0..10)
        .map(|_| {
            let (transport, request) = (Arc::clone(&transport), peer.post(BODY));
            async move { transport.send(request).await.unwrap_err() }
        })
        .collect();
    let failures = requests.join_all().await;
    assert_eq!((dropping.hits(), dropping.matches()), (1, 10), "one fault, ten failures");
    for failure in &failures {
        check(failure, FailureKind::Closed, Sent::Unknown);
        assert!(failure.incident.is_some() && failure.incident == failures[0].incident, "{failure}");
    }
    assert_eq!(peer.connections(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delays_and_slow_bodies_take_their_time_and_keep_the_deadline() {
    for protocol in [Protocol::Http2, Protocol::Http1] {
        let scene = Scene::new(protocol).await;
        // The ten bytes of the body take 150 ms at 66 bytes per second.
        for rule in [r#"{"delayMs":150}"#, r#"{"bodyBytesPerSecond":66}"#] {
            let began = Instant::now();
            let (answer, reached, is_connection_new) = scene.inject(rule).await;
            assert_eq!(answer.unwrap().into_body(), BODY, "{rule}");
            assert!(began.elapsed() >= Duration::from_millis(150), "{rule}: {:?}", began.elapsed());
            assert!(reached && !is_connection_new, "{protocol:?} {rule}");
        }
        for (rule, sent) in
            [(r#"{"delayMs":60000}"#, Sent::Unknown), (r#"{"bodyBytesPerSecond":1}"#, Sent::Yes)]
        {
            scene.faults.add_json(rule).unwrap();
            let began = Instant::now();
            let failure = scene.send_within(SHORT_TIMEOUT).await.unwrap_err();
            check(&failure, FailureKind::Timeout, sent);
            assert!((SHORT_TIMEOUT..TIMEOUT).contains(&began.elapsed()), "{rule}: {:?}", began.elapsed());
            scene.faults.clear();
        }
        assert!(scene.transport.statistics().is_idle());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_refused_or_hang_send_nothing() {
    for rule in [r#"{"connect":"refuse"}"#, r#"{"connect":"hang"}"#] {
        let scene = Scene::new(Protocol::Http2).await;
        let handle = scene.faults.add_json(rule).unwrap().remove(0);
        let failure = scene.send().await.unwrap_err();
        check(&failure, FailureKind::Connect, Sent::No);
        assert!(handle.hits() >= 1);
        assert_eq!((scene.peer.connections(), scene.seen.load(Ordering::SeqCst)), (0, 0));
        handle.disable();
        scene.send().await.unwrap();
        // A connection that is open stays open.
        handle.enable();
        scene.send().await.unwrap();
        // A rule for another endpoint hits nothing.
        scene.faults.clear();
        let other_endpoint = r#"{"connect":"refuse","endpoint":"http://127.0.0.1:1"}"#;
        scene.faults.add_json(other_endpoint).unwrap();
        scene.faults.add_json(r#"{"drop":"before","count":1}"#).unwrap();
        scene.send().await.unwrap_err();
        scene.send().await.unwrap();
        assert_eq!(scene.peer.connections(), 2);
    }
}
