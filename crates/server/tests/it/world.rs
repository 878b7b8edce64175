//! A server with one database and one container, and the requests that most
//! tests send to it.

use perihelion_model::json::{Value, parse_str};
use perihelion_server::ServerOptions;
use perihelion_testkit::TestServer;
use perihelion_testkit::http_client::{HttpClient, HttpRequest, HttpResponse};

/// The API version that current SDKs send.
const CURRENT_VERSION: &str = "2020-07-15";

/// A server on a socket and a client of it.
pub(crate) struct World {
    server: TestServer,
    client: HttpClient,
}

/// Parses a JSON literal of a test.
pub(crate) fn json(text: &str) -> Value {
    parse_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The definition of the container that most tests use.
pub(crate) const PLAIN_CONTAINER: &str =
    r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;

impl World {
    /// A server with default options and the given container as `/dbs/d/colls/c`.
    pub(crate) async fn new(container: &str) -> World {
        World::with_options(ServerOptions::default(), container).await
    }

    pub(crate) async fn with_options(options: ServerOptions, container: &str) -> World {
        let server = TestServer::on_socket(options).await;
        let client = server.http_client();
        let world = World { server, client };
        let created = world.send(HttpRequest::new("POST", "/dbs").json(&json(r#"{"id":"d"}"#))).await;
        assert_eq!(created.status, 201, "{}", created.text());
        let created = world.send(HttpRequest::new("POST", "/dbs/d/colls").json(&json(container))).await;
        assert_eq!(created.status, 201, "{}", created.text());
        world
    }

    pub(crate) async fn send(&self, call: HttpRequest) -> HttpResponse {
        let call = call.header("x-ms-version", CURRENT_VERSION);
        self.client.send(&call).await.unwrap_or_else(|error| panic!("{call:?}: {error}"))
    }

    /// The address of the server.
    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.server.address()
    }

    /// Sends a request that may get no response.
    pub(crate) async fn try_send(&self, call: HttpRequest) -> Result<HttpResponse, String> {
        self.client.send(&call.header("x-ms-version", CURRENT_VERSION)).await
    }

    /// Creates a document. `key` is the partition key header.
    pub(crate) async fn create(&self, key: &str, body: &str) -> HttpResponse {
        self.send(docs("POST", "", key).json(&json(body))).await
    }

    pub(crate) async fn read(&self, key: &str, id: &str) -> HttpResponse {
        self.send(docs("GET", id, key)).await
    }

    /// The rows of a query over the whole container.
    pub(crate) async fn query(&self, text: &str) -> Vec<Value> {
        let answer =
            self.send(query(text).header("x-ms-documentdb-query-enablecrosspartition", "true")).await;
        assert_eq!(answer.status, 200, "{text}: {}", answer.text());
        documents(&answer)
    }

    /// Sends a management request. `name` follows `/_perihelion/` in the path.
    pub(crate) async fn manage(&self, method: &str, name: &str, body: &str) -> HttpResponse {
        self.send(
            HttpRequest::new(method, format!("/_perihelion/{name}"))
                .omit("authorization")
                .body(body.to_owned()),
        )
        .await
    }

    /// A client with a connection of its own.
    pub(crate) fn other_client(&self) -> HttpClient {
        self.server.http_client()
    }

    pub(crate) async fn stop(self) {
        drop(self.client);
        self.server.stop().await;
    }
}

/// A request about documents. An empty `id` addresses the feed. `key` is the partition key
/// header; an empty `key` sends no such header.
pub(crate) fn docs(method: &str, id: &str, key: &str) -> HttpRequest {
    let path =
        if id.is_empty() { "/dbs/d/colls/c/docs".to_owned() } else { format!("/dbs/d/colls/c/docs/{id}") };
    let call = HttpRequest::new(method, path);
    if key.is_empty() { call } else { call.header("x-ms-documentdb-partitionkey", key) }
}

/// A query without a scope: the caller adds the header with the partition key, the
/// range, or the flag that allows the query to cross partitions.
pub(crate) fn query(text: &str) -> HttpRequest {
    let body = perihelion_model::json::object([("query", text.into())]);
    HttpRequest::new("POST", "/dbs/d/colls/c/docs")
        .header("content-type", "application/query+json")
        .body(perihelion_model::json::to_text(&body, perihelion_model::json::Style::Point))
}

/// A batch. It is atomic only with the header `x-ms-cosmos-batch-atomic`.
pub(crate) fn batch(key: &str, operations: &str) -> HttpRequest {
    docs("POST", "", key)
        .header("x-ms-cosmos-is-batch-request", "True")
        .header("content-type", "application/json")
        .body(operations.to_owned())
}

/// The `Documents` of a feed.
pub(crate) fn documents(answer: &HttpResponse) -> Vec<Value> {
    let body = answer.json().unwrap_or_else(|error| panic!("{}: {error}", answer.text()));
    body.get("Documents").and_then(Value::as_array).unwrap_or_else(|| panic!("{}", answer.text())).to_vec()
}

/// The `id`s of documents, in order.
pub(crate) fn ids(documents: &[Value]) -> Vec<String> {
    documents.iter().filter_map(|document| document.get("id")?.as_str()).map(str::to_owned).collect()
}

/// The text of a member.
pub(crate) fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_else(|| panic!("no {name} in {value:?}")).to_owned()
}
