//! Learning: the account's regions, a container's `_rid`, partition key and
//! ranges. Whoever needs to know asks here; one task fetches, the others wait
//! for what it finds.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use perihelion_model::json;
use perihelion_model::partition_key::PartitionKeyDefinition;
use perihelion_wire::headers;
use perihelion_wire::transport::Endpoint;
use tokio::sync::MutexGuard;
use tokio::time::Instant;

use crate::container::{Container, Known, Learning};
use crate::diagnostics::{Context, Diagnostics};
use crate::driver::Core;
use crate::error::{Error, ErrorKind};
use crate::operation::{Operation, Scope, Target, Verb};
use crate::pipeline::{Leg, Resolved, Sending, Task, attempt, run, status_of};
use crate::region::Region;
use crate::routing::account::Site;
use crate::routing::ranges::RangeMap;
use crate::status::UNAUTHORIZED;

/// The pages of one pkranges feed; each holds hundreds of ranges.
const RANGE_PAGES_MAX: usize = 1000;

/// The least time between two lookups of ranges that answers have named and the
/// feed does not know yet.
const RELEARN_PAUSE: Duration = Duration::from_millis(500);

/// How long one operation is held up by such a lookup.
const RELEARN_WAIT_MAX: Duration = Duration::from_secs(2);

/// How long a region may take to tell about the account before the next one is
/// asked.
const ACCOUNT_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);

impl Core {
    /// Reads the account from the first region that tells. One that is
    /// `suspect` is asked last.
    pub(crate) async fn read_account(
        &self,
        suspect: Option<&Endpoint>,
        deadline: Instant,
    ) -> Result<(), Error> {
        let account = self.topology().snapshot().account;
        let mut last = None;
        for site in account.whom_to_ask(self.preferred_regions(), suspect) {
            match self.ask_account(&site, deadline).await {
                Ok(body) => return self.publish_account(&body),
                // No other will accept what this one does not.
                Err(error) if error.status().is_some_and(|status| status.code == UNAUTHORIZED.code) => {
                    return Err(error);
                }
                // The first is the one that the user has named.
                Err(error) => last = last.or(Some(error)),
            }
        }
        Err(last.unwrap_or_else(|| Error::answer("the account has no endpoint")))
    }

    /// Reads the account again, unless that was done a moment ago. Failures
    /// leave what was known. A caller who leaves, or has too little time, leaves
    /// it to the next.
    pub(crate) async fn refresh_account(&self, suspect: Option<&Endpoint>, deadline: Instant) {
        let Ok(mut last) = tokio::time::timeout_at(deadline, self.refreshing.lock()).await else { return };
        let pause = self.topology().options().refresh_pause;
        if last.is_some_and(|last| last.elapsed() < pause) {
            return;
        }
        let result = self.read_account(suspect, deadline).await;
        let now = Instant::now();
        if result.is_ok() || now < deadline {
            *last = Some(now);
        }
        if let Err(error) = result {
            tracing::warn!(
                error = error.message(),
                "the account could not be read; its regions stay as they were"
            );
        }
    }

    /// A preferred region that the account does not have is mostly a slip of the
    /// pen. It is not an error: regions come and go.
    pub(crate) fn warn_of_unknown_regions(&self) {
        let account = self.topology().snapshot().account;
        let is_unknown = |region: &&Region| account.reads.iter().all(|site| site.region != **region);
        for region in self.preferred_regions().iter().filter(is_unknown) {
            let has: Vec<&str> = account.reads.iter().map(|site| site.region.name()).collect();
            tracing::warn!(%region, ?has, "the account does not have this preferred region");
        }
    }

    /// Whether an endpoint answers as a part of the service that works.
    pub(crate) async fn probe(&self, site: &Site) -> bool {
        self.ask_account(site, Instant::now() + ACCOUNT_ATTEMPT_TIMEOUT).await.is_ok()
    }

    async fn ask_account(&self, site: &Site, deadline: Instant) -> Result<Bytes, Error> {
        let operation = Operation::new(Verb::Read, Target::account(), Scope::Unpartitioned, Bytes::new());
        let now = Instant::now();
        let sending = Sending {
            operation: &operation,
            settings: self.settings().metadata(),
            resolved: &Resolved::default(),
            site,
            context: Context::Initial,
            started: now,
            deadline: deadline.min(now + ACCOUNT_ATTEMPT_TIMEOUT),
        };
        let Leg { result, record, .. } = attempt(self, sending).await?;
        let error = match result {
            Ok(response) if status_of(&response).is_success() => return Ok(response.into_body()),
            Ok(response) => {
                let status = status_of(&response);
                let (parts, body) = response.into_parts();
                Error::refused(status, parts.headers, body)
            }
            Err(failure) => Error::unanswered(&failure),
        };
        Err(error.with_diagnostics(Diagnostics::of(record)))
    }

    fn publish_account(&self, body: &Bytes) -> Result<(), Error> {
        use crate::routing::account::Account;
        self.topology()
            .update_account(|previous| Account::from_properties(body, self.preferred_regions(), previous))
            .map_err(|reason| {
                let why = "the account document cannot be used; is this the endpoint of a Cosmos account?";
                Error::answer(format!("{why} {reason}"))
            })
    }

    /// Learns a container of which nothing is known.
    pub(crate) async fn learn(
        &self,
        container: &Arc<Container>,
        deadline: Instant,
    ) -> Result<Arc<Known>, Error> {
        let asked = Instant::now();
        let mut learning = turn_to_learn(container, deadline).await?;
        match container.known() {
            Some(known) => Ok(known),
            None => self.learn_now(container, &mut learning, asked, deadline).await,
        }
    }

    /// Learns a container again, unless someone did since `stale` was current.
    pub(crate) async fn relearn(
        &self,
        container: &Arc<Container>,
        stale: &Arc<Known>,
        deadline: Instant,
    ) -> Result<Arc<Known>, Error> {
        let asked = Instant::now();
        let mut learning = turn_to_learn(container, deadline).await?;
        match container.known() {
            Some(known) if !Arc::ptr_eq(&known, stale) => Ok(known),
            Some(_) | None => self.learn_now(container, &mut learning, asked, deadline).await,
        }
    }

    /// Learns a container's newest ranges if that is quickly done: nobody is
    /// waited for, it is not tried again and again, and what is known serves
    /// meanwhile.
    pub(crate) async fn try_relearn(
        &self,
        container: &Arc<Container>,
        known: Arc<Known>,
        deadline: Instant,
    ) -> Arc<Known> {
        let now = Instant::now();
        let Ok(mut learning) = container.learning.try_lock() else { return known };
        if learning.as_ref().is_some_and(|last| now.duration_since(last.ended) < RELEARN_PAUSE) {
            return known;
        }
        let deadline = deadline.min(now + RELEARN_WAIT_MAX);
        self.learn_now(container, &mut learning, now, deadline).await.unwrap_or(known)
    }

    /// Learns, unless whoever did so while this task waited has failed: their
    /// failure is shared, or a crowd would repeat it one by one.
    async fn learn_now(
        &self,
        container: &Arc<Container>,
        learning: &mut Option<Learning>,
        asked: Instant,
        deadline: Instant,
    ) -> Result<Arc<Known>, Error> {
        let failure =
            learning.as_ref().filter(|last| last.ended > asked).and_then(|last| last.failure.as_ref());
        // A deadline is its owner's alone.
        if let Some(failure) = failure.filter(|failure| !failure.is_timeout()) {
            return Err(failure.clone());
        }
        let result = self.fetch(container, deadline).await;
        *learning = Some(Learning { ended: Instant::now(), failure: result.as_ref().err().cloned() });
        result
    }

    /// Reads properties and ranges; the caller holds `learning`.
    async fn fetch(&self, container: &Arc<Container>, deadline: Instant) -> Result<Arc<Known>, Error> {
        let read =
            Operation::new(Verb::Read, Target::container(container), Scope::Unpartitioned, Bytes::new());
        let settings = self.settings().metadata();
        let response = run(self, Task { operation: &read, settings, deadline, place: None }).await?;
        let (rid, partition_key) = properties(&response.body).ok_or_else(|| {
            Error::answer(format!("the properties of container {:?} cannot be read", container.name()))
        })?;
        let ranges = self.fetch_ranges(container, deadline).await?;
        let rid_header =
            HeaderValue::from_str(&rid).map_err(|_| Error::answer("the container's _rid is not ASCII"))?;
        let sessions = container.sessions_of(&rid);
        let known = Arc::new(Known { rid: rid.into(), rid_header, partition_key, ranges, sessions });
        container.publish(Arc::clone(&known));
        Ok(known)
    }

    /// Reads the feed of ranges until it says that there is no more (304).
    async fn fetch_ranges(&self, container: &Arc<Container>, deadline: Instant) -> Result<RangeMap, Error> {
        let settings = self.settings().metadata();
        let mut bodies = Vec::new();
        let mut etag: Option<HeaderValue> = None;
        while bodies.len() < RANGE_PAGES_MAX {
            let mut operation =
                Operation::new(Verb::ReadFeed, Target::ranges(container), Scope::Unpartitioned, Bytes::new())
                    .with_header(headers::MAX_ITEM_COUNT, HeaderValue::from_static("-1"));
            if let Some(etag) = etag.take() {
                operation = operation.with_header(headers::IF_NONE_MATCH, etag);
            }
            let task = Task { operation: &operation, settings, deadline, place: None };
            let response = run(self, task).await?;
            if response.status.code == http::StatusCode::NOT_MODIFIED.as_u16() {
                break;
            }
            etag = response.headers.get(&headers::ETAG).cloned();
            bodies.push(response.body);
            if etag.is_none() {
                break;
            }
        }
        RangeMap::from_feed(&bodies).map_err(|reason| {
            Error::answer(format!(
                "the partition key ranges of container {:?} cannot be used: {reason}",
                container.name()
            ))
        })
    }
}

/// Waits for the right to learn.
async fn turn_to_learn(
    container: &Container,
    deadline: Instant,
) -> Result<MutexGuard<'_, Option<Learning>>, Error> {
    tokio::time::timeout_at(deadline, container.learning.lock()).await.map_err(|_| {
        let text =
            format!("the operation's time was up while container {:?} was being learnt", container.name());
        Error::new(ErrorKind::Timeout, text)
    })
}

/// `_rid` and `partitionKey` of a container's properties.
fn properties(body: &[u8]) -> Option<(String, PartitionKeyDefinition)> {
    let text = std::str::from_utf8(body).ok()?;
    let value = json::parse_str(text).ok()?;
    let rid = value.get("_rid")?.as_str()?.to_owned();
    Some((rid, PartitionKeyDefinition::from_json(value.get("partitionKey")?)?))
}
