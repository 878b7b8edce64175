//! The routes of the data plane: from a request to its answer. Each kind of
//! resource has a file.
//!
//! The order is fixed: path, authentication, permission, pause, faults before serving, the
//! permission again, the verb, counters, faults after serving. A request that a fault refuses
//! is counted too; a request that a fault drops before serving is not. Authentication checks
//! the same parsed path that is routed.

mod account;
mod addressed_ranges;
mod batches;
mod change_feeds;
mod containers;
mod databases;
mod index_policy;
mod items;
mod offers;
mod pages;
mod permissions;
mod queries;
mod query_metrics;
mod ranges;
mod scripts;
mod transactions;
mod users;

use std::future::Future;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{Method, Request, Response};
use perihelion_engine::{Container, Engine, Refusal};
use perihelion_wire::path::{self, BadPath, Resource};
use perihelion_wire::{headers, status};
use tokio::time::Instant;

use crate::activity_id::ActivityIds;
use crate::addresses::Addresses;
use crate::answer::{Answer, render_refusal};
use crate::auth::{Access, Authenticator};
use crate::call::Call;
use crate::counters::{Counters, Partition, RangeName};
use crate::faults::{Fault, FaultRules};
use crate::long_reads::{Connection, LongReads};
use crate::net::{Hangup, Scheme};
use crate::operation::{Operation, operation_of};
use crate::options::TransactionOptions;
use crate::pause::Pause;
use crate::regions::{Regions, Topology};

/// Serves the requests of one region.
pub(crate) struct RegionService {
    pub(crate) engine: Arc<Engine>,
    /// The region's index.
    pub(crate) region: usize,
    pub(crate) account: Arc<Account>,
}

/// The state that all regions of an account share.
pub(crate) struct Account {
    pub(crate) regions: Arc<Regions>,
    pub(crate) addresses: Addresses,
    pub(crate) authenticator: Authenticator,
    /// Whether the cross-partition queries that the service's gateway refuses are refused, and
    /// pages end where the service ends them.
    pub(crate) strict_gateway: bool,
    /// Whether a query is refused if it needs an index which the container's policy does not have.
    pub(crate) strict_index: bool,
    /// Limits of distributed transactions.
    pub(crate) transactions: TransactionOptions,
    /// The endpoint in the account document; `None` echoes the address that the client used.
    pub(crate) public_endpoint: Option<String>,
    /// Whether the management interface is on.
    pub(crate) has_management: bool,
    pub(crate) counters: Counters,
    pub(crate) faults: FaultRules,
    pub(crate) pause: Pause,
    pub(crate) activity_ids: ActivityIds,
    pub(crate) long_reads: Arc<LongReads>,
    /// The CA certificate that clients can fetch; empty in an embedded database.
    pub(crate) ca_pem: String,
    /// The address that the paths of the emulator's explorer redirect to; unset if there is none.
    pub(crate) explorer: OnceLock<String>,
}

impl RegionService {
    /// Changes the catalog in all regions. Only the write region takes a request to change
    /// the catalog, even when all regions take writes of documents.
    async fn change_catalog<T, F>(
        &self,
        change: impl FnOnce(Arc<Engine>) -> F + Send + 'static,
    ) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Refusal>> + Send + 'static,
    {
        if self.account.regions.topology().write_region != self.region {
            return Err(Refusal::write_forbidden());
        }
        self.change_catalog_from_any_region(change).await
    }

    /// Changes the catalog in all regions, for a request that every region takes.
    async fn change_catalog_from_any_region<T, F>(
        &self,
        change: impl FnOnce(Arc<Engine>) -> F + Send + 'static,
    ) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Refusal>> + Send + 'static,
    {
        self.account.regions.change_catalog(change).await
    }

    /// Answers one request of the data plane.
    pub(crate) async fn answer(
        &self,
        request: Request<Bytes>,
        scheme: Scheme,
        connection: Connection,
    ) -> Result<Response<Bytes>, Hangup> {
        let activity_id = self.account.activity_ids.next();
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        let mut headers = parts.headers;
        if !headers.contains_key(&headers::HOST)
            && let Some(authority) = parts.uri.authority()
            && let Ok(host) = http::HeaderValue::from_str(authority.as_str())
        {
            // An HTTP/2 request has its host in the URI.
            headers.insert(headers::HOST, host);
        }
        let (resource, access) = match self.authenticate(&parts.method, &path, &headers) {
            Ok(accepted) => accepted,
            Err(refusal) => return Ok(self.refuse(&refusal, &activity_id)),
        };
        let call = Call { method: parts.method, path, resource, headers, body, scheme, connection };
        if let Err(refusal) = self.check_access(&call, &access) {
            return Ok(self.refuse_call(&call, &refusal, &activity_id));
        }
        self.run(&call, &access, &activity_id).await
    }

    /// The refusal of a request whose head alone shows that it is refused. `None` if its body has
    /// to be read.
    pub(crate) fn refuse_head(&self, head: &http::request::Parts, scheme: Scheme) -> Option<Refusal> {
        let path = head.uri.path();
        let (resource, access) = match self.authenticate(&head.method, path, &head.headers) {
            Ok(accepted) => accepted,
            Err(refusal) => return Some(refusal),
        };
        let Access::Permission(permission) = access else { return None };
        let call = Call {
            method: head.method.clone(),
            path: path.to_owned(),
            resource,
            headers: head.headers.clone(),
            body: Bytes::new(),
            scheme,
            connection: None,
        };
        permissions::check_head(self, &call, &permission).err()
    }

    fn check_access(&self, call: &Call, access: &Access) -> Result<(), Refusal> {
        match access {
            Access::Account => Ok(()),
            Access::Permission(permission) => permissions::check(self, call, permission),
        }
    }

    /// The resource of a request and what its sender may do, if its path is valid and the
    /// authenticator accepts it.
    pub(crate) fn authenticate(
        &self,
        method: &Method,
        path: &str,
        headers: &http::HeaderMap,
    ) -> Result<(Resource, Access), Refusal> {
        let resource =
            path::parse(path).map_err(|_| Refusal::gateway(status::BAD_REQUEST, BadPath::MESSAGE))?;
        let now = self.engine.clock().seconds();
        let access = self.account.authenticator.check(method, path, &resource, headers, now)?;
        Ok((resource, access))
    }

    /// Serves an authenticated request, with the faults that rules inject. While the request waits,
    /// its permission may end, so the permission is checked again.
    async fn run(&self, call: &Call, access: &Access, activity_id: &str) -> Result<Response<Bytes>, Hangup> {
        let (operation, begun) = (operation_of(call), Instant::now());
        self.account.pause.wait_while_paused().await;
        let fault = self.account.faults.pick(operation, &call.resource, self.region, || {
            addressed_ranges::with_ancestors(&self.engine.catalog(), call, operation)
        });
        if let Some(fault) = &fault {
            fault.delay().await;
            if let Some(outcome) = fault.instead_of_serving() {
                return outcome.map(|refusal| {
                    self.count(call, operation, refusal.status, refusal.charge, begun);
                    self.refuse_call(call, &refusal, activity_id)
                });
            }
        }
        let outcome = match fault.as_ref().and_then(Fault::results_instead_of_serving) {
            Some(results) => transactions::injected::instead_of_serving(self, call, results).await,
            None => match self.check_access(call, access) {
                Ok(()) => self.serve(call).await,
                Err(refusal) => Err(refusal),
            },
        };
        let (status, charge) = match &outcome {
            Ok(answer) => (answer.status, answer.charge.unwrap_or(0.0)),
            Err(refusal) => (refusal.status, refusal.charge),
        };
        self.count(call, operation, status, charge, begun);
        if let Some(outcome) = fault.as_ref().and_then(Fault::after_serving) {
            return outcome.map(|refusal| self.refuse_call(call, &refusal, activity_id));
        }
        let outcome = match fault.as_ref().and_then(Fault::transaction_fault_after_serving) {
            Some(fault) => transactions::injected::after_serving(self, call, outcome, fault),
            None => outcome,
        };
        Ok(match outcome {
            Ok(answer) => answer
                .render(activity_id, || format!("{}{}", call.endpoint(), call.path.trim_end_matches('/'))),
            Err(refusal) => self.refuse_call(call, &refusal, activity_id),
        })
    }

    /// Counts a request by region and operation, and the time that it took, the delays of faults included.
    /// A request to a single physical partition or a single partition key is also counted for that
    /// partition or key.
    fn count(&self, call: &Call, operation: Operation, status: u16, charge: f64, begun: Instant) {
        self.account.counters.count_latency(begun.elapsed());
        self.account.counters.count((self.region, operation), status, charge, || {
            let (database, name) = call.resource.container()?;
            let catalog = self.engine.catalog();
            // A path may name the database and the container by their `_rid`.
            let (database, container) = (catalog.database(database)?, catalog.container(database, name)?);
            let [range] = addressed_ranges::current(container, call, operation)[..] else { return None };
            Some(RangeName { database: database.name.clone(), container: container.name.clone(), range })
        });
        self.account.counters.count_partition(|| partition_of(call), status, charge);
    }

    /// The response to a request that is refused before the request is authenticated and
    /// its resource is known.
    pub(crate) fn refuse(&self, refusal: &Refusal, activity_id: &str) -> Response<Bytes> {
        render_refusal(refusal, activity_id, databases::account_position(self))
    }

    /// The response to a refused request whose resource is known. Clients store
    /// the session token under the container that they asked for, so the token
    /// must be of that container. The account's LSN may be higher than the container's.
    /// With a token of the account, later reads of the container would be refused.
    fn refuse_call(&self, call: &Call, refusal: &Refusal, activity_id: &str) -> Response<Bytes> {
        if call.resource == Resource::DistributedTransactions {
            return transactions::render_refusal(call, refusal, activity_id);
        }
        let catalog = self.engine.catalog();
        let container =
            call.resource.container().and_then(|(database, name)| catalog.container(database, name));
        let position = container.and_then(|container| containers::position_of(self, container).ok());
        render_refusal(refusal, activity_id, position.unwrap_or_else(|| databases::account_position(self)))
    }

    async fn serve(&self, call: &Call) -> Result<Answer, Refusal> {
        self.account.long_reads.check_memory()?;
        let answer = self.serve_resource(call).await?;
        let is_of_documents = matches!(call.resource, Resource::Documents { .. } | Resource::Document { .. });
        if is_of_documents && !operation_of(call).writes_documents() {
            self.account.long_reads.check_response(answer.body.len())?;
        }
        Ok(answer)
    }

    async fn serve_resource(&self, call: &Call) -> Result<Answer, Refusal> {
        // A transaction has its own rules for consistency, triggers and regions.
        if call.resource != Resource::DistributedTransactions {
            check_consistency(call)?;
            check_triggers(call)?;
            self.check_region(call)?;
        }
        match &call.resource {
            Resource::Account => account::read(self, call),
            Resource::Databases => databases::serve_feed(self, call).await,
            Resource::Database { database } => databases::serve(self, call, database).await,
            Resource::Users { .. }
            | Resource::User { .. }
            | Resource::Permissions { .. }
            | Resource::Permission { .. } => users::serve(self, call).await,
            Resource::Containers { database } => containers::serve_feed(self, call, database).await,
            Resource::Container { .. } => containers::serve(self, call).await,
            Resource::Documents { .. } => items::serve_feed(self, call).await,
            Resource::Document { document, .. } => items::serve(self, call, document).await,
            Resource::Attachments { .. } | Resource::Attachment { .. } => Err(unsupported("Attachments")),
            Resource::PartitionKeyRanges { .. } => ranges::serve(self, call),
            Resource::StoredProcedures { .. }
            | Resource::StoredProcedure { .. }
            | Resource::Triggers { .. }
            | Resource::Trigger { .. }
            | Resource::UserDefinedFunctions { .. }
            | Resource::UserDefinedFunction { .. } => scripts::serve(self, call).await,
            Resource::Conflicts { .. } => containers::serve_conflicts(self, call),
            Resource::Conflict { .. } => Err(Refusal::no_such_resource()),
            Resource::PartitionKeyDelete { .. } => items::delete_partition(self, call).await,
            Resource::Offers => offers::serve_feed(self, call),
            Resource::Offer { offer } => offers::serve(self, call, offer).await,
            Resource::DistributedTransactions => transactions::serve(self, call).await,
        }
    }

    /// Refuses requests that only the write region may serve. In another region these are:
    /// a request that asks for the write region
    /// (`x-ms-cosmos-hub-region-processing-only`); and, with multi-write, a write whose
    /// sender does not allow other regions to take it
    /// (`x-ms-cosmos-allow-tentative-writes`). Without multi-write, the engine of the other
    /// region refuses writes itself. If the writes of some ranges were moved, a request that asks
    /// for the write region belongs to the region that takes the writes of its ranges.
    fn check_region(&self, call: &Call) -> Result<(), Refusal> {
        let topology = self.account.regions.topology();
        if call.resource == Resource::Account {
            return Ok(());
        }
        let wants_write_region = call.flag(&headers::HUB_REGION_PROCESSING_ONLY);
        if wants_write_region && !topology.range_writers.is_empty() {
            return self.check_writer(call, &topology);
        }
        if topology.write_region == self.region {
            return Ok(());
        }
        let is_unexpected_write = topology.is_multi_write
            && operation_of(call).writes_documents()
            && !call.flag(&headers::ALLOW_TENTATIVE_WRITES);
        if is_unexpected_write || wants_write_region {
            return Err(Refusal::write_forbidden());
        }
        Ok(())
    }

    /// Refuses a request unless this region takes the writes of all ranges that the request is
    /// addressed to. A request that is addressed to no range belongs to the write region.
    fn check_writer(&self, call: &Call, topology: &Topology) -> Result<(), Refusal> {
        let catalog = self.engine.catalog();
        let container =
            call.resource.container().and_then(|(database, name)| catalog.container(database, name));
        let is_elsewhere = match container {
            Some(container) => {
                let ranges = addressed_ranges::current(container, call, operation_of(call));
                ranges.iter().any(|range| topology.writer_of(container, *range) != self.region)
                    || (ranges.is_empty() && topology.write_region != self.region)
            }
            None => topology.write_region != self.region,
        };
        if is_elsewhere { Err(Refusal::write_forbidden()) } else { Ok(()) }
    }

    /// The database's name, and the container, of a request. Refuses a request whose
    /// header names the `_rid` of another container.
    fn container(&self, call: &Call) -> Result<(String, Arc<Container>), Refusal> {
        let (database, name) = call.resource.container().ok_or_else(Refusal::no_such_resource)?;
        let catalog = self.engine.catalog();
        let container = catalog.container(database, name).cloned().ok_or_else(Refusal::no_such_resource)?;
        let database_name = catalog.database(database).map_or(database, |database| &database.name).to_owned();
        if let Some(intended) = call.header(&headers::INTENDED_COLLECTION_RID)
            && !intended.is_empty()
            && intended != container.rid_text
        {
            return Err(Refusal::gateway(
                status::COLLECTION_RID_MISMATCH,
                "Collection rid in the request does not match that of the container.",
            ));
        }
        Ok((database_name, container))
    }
}

/// The refusal of a verb that the resource does not have.
fn method_not_allowed(method: &Method) -> Refusal {
    let mut name = method.as_str().to_ascii_lowercase();
    if let Some(first) = name.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    Refusal::gateway(status::METHOD_NOT_ALLOWED, format!("RequestHandler.{name}"))
}

/// The refusal of a feature that the service has and this server does not.
fn unsupported(what: &str) -> Refusal {
    Refusal::gateway(
        status::BAD_REQUEST,
        format!("{what} are not supported by this server. COMPAT.md lists the supported features."),
    )
}

/// Refuses requests that name triggers. Triggers are stored but not run, and a
/// write that relies on a trigger must not happen without it.
fn check_triggers(call: &Call) -> Result<(), Refusal> {
    let names = [&headers::PRE_TRIGGER_INCLUDE, &headers::POST_TRIGGER_INCLUDE];
    if names.iter().any(|name| call.header(name).is_some_and(|triggers| !triggers.trim().is_empty())) {
        return Err(unsupported("Writes that run triggers"));
    }
    Ok(())
}

/// Checks the consistency level. The account has session consistency: a request
/// may ask for a weaker level, not for a stronger one.
fn check_consistency(call: &Call) -> Result<(), Refusal> {
    match call.header(&headers::CONSISTENCY_LEVEL) {
        None => Ok(()),
        Some(level)
            if ["session", "eventual", "consistentprefix"]
                .iter()
                .any(|known| level.eq_ignore_ascii_case(known)) =>
        {
            Ok(())
        }
        Some(level)
            if ["strong", "boundedstaleness"].iter().any(|known| level.eq_ignore_ascii_case(known)) =>
        {
            Err(Refusal::gateway(
                status::BAD_REQUEST,
                format!(
                    "ConsistencyLevel {level} specified in the request is invalid when service is configured with consistency level Session. Ensure the request consistency level is not stronger than the service consistency level."
                ),
            ))
        }
        Some(level) => Err(Refusal::gateway(
            status::BAD_REQUEST,
            format!("The value '{level}' of x-ms-consistency-level is unknown."),
        )),
    }
}

/// The partition that a request names in its headers.
fn partition_of(call: &Call) -> Option<Partition> {
    let (database, container) = call.resource.container()?;
    let key = call.headers.get(headers::PARTITION_KEY)?.to_str().ok()?;
    Some(Partition { database: database.to_owned(), container: container.to_owned(), key: key.to_owned() })
}
