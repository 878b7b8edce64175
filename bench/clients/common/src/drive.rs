//! The closed loop: a number of clients, a task each. Every client does its
//! next operation when the one before is answered, until the time is up or its
//! share is done; an operation under way is finished and counted, and the rate
//! is taken over the time until the last one ended, so that slow answers are
//! neither lost nor flattered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::documents::{READ_KEYS, READABLE, WRITE_KEYS, payload_for};
use crate::{Client, Histogram, NewDocument, Operation, Problem, Span, readable_id};

/// An operation may take this long after the time is up before the run is
/// given up: every library gives up by itself before that.
const DRAIN_LIMIT: Duration = Duration::from_secs(120);
/// Under valgrind a fixed number of operations takes this long at most.
const OPERATIONS_LIMIT: Duration = Duration::from_secs(600);

pub(crate) struct Sample {
    pub(crate) elapsed: Duration,
    pub(crate) latencies: Histogram,
}

/// What a client chooses from, made once: names cost the loop nothing.
pub(crate) struct Names {
    /// Partition key and id of every document that can be read.
    readable: Vec<(String, String)>,
    write_keys: Vec<String>,
}

impl Names {
    pub(crate) fn new() -> Self {
        let readable =
            (0..READABLE).map(|number| (format!("k-{}", number % READ_KEYS), readable_id(number))).collect();
        Self { readable, write_keys: (0..WRITE_KEYS).map(|number| format!("k-{number}")).collect() }
    }
}

/// One client of a run, kept from warm-up to measurement.
pub(crate) struct Looper<C> {
    client: C,
    operation: Operation,
    names: Arc<Names>,
    prefix: String,
    payload: String,
    sent: u64,
    dice: u64,
}

impl<C: Client> Looper<C> {
    pub(crate) fn new(
        client: C,
        operation: Operation,
        names: Arc<Names>,
        run: u64,
        number: u64,
    ) -> Result<Self, Problem> {
        let prefix = format!("w-{run}-{number}");
        let mut looper = Self {
            client,
            operation,
            names,
            prefix,
            payload: String::new(),
            sent: 0,
            dice: ((run << 8) | number) + 1,
        };
        let id = looper.next_id();
        looper.payload = payload_for(new_document(&id, "k-10", ""))?;
        Ok(looper)
    }

    /// Of the same length for a million operations.
    fn next_id(&self) -> String {
        format!("{}-{:06}", self.prefix, self.sent)
    }

    /// Xorshift: chance enough to choose a document, the same in every run.
    fn roll(&mut self) -> usize {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice as usize
    }

    async fn once(&mut self) -> Result<(), Problem> {
        self.sent += 1;
        let names = Arc::clone(&self.names);
        match self.operation {
            Operation::Read => {
                let (key, id) = &names.readable[self.roll() % names.readable.len()];
                let document = self.client.read(key, id).await?;
                if document.id != *id || document.pk != *key || document.payload.is_empty() {
                    return Err(format!("asked for {id} in {key}, got {document:?}").into());
                }
                Ok(())
            }
            Operation::Create => {
                let pk = &names.write_keys[self.roll() % names.write_keys.len()];
                let id = self.next_id();
                self.client.create(&new_document(&id, pk, &self.payload)).await
            }
        }
    }

    async fn go_on(mut self, until: Instant, operations_max: u64) -> Result<(Self, Histogram), Problem> {
        let mut latencies = Histogram::new();
        let mut asked = Instant::now();
        while asked < until && latencies.count() < operations_max {
            self.once().await?;
            let answered = Instant::now();
            latencies.record(answered - asked);
            asked = answered;
        }
        Ok((self, latencies))
    }
}

fn new_document<'a>(id: &'a str, pk: &'a str, payload: &'a str) -> NewDocument<'a> {
    NewDocument { id, pk, kind: "worker", visible_at: 1_760_000_000, attempt: 0, payload }
}

/// Drives all clients for a span.
pub(crate) async fn drive<C: Client>(loopers: &mut Vec<Looper<C>>, span: Span) -> Result<Sample, Problem> {
    let (time, each) = match span {
        Span::Time(time) => (time, u64::MAX),
        Span::Operations(all) => (OPERATIONS_LIMIT, all.div_ceil(loopers.len() as u64)),
    };
    let started = Instant::now();
    let mut running = JoinSet::new();
    for looper in loopers.drain(..) {
        running.spawn(looper.go_on(started + time, each));
    }
    let mut latencies = Histogram::new();
    tokio::time::timeout(time + DRAIN_LIMIT, async {
        while let Some(joined) = running.join_next().await {
            let (looper, own) = joined??;
            latencies.merge(&own);
            loopers.push(looper);
        }
        Ok::<(), Problem>(())
    })
    .await
    .map_err(|_| "operations stay unanswered")??;
    Ok(Sample { elapsed: started.elapsed(), latencies })
}
