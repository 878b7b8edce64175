//! The rules in use: which rule hits a request, and how often each rule has hit.

use std::cell::LazyCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use http::{HeaderMap, Method};
use perihelion_wire::operation::OperationKind;
use perihelion_wire::path::{self, Resource};
use perihelion_wire::transport::{Endpoint, Route};
use tokio::time::{Duration, Instant};

use super::json;
use super::rule::{BadFaultRule, Conditions, ConnectFault, Effect, FaultRule, Protocol, Schedule};
use crate::operation::ResourceKind;
use crate::region::Region;

/// The most rules at a time. A test that adds more has a mistake.
const RULES_MAX: usize = 256;

/// The most endpoints whose region is remembered. A transport has at most this many endpoints.
const ENDPOINTS_MAX: usize = 256;

/// The rules of one or several transports. Clones share their rules, so that a test can keep
/// a clone and change the rules while the transport is in use.
#[derive(Clone)]
pub struct FaultInjector(Arc<Inner>);

struct Inner {
    seed: u64,
    /// Replaced whole, while `last_rule_number` is locked.
    rules: ArcSwap<Vec<Arc<ActiveRule>>>,
    /// The number of rules. While it is 0, a request reads no other field.
    count: AtomicUsize,
    /// The number of the last rule that was added. Locked while the rules are changed.
    last_rule_number: Mutex<u64>,
    /// The region of each endpoint that a request went to while there were rules. It is needed
    /// when a connection is opened, because the transport then knows only the endpoint.
    regions: Mutex<HashMap<Endpoint, Region>>,
}

/// A rule in use.
struct ActiveRule {
    rule: FaultRule,
    seed: u64,
    added_at: Instant,
    is_enabled: AtomicBool,
    /// The requests that matched while the rule was enabled and within its window.
    matched: AtomicU64,
    hits: AtomicU64,
}

/// One rule of an injector. Dropping the handle does not remove the rule.
#[derive(Clone)]
pub struct FaultHandle {
    rule: Arc<ActiveRule>,
    injector: FaultInjector,
}

/// A request that is about to be handed to a connection.
pub(crate) struct OutgoingRequest<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) route: &'a Route,
    pub(crate) protocol: Protocol,
    /// The number of the HTTP/2 connection; `None` over HTTP/1.1.
    pub(crate) shard: Option<u64>,
}

/// The fault that a rule injects into one request.
pub(crate) struct Fault(Arc<ActiveRule>);

impl Fault {
    pub(crate) fn delay(&self) -> Duration {
        self.0.rule.delay
    }

    pub(crate) fn effect(&self) -> &Effect {
        &self.0.rule.effect
    }

    /// The rule's name in backticks, after a space; empty if the rule has no name. The text of an
    /// injected failure ends with it.
    pub(crate) fn label(&self) -> String {
        self.0.label()
    }
}

impl FaultInjector {
    /// An injector without rules. Its random decisions follow from the seed.
    pub fn with_seed(seed: u64) -> Self {
        FaultInjector(Arc::new(Inner {
            seed,
            rules: ArcSwap::default(),
            count: AtomicUsize::new(0),
            last_rule_number: Mutex::default(),
            regions: Mutex::default(),
        }))
    }

    /// Adds a rule after the others. The times of its window count from now.
    pub fn add(&self, rule: FaultRule) -> Result<FaultHandle, BadFaultRule> {
        rule.check()?;
        let mut last_number = self.0.last_rule_number.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = self.0.rules.load();
        if rules.len() >= RULES_MAX {
            return Err(BadFaultRule(format!(
                "there are {RULES_MAX} fault rules already; remove some first"
            )));
        }
        *last_number += 1;
        let active = Arc::new(ActiveRule {
            seed: mix(self.0.seed ^ mix(*last_number)),
            added_at: Instant::now(),
            is_enabled: AtomicBool::new(rule.is_enabled),
            matched: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            rule,
        });
        self.replace(rules.iter().chain([&active]).map(Arc::clone).collect());
        Ok(FaultHandle { rule: active, injector: self.clone() })
    }

    /// Adds the rules of a JSON text: an object for one rule, or an array of objects.
    /// `docs/fault-injection.md` lists the members. If a rule is wrong, none is added.
    pub fn add_json(&self, text: &str) -> Result<Vec<FaultHandle>, BadFaultRule> {
        let rules = json::parse(text)?;
        rules.iter().try_for_each(FaultRule::check)?;
        let mut handles = Vec::with_capacity(rules.len());
        for rule in rules {
            match self.add(rule) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    handles.iter().for_each(FaultHandle::remove);
                    return Err(error);
                }
            }
        }
        Ok(handles)
    }

    /// Removes all rules.
    pub fn clear(&self) {
        let _locked = self.0.last_rule_number.lock().unwrap_or_else(PoisonError::into_inner);
        self.replace(Vec::new());
    }

    /// The rules in use, in their order.
    pub fn rules(&self) -> Vec<FaultHandle> {
        let handle = |rule: &Arc<ActiveRule>| FaultHandle { rule: Arc::clone(rule), injector: self.clone() };
        self.0.rules.load().iter().map(handle).collect()
    }

    /// Replaces the rules. The caller has locked `last_rule_number`.
    fn replace(&self, rules: Vec<Arc<ActiveRule>>) {
        let count = rules.len();
        self.0.rules.store(Arc::new(rules));
        self.0.count.store(count, Ordering::Release);
    }

    pub(crate) fn has_rules(&self) -> bool {
        self.0.count.load(Ordering::Acquire) > 0
    }

    /// The fault of the first rule that hits this request. Counts the hit.
    pub(crate) fn pick(&self, request: &OutgoingRequest<'_>) -> Option<Fault> {
        if !self.has_rules() {
            return None;
        }
        let now = Instant::now();
        let target = LazyCell::new(|| RequestTarget::of(request));
        let rules = self.0.rules.load();
        let hit = rules.iter().find(|active| {
            !matches!(active.rule.effect, Effect::Connect(_))
                && active.rule.conditions.match_request(request, &target)
                && active.is_hit(now)
        })?;
        tracing::debug!(rule = %hit.label(), endpoint = %request.endpoint, "a fault is injected");
        Some(Fault(Arc::clone(hit)))
    }

    /// The fault of a connection that is about to be opened to this endpoint. Counts the hit.
    pub(crate) fn pick_for_connecting(&self, endpoint: &Endpoint) -> Option<ConnectFault> {
        if !self.has_rules() {
            return None;
        }
        let now = Instant::now();
        let region = self.lock_regions().get(endpoint).cloned();
        self.0.rules.load().iter().find_map(|active| {
            let Effect::Connect(fault) = active.rule.effect else { return None };
            let conditions = &active.rule.conditions;
            let is_match = conditions.endpoint.as_ref().is_none_or(|wanted| wanted == endpoint)
                && conditions.region.as_ref().is_none_or(|wanted| Some(wanted) == region.as_ref());
            (is_match && active.is_hit(now)).then_some(fault)
        })
    }

    /// Remembers the region of an endpoint, for connections that are opened later.
    pub(crate) fn learn_region(&self, endpoint: &Endpoint, route: &Route) {
        let Some(region) = route.region.as_ref().filter(|_| self.has_rules()) else { return };
        let mut regions = self.lock_regions();
        if regions.len() < ENDPOINTS_MAX || regions.contains_key(endpoint) {
            regions.insert(endpoint.clone(), Region::new(region));
        }
    }

    fn lock_regions(&self) -> std::sync::MutexGuard<'_, HashMap<Endpoint, Region>> {
        self.0.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FaultHandle {
    /// How many requests or new connections the rule has hit.
    pub fn hits(&self) -> u64 {
        self.rule.hits.load(Ordering::SeqCst)
    }

    /// How many requests or new connections matched the rule's conditions while it was enabled and
    /// within its time window, whether or not it hit them.
    pub fn matches(&self) -> u64 {
        self.rule.matched.load(Ordering::SeqCst)
    }

    /// The rule's name, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.rule.rule.name.as_deref()
    }

    /// Whether the rule is enabled.
    pub fn is_enabled(&self) -> bool {
        self.rule.is_enabled.load(Ordering::SeqCst)
    }

    /// Enables the rule: it hits requests.
    pub fn enable(&self) {
        self.rule.is_enabled.store(true, Ordering::SeqCst);
    }

    /// Disables the rule: it hits no request until it is enabled again. Its counts stay.
    pub fn disable(&self) {
        self.rule.is_enabled.store(false, Ordering::SeqCst);
    }

    /// Removes the rule from its injector. The handle still knows its counts.
    pub fn remove(&self) {
        let inner = &self.injector.0;
        let _locked = inner.last_rule_number.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = inner.rules.load();
        let rest = rules.iter().filter(|rule| !Arc::ptr_eq(rule, &self.rule)).map(Arc::clone).collect();
        self.injector.replace(rest);
    }
}

impl ActiveRule {
    /// Whether the rule hits a request that meets its conditions. Counts the match and the
    /// hit.
    fn is_hit(&self, now: Instant) -> bool {
        let Schedule { skip, probability, count, start_after, end_after } = self.rule.schedule;
        let age = now.saturating_duration_since(self.added_at);
        let is_active = self.is_enabled.load(Ordering::SeqCst)
            && age >= start_after
            && end_after.is_none_or(|end_after| age < end_after);
        if !is_active {
            return false;
        }
        let number = self.matched.fetch_add(1, Ordering::SeqCst);
        if number < skip || sample(self.seed, number) >= probability {
            return false;
        }
        let add = |hits: u64| count.is_none_or(|count| hits < count).then_some(hits + 1);
        self.hits.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add).is_ok()
    }

    fn label(&self) -> String {
        self.rule.name.as_ref().map_or_else(String::new, |name| format!(" `{name}`"))
    }
}

/// The target of a request: the resource in its path, and the kinds of operation and resource.
struct RequestTarget {
    /// `None` for a path that addresses no resource of the service.
    resource: Option<Resource>,
    operation: OperationKind,
    kind: Option<ResourceKind>,
}

impl RequestTarget {
    fn of(request: &OutgoingRequest<'_>) -> Self {
        let resource = path::parse(request.path).ok();
        let operation = resource.as_ref().map_or(OperationKind::Other, |resource| {
            OperationKind::of(resource, request.method, request.headers)
        });
        let kind = match operation {
            OperationKind::CreateItem
            | OperationKind::UpsertItem
            | OperationKind::ReadItem
            | OperationKind::ReplaceItem
            | OperationKind::PatchItem
            | OperationKind::DeleteItem
            | OperationKind::DeletePartition
            | OperationKind::Batch
            | OperationKind::Transaction
            | OperationKind::Query
            | OperationKind::QueryPlan
            | OperationKind::ReadFeed
            | OperationKind::ChangeFeed => Some(ResourceKind::Item),
            OperationKind::ReadRanges => Some(ResourceKind::Range),
            OperationKind::ReadAccount => Some(ResourceKind::Account),
            OperationKind::Database => Some(ResourceKind::Database),
            OperationKind::Container => Some(ResourceKind::Container),
            OperationKind::Offer => Some(ResourceKind::Offer),
            OperationKind::Other => None,
        };
        RequestTarget { resource, operation, kind }
    }
}

impl Conditions {
    fn match_request(
        &self,
        request: &OutgoingRequest<'_>,
        target: &LazyCell<RequestTarget, impl FnOnce() -> RequestTarget>,
    ) -> bool {
        let Route { region, range } = request.route;
        self.protocol.is_none_or(|wanted| wanted == request.protocol)
            && self.shard.is_none_or(|wanted| Some(wanted) == request.shard)
            && self.endpoint.as_ref().is_none_or(|wanted| wanted == request.endpoint)
            && self
                .region
                .as_ref()
                .is_none_or(|wanted| region.as_ref().is_some_and(|name| *wanted == Region::new(name)))
            && self.range.as_deref().is_none_or(|wanted| Some(wanted) == range.as_deref())
            && self.operation.is_none_or(|wanted| wanted == target.operation)
            && self.resource.is_none_or(|wanted| Some(wanted) == target.kind)
            && self.match_names(target.resource.as_ref())
    }

    /// Compares the names in the path.
    fn match_names(&self, resource: Option<&Resource>) -> bool {
        let database = || resource.and_then(Resource::database);
        let container = || resource.and_then(|resource| resource.container()).map(|(_, name)| name);
        self.database.as_deref().is_none_or(|wanted| Some(wanted) == database())
            && self.container.as_deref().is_none_or(|wanted| Some(wanted) == container())
    }
}

/// The random number of a rule's n-th match: at least 0 and below 1.
fn sample(seed: u64, number: u64) -> f64 {
    (mix(seed.wrapping_add(mix(number))) >> 11) as f64 / (1u64 << 53) as f64
}

/// Scrambles a number (the finalizer of SplitMix64).
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl fmt::Debug for FaultInjector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.rules()).finish()
    }
}

impl fmt::Debug for FaultHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultHandle")
            .field("rule", &self.rule.rule)
            .field("is_enabled", &self.is_enabled())
            .field("matches", &self.matches())
            .field("hits", &self.hits())
            .finish()
    }
}
