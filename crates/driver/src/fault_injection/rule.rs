//! Fault rules: which requests a rule hits, how often, and what happens to them.

use std::fmt;
use std::time::Duration;

use perihelion_wire::operation::OperationKind;
use perihelion_wire::transport::Endpoint;

use super::answer::InjectedAnswer;
use crate::operation::ResourceKind;
use crate::region::Region;

/// The longest time in a rule: a day. A test that waits longer has a mistake.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// Whether a fault happens before or after the service acts on the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum When {
    /// The request does not reach the service. The driver cannot know that.
    Before,
    /// The service acts on the request, and its answer is lost or replaced.
    After,
}

/// A rule: which requests it hits, how often, and what happens to them. A new rule hits every
/// request and does nothing except count. Each `with_` method narrows the rule or sets what
/// happens. A rule has one effect, the last that was set, and may have a delay besides.
#[derive(Debug, Clone)]
pub struct FaultRule {
    pub(super) name: Option<String>,
    pub(super) is_enabled: bool,
    pub(super) conditions: Conditions,
    pub(super) schedule: Schedule,
    pub(super) delay: Duration,
    pub(super) effect: Effect,
}

/// The conditions of a rule: which requests it hits. `None` stands for any.
#[derive(Debug, Clone, Default)]
pub(super) struct Conditions {
    pub(super) operation: Option<OperationKind>,
    pub(super) resource: Option<ResourceKind>,
    pub(super) database: Option<String>,
    pub(super) container: Option<String>,
    pub(super) range: Option<String>,
    pub(super) region: Option<Region>,
    pub(super) endpoint: Option<Endpoint>,
    pub(super) shard: Option<u64>,
    pub(super) protocol: Option<Protocol>,
}

/// The schedule of a rule: how often and when it hits.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    /// How many of the first matching requests are left alone.
    pub(super) skip: u64,
    /// From 0 to 1: how likely the rule hits a matching request.
    pub(super) probability: f64,
    /// The most hits; `None` for no limit.
    pub(super) count: Option<u64>,
    /// When the rule begins and ends, counted from when it was added.
    pub(super) start_after: Duration,
    pub(super) end_after: Option<Duration>,
}

/// The effect of a rule on a request, besides the delay.
#[derive(Debug, Clone)]
pub(crate) enum Effect {
    None,
    Answer(InjectedAnswer),
    /// The stream is reset. The connection stays.
    Reset(When),
    /// The whole connection gets this fault.
    Connection(ConnectionFault, When),
    /// The answer breaks off after this many bytes of its body.
    BreakOff(usize),
    /// The answer's body arrives at this many bytes per second.
    SlowBody(u64),
    /// Connections cannot be opened.
    Connect(ConnectFault),
}

/// A fault of a whole connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionFault {
    /// The connection is reset.
    Drop,
    /// Nothing arrives any more, in either direction.
    Silence,
    /// Bytes arrive that are not HTTP.
    Garbage,
}

/// What happens to a connection that is being opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectFault {
    Refuse,
    Hang,
}

/// A fault rule that cannot be used, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadFaultRule(pub(super) String);

impl fmt::Display for BadFaultRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadFaultRule {}

impl Default for FaultRule {
    fn default() -> Self {
        FaultRule::new()
    }
}

impl FaultRule {
    /// A rule that hits every request and only counts.
    pub fn new() -> Self {
        FaultRule {
            name: None,
            is_enabled: true,
            conditions: Conditions::default(),
            schedule: Schedule {
                skip: 0,
                probability: 1.0,
                count: None,
                start_after: Duration::ZERO,
                end_after: None,
            },
            delay: Duration::ZERO,
            effect: Effect::None,
        }
    }

    /// Names the rule, for logs and error texts.
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets whether the rule begins enabled (default yes). See [`FaultHandle::enable`](
    /// super::FaultHandle::enable).
    pub fn with_enabled(mut self, is_enabled: bool) -> Self {
        self.is_enabled = is_enabled;
        self
    }

    /// Hits only requests of this kind.
    pub fn with_operation(mut self, operation: OperationKind) -> Self {
        self.conditions.operation = Some(operation);
        self
    }

    /// Hits only requests for this kind of resource.
    pub fn with_resource(mut self, resource: ResourceKind) -> Self {
        self.conditions.resource = Some(resource);
        self
    }

    /// Hits only requests in this database. The name is compared with the path.
    pub fn with_database(mut self, database: impl Into<String>) -> Self {
        self.conditions.database = Some(database.into());
        self
    }

    /// Hits only requests in containers of this name.
    pub fn with_container(mut self, container: impl Into<String>) -> Self {
        self.conditions.container = Some(container.into());
        self
    }

    /// Hits only requests to the partition key range of this id, as far as the driver knows the
    /// range: requests with a partition key and requests to one range.
    pub fn with_range(mut self, range: impl Into<String>) -> Self {
        self.conditions.range = Some(range.into());
        self
    }

    /// Hits only requests to this region.
    pub fn with_region(mut self, region: impl Into<Region>) -> Self {
        self.conditions.region = Some(region.into());
        self
    }

    /// Hits only requests to this endpoint.
    pub fn with_endpoint(mut self, endpoint: Endpoint) -> Self {
        self.conditions.endpoint = Some(endpoint);
        self
    }

    /// Hits only requests on this HTTP/2 connection. The connections to an endpoint are numbered
    /// from 1 in the order in which they were opened
    /// ([`ShardStatistics::number`](crate::transport::ShardStatistics::number)).
    pub fn with_shard(mut self, number: u64) -> Self {
        self.conditions.shard = Some(number);
        self
    }

    /// Hits only requests over this protocol.
    pub fn with_protocol(mut self, protocol: Protocol) -> Self {
        self.conditions.protocol = Some(protocol);
        self
    }

    /// Leaves the first `skip` matching requests alone.
    pub fn with_skip(mut self, skip: u64) -> Self {
        self.schedule.skip = skip;
        self
    }

    /// Hits a matching request with this probability, from 0 to 1.
    pub fn with_probability(mut self, probability: f64) -> Self {
        self.schedule.probability = probability;
        self
    }

    /// Hits at most this many requests.
    pub fn with_count(mut self, count: u64) -> Self {
        self.schedule.count = Some(count);
        self
    }

    /// Begins this long after the rule was added.
    pub fn with_start_after(mut self, start_after: Duration) -> Self {
        self.schedule.start_after = start_after;
        self
    }

    /// Ends this long after the rule was added.
    pub fn with_end_after(mut self, end_after: Duration) -> Self {
        self.schedule.end_after = Some(end_after);
        self
    }

    /// Holds the request back for this long, before anything else happens to it. Meanwhile it
    /// occupies its stream.
    pub fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Answers with this status, from 200 to 599. The request is not sent.
    pub fn with_status(self, status: u16) -> Self {
        self.with_answer(InjectedAnswer::new(status))
    }

    /// Sets the answer that is injected.
    pub fn with_answer(mut self, answer: InjectedAnswer) -> Self {
        self.effect = Effect::Answer(answer);
        self
    }

    /// Resets the request's stream; the connection stays. Over HTTP/1.1 this ends the
    /// connection, because it has no streams.
    pub fn with_reset(mut self, when: When) -> Self {
        self.effect = Effect::Reset(when);
        self
    }

    /// Ends the connection, with all its requests.
    pub fn with_drop(mut self, when: When) -> Self {
        self.effect = Effect::Connection(ConnectionFault::Drop, when);
        self
    }

    /// Silences the connection: from then on no byte arrives in either direction, and the
    /// connection stays open until the driver closes it.
    pub fn with_silence(mut self, when: When) -> Self {
        self.effect = Effect::Connection(ConnectionFault::Silence, when);
        self
    }

    /// Makes the connection deliver bytes that are not HTTP.
    pub fn with_garbage(mut self, when: When) -> Self {
        self.effect = Effect::Connection(ConnectionFault::Garbage, when);
        self
    }

    /// Breaks the answer off after this many bytes of its body. The service has acted.
    pub fn with_truncated_body(mut self, bytes: usize) -> Self {
        self.effect = Effect::BreakOff(bytes);
        self
    }

    /// Slows the answer's body down to this many bytes per second, at least one.
    pub fn with_slow_body(mut self, bytes_per_second: u64) -> Self {
        self.effect = Effect::SlowBody(bytes_per_second);
        self
    }

    /// Refuses new connections. Connections that are open stay open. Of the conditions, only
    /// the region and the endpoint can be used.
    pub fn with_refused_connections(mut self) -> Self {
        self.effect = Effect::Connect(ConnectFault::Refuse);
        self
    }

    /// Lets new connections hang until the connect timeout. Connections that are open stay open.
    /// Of the conditions, only the region and the endpoint can be used.
    pub fn with_hanging_connections(mut self) -> Self {
        self.effect = Effect::Connect(ConnectFault::Hang);
        self
    }

    /// Refuses values that the types allow but that cannot be used.
    pub(super) fn check(&self) -> Result<(), BadFaultRule> {
        let bad = |text: &str| {
            let name = self.name.as_ref().map_or(String::new(), |name| format!(" `{name}`"));
            Err(BadFaultRule(format!("the fault rule{name} cannot be used: {text}")))
        };
        let Schedule { probability, start_after, end_after, .. } = self.schedule;
        if !(0.0..=1.0).contains(&probability) {
            return bad("its probability must be a number from 0 to 1");
        }
        if end_after.is_some_and(|end_after| end_after <= start_after) {
            return bad("it ends before it begins; make endAfterMs greater than startAfterMs");
        }
        if [self.delay, start_after, end_after.unwrap_or_default()].iter().any(|time| *time > TIME_MAX) {
            return bad("its times must be at most a day");
        }
        match &self.effect {
            Effect::Answer(answer) if !(200..600).contains(&answer.status) => {
                bad("its status must be from 200 to 599")
            }
            Effect::SlowBody(0) => bad("a slow body needs at least one byte per second"),
            Effect::Connect(_) if !self.conditions.are_known_when_connecting() => {
                bad("a rule for new connections can have only a region and an endpoint as conditions")
            }
            Effect::None
            | Effect::Answer(_)
            | Effect::Reset(_)
            | Effect::Connection(..)
            | Effect::BreakOff(_)
            | Effect::SlowBody(_)
            | Effect::Connect(_) => Ok(()),
        }
    }
}

impl Conditions {
    /// Whether the rule has only conditions that are known when a connection is opened.
    fn are_known_when_connecting(&self) -> bool {
        let Conditions { operation, resource, database, container, range, shard, protocol, .. } = self;
        operation.is_none()
            && resource.is_none()
            && database.is_none()
            && container.is_none()
            && range.is_none()
            && shard.is_none()
            && protocol.is_none()
    }
}
