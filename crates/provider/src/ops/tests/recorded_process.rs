//! A process whose requests are recorded, so that a test can send them again. The copies stand for
//! attempts that were given up, and arrive when the operation is long over. A test can also run a hook
//! right before a batch of the process is sent, or while an answer is on its way.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use perihelion_client::{Client, Transport};
use perihelion_server::InProcess;
use perihelion_wire::headers;
use perihelion_wire::transport::{Failure, FailureKind, Request, Response, Sent};
use serde_json::Value;

use super::{NEVER, World};
use crate::CosmosDBProvider;
use crate::sync::lock;

/// The header of requests that are batches.
const BATCH_HEADER: &str = "x-ms-cosmos-is-batch-request";

/// The time that a copy of a request may take.
const COPY_TIMEOUT: Duration = Duration::from_secs(10);

/// What a test runs before a batch is sent, or before an answer arrives.
type Hook = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A process whose transport records its requests.
#[derive(Clone)]
pub(super) struct RecordedProcess {
    transport: InProcess,
    requests: Arc<Mutex<Vec<Request>>>,
    before_batch: Arc<Mutex<Option<Hook>>>,
    /// A text in the body of a request, and the hook that runs after that request was carried out.
    before_answer: Arc<Mutex<Option<(&'static str, Hook)>>>,
    /// A text in the body of a request whose answer is lost.
    lost_answer: Arc<Mutex<Option<&'static str>>>,
    /// A partition key as headers have it, and the answer that all point reads with this key get.
    repeated_answer: Arc<Mutex<Option<(String, Response)>>>,
}

impl Transport for RecordedProcess {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        if request.headers.contains_key(BATCH_HEADER) {
            let hook = lock(&self.before_batch).take();
            if let Some(hook) = hook {
                hook.await;
            }
        }
        lock(&self.requests).push(request.clone());
        let body = String::from_utf8_lossy(&request.body).into_owned();
        if let Some(answer) = self.repeated_answer_to(&request) {
            return Ok(answer);
        }
        let answer = self.transport.send(request).await;
        let hook = lock(&self.before_answer).take_if(|(text, _)| body.contains(*text));
        if let Some((_, hook)) = hook {
            hook.await;
        }
        if lock(&self.lost_answer).take_if(|text| body.contains(*text)).is_some() {
            return Err(Failure::new(FailureKind::Closed, Sent::Yes, "the answer was lost"));
        }
        answer
    }
}

impl RecordedProcess {
    pub(super) fn new(world: &World) -> Self {
        RecordedProcess {
            transport: world.engine.transport(),
            requests: Arc::default(),
            before_batch: Arc::default(),
            before_answer: Arc::default(),
            lost_answer: Arc::default(),
            repeated_answer: Arc::default(),
        }
    }

    /// A world, a recorded process in it, and the provider of that process.
    pub(super) async fn open() -> (World, RecordedProcess, CosmosDBProvider) {
        let world = World::open().await;
        let process = RecordedProcess::new(&world);
        let provider = process.provider(&world).await;
        (world, process, provider)
    }

    /// A provider on this transport. Its reconciler does not run during a test.
    pub(super) async fn provider(&self, world: &World) -> CosmosDBProvider {
        let client = Client::over(&world.engine.endpoint(), self.clone()).await.unwrap();
        CosmosDBProvider::builder().with_client(client).with_reconciler(NEVER, NEVER).open().await.unwrap()
    }

    /// Forgets the requests so far.
    pub(super) fn forget_requests(&self) {
        lock(&self.requests).clear();
    }

    /// The bodies of the recorded requests.
    pub(super) fn bodies(&self) -> Vec<String> {
        let requests = lock(&self.requests);
        requests.iter().map(|request| String::from_utf8_lossy(&request.body).into_owned()).collect()
    }

    /// The number of recorded requests.
    pub(super) fn request_count(&self) -> usize {
        lock(&self.requests).len()
    }

    /// The bodies of the recorded queries that are not limited to one logical partition, one body for
    /// each page.
    pub(super) fn pages_of_container(&self) -> Vec<Value> {
        let is_page = |request: &&Request| {
            let has = |name| request.headers.contains_key(name);
            has(headers::IS_QUERY) && !has(headers::IS_QUERY_PLAN_REQUEST) && !has(headers::PARTITION_KEY)
        };
        let requests = lock(&self.requests);
        let pages = requests.iter().filter(is_page);
        pages.map(|request| serde_json::from_slice(&request.body).unwrap()).collect()
    }

    /// Sends the recorded requests again, in order.
    pub(super) async fn send_again(&self) {
        let requests = lock(&self.requests).clone();
        assert!(!requests.is_empty(), "there are requests to send again");
        for mut request in requests {
            request.deadline = std::time::Instant::now() + COPY_TIMEOUT;
            self.transport.send(request).await.unwrap();
        }
    }

    /// Runs the hook after the next request with this text in its body was carried out, and before the
    /// process gets the answer.
    pub(super) fn before_answer_to(
        &self,
        text: &'static str,
        hook: impl Future<Output = ()> + Send + 'static,
    ) {
        *lock(&self.before_answer) = Some((text, Box::pin(hook)));
    }

    /// Loses the answer to the next request with this text in its body.
    pub(super) fn lose_answer_to(&self, text: &'static str) {
        *lock(&self.lost_answer) = Some(text);
    }

    /// Answers point reads of a document with the document as it is now, as a replica that is behind
    /// does. All point reads in the partition of this instance get this answer.
    pub(super) async fn answer_reads_as_now(&self, provider: &CosmosDBProvider, instance: &str) {
        self.forget_requests();
        provider.core.store.state(instance).await.unwrap().expect("its state");
        let mut read = lock(&self.requests).last().cloned().expect("the read");
        read.deadline = std::time::Instant::now() + COPY_TIMEOUT;
        let key = partition_key(&read).expect("the key of the partition").to_owned();
        let answer = self.transport.send(read).await.unwrap();
        *lock(&self.repeated_answer) = Some((key, answer));
    }

    fn repeated_answer_to(&self, request: &Request) -> Option<Response> {
        let repeated = lock(&self.repeated_answer);
        let (key, answer) = repeated.as_ref()?;
        let is_same_read = request.method == Method::GET && partition_key(request) == Some(key.as_str());
        is_same_read.then(|| answer.clone())
    }

    /// The number of recorded point reads of documents whose id ends with this text.
    pub(super) fn point_reads(&self, id_end: &str) -> usize {
        let is_read =
            |request: &&Request| request.method == Method::GET && request.target.path().ends_with(id_end);
        lock(&self.requests).iter().filter(is_read).count()
    }

    /// Runs the hook right before the next batch is sent.
    pub(super) fn before_next_batch(&self, hook: impl Future<Output = ()> + Send + 'static) {
        *lock(&self.before_batch) = Some(Box::pin(hook));
    }
}

/// The partition key of a request, as its header has it.
fn partition_key(request: &Request) -> Option<&str> {
    request.headers.get(headers::PARTITION_KEY)?.to_str().ok()
}
