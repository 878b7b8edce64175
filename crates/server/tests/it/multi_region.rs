//! A server with three regions, one database and one container, and a client of
//! each region.

use std::time::Duration;

use perihelion_model::json::{Value, object};
use perihelion_server::{AccountOptions, ServerOptions};
use perihelion_testkit::TestServer;
use perihelion_testkit::http_client::{HttpClient, HttpRequest, HttpResponse};
pub(crate) use perihelion_testkit::regions::REGIONS as NAMES;

use crate::world::{PLAIN_CONTAINER, docs, json};

/// The index of each region in [`NAMES`].
pub(crate) const WEST: usize = 0;
pub(crate) const EAST: usize = 1;
pub(crate) const NORTH: usize = 2;

/// The API version that current SDKs send.
const CURRENT_VERSION: &str = "2020-07-15";

/// The server, a client of the account's own endpoint and a client of each region.
pub(crate) struct MultiRegion {
    pub(crate) server: TestServer,
    pub(crate) global: HttpClient,
    pub(crate) regions: Vec<HttpClient>,
}

/// The options of a server with three regions.
pub(crate) fn three_regions() -> ServerOptions {
    ServerOptions {
        management: true,
        account: AccountOptions {
            regions: perihelion_testkit::regions::three_regions(),
            replication_delay: Duration::from_millis(2),
            ..AccountOptions::default()
        },
        ..ServerOptions::default()
    }
}

impl MultiRegion {
    pub(crate) async fn new() -> MultiRegion {
        MultiRegion::with_options(three_regions()).await
    }

    /// A server on which all regions take writes.
    pub(crate) async fn with_multi_write() -> MultiRegion {
        let mut options = three_regions();
        options.account.multi_write = true;
        MultiRegion::with_options(options).await
    }

    pub(crate) async fn with_options(options: ServerOptions) -> MultiRegion {
        let world = MultiRegion::open(options).await;
        world.create("/dbs", r#"{"id":"d"}"#).await;
        world.create("/dbs/d/colls", PLAIN_CONTAINER).await;
        world
    }

    /// Starts a server; no database or container is created.
    pub(crate) async fn open(options: ServerOptions) -> MultiRegion {
        let server = TestServer::on_socket(options).await;
        let regions = NAMES.iter().map(|name| server.region_http_client(name)).collect();
        MultiRegion { global: server.http_client(), regions, server }
    }

    async fn create(&self, path: &str, body: &str) {
        let created = send(&self.global, HttpRequest::new("POST", path).json(&json(body))).await;
        assert_eq!(created.status, 201, "{}", created.text());
    }

    pub(crate) async fn send(&self, region: usize, call: HttpRequest) -> HttpResponse {
        send(&self.regions[region], call).await
    }

    pub(crate) async fn upsert(&self, region: usize, id: &str, n: u64) -> HttpResponse {
        self.send(region, upsert(id, n)).await
    }

    pub(crate) async fn delete(&self, region: usize, id: &str) -> HttpResponse {
        self.send(region, docs("DELETE", id, r#"["a"]"#)).await
    }

    pub(crate) async fn read(&self, region: usize, id: &str) -> HttpResponse {
        self.send(region, docs("GET", id, r#"["a"]"#)).await
    }

    /// Every document of a region as a feed returns it, sorted by id.
    pub(crate) async fn documents(&self, region: usize) -> Vec<Value> {
        let feed = self.send(region, docs("GET", "", "").header("x-ms-max-item-count", "-1")).await;
        assert_eq!(feed.status, 200, "{}", feed.text());
        let mut documents = crate::world::documents(&feed);
        documents.sort_by_key(|document| crate::world::text(document, "id"));
        documents
    }

    pub(crate) async fn try_manage(&self, method: &str, name: &str, body: &str) -> HttpResponse {
        manage(&self.global, method, name, body).await
    }

    /// A management request that must succeed.
    pub(crate) async fn manage(&self, method: &str, name: &str, body: &str) -> Value {
        let answer = self.try_manage(method, name, body).await;
        assert_eq!(answer.status, 200, "{name} {body}: {}", answer.text());
        answer.json().unwrap()
    }

    /// A management request about one region.
    pub(crate) async fn manage_region(&self, name: &str, region: usize) {
        self.manage("POST", name, &format!(r#"{{"region":"{}"}}"#, NAMES[region])).await;
    }

    /// Waits until every region that is not cut off from replication has the writes of the other
    /// regions.
    pub(crate) async fn wait_for_replication(&self) {
        self.manage("POST", "replication/wait", "").await;
    }

    /// Waits for replication, then checks that all regions hold the same documents.
    /// Returns the documents, sorted by id.
    pub(crate) async fn assert_regions_agree(&self) -> Vec<Value> {
        self.wait_for_replication().await;
        let first = self.documents(0).await;
        for (region, name) in NAMES.iter().enumerate().skip(1) {
            assert_eq!(first, self.documents(region).await, "{} and {name}", NAMES[0]);
        }
        first
    }

    /// How many writes of the region `from` the region `to` has not applied yet.
    pub(crate) async fn pending(&self, from: usize, to: usize) -> i64 {
        let report = self.manage("GET", "regions", "").await;
        let links = report.get("replication").unwrap().as_array().unwrap().to_vec();
        let is_wanted = |link: &&Value| {
            link.get("from") == Some(&NAMES[from].into()) && link.get("to") == Some(&NAMES[to].into())
        };
        links.iter().find(is_wanted).unwrap().get("pending").unwrap().as_i64().unwrap()
    }

    pub(crate) async fn stop(self) {
        drop((self.global, self.regions));
        self.server.stop().await;
    }
}

pub(crate) fn upsert(id: &str, n: u64) -> HttpRequest {
    let body = object([("id", id.into()), ("pk", "a".into()), ("n", n.into())]);
    docs("POST", "", r#"["a"]"#).header("x-ms-documentdb-is-upsert", "true").json(&body)
}

pub(crate) async fn send(client: &HttpClient, call: HttpRequest) -> HttpResponse {
    // SDKs send the second header when several regions take writes.
    let call =
        call.header("x-ms-version", CURRENT_VERSION).header("x-ms-cosmos-allow-tentative-writes", "true");
    client.send(&call).await.unwrap_or_else(|error| panic!("{call:?}: {error}"))
}

pub(crate) async fn manage(client: &HttpClient, method: &str, name: &str, body: &str) -> HttpResponse {
    let call =
        HttpRequest::new(method, format!("/_perihelion/{name}")).omit("authorization").body(body.to_owned());
    send(client, call).await
}
