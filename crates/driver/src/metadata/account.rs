//! Reads the account's regions: when a driver opens, periodically in the background,
//! and when a failure suggests that the regions have changed.

use bytes::Bytes;
use perihelion_wire::status::UNAUTHORIZED;
use perihelion_wire::transport::Endpoint;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

use super::MetadataRequests;
use crate::error::Error;
use crate::options::DriverOptions;
use crate::pulse::{self, Pulse};
use crate::region::{self, Region};
use crate::routing::account::{Account, Location};
use crate::routing::topology::Topology;

/// How long a region may take to answer a read of the account before the next
/// region is asked, and how long a probe may take.
const ACCOUNT_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);

/// The waits before the account is read again when a driver opens. They are enough for a
/// gateway that restarts, or for a name server that does not answer for a moment.
const OPENING_WAITS: [Duration; 3] =
    [Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1)];

/// A driver that has been opening for this long does not read the account again. If regions hang,
/// another read would take as long as the first one.
const OPENING_RETRIES_WITHIN: Duration = Duration::from_secs(10);

/// How many of the regions next to the application are asked, by their usual host names, when a
/// driver is opened while the account's own endpoint is down.
const NEAREST_GUESSED_MAX: usize = 5;

/// Reads the account document and publishes its regions in the topology.
#[derive(Debug)]
pub(crate) struct AccountReader {
    /// Regions in order of preference. If the application's region is known, these are all
    /// known regions, the nearest first.
    region_order: Vec<Region>,
    /// Whether `region_order` is the order by distance, and not the caller's list.
    is_by_distance: bool,
    backup_endpoints: Vec<Endpoint>,
    /// Whether requests go to the endpoints of the account's regions.
    is_discovery_on: bool,
    refreshes: Mutex<Refreshes>,
    /// The start time of the read whose account was published last; `None` before the first
    /// account is published. Locked while an account is published.
    published_read_at: Mutex<Option<Instant>>,
}

/// When the account was refreshed, and the refresh that is under way.
#[derive(Debug, Default)]
struct Refreshes {
    /// When the last refresh ended, even if it failed; `None` before the first refresh.
    /// Opening the driver reads the account too, but does not count as a refresh.
    last_at: Option<Instant>,
    /// The refresh that is under way.
    under_way: Option<RefreshUnderWay>,
}

/// A refresh that one caller makes for all others. The caller is an operation or the background
/// task.
#[derive(Debug, Clone)]
struct RefreshUnderWay {
    /// Closed when the refresh has ended, or when the caller that makes it was dropped.
    ended: watch::Receiver<()>,
    /// Shows whether that caller still makes progress.
    pulse: Arc<Pulse>,
}

impl AccountReader {
    /// The reader for options that were checked.
    pub(crate) fn new(options: &DriverOptions) -> Self {
        let by_distance = options.application_region.as_ref().and_then(region::regions_by_distance);
        AccountReader {
            is_by_distance: by_distance.is_some(),
            region_order: by_distance.unwrap_or_else(|| options.preferred_regions.clone()),
            backup_endpoints: options.backup_endpoints.clone(),
            is_discovery_on: options.endpoint_discovery.unwrap_or(true),
            refreshes: Mutex::default(),
            published_read_at: Mutex::default(),
        }
    }

    /// The regions to ask by their usual host names before the account's regions are known.
    fn guessed_regions(&self) -> &[Region] {
        match self.is_by_distance {
            true => &self.region_order[..self.region_order.len().min(NEAREST_GUESSED_MAX)],
            false => &self.region_order,
        }
    }

    /// Reads the account from the first location that answers with success. Unavailable
    /// endpoints and the endpoint `suspect` are asked after the others. Returns whether the answer
    /// was published: false if the answer to a later read was already published.
    async fn read(
        &self,
        requests: &impl MetadataRequests,
        topology: &Topology,
        suspect: Option<&Endpoint>,
        deadline: Instant,
    ) -> Result<bool, Error> {
        // A slow source of tokens must not use up the time that a region has for its answer.
        requests.wait_for_credential(deadline).await?;
        let account = topology.snapshot().account;
        let mut first_error = None;
        for location in account.locations_to_ask(self.guessed_regions(), &self.backup_endpoints, suspect) {
            let read_at = Instant::now();
            let deadline = deadline.min(read_at + ACCOUNT_ATTEMPT_TIMEOUT);
            // A guessed host name may belong to another account.
            let is_guessed = !self.backup_endpoints.contains(&location.endpoint)
                && !account.has_endpoint(&location.endpoint);
            match requests.read_account(&location, deadline).await {
                Ok(body) if is_guessed && !self.document_lists(&account, &body, &location.endpoint) => {
                    let text = format!("{} is the endpoint of another account", location.endpoint);
                    first_error = first_error.or(Some(Error::answer(text)));
                }
                Ok(body) => {
                    requests.account_was_read();
                    return self.publish(topology, &body, read_at);
                }
                // The other regions will refuse the credential as well.
                Err(error)
                    if account.has_endpoint(&location.endpoint)
                        && error.status().is_some_and(|status| status.code == UNAUTHORIZED.code) =>
                {
                    return Err(error);
                }
                // The first error is reported: in most cases it comes from the endpoint
                // that the user has configured.
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(first_error.unwrap_or_else(|| Error::answer("the account has no endpoint")))
    }

    /// Reads the account when a driver opens. If no location answers with success, all of
    /// them are asked again after a short wait, unless they refuse the request.
    pub(crate) async fn read_at_opening(
        &self,
        requests: &impl MetadataRequests,
        topology: &Topology,
        deadline: Instant,
    ) -> Result<(), Error> {
        let last_retry_at = deadline.min(Instant::now() + OPENING_RETRIES_WITHIN);
        for wait in OPENING_WAITS {
            match self.read(requests, topology, None, deadline).await {
                Err(error) if error.is_transient() && Instant::now() + wait < last_retry_at => {
                    tracing::info!(
                        error = error.message(),
                        ?wait,
                        "the account could not be read; trying again"
                    );
                    tokio::time::sleep(wait).await;
                }
                outcome => return outcome.map(drop),
            }
        }
        self.read(requests, topology, None, deadline).await.map(drop)
    }

    /// Reads the account again, unless the last refresh ended less than the refresh pause
    /// ago. If another caller reads it, waits for that caller. After a failure the known
    /// regions stay in use. If the caller that reads is cancelled or makes no progress any more,
    /// or if its deadline passes before the account was read, the next caller reads the account.
    pub(crate) async fn refresh(
        &self,
        requests: &impl MetadataRequests,
        topology: &Topology,
        suspect: Option<&Endpoint>,
        deadline: Instant,
    ) {
        let pause = topology.options().refresh_pause;
        self.refresh_unless_within(pause, requests, topology, suspect, deadline).await;
    }

    /// Reads the account again, as [`AccountReader::refresh`] does, unless the last refresh ended
    /// less than `pause` ago.
    pub(crate) async fn refresh_unless_within(
        &self,
        pause: Duration,
        requests: &impl MetadataRequests,
        topology: &Topology,
        suspect: Option<&Endpoint>,
        deadline: Instant,
    ) {
        let (pulse, end_sender) = loop {
            match self.begin_refresh(pause, Instant::now()) {
                RefreshStep::Begin(pulse, end_sender) => break (pulse, end_sender),
                RefreshStep::NotNeeded => return,
                RefreshStep::Wait(mut other) => {
                    // Checks from time to time whether the other caller still makes progress.
                    let until = deadline.min(Instant::now() + pulse::PULSE_INTERVAL);
                    let _ = tokio::time::timeout_at(until, other.ended.changed()).await;
                    if Instant::now() >= deadline {
                        return;
                    }
                }
            }
        };
        let result = pulse::run_with_pulse(&pulse, self.read(requests, topology, suspect, deadline)).await;
        let now = Instant::now();
        let mut refreshes = self.lock();
        // The next refresh need not wait if the answer came too late to be published, or if the
        // deadline passed before an answer came.
        let must_next_wait = match &result {
            Ok(is_published) => *is_published,
            Err(_) => now < deadline,
        };
        if must_next_wait {
            refreshes.last_at = Some(now);
        }
        refreshes.under_way = refreshes.under_way.take().filter(|other| !Arc::ptr_eq(&other.pulse, &pulse));
        drop((refreshes, end_sender));
        if let Err(error) = result {
            // This is not a warning, because it is repeated every few seconds while the service does
            // not answer. The operations that fail are reported anyway.
            tracing::info!(
                error = error.message(),
                "the account could not be read; its regions stay as they were"
            );
        }
    }

    /// Whether the caller is to refresh the account now.
    fn begin_refresh(&self, pause: Duration, now: Instant) -> RefreshStep {
        let mut refreshes = self.lock();
        if refreshes.last_at.is_some_and(|last| now.saturating_duration_since(last) < pause) {
            return RefreshStep::NotNeeded;
        }
        if let Some(other) = &refreshes.under_way
            && other.ended.has_changed().is_ok()
            && !other.pulse.is_stuck(now)
        {
            return RefreshStep::Wait(other.clone());
        }
        let ((end_sender, ended), pulse) = (watch::channel(()), Arc::new(Pulse::new(now)));
        refreshes.under_way = Some(RefreshUnderWay { ended, pulse: Arc::clone(&pulse) });
        RefreshStep::Begin(pulse, end_sender)
    }

    fn lock(&self) -> MutexGuard<'_, Refreshes> {
        self.refreshes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs preferred regions that the account does not have: most of them are spelling
    /// mistakes. An unknown region is not an error, because an account gains and loses
    /// regions.
    pub(crate) fn warn_of_unknown_regions(&self, topology: &Topology) {
        let account = topology.snapshot().account;
        let is_unknown =
            |region: &&Region| account.read_locations.iter().all(|location| location.region != **region);
        let preferred = self.region_order.iter().filter(|_| !self.is_by_distance);
        for region in preferred.filter(is_unknown) {
            let account_regions: Vec<&str> =
                account.read_locations.iter().map(|location| location.region.name()).collect();
            tracing::warn!(%region, ?account_regions, "the account does not have this preferred region");
        }
    }

    /// Whether an account document lists this endpoint for one of its regions.
    fn document_lists(&self, previous: &Account, body: &Bytes, endpoint: &Endpoint) -> bool {
        Account::from_document(body, &self.region_order, previous)
            .is_ok_and(|account| account.has_regional_endpoint(endpoint))
    }

    /// Parses the account document, and publishes the account in the topology. If an account of a
    /// later read was published before, nothing changes and the result is false: a caller whose
    /// runtime made no progress for a while may have read the account long ago.
    fn publish(&self, topology: &Topology, body: &Bytes, read_at: Instant) -> Result<bool, Error> {
        let mut published_read_at = self.published_read_at.lock().unwrap_or_else(PoisonError::into_inner);
        if published_read_at.is_some_and(|published| read_at < published) {
            return Ok(false);
        }
        topology
            .update_account(|previous| {
                let account = Account::from_document(body, &self.region_order, previous)?;
                Ok(if self.is_discovery_on { account } else { account.limited_to_configured() })
            })
            .map_err(|reason: String| {
                let why = "the account document cannot be used; is this the endpoint of a Cosmos account?";
                Error::answer(format!("{why} {reason}"))
            })?;
        *published_read_at = Some(read_at);
        Ok(true)
    }
}

/// The next step of a caller that wants a refresh.
enum RefreshStep {
    /// The caller refreshes the account. Dropping the sender wakes the callers that wait for the
    /// refresh.
    Begin(Arc<Pulse>, watch::Sender<()>),
    /// Another caller refreshes the account.
    Wait(RefreshUnderWay),
    /// The account was refreshed just now.
    NotNeeded,
}

/// Whether a location answers a read of the account with success.
pub(crate) async fn probe(requests: &impl MetadataRequests, location: &Location) -> bool {
    requests.read_account(location, Instant::now() + ACCOUNT_ATTEMPT_TIMEOUT).await.is_ok()
}
