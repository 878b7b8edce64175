//! A server under more load than it can serve: slow readers, greedy clients and well-behaved clients
//! at the same time. The well-behaved clients keep a part of their throughput, none of their requests
//! fails (429 is allowed), and afterwards the memory is free again.
//!
//! In a test run the load is small and lasts a few seconds. The well-behaved clients have to keep a
//! quarter of their throughput, because rates vary on a machine that runs other tests. The full load
//! is started by hand, against a server in a process of its own, so that the memory of the server can
//! be limited. With the full load the well-behaved clients have to keep half of their throughput.
//!
//! ```console
//! systemd-run --scope -p MemoryMax=512M perihelion dev --port 8091 --merge-in-gateway
//! PERIHELION_OVERLOAD=4096,64,16,30 PERIHELION_OVERLOAD_ADDRESS=127.0.0.1:8091 \
//!     cargo nextest run -p perihelion-server --test it overload --no-capture
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use perihelion_server::ServerOptions;
use perihelion_testkit::TestServer;
use perihelion_testkit::http_client::{HttpClient, HttpRequest};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::world::{docs, json, query};

/// How much load there is, and for how long.
struct Scale {
    slow_readers: usize,
    greedy: usize,
    well_behaved: usize,
    /// How long each measurement takes. A warm-up of a quarter of this time comes before it.
    phase: Duration,
    /// Whether this is the small load of a test run.
    is_small: bool,
    /// The least part of their throughput that the well-behaved clients have to keep, from 0 to 1.
    kept_min: f64,
}

impl Scale {
    /// The scale in `PERIHELION_OVERLOAD`: `SLOW_READERS,GREEDY,WELL_BEHAVED,SECONDS`. Without it
    /// the scale is small.
    fn from_environment() -> Scale {
        let text = std::env::var("PERIHELION_OVERLOAD").ok();
        let numbers = text.as_deref().unwrap_or("256,8,4,2").split(',').map(|number| number.parse().unwrap());
        let [slow_readers, greedy, well_behaved, seconds] = numbers.collect::<Vec<usize>>()[..] else {
            panic!("PERIHELION_OVERLOAD has four numbers");
        };
        let phase = Duration::from_secs(seconds as u64);
        Scale {
            slow_readers,
            greedy,
            well_behaved,
            phase,
            is_small: text.is_none(),
            kept_min: if text.is_some() { 0.5 } else { 0.25 },
        }
    }
}

/// The number of large documents: several pages.
const LARGE_DOCUMENTS: usize = 400;

/// Counts what the clients of one kind did.
#[derive(Default)]
struct Counts {
    done: AtomicU64,
    /// Requests that were refused with 429, and requests of slow readers that got no response.
    throttled: AtomicU64,
    /// Requests with an answer that the clients of this kind must not get.
    failed: AtomicU64,
}

impl Counts {
    fn count(&self, status: Result<u16, String>, allowed: &[u16]) {
        let counter = match status {
            Ok(429) => &self.throttled,
            Ok(status) if allowed.contains(&status) => &self.done,
            other => {
                eprintln!("unexpected answer: {other:?}");
                &self.failed
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn take(&self) -> (u64, u64, u64) {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        (take(&self.done), take(&self.throttled), take(&self.failed))
    }
}

async fn send(client: &HttpClient, request: HttpRequest) -> Result<u16, String> {
    client.send(&request.header("x-ms-version", "2020-07-15")).await.map(|response| response.status)
}

/// Creates the database, the container and the documents.
async fn fill(address: SocketAddr) {
    let client = HttpClient::new(address);
    // A server that is used again has the database and the container already.
    let _ = send(&client, HttpRequest::new("POST", "/dbs").json(&json(r#"{"id":"d"}"#))).await;
    let container = json(r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#);
    let _ = send(&client, HttpRequest::new("POST", "/dbs/d/colls").json(&container)).await;
    for n in 0..LARGE_DOCUMENTS {
        let items: Vec<String> = (0..60).map(|item| (item * n).to_string()).collect();
        let text = format!(
            r#"{{"id":"large{n}","pk":"large","v":{},"text":"{n} {}","items":[{}]}}"#,
            (n * 37) % LARGE_DOCUMENTS,
            "x".repeat(20_000),
            items.join(",")
        );
        let request = docs("POST", "", r#"["large"]"#).json(&json(&text));
        let status = send(&client, request.header("x-ms-documentdb-is-upsert", "true")).await;
        assert!(matches!(status, Ok(200 | 201)), "{status:?}");
    }
}

/// A well-behaved client: it writes, reads and queries its own small documents, one request after
/// the other.
async fn behave_well(address: SocketAddr, number: usize, counts: Arc<Counts>, must_stop: Arc<AtomicBool>) {
    let client = HttpClient::new(address);
    let key = format!(r#"["small{number}"]"#);
    for n in 0.. {
        if must_stop.load(Ordering::Relaxed) {
            return;
        }
        let id = n % 10;
        let body = json(&format!(r#"{{"id":"{id}","pk":"small{number}","n":{n}}}"#));
        let write = docs("POST", "", &key).json(&body).header("x-ms-documentdb-is-upsert", "true");
        counts.count(send(&client, write).await, &[200, 201]);
        counts.count(send(&client, docs("GET", &id.to_string(), &key)).await, &[200]);
        let find = query(&format!("SELECT * FROM c WHERE c.id = '{id}'"));
        let find = find.header("x-ms-documentdb-partitionkey", key.as_str());
        counts.count(send(&client, find).await, &[200]);
    }
}

const GREEDY: [&str; 6] = [
    "SELECT c.text, COUNT(1) AS n FROM c GROUP BY c.text",
    "SELECT * FROM c ORDER BY c.v",
    "SELECT DISTINCT c.text FROM c",
    "SELECT VALUE [x, y, z] FROM c JOIN x IN c.items JOIN y IN c.items JOIN z IN c.items WHERE x + y + z < 0",
    "SELECT c.text, x FROM c JOIN x IN c.items",
    "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT c.text, x FROM c JOIN x IN c.items) AS d",
];

/// A greedy client: it sends costly queries, one after the other.
async fn be_greedy(address: SocketAddr, number: usize, counts: Arc<Counts>, must_stop: Arc<AtomicBool>) {
    let client = HttpClient::new(address);
    for n in number.. {
        if must_stop.load(Ordering::Relaxed) {
            return;
        }
        let request = query(GREEDY[n % GREEDY.len()])
            .header("x-ms-documentdb-query-enablecrosspartition", "true")
            .header("x-ms-max-item-count", "1000");
        counts.count(send(&client, request).await, &[200, 400, 408]);
    }
}

/// A slow reader: it asks for pages of 4 MB and reads them slowly. The server may close its
/// connection.
async fn read_slowly(address: SocketAddr, counts: Arc<Counts>, must_stop: Arc<AtomicBool>) {
    let client = HttpClient::new(address);
    let request = docs("GET", "", "").header("x-ms-max-item-count", "1000");
    while !must_stop.load(Ordering::Relaxed) {
        let Ok(mut response) = client.send_unread(&request).await else {
            counts.throttled.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(500)).await;
            continue;
        };
        counts.count(Ok(response.status), &[200]);
        while !must_stop.load(Ordering::Relaxed) && response.read_some().await.is_some() {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

/// The requests of the well-behaved clients per second, under the load that other tasks make.
async fn measure(address: SocketAddr, scale: &Scale) -> f64 {
    let (counts, must_stop) = (Arc::new(Counts::default()), Arc::new(AtomicBool::new(false)));
    let mut clients = JoinSet::new();
    for number in 0..scale.well_behaved {
        clients.spawn(behave_well(address, number, Arc::clone(&counts), Arc::clone(&must_stop)));
    }
    // The first requests warm up connections and caches.
    tokio::time::sleep(scale.phase / 4).await;
    let _ = counts.take();
    let began_at = Instant::now();
    tokio::time::sleep(scale.phase).await;
    let (done, throttled, failed) = counts.take();
    let rate = done as f64 / began_at.elapsed().as_secs_f64();
    must_stop.store(true, Ordering::Relaxed);
    clients.join_all().await;
    println!("well-behaved: {rate:.0} requests/s, {throttled} throttled, {failed} failed");
    assert_eq!(failed, 0, "no request of a well-behaved client fails");
    rate
}

/// Waits until there were as many answers as slow readers, so that the measurement does not include
/// their start. A reader that was refused tries again, and counts again.
async fn wait_for_answers(slow: &Counts, readers: u64) {
    let answers = || slow.done.load(Ordering::Relaxed) + slow.throttled.load(Ordering::Relaxed);
    let all = async {
        while answers() < readers {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(START_MAX, all).await.expect("the slow readers get answers");
}

/// The most time until there were as many answers as slow readers.
const START_MAX: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn well_behaved_clients_keep_throughput_beside_greedy_and_slow_clients() {
    let scale = Scale::from_environment();
    let external = std::env::var("PERIHELION_OVERLOAD_ADDRESS").ok().map(|text| text.parse().unwrap());
    let server = match external {
        Some(_) => None,
        None => Some(TestServer::on_socket(ServerOptions::default()).await),
    };
    let address = external.or_else(|| server.as_ref().map(TestServer::address)).unwrap();
    fill(address).await;
    let alone = measure(address, &scale).await;
    let must_stop = Arc::new(AtomicBool::new(false));
    let (greedy, slow) = (Arc::new(Counts::default()), Arc::new(Counts::default()));
    let mut load = JoinSet::new();
    for number in 0..scale.greedy {
        load.spawn(be_greedy(address, number, Arc::clone(&greedy), Arc::clone(&must_stop)));
    }
    for _ in 0..scale.slow_readers {
        load.spawn(read_slowly(address, Arc::clone(&slow), Arc::clone(&must_stop)));
    }
    wait_for_answers(&slow, scale.slow_readers as u64).await;
    let together = measure(address, &scale).await;
    println!("greedy: {:?}, slow: {:?} (done, throttled, failed)", greedy.take(), slow.take());
    must_stop.store(true, Ordering::Relaxed);
    load.join_all().await;
    let afterwards = measure(address, &scale).await;
    println!("alone {alone:.0}/s, together {together:.0}/s, afterwards {afterwards:.0}/s");
    assert!(afterwards >= scale.kept_min * alone, "{afterwards} of {alone} requests per second afterwards");
    // In a test run, other tests may have begun or ended meanwhile.
    let alone = if scale.is_small { alone.min(afterwards) } else { alone };
    assert!(together >= scale.kept_min * alone, "{together} of {alone} requests per second");
    // The memory is free again: the largest query is served.
    let all = query("SELECT * FROM c ORDER BY c.v")
        .header("x-ms-documentdb-query-enablecrosspartition", "true")
        .header("x-ms-max-item-count", "1000");
    assert_eq!(send(&HttpClient::new(address), all).await, Ok(200));
    if let Some(server) = server {
        server.stop().await;
    }
}
