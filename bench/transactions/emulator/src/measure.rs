//! The closed loop: several clients, one task each. A client starts its next transaction when the
//! previous one is answered, until the time is up. A transaction that is running at the end of the
//! time is finished and counted. The rate is computed over the time until the last one ended.
//!
//! A store in this process may answer without ever suspending its task. So a client gives the
//! other clients a turn after every transaction. Each client runs at least one transaction, however
//! short the time is, so that the reads find a round that was created.

use std::sync::Arc;
use std::time::{Duration, Instant};

use perihelion_bench_client::{Histogram, NewDocument, Problem, payload_for};
use tokio::task::JoinSet;

use crate::arguments::Arguments;
use crate::shape::Shape;
use crate::store::Store;

/// How long a transaction may take after the time is up. Both libraries give up before that.
const DRAIN_LIMIT: Duration = Duration::from_secs(120);

/// The work of the clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// Creates the documents of the next round.
    Create,
    /// Reads the documents of a round that was created.
    Read,
}

impl Work {
    pub(crate) const ALL: [Work; 2] = [Work::Create, Work::Read];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Work::Create => "creates",
            Work::Read => "reads",
        }
    }
}

/// The figures of one measurement.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) operations_per_second: f64,
    /// The time of one transaction.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

/// Warms up and measures on an empty store: first creates, then reads of what was created. The
/// samples are in the order of [`Work::ALL`].
pub(crate) async fn measure<S: Store>(
    store: S,
    keys: Vec<String>,
    shape: Shape,
    arguments: &Arguments,
) -> Result<Vec<Sample>, Problem> {
    let payload: Arc<str> = payload_for(new_document(&shape.places(0, 0)[0].id, "k-100", ""))?.into();
    let keys: Arc<[String]> = keys.into();
    let mut clients: Vec<LoopClient<S>> = (0..arguments.clients)
        .map(|number| LoopClient {
            store: store.clone(),
            keys: Arc::clone(&keys),
            payload: Arc::clone(&payload),
            shape,
            number,
            created: 0,
            read: 0,
        })
        .collect();
    let mut samples = Vec::new();
    for work in Work::ALL {
        drive(&mut clients, work, arguments.warm_up).await?;
        samples.push(drive(&mut clients, work, arguments.window).await?);
    }
    Ok(samples)
}

/// One client. It is kept from the warm-up to the measurement.
struct LoopClient<S> {
    store: S,
    /// One partition key in each physical partition.
    keys: Arc<[String]>,
    payload: Arc<str>,
    shape: Shape,
    number: u64,
    /// The rounds that were created.
    created: u64,
    /// The rounds that were read. After the last created one the first is read again.
    read: u64,
}

impl<S: Store> LoopClient<S> {
    async fn create_round(&mut self) -> Result<(), Problem> {
        let places = self.shape.places(self.number, self.created);
        let documents: Vec<NewDocument<'_>> = places
            .iter()
            .map(|place| new_document(&place.id, &self.keys[place.partition], &self.payload))
            .collect();
        self.store.create(&documents).await?;
        self.created += 1;
        Ok(())
    }

    async fn read_round(&mut self) -> Result<(), Problem> {
        let places = self.shape.places(self.number, self.read % self.created);
        let names: Vec<(&str, &str)> =
            places.iter().map(|place| (self.keys[place.partition].as_str(), place.id.as_str())).collect();
        let documents = self.store.read(&names).await?;
        let is_right = documents.len() == names.len()
            && documents.iter().zip(&names).all(|(document, (key, id))| {
                document.id == *id && document.pk == *key && document.payload.len() == self.payload.len()
            });
        self.read += 1;
        if is_right { Ok(()) } else { Err(format!("asked for {names:?}, got {documents:?}").into()) }
    }

    async fn run_until(mut self, until: Instant, work: Work) -> Result<(Self, Histogram), Problem> {
        let mut latencies = Histogram::new();
        loop {
            let sent_at = Instant::now();
            match work {
                Work::Create => self.create_round().await?,
                Work::Read => self.read_round().await?,
            }
            let answered_at = Instant::now();
            latencies.record(answered_at - sent_at);
            if answered_at >= until {
                return Ok((self, latencies));
            }
            tokio::task::yield_now().await;
        }
    }
}

fn new_document<'a>(id: &'a str, pk: &'a str, payload: &'a str) -> NewDocument<'a> {
    NewDocument { id, pk, kind: "worker", visible_at: 1_760_000_000, attempt: 0, payload }
}

async fn drive<S: Store>(
    clients: &mut Vec<LoopClient<S>>,
    work: Work,
    time: Duration,
) -> Result<Sample, Problem> {
    let operations_each = clients.first().map_or(0, |client| client.shape.operations);
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for client in clients.drain(..) {
        tasks.spawn(client.run_until(started + time, work));
    }
    let mut latencies = Histogram::new();
    let all = async {
        while let Some(joined) = tasks.join_next().await {
            let (client, client_latencies) = joined??;
            latencies.merge(&client_latencies);
            clients.push(client);
        }
        Ok::<(), Problem>(())
    };
    tokio::time::timeout(time + DRAIN_LIMIT, all)
        .await
        .map_err(|_| "transactions are still unanswered")??;
    let operations = (latencies.count() * operations_each) as f64;
    Ok(Sample {
        operations_per_second: operations / started.elapsed().as_secs_f64(),
        p50_ms: latencies.quantile_ms(0.5),
        p99_ms: latencies.quantile_ms(0.99),
    })
}
