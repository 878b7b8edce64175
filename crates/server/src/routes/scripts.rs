//! Stored procedures, triggers and user-defined functions. They can be created, read,
//! replaced, deleted, listed and queried. They are not run: a request to run a stored
//! procedure is refused.

use std::sync::Arc;

use http::Method;
use perihelion_engine::{Refusal, ScriptKind, charge};
use perihelion_model::json::Value;
use perihelion_wire::headers;
use perihelion_wire::path::Resource;
use perihelion_wire::status::{self, Status};

use super::{RegionService, containers, items, method_not_allowed, queries};
use crate::answer::Answer;
use crate::call::Call;

pub(super) async fn serve(service: &RegionService, call: &Call) -> Result<Answer, Refusal> {
    let (database, container) = service.container(call)?;
    let (kind, feed, id) = addressed_script(&call.resource).ok_or_else(Refusal::no_such_resource)?;
    let position = containers::position_of(service, &container)?;
    let id = match id {
        Some(rid) if items::is_rid_path(service, call) => {
            Some(service.engine.script_id(&container, kind, rid)?)
        }
        id => id.map(str::to_owned),
    };
    let answer = match (&call.method, id) {
        (&Method::GET, None) => {
            let scripts = service.engine.scripts(&container, kind)?;
            Answer::feed(&container.rid_text, feed, &scripts).charged(charge::FEED)
        }
        (&Method::POST, None) if call.is_query() => {
            let scripts = service.engine.scripts(&container, kind)?;
            let rows = queries::run_over_metadata(service, call, scripts)?;
            Answer::feed(&container.rid_text, feed, &rows).charged(charge::FEED)
        }
        (&Method::POST, None) => {
            let (body, target) = (call.object()?, Arc::clone(&container));
            let body = service
                .change_catalog(
                    move |engine| async move { engine.put_script(&target, kind, None, body).await },
                )
                .await?;
            let quota = format!("{}={};", quota_name(kind), kind.quota());
            script_answer(status::CREATED, &body)
                .charged(charge::SCRIPT_WRITE)
                .with_header(headers::RESOURCE_QUOTA, quota)
        }
        (&Method::POST, Some(_)) if kind == ScriptKind::StoredProcedure => {
            return Err(super::unsupported("Stored procedure executions"));
        }
        (&Method::GET, Some(id)) => script_answer(status::OK, &service.engine.script(&container, kind, &id)?)
            .charged(charge::METADATA_READ)
            .with_content_location(),
        (&Method::PUT, Some(id)) => {
            let (body, target) = (call.object()?, Arc::clone(&container));
            let body = service
                .change_catalog(move |engine| async move {
                    engine.put_script(&target, kind, Some(id), body).await
                })
                .await?;
            script_answer(status::OK, &body).charged(charge::SCRIPT_WRITE).with_content_location()
        }
        (&Method::DELETE, Some(id)) => {
            let target = Arc::clone(&container);
            service
                .change_catalog(move |engine| async move { engine.delete_script(&target, kind, &id).await })
                .await?;
            Answer::empty(status::NO_CONTENT).charged(charge::SCRIPT_WRITE)
        }
        _ => return Err(method_not_allowed(&call.method)),
    };
    Ok(answer.at(position).with_content_path(&database, &container))
}

/// The name of a kind of script in the quota header.
fn quota_name(kind: ScriptKind) -> &'static str {
    match kind {
        ScriptKind::StoredProcedure => "storedProcedures",
        ScriptKind::Trigger => "triggers",
        ScriptKind::UserDefinedFunction => "functions",
    }
}

/// The longest content that clients may send, in bytes: 2 MiB.
const CONTENT_LENGTH_MAX: &str = "2097152";

fn script_answer(status: Status, body: &Value) -> Answer {
    let etag = body.get("_etag").and_then(Value::as_str).unwrap_or_default();
    Answer::json(status, body)
        .with_etag(etag)
        .with_static_header(headers::MAX_CONTENT_LENGTH, CONTENT_LENGTH_MAX)
}

/// The kind of script that a request addresses, the name of the feed of that kind, and the
/// script's id (`None` when the request addresses the feed).
fn addressed_script(resource: &Resource) -> Option<(ScriptKind, &'static str, Option<&str>)> {
    Some(match resource {
        Resource::StoredProcedures { .. } => (ScriptKind::StoredProcedure, "StoredProcedures", None),
        Resource::StoredProcedure { procedure, .. } => {
            (ScriptKind::StoredProcedure, "StoredProcedures", Some(procedure))
        }
        Resource::Triggers { .. } => (ScriptKind::Trigger, "Triggers", None),
        Resource::Trigger { trigger, .. } => (ScriptKind::Trigger, "Triggers", Some(trigger)),
        Resource::UserDefinedFunctions { .. } => {
            (ScriptKind::UserDefinedFunction, "UserDefinedFunctions", None)
        }
        Resource::UserDefinedFunction { function, .. } => {
            (ScriptKind::UserDefinedFunction, "UserDefinedFunctions", Some(function))
        }
        _ => return None,
    })
}
