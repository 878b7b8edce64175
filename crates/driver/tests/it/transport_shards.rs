//! The default transport's pool of HTTP/2 connections (shards). The peer allows 20 streams per
//! connection, as the service does. The tests send many reads at once, and silence a connection.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use perihelion_driver::operation::{Target, Verb};
use perihelion_driver::options::Hedging;
use perihelion_driver::transport::{AnyTransport, HttpTransport};
use perihelion_driver::{Container, Driver, DriverOptions, Operation, OperationOptions};
use perihelion_server::{AccountOptions, RegionNames, ServerOptions};
use perihelion_testkit::regions::{EAST, WEST};
use perihelion_testkit::wait::wait_until;
use perihelion_testkit::{TestServer, driver};
use perihelion_wire::transport::{Endpoint, Failure, Request, Response, Transport};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::transport_peers::*;
use crate::world::ada;

/// The value below which `percent` percent of the sorted values are.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// A count that goes up and down: its value now, and its highest value.
#[derive(Default)]
struct Gauge {
    now: AtomicUsize,
    peak: AtomicUsize,
}

impl Gauge {
    fn enter(self: &Arc<Self>) -> GaugeEntry {
        self.peak.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        GaugeEntry(Arc::clone(self))
    }
}

/// Counts as one in the gauge until it is dropped.
struct GaugeEntry(Arc<Gauge>);

impl Drop for GaugeEntry {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_reads_at_once_use_many_connections_which_are_closed_afterwards() {
    const READS_AT_ONCE: usize = 2000;
    const CONNECTIONS_MAX: usize = 160;
    const ANSWER_TIME: Duration = Duration::from_millis(500);
    const IDLE_TIMEOUT: Duration = Duration::from_secs(3);
    let (requests, connections) = (Arc::new(Gauge::default()), Arc::new(Gauge::default()));
    let peer = Peer::start("http", {
        let (requests, connections) = (Arc::clone(&requests), Arc::clone(&connections));
        move |_, stream| {
            let (requests, connection) = (Arc::clone(&requests), connections.enter());
            async move {
                let on_connection = Arc::new(Gauge::default());
                let counted = Arc::clone(&on_connection);
                serve_http2(stream, 20, move |exchange| {
                    let entries = (requests.enter(), counted.enter());
                    async move {
                        tokio::time::sleep(ANSWER_TIME).await;
                        drop(entries);
                        echo(exchange).await;
                    }
                })
                .await;
                assert!(on_connection.peak.load(Ordering::SeqCst) <= 20);
                drop(connection);
            }
        }
    })
    .await;
    let options =
        options_trusting_peers().with_connections_max(CONNECTIONS_MAX).with_idle_timeout(IDLE_TIMEOUT);
    let transport = Arc::new(HttpTransport::new(options).unwrap());
    let mut reading = JoinSet::new();
    for _ in 0..READS_AT_ONCE {
        let (transport, requests) = (Arc::clone(&transport), [peer.get(), peer.get(), peer.get()]);
        reading.spawn(async move {
            let mut latencies = Vec::new();
            for request in requests {
                let began = Instant::now();
                assert_eq!(transport.send(request).await.unwrap().status().as_u16(), 200);
                latencies.push(began.elapsed());
            }
            latencies
        });
    }
    let mut latencies: Vec<Duration> = reading.join_all().await.into_iter().flatten().collect();
    latencies.sort_unstable();
    let (median, p99) = (percentile(&latencies, 50), percentile(&latencies, 99));
    let (peak, opened) = (requests.peak.load(Ordering::SeqCst), peer.connections());
    println!("{peak} reads at once on {opened} connections: median {median:?}, P99 {p99:?}");
    assert!(p99 <= 3 * median, "median {median:?}, P99 {p99:?}");
    assert!((peak.div_ceil(20)..=CONNECTIONS_MAX).contains(&opened), "{opened} connections for {peak}");
    assert!(peak > READS_AT_ONCE / 2, "{peak} at once");
    wait_until("one connection is left", IDLE_TIMEOUT + Duration::from_secs(5), async || {
        connections.now.load(Ordering::SeqCst) == 1
    })
    .await;
    assert_eq!(transport.send(peer.get()).await.unwrap().status().as_u16(), 200);
    assert_eq!(peer.connections(), opened, "the last connection is used again");
}

/// A TCP proxy that can stop forwarding a connection, without closing it.
struct TcpProxy {
    endpoint: Endpoint,
    /// The numbers of the connections that are no longer forwarded.
    silenced: watch::Sender<BTreeSet<usize>>,
    accepted: Arc<AtomicUsize>,
    alive: Arc<Gauge>,
    _accepting: JoinSet<()>,
}

impl TcpProxy {
    async fn start(to: std::net::SocketAddr) -> TcpProxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let silenced = watch::Sender::new(BTreeSet::new());
        let (accepted, alive) = (Arc::new(AtomicUsize::new(0)), Arc::new(Gauge::default()));
        let mut accepting = JoinSet::new();
        accepting.spawn({
            let (silenced, accepted, alive) =
                (silenced.clone(), Arc::clone(&accepted), Arc::clone(&alive));
            async move {
                let mut forwarding = JoinSet::new();
                loop {
                    let (mut client, _) = listener.accept().await.unwrap();
                    let number = accepted.fetch_add(1, Ordering::SeqCst) + 1;
                    let (mut silenced, entry) = (silenced.subscribe(), alive.enter());
                    forwarding.spawn(async move {
                        let mut server = TcpStream::connect(to).await.unwrap();
                        tokio::select! {
                            _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                            () = async { drop(silenced.wait_for(|numbers| numbers.contains(&number)).await) } => {
                                // Ends when the client has closed the connection.
                                while !is_closed(&client).await {}
                            }
                        }
                        drop(entry);
                    });
                }
            }
        });
        TcpProxy { endpoint, silenced, accepted, alive, _accepting: accepting }
    }
}

/// Reads and throws away the bytes that have arrived. Returns whether the other end is closed.
async fn is_closed(stream: &TcpStream) -> bool {
    let mut buffer = [0; 4096];
    match stream.readable().await.and_then(|()| stream.try_read(&mut buffer)) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

/// The default transport, with the requests to the endpoint `from` sent to a [`TcpProxy`] instead.
struct ThroughProxy {
    http: HttpTransport,
    from: Endpoint,
    proxy: Endpoint,
}

impl Transport for ThroughProxy {
    async fn send(&self, mut request: Request) -> Result<Response, Failure> {
        if request.endpoint == self.from {
            request.endpoint = self.proxy.clone();
        }
        self.http.send(request).await
    }
}

fn unhedged() -> OperationOptions {
    OperationOptions::default().with_hedging(Hedging::Off)
}

fn read(container: &Arc<Container>) -> Operation {
    Operation::new(Verb::Read, Target::item(container, "1"), ada(), Default::default())
}

fn upsert(container: &Arc<Container>, id: &str) -> Operation {
    let body = format!(r#"{{"id":"{id}","customer":"ada"}}"#);
    Operation::new(Verb::Upsert, Target::items(container), ada(), body.into())
}

/// Starts `workers` tasks. Each task repeats an operation until the time is up, and returns when
/// each run of the operation began and how long it took. Only East may be asked.
fn keep_busy(
    driver: &Driver,
    operation: impl Fn(usize) -> Operation,
    workers: usize,
    until: Instant,
) -> JoinSet<Vec<(Instant, Duration)>> {
    (0..workers)
        .map(|number| {
            let (driver, operation) = (driver.clone(), operation(number));
            async move {
                let mut times = Vec::new();
                while Instant::now() < until {
                    let began = Instant::now();
                    let response = driver.execute(&operation, &unhedged()).await.unwrap();
                    let regions = response.diagnostics.regions();
                    assert!(regions.iter().all(|region| region.name() == EAST), "{regions:?}");
                    times.push((began, began.elapsed()));
                }
                times
            }
        })
        .collect()
}

/// Eight connections to the preferred region are full of reads and writes, when one of them
/// falls silent. Its reads and its upserts are answered on other connections to the same region,
/// and no breaker opens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_one_of_eight_connections_falls_silent_its_requests_are_answered_on_others() {
    const READ_HANG_LIMIT: Duration = Duration::from_secs(2);
    let mut limits = ServerOptions::default().limits;
    limits.streams = 20;
    let regions = RegionNames::new([EAST, WEST]).unwrap();
    let account = AccountOptions { regions, ..AccountOptions::default() };
    let server = TestServer::on_socket(ServerOptions {
        account,
        limits,
        management: true,
        ..ServerOptions::default()
    })
    .await;
    let proxy = TcpProxy::start(server.region_address(EAST)).await;
    let from = Endpoint::parse(&format!("http://{}", server.region_address(EAST))).unwrap();
    let options = options_trusting_peers().with_connections_max(8).with_read_hang_limit(READ_HANG_LIMIT);
    let through =
        ThroughProxy { http: HttpTransport::new(options).unwrap(), from, proxy: proxy.endpoint.clone() };
    let preferring = DriverOptions::default().with_preferred_regions([EAST, WEST]);
    let client = server.driver_over(AnyTransport::foreign(through), preferring).await;
    driver::create_database(&client, "shop").await;
    driver::create_container(&client, "shop", "orders", "/customer").await;
    let orders = client.container("shop", "orders");
    client.execute(&upsert(&orders, "1"), &unhedged()).await.unwrap();
    server.wait_for_replication().await;
    server.fault(r#"{"operation":"read_item","delayMs":200}"#).await;
    server.fault(r#"{"operation":"upsert_item","delayMs":200}"#).await;

    let (began, until) = (Instant::now(), Instant::now() + Duration::from_secs(9));
    let reads = keep_busy(&client, |_| read(&orders), 140, until);
    let writes = keep_busy(&client, |number| upsert(&orders, &format!("w{number}")), 20, until);
    wait_until("all eight connections are used", Duration::from_secs(5), async || {
        proxy.accepted.load(Ordering::SeqCst) >= 8
    })
    .await;
    tokio::time::sleep_until(began + Duration::from_secs(2)).await;
    let silent_at = Instant::now();
    proxy.silenced.send_modify(|numbers| {
        numbers.insert(4);
    });
    wait_until("the silent connection is closed", Duration::from_secs(6), async || {
        proxy.alive.now.load(Ordering::SeqCst) < proxy.accepted.load(Ordering::SeqCst)
    })
    .await;
    let evicted_after = silent_at.elapsed();
    let reads: Vec<_> = reads.join_all().await.into_iter().flatten().collect();
    let writes: Vec<_> = writes.join_all().await.into_iter().flatten().collect();

    let p99 = |times: &[(Instant, Duration)], from: Instant, to: Instant| {
        let within = times.iter().filter(|(began, _)| (from..to).contains(began));
        let mut latencies: Vec<Duration> = within.map(|(_, latency)| *latency).collect();
        latencies.sort_unstable();
        percentile(&latencies, 99)
    };
    let before = p99(&reads, began + Duration::from_secs(1), silent_at - Duration::from_millis(500));
    let recovered = p99(&reads, silent_at + evicted_after + Duration::from_secs(2), until);
    let longest_read = reads.iter().map(|(_, latency)| *latency).max().unwrap();
    let longest_write = writes.iter().map(|(_, latency)| *latency).max().unwrap();
    println!(
        "evicted after {evicted_after:?}; P99 of reads {before:?} before, {recovered:?} after; \
         longest read {longest_read:?}, longest upsert {longest_write:?}"
    );
    let slack = Duration::from_millis(1500);
    assert!(evicted_after < READ_HANG_LIMIT + slack, "{evicted_after:?}");
    assert!(longest_read > READ_HANG_LIMIT, "some reads were on the silent connection: {longest_read:?}");
    assert!(longest_read < READ_HANG_LIMIT + slack, "{longest_read:?}");
    assert!(longest_write < READ_HANG_LIMIT + 2 * slack, "{longest_write:?}");
    assert!(recovered < 2 * before + Duration::from_millis(100), "{before:?} before, {recovered:?} after");
    server.stop().await;
}
