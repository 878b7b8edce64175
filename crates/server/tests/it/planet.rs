//! A server with several regions, one database and one container, and short
//! ways to use each region.

use std::time::Duration;

use perihelion_model::json::{Value, object};
use perihelion_server::{RegionNames, ServerOptions};

use crate::client::{Answer, Call, Client};
use crate::harness::{Running, options};
use crate::world::{PLAIN, docs, json};

pub(crate) const WEST: usize = 0;
pub(crate) const EAST: usize = 1;
pub(crate) const NORTH: usize = 2;
pub(crate) const NAMES: [&str; 3] = ["West US", "East US", "North Europe"];

/// The API version that current SDKs send.
const CURRENT_VERSION: &str = "2020-07-15";

pub(crate) struct Planet {
    pub(crate) server: Running,
    pub(crate) global: Client,
    pub(crate) regions: Vec<Client>,
}

/// What a server of three regions is started with.
pub(crate) fn three_regions() -> ServerOptions {
    ServerOptions {
        management: true,
        regions: RegionNames::new(NAMES).unwrap(),
        replication_delay: Duration::from_millis(2),
        ..options()
    }
}

impl Planet {
    pub(crate) async fn new() -> Planet {
        Planet::with(three_regions()).await
    }

    /// All regions write.
    pub(crate) async fn of_writers() -> Planet {
        Planet::with(ServerOptions { multi_write: true, ..three_regions() }).await
    }

    pub(crate) async fn with(options: ServerOptions) -> Planet {
        let planet = Planet::open(options).await;
        planet.make("/dbs", r#"{"id":"d"}"#).await;
        planet.make("/dbs/d/colls", PLAIN).await;
        planet
    }

    /// The same over data that is there already.
    pub(crate) async fn open(options: ServerOptions) -> Planet {
        let server = Running::start(options).await;
        let regions = NAMES.iter().map(|name| server.region_client(name)).collect();
        Planet { global: server.client(), regions, server }
    }

    async fn make(&self, path: &str, body: &str) {
        let made = send(&self.global, Call::new("POST", path).json(&json(body))).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }

    pub(crate) async fn send(&self, region: usize, call: Call) -> Answer {
        send(&self.regions[region], call).await
    }

    pub(crate) async fn upsert(&self, region: usize, id: &str, n: u64) -> Answer {
        self.send(region, upsert(id, n)).await
    }

    pub(crate) async fn delete(&self, region: usize, id: &str) -> Answer {
        self.send(region, docs("DELETE", id, r#"["a"]"#)).await
    }

    pub(crate) async fn read(&self, region: usize, id: &str) -> Answer {
        self.send(region, docs("GET", id, r#"["a"]"#)).await
    }

    /// Every document of a region by id, as a feed returns it.
    pub(crate) async fn documents(&self, region: usize) -> Vec<Value> {
        let feed = self.send(region, docs("GET", "", "").header("x-ms-max-item-count", "-1")).await;
        assert_eq!(feed.status, 200, "{}", feed.text());
        let mut documents = crate::world::documents(&feed);
        documents.sort_by_key(|document| crate::world::text(document, "id"));
        documents
    }

    pub(crate) async fn try_manage(&self, method: &str, name: &str, body: &str) -> Answer {
        manage(&self.global, method, name, body).await
    }

    /// A management request that is granted.
    pub(crate) async fn manage(&self, method: &str, name: &str, body: &str) -> Value {
        let answer = self.try_manage(method, name, body).await;
        assert_eq!(answer.status, 200, "{name} {body}: {}", answer.text());
        answer.json().unwrap()
    }

    /// An order that concerns one region.
    pub(crate) async fn order(&self, name: &str, region: usize) {
        self.manage("POST", name, &format!(r#"{{"region":"{}"}}"#, NAMES[region])).await;
    }

    /// Returns when everything that is under way has arrived.
    pub(crate) async fn settle(&self) {
        self.manage("POST", "replication/wait", "").await;
    }

    /// Settles, and checks that all regions hold the same documents.
    pub(crate) async fn assert_alike(&self) -> Vec<Value> {
        self.settle().await;
        let first = self.documents(0).await;
        for (region, name) in NAMES.iter().enumerate().skip(1) {
            assert_eq!(first, self.documents(region).await, "{} and {name}", NAMES[0]);
        }
        first
    }

    /// How many parcels wait on the way from one region to another.
    pub(crate) async fn pending(&self, from: usize, to: usize) -> i64 {
        let report = self.manage("GET", "regions", "").await;
        let links = report.get("replication").unwrap().as_array().unwrap().to_vec();
        let is_it = |link: &&Value| {
            link.get("from") == Some(&NAMES[from].into()) && link.get("to") == Some(&NAMES[to].into())
        };
        links.iter().find(is_it).unwrap().get("pending").unwrap().as_i64().unwrap()
    }

    pub(crate) async fn stop(self) {
        drop((self.global, self.regions));
        self.server.stop().await;
    }
}

pub(crate) fn upsert(id: &str, n: u64) -> Call {
    let body = object([("id", id.into()), ("pk", "a".into()), ("n", n.into())]);
    docs("POST", "", r#"["a"]"#).header("x-ms-documentdb-is-upsert", "true").json(&body)
}

pub(crate) async fn send(client: &Client, call: Call) -> Answer {
    // SDKs say that any region may write where several do.
    let call =
        call.header("x-ms-version", CURRENT_VERSION).header("x-ms-cosmos-allow-tentative-writes", "true");
    client.send(&call).await.unwrap_or_else(|error| panic!("{call:?}: {error}"))
}

pub(crate) async fn manage(client: &Client, method: &str, name: &str, body: &str) -> Answer {
    let call = Call::new(method, format!("/_perihelion/{name}")).omit("authorization").body(body.to_owned());
    send(client, call).await
}
