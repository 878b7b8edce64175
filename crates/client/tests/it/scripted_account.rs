//! `ScriptedAccount`: an account that answers transactions with the answers that a test has set. All
//! other requests go to a server in this process. The clock is tokio's and paused.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use perihelion_client::{
    Client, Container, DistributedWriteTransaction, TransactionError, TransactionResults,
};
use perihelion_server::{EmbeddedOptions, InProcess};
use perihelion_testkit::TestServer;
use perihelion_testkit::driver::{create_container, create_database};
use perihelion_testkit::faults::unreachable;
use perihelion_wire::transport::{Failure, Request, Response, Transport};
use serde_json::{Value, json};

/// The answers to the next transactions, and the requests that got them.
#[derive(Default)]
struct Script {
    answers: VecDeque<Result<Response, Failure>>,
    requests: Vec<Request>,
    /// Whether requests other than transactions fail before they reach the server.
    is_cut_off: bool,
}

/// Answers transactions by the script, and passes on all other requests.
struct Scripted {
    server: InProcess,
    script: Arc<Mutex<Script>>,
}

impl Transport for Scripted {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        if request.target.path() != "/operations/dtc" {
            let is_cut_off = self.script.lock().unwrap().is_cut_off;
            return if is_cut_off { Err(unreachable()) } else { self.server.send(request).await };
        }
        let mut script = self.script.lock().unwrap();
        script.requests.push(request);
        script.answers.pop_front().expect("the script has an answer for each transaction")
    }
}

/// A client with the containers `a` and `b`.
pub(crate) struct ScriptedAccount {
    pub(crate) client: Client,
    pub(crate) a: Container,
    pub(crate) b: Container,
    script: Arc<Mutex<Script>>,
    server: TestServer,
}

impl ScriptedAccount {
    pub(crate) async fn new(options: EmbeddedOptions, preferred: &[&str]) -> ScriptedAccount {
        let server = TestServer::in_process(options).await;
        let script = Arc::new(Mutex::new(Script::default()));
        let client = connect(&server, &script, preferred).await;
        create_database(client.driver(), "shop").await;
        for name in ["a", "b"] {
            create_container(client.driver(), "shop", name, "/pk").await;
        }
        let database = client.database("shop");
        ScriptedAccount { a: database.container("a"), b: database.container("b"), client, script, server }
    }

    /// The same account and script with a new client, which has read no metadata of containers.
    pub(crate) async fn restarted(self) -> ScriptedAccount {
        let client = connect(&self.server, &self.script, &[]).await;
        let database = client.database("shop");
        ScriptedAccount { a: database.container("a"), b: database.container("b"), client, ..self }
    }

    /// Moves the writes of the account to another region.
    pub(crate) async fn move_writes(&self, region: &str) {
        self.server.manage_region("regions/write", region).await;
    }

    /// Until the next [`ScriptedAccount::set_answers`], only transactions get answers.
    pub(crate) fn cut_off(&self) {
        self.script.lock().unwrap().is_cut_off = true;
    }

    pub(crate) async fn one_region() -> ScriptedAccount {
        ScriptedAccount::new(EmbeddedOptions::default().with_partitions(2), &[]).await
    }

    /// Replaces the script.
    pub(crate) fn set_answers(&self, answers: impl IntoIterator<Item = Result<Response, Failure>>) {
        *self.script.lock().unwrap() = Script { answers: answers.into_iter().collect(), ..Script::default() };
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        let script = self.script.lock().unwrap();
        assert!(script.answers.is_empty(), "{} answers were not asked for", script.answers.len());
        script.requests.clone()
    }

    /// The tokens of the requests, each once, in order.
    pub(crate) fn tokens(&self) -> Vec<String> {
        let token = |request: &Request| header(&request.headers, "x-ms-cosmos-idempotency-token");
        let mut tokens: Vec<String> = self.requests().iter().map(token).collect();
        tokens.dedup();
        tokens
    }

    /// A transaction of two writes.
    pub(crate) fn transaction(&self) -> DistributedWriteTransaction {
        let mut transaction = self.client.write_transaction();
        transaction
            .create(&self.a, "x", &json!({"id": "1", "pk": "x"}))
            .and_then(|transaction| transaction.delete(&self.b, "y", "2"))
            .unwrap();
        transaction
    }

    /// Commits a transaction of two writes.
    pub(crate) async fn commit(&self) -> Result<TransactionResults, TransactionError> {
        self.transaction().commit().await
    }
}

async fn connect(server: &TestServer, script: &Arc<Mutex<Script>>, preferred: &[&str]) -> Client {
    let transport = Scripted { server: server.embedded().transport(), script: Arc::clone(script) };
    Client::builder()
        .with_endpoint(&server.endpoint().to_string())
        .with_transport(transport)
        .with_preferred_regions(preferred.iter().copied())
        .connect()
        .await
        .unwrap()
}

pub(crate) fn header(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
}

pub(crate) fn answer(status: u16, sub_status: u32, body: impl Into<String>) -> Result<Response, Failure> {
    let mut response = Response::new(Bytes::from(body.into()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response.headers_mut().insert("x-ms-substatus", HeaderValue::from(sub_status));
    response.headers_mut().insert("x-ms-request-charge", HeaderValue::from_static("12.5"));
    Ok(response)
}

pub(crate) fn empty(status: u16, sub_status: u32) -> Result<Response, Failure> {
    answer(status, sub_status, "")
}

pub(crate) fn with_header(
    answer: Result<Response, Failure>,
    name: &'static str,
    value: &'static str,
) -> Result<Response, Failure> {
    answer.map(|mut response| {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
        response
    })
}

/// The results of the two operations, by their statuses.
pub(crate) fn results(is_retriable: bool, statuses: [(u16, u32); 2]) -> String {
    let list: Vec<Value> = statuses
        .iter()
        .enumerate()
        .map(|(index, (code, sub))| json!({"index": index, "statusCode": code, "subStatusCode": sub}))
        .collect();
    json!({"isRetriable": is_retriable, "operationResponses": list}).to_string()
}

pub(crate) fn committed() -> Result<Response, Failure> {
    answer(200, 0, results(false, [(201, 0), (204, 0)]))
}
