//! Many documents by key and id, in as few requests as it takes.
//!
//! [`plan`] divides what is wanted among the physical partitions; this file
//! sends, a bounded number of requests at a time, and puts the answers where
//! they belong. A partition that split meanwhile is planned again. What always
//! holds: requests under way are dropped with the call.

mod plan;
mod statement;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use perihelion_driver::ContainerMetadata;
use perihelion_driver::operation::{KeyScope, Operation, Scope, Target, Verb};
use perihelion_driver::{OperationOptions, Response, status};
use perihelion_model::partition_key::PartitionKey;
use perihelion_wire::headers;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::task::JoinSet;

use crate::Error;
use crate::answer::decode;
use crate::container::Container;
use crate::feed;
use plan::{Chunk, Wanted, chunks};

/// Requests under way at once: enough to keep a few partitions busy without
/// crowding out the caller's other operations.
const PARALLEL_MAX: usize = 16;

/// How often ranges are learnt anew in one call.
const REFRESHES_MAX: u32 = 5;

/// Pages of one chunk's answer. A page holds megabytes, a chunk a hundred
/// documents of at most two.
const PAGES_MAX: usize = 1000;

/// Many documents, in the order they were asked for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ManyItems<T> {
    /// The documents, `None` for what is absent.
    pub items: Vec<Option<T>>,
    charge: f64,
    requests: usize,
}

impl<T> ManyItems<T> {
    /// Request units of all requests.
    pub fn charge(&self) -> f64 {
        self.charge
    }

    /// How many requests it took.
    pub fn requests(&self) -> usize {
        self.requests
    }
}

pub(crate) async fn read_many<T: DeserializeOwned>(
    container: &Container,
    items: Vec<(PartitionKey, String)>,
    options: &OperationOptions,
) -> Result<ManyItems<T>, Error> {
    let mut many = ManyItems { items: (0..items.len()).map(|_| None).collect(), charge: 0.0, requests: 0 };
    if items.is_empty() {
        return Ok(many);
    }
    let wanted = items.into_iter().enumerate().map(|(place, (key, id))| Wanted { place, key, id });
    let mut metadata = container.driver().metadata(container.inner()).await?;
    let mut waiting: VecDeque<Chunk> = chunks(wanted.collect(), &metadata)?.into();
    let mut flights = JoinSet::new();
    let mut refreshes = 0;
    loop {
        while flights.len() < PARALLEL_MAX
            && let Some(chunk) = waiting.pop_front()
        {
            flights.spawn(fetch(container.clone(), Arc::clone(&metadata), chunk, options.clone()));
        }
        let Some(landed) = flights.join_next().await else { return Ok(many) };
        let (chunk, outcome) = landed.map_err(|_| Error::input("reading many documents was interrupted"))?;
        match outcome {
            Ok(answer) => place(&mut many, &chunk, &answer)?,
            Err(error) if is_gone(&error) && refreshes < REFRESHES_MAX => {
                refreshes += 1;
                metadata = container.driver().refresh_metadata(container.inner(), &metadata).await?;
                waiting.extend(chunks(chunk.wanted, &metadata)?);
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_gone(error: &Error) -> bool {
    error.status().is_some_and(|status| status.code == status::GONE.code)
}

/// All answers about one chunk, and what they cost.
#[derive(Default)]
struct Answer {
    pages: Vec<Bytes>,
    requests: usize,
    charge: f64,
}

impl Answer {
    fn add(&mut self, response: Response) {
        self.requests += 1;
        self.charge += response.charge();
        self.pages.push(response.body);
    }
}

async fn fetch(
    container: Container,
    metadata: Arc<ContainerMetadata>,
    chunk: Chunk,
    options: OperationOptions,
) -> (Chunk, Result<Answer, Error>) {
    let outcome = match chunk.wanted.as_slice() {
        [only] => read(&container, only, &options).await,
        several => query(&container, &metadata, &chunk.range, several, &options).await,
    };
    (chunk, outcome)
}

async fn read(container: &Container, wanted: &Wanted, options: &OperationOptions) -> Result<Answer, Error> {
    let target = Target::item(container.inner(), &wanted.id);
    let scope = Scope::Key(KeyScope::new(wanted.key.clone()));
    let operation = Operation::new(Verb::Read, target, scope, Bytes::new());
    let mut answer = Answer::default();
    match container.driver().execute(&operation, options).await {
        Ok(response) => answer.add(response),
        Err(error) if error.is_not_found() => {
            (answer.requests, answer.charge) = (1, error.diagnostics().charge());
        }
        Err(error) => return Err(error),
    }
    Ok(answer)
}

async fn query(
    container: &Container,
    metadata: &ContainerMetadata,
    range: &Arc<str>,
    wanted: &[Wanted],
    options: &OperationOptions,
) -> Result<Answer, Error> {
    let body = statement::body(wanted, &metadata.partition_key)?;
    let target = Target::items(container.inner());
    let mut operation = Operation::new(Verb::Query, target, Scope::Range(Arc::clone(range)), body);
    let mut answer = Answer::default();
    while answer.requests < PAGES_MAX {
        let response = container.driver().execute(&operation, options).await?;
        let continuation = response.headers.get(&headers::CONTINUATION).cloned();
        answer.add(response);
        let Some(continuation) = continuation else { return Ok(answer) };
        operation.headers.insert(headers::CONTINUATION, continuation);
    }
    Err(Error::answer(format!("a query for {} documents does not end", wanted.len())))
}

/// Puts what was found where it was asked for.
fn place<T: DeserializeOwned>(many: &mut ManyItems<T>, chunk: &Chunk, answer: &Answer) -> Result<(), Error> {
    many.requests += answer.requests;
    many.charge += answer.charge;
    if let [only] = chunk.wanted.as_slice() {
        for body in &answer.pages {
            many.items[only.place] = Some(decode(body, &format_args!("document `{}`", only.id))?);
        }
        return Ok(());
    }
    let places: HashMap<&str, usize> =
        chunk.wanted.iter().map(|wanted| (wanted.id.as_str(), wanted.place)).collect();
    for body in &answer.pages {
        let page: BorrowedPage<'_> = serde_json::from_slice(body)
            .map_err(|error| Error::answer(format!("a page of documents cannot be read: {error}")))?;
        for document in page.entries {
            let named: Named<'_> = serde_json::from_str(document.get())
                .map_err(|error| Error::answer(format!("a document has no id: {error}")))?;
            if let Some(&place) = places.get(&*named.id) {
                let what = format_args!("document `{}`", named.id);
                many.items[place] = Some(decode(document.get().as_bytes(), &what)?);
            }
        }
    }
    Ok(())
}

/// A page whose documents are not read yet.
type BorrowedPage<'a> = feed::Page<&'a RawValue>;

/// What tells documents of one chunk apart.
#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
}
