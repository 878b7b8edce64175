//! `Page`: a page of databases or containers, in the order of their creation.
//!
//! The continuation is the `_rid` of the last one returned, so a resource that is
//! created or deleted between two pages neither repeats nor hides another.

use perihelion_engine::Refusal;
use perihelion_model::json::Value;
use perihelion_wire::{headers, status};

use crate::answer::Answer;
use crate::call::Call;

/// One page of a feed, and the continuation of the next.
pub(super) struct Page {
    pub(super) bodies: Vec<Value>,
    continuation: Option<String>,
}

impl Page {
    /// One page with everything, for queries.
    pub(super) fn whole(bodies: Vec<Value>) -> Self {
        Page { bodies, continuation: None }
    }

    /// The page that a call asks for, of all resources.
    pub(super) fn cut<R: Ord + Copy>(
        call: &Call,
        mut all: Vec<(R, Value)>,
        parse: fn(&str) -> Option<R>,
    ) -> Result<Self, Refusal> {
        let rows = call.page_rows()?;
        all.sort_by_key(|(rid, _)| *rid);
        if let Some(text) = call.continuation() {
            let after = parse(&text)
                .ok_or_else(|| Refusal::gateway(status::BAD_REQUEST.code, "Invalid Continuation Token"))?;
            all.retain(|(rid, _)| *rid > after);
        }
        let is_last = all.len() <= rows;
        all.truncate(rows);
        let bodies: Vec<Value> = all.into_iter().map(|(_, body)| body).collect();
        let last = bodies.last().and_then(|body| body.get("_rid")).and_then(Value::as_str);
        let continuation = last.filter(|_| !is_last).map(str::to_owned);
        Ok(Page { bodies, continuation })
    }

    /// Adds the continuation of the next page to an answer.
    pub(super) fn mark(&self, answer: Answer) -> Answer {
        match &self.continuation {
            Some(continuation) => answer.with(headers::CONTINUATION, continuation.clone()),
            None => answer,
        }
    }
}
