//! What an operation carries from attempt to attempt. The loop in `run` is the
//! only writer; `budgets` come from the judge.

use std::sync::Arc;

use http::HeaderValue;
use tokio::time::Instant;

use crate::container::Known;
use crate::diagnostics::{Context, Diagnostics};
use crate::operation::{Operation, Scope};
use crate::region::Region;
use crate::routing::ranges::Range;
use crate::routing::resolve::Route;

use super::verdict::{Budgets, Effect, Nature, Place};

/// One operation under way.
#[derive(Debug)]
pub(super) struct State {
    pub(super) started: Instant,
    pub(super) deadline: Instant,
    pub(super) budgets: Budgets,
    pub(super) context: Context,
    pub(super) place: Option<Place>,
    /// Regions that failed this operation since the last full round.
    pub(super) tried: Vec<Region>,
    pub(super) last: Option<Region>,
    /// The region that took writes, by the account, when the last attempt was
    /// made; `None` before the first, and where all regions take them.
    pub(super) write_region: Option<Region>,
    /// The session that the last attempt asked for.
    pub(super) asked: Option<AskedSession>,
    /// Effects that wait until another region has answered.
    pub(super) unconfirmed: Vec<(Effect, Route)>,
    pub(super) diagnostics: Diagnostics,
}

impl State {
    pub(super) fn new(started: Instant, deadline: Instant, place: Option<Place>) -> Self {
        let context = if place.is_some() { Context::ReadBack } else { Context::Initial };
        State {
            started,
            deadline,
            budgets: Budgets::default(),
            context,
            place,
            tried: Vec::new(),
            last: None,
            write_region: None,
            asked: None,
            unconfirmed: Vec::new(),
            diagnostics: Diagnostics::default(),
        }
    }
}

/// What an attempt asked for: a token, and the range (or all, when `None`) of
/// the container that it is about.
#[derive(Debug)]
pub(super) struct AskedSession {
    pub(super) known: Option<Arc<Known>>,
    pub(super) range: Option<Arc<str>>,
    pub(super) token: Option<HeaderValue>,
}

impl AskedSession {
    /// Whether it was asked of the same place as is to be asked now.
    pub(super) fn is_about(&self, known: Option<&Known>, range: Option<&Range>) -> bool {
        let is_same_container = match (self.known.as_deref(), known) {
            (Some(asked), Some(known)) => std::ptr::eq(asked, known),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        is_same_container && self.range.as_deref() == range.map(|range| &*range.id)
    }
}

/// What does not change about an operation.
pub(super) fn nature(operation: &Operation) -> Nature {
    Nature {
        verb: operation.verb,
        repeat: operation.repeat,
        has_witness: operation.witness.is_some(),
        is_data_plane: operation.is_data_plane(),
    }
}

/// The physical partition an operation goes to, when there is exactly one.
pub(super) fn locate<'k>(scope: &Scope, known: &'k Known) -> Option<&'k Range> {
    match scope {
        Scope::Unpartitioned | Scope::Everywhere => known.ranges.only(),
        Scope::Range(id) | Scope::Slice(id, _) => known.ranges.get(id),
        Scope::Key(scope) => known.ranges.only().or_else(|| {
            let key = &known.partition_key;
            if key.is_prefix(&scope.key) { None } else { known.ranges.locate(&key.effective(&scope.key)) }
        }),
    }
}
