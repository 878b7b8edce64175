//! The closed loop: several clients, one task each. A client starts its next operation when
//! the previous one is answered, until the time is up or the client's share of the
//! operations is done. An operation that is running at the end of the time is finished and
//! counted. The rate is computed over the time until the last operation ended, so that slow
//! answers count fully.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::documents::{READ_KEYS, READABLE_DOCUMENTS, WRITE_KEYS, payload_for};
use crate::{Client, Histogram, NewDocument, Operation, Problem, Span, readable_id};

/// How long an operation may take after the time is up. Every library gives up
/// before that.
const DRAIN_LIMIT: Duration = Duration::from_secs(120);
/// The time limit of a run with a fixed number of operations. Such runs may be under valgrind.
const OPERATIONS_LIMIT: Duration = Duration::from_secs(600);

/// The figures of one closed loop.
pub(crate) struct Sample {
    pub(crate) elapsed: Duration,
    pub(crate) operations: u64,
    /// Empty for a bulk, which does not answer operation by operation.
    pub(crate) latencies: Histogram,
}

/// Ids and partition keys, created once, so that the loop does not format them.
pub(crate) struct Names {
    /// The partition key and the id of each document for point reads.
    readable: Vec<(String, String)>,
    pub(crate) write_keys: Vec<String>,
}

impl Names {
    pub(crate) fn new() -> Self {
        let key_and_id = |number: u64| (format!("k-{}", number % READ_KEYS), readable_id(number));
        let readable = (0..READABLE_DOCUMENTS).map(key_and_id).collect();
        Self { readable, write_keys: (0..WRITE_KEYS).map(|number| format!("k-{number}")).collect() }
    }
}

/// One client of a run. It is kept from the warm-up to the measurement.
pub(crate) struct LoopClient<C> {
    client: C,
    operation: Operation,
    names: Arc<Names>,
    /// The beginning of the ids of new documents.
    id_prefix: String,
    payload: String,
    /// The number of operations so far.
    operations: u64,
    random_state: u64,
}

impl<C: Client> LoopClient<C> {
    pub(crate) fn new(
        client: C,
        operation: Operation,
        names: Arc<Names>,
        run: u64,
        number: u64,
    ) -> Result<Self, Problem> {
        let id_prefix = format!("w-{run}-{number}");
        let mut client = Self {
            client,
            operation,
            names,
            id_prefix,
            payload: String::new(),
            operations: 0,
            random_state: ((run << 8) | number) + 1,
        };
        let id = client.next_id();
        client.payload = payload_for(new_document(&id, "k-10", ""))?;
        Ok(client)
    }

    /// The id of the next new document. All ids have the same length for up to a million
    /// operations.
    fn next_id(&self) -> String {
        format!("{}-{:06}", self.id_prefix, self.operations)
    }

    /// The next number of a xorshift generator: random enough to choose a document, and the same
    /// whenever a run with the same number is repeated.
    fn next_random(&mut self) -> usize {
        self.random_state ^= self.random_state << 13;
        self.random_state ^= self.random_state >> 7;
        self.random_state ^= self.random_state << 17;
        self.random_state as usize
    }

    async fn run_one(&mut self) -> Result<(), Problem> {
        self.operations += 1;
        let names = Arc::clone(&self.names);
        match self.operation {
            Operation::Read => {
                let (key, id) = &names.readable[self.next_random() % names.readable.len()];
                let document = self.client.read(key, id).await?;
                if document.id != *id || document.pk != *key || document.payload.is_empty() {
                    return Err(format!("asked for {id} in {key}, got {document:?}").into());
                }
                Ok(())
            }
            Operation::Bulk => Err("a bulk is not one operation of the loop".into()),
            Operation::Create => {
                let pk = &names.write_keys[self.next_random() % names.write_keys.len()];
                let id = self.next_id();
                self.client.create(&new_document(&id, pk, &self.payload)).await
            }
        }
    }

    async fn run_until(mut self, until: Instant, operations_max: u64) -> Result<(Self, Histogram), Problem> {
        let mut latencies = Histogram::new();
        let mut sent_at = Instant::now();
        while sent_at < until && latencies.count() < operations_max {
            self.run_one().await?;
            let answered_at = Instant::now();
            latencies.record(answered_at - sent_at);
            sent_at = answered_at;
        }
        Ok((self, latencies))
    }
}

pub(crate) fn new_document<'a>(id: &'a str, pk: &'a str, payload: &'a str) -> NewDocument<'a> {
    NewDocument { id, pk, kind: "worker", visible_at: 1_760_000_000, attempt: 0, payload }
}

/// Drives all clients for a span.
pub(crate) async fn drive<C: Client>(
    clients: &mut Vec<LoopClient<C>>,
    span: Span,
) -> Result<Sample, Problem> {
    let (time, operations_each) = match span {
        Span::Time(time) => (time, u64::MAX),
        Span::Operations(all) => (OPERATIONS_LIMIT, all.div_ceil(clients.len() as u64)),
    };
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for client in clients.drain(..) {
        tasks.spawn(client.run_until(started + time, operations_each));
    }
    let mut latencies = Histogram::new();
    tokio::time::timeout(time + DRAIN_LIMIT, async {
        while let Some(joined) = tasks.join_next().await {
            let (client, client_latencies) = joined??;
            latencies.merge(&client_latencies);
            clients.push(client);
        }
        Ok::<(), Problem>(())
    })
    .await
    .map_err(|_| "operations are still unanswered")??;
    Ok(Sample { elapsed: started.elapsed(), operations: latencies.count(), latencies })
}
