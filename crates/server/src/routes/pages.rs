//! `Page`: a page of databases, containers, users or permissions, in the order of their creation.
//!
//! The continuation is the `_rid` of the last resource on the page. So when a resource
//! is created or deleted between two pages, no other resource is repeated or left out.

use perihelion_engine::Refusal;
use perihelion_model::json::Value;
use perihelion_wire::{headers, status};

use crate::answer::Answer;
use crate::call::Call;

/// One page of a feed, and the continuation with which a client reads the next page
/// (`None` on the last page).
pub(super) struct Page {
    pub(super) bodies: Vec<Value>,
    continuation: Option<String>,
}

impl Page {
    /// A page with all resources that a query returned.
    pub(super) fn of_all(bodies: Vec<Value>) -> Self {
        Page { bodies, continuation: None }
    }

    /// The page that the headers of a call ask for. `resources` has the bodies of
    /// all resources by `_rid`, and `parse_rid` parses the continuation.
    pub(super) fn requested<R: Ord>(
        call: &Call,
        mut resources: Vec<(R, Value)>,
        parse_rid: fn(&str) -> Option<R>,
    ) -> Result<Self, Refusal> {
        let rows = call.page_rows()?;
        resources.sort_by(|(one, _), (other, _)| one.cmp(other));
        if let Some(text) = call.continuation() {
            let after = parse_rid(&text)
                .ok_or_else(|| Refusal::gateway(status::BAD_REQUEST, "Invalid Continuation Token"))?;
            resources.retain(|(rid, _)| *rid > after);
        }
        let is_last = resources.len() <= rows;
        resources.truncate(rows);
        let bodies: Vec<Value> = resources.into_iter().map(|(_, body)| body).collect();
        let last = bodies.last().and_then(|body| body.get("_rid")).and_then(Value::as_str);
        let continuation = last.filter(|_| !is_last).map(str::to_owned);
        Ok(Page { bodies, continuation })
    }

    /// Adds the continuation of the next page to an answer.
    pub(super) fn add_continuation_to(&self, answer: Answer) -> Answer {
        match &self.continuation {
            Some(continuation) => answer.with_header(headers::CONTINUATION, continuation.clone()),
            None => answer,
        }
    }
}
