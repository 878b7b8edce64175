//! Fault injection: lets an application test what it does when the service, the network or one
//! connection misbehaves (cargo feature `fault-injection`).
//!
//! A [`FaultRule`] says which requests it hits, how often, and what happens to them. A
//! [`FaultInjector`] holds the rules, and is given to the transport with
//! [`HttpOptions::with_fault_injection`](crate::transport::HttpOptions::with_fault_injection).
//! Faults are injected below the connections: a rule that drops a connection ends a real
//! connection with all its requests, and a connection that a rule silences is found by the
//! health checks. So retries, failover, hedging and circuit breakers act as they do in production.
//!
//! ```
//! use perihelion_driver::fault_injection::{FaultInjector, FaultRule, OperationKind, When};
//! use perihelion_driver::transport::{HttpOptions, HttpTransport};
//!
//! let faults = FaultInjector::with_seed(7);
//! let throttled = faults
//!     .add(FaultRule::new().with_operation(OperationKind::ReadItem).with_status(429).with_count(3))
//!     .unwrap();
//! // The same rule as JSON, and one that loses the answers to a tenth of all upserts.
//! let rules = faults.add_json(
//!     r#"[{"operation":"read_item","status":429,"count":3},
//!         {"operation":"upsert_item","drop":"after","probability":0.1}]"#,
//! );
//! assert_eq!(rules.unwrap().len(), 2);
//! let transport = HttpTransport::new(HttpOptions::default().with_fault_injection(&faults)).unwrap();
//! // Use the transport, then look at what was injected.
//! assert_eq!(throttled.hits(), 0);
//! throttled.disable();
//! # drop((transport, FaultRule::new().with_drop(When::Before)));
//! ```
//!
//! - `rule`, `answer`: a rule, and an answer that a rule injects
//! - `json`: rules as JSON
//! - `injector`: the rules in use: which rule hits a request, and how often each has hit
//!
//! What always holds:
//! - Rules are tried in the order in which they were added. The first rule that hits a request
//!   decides.
//! - A rule with a count hits at most that many requests, also when many requests come at once.
//! - Whether a rule with a probability hits its n-th matching request depends only on the seed,
//!   on how many rules were added before it, and on n.

mod answer;
mod injector;
mod json;
mod rule;

pub use perihelion_wire::operation::OperationKind;

pub use self::answer::InjectedAnswer;
pub use self::injector::{FaultHandle, FaultInjector};
pub use self::rule::{BadFaultRule, FaultRule, Protocol, When};

pub(crate) use self::injector::{Fault, OutgoingRequest};
pub(crate) use self::rule::{ConnectFault, ConnectionFault, Effect};

#[cfg(test)]
mod tests;
