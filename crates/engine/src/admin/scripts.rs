//! Scripts: stored procedures, triggers and user-defined functions. They are stored, listed
//! and returned, so that a client can deploy them, but they are not run.

use std::sync::Arc;

use bytes::Bytes;
use perihelion_model::etag;
use perihelion_model::json::{self, Object, Value};
use perihelion_model::resource_id::ChildKind;
use perihelion_wire::status;

use crate::catalog::{Catalog, Container, resource_name};
use crate::charge;
use crate::keys::{self, OwnedKeyRange};
use crate::refusal::{Layer, Refusal};
use crate::storage::{Direction, View};
use crate::transaction::Transaction;

/// The kinds of scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptKind {
    /// A stored procedure.
    StoredProcedure,
    /// A trigger.
    Trigger,
    /// A user-defined function.
    UserDefinedFunction,
}

impl ScriptKind {
    /// How many scripts of this kind a container may have.
    pub fn quota(self) -> usize {
        match self {
            ScriptKind::StoredProcedure => 100,
            ScriptKind::Trigger => 25,
            ScriptKind::UserDefinedFunction => 50,
        }
    }

    /// The byte that stands for the kind in keys. It is stored: never change it.
    fn key_byte(self) -> u8 {
        match self {
            ScriptKind::StoredProcedure => 1,
            ScriptKind::Trigger => 2,
            ScriptKind::UserDefinedFunction => 3,
        }
    }

    /// The kind of the script's `_rid`, and the name of the kind in links.
    fn rid_kind_and_path(self) -> (ChildKind, &'static str) {
        match self {
            ScriptKind::StoredProcedure => (ChildKind::StoredProcedure, "sprocs"),
            ScriptKind::Trigger => (ChildKind::Trigger, "triggers"),
            ScriptKind::UserDefinedFunction => (ChildKind::UserDefinedFunction, "udfs"),
        }
    }
}

/// Removes a script.
pub(crate) fn delete_script(
    transaction: &mut Transaction<'_>,
    container: &Container,
    kind: ScriptKind,
    id: &str,
) -> Result<(), Refusal> {
    let key = keys::script(container.number(), kind.key_byte(), id);
    transaction.get(&key)?.ok_or_else(Refusal::no_such_resource)?;
    transaction.remove(key);
    Ok(())
}

/// The body of one script.
pub(crate) fn script(
    view: &dyn View,
    container: &Container,
    kind: ScriptKind,
    id: &str,
) -> Result<Value, Refusal> {
    let record = view.get(&keys::script(container.number(), kind.key_byte(), id))?;
    record.and_then(|record| json::parse(&record).ok()).ok_or_else(Refusal::no_such_resource)
}

/// The bodies of all scripts of one kind.
pub(crate) fn scripts(
    view: &dyn View,
    container: &Container,
    kind: ScriptKind,
) -> Result<Vec<Value>, Refusal> {
    let mut found = Vec::new();
    let key_range = OwnedKeyRange::prefix(&keys::script_prefix(container.number(), kind.key_byte()));
    view.scan(key_range.as_range(), Direction::Forward, &mut |_, record| {
        found.extend(json::parse(record).ok());
        std::ops::ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// The keys and records of all scripts of the containers in a catalog.
pub(crate) fn script_records(view: &dyn View, catalog: &Catalog) -> Result<Vec<(Vec<u8>, Bytes)>, Refusal> {
    let mut records = Vec::new();
    view.scan(
        OwnedKeyRange::prefix(&keys::all_scripts_prefix()).as_range(),
        Direction::Forward,
        &mut |key, record| {
            if keys::parse_container(key).is_some_and(|number| catalog.container_by_number(number).is_some())
            {
                records.push((key.to_vec(), Bytes::copy_from_slice(record)));
            }
            std::ops::ControlFlow::Continue(())
        },
    )?;
    Ok(records)
}

/// The id of the script with this `_rid`.
pub(crate) fn script_id(
    view: &dyn View,
    container: &Container,
    kind: ScriptKind,
    rid: &str,
) -> Result<String, Refusal> {
    // A container has at most a hundred scripts of a kind.
    let scripts = scripts(view, container, kind)?;
    let text = |script: &Value, name: &str| script.get(name).and_then(Value::as_str).map(str::to_owned);
    let named = scripts.iter().find(|script| text(script, "_rid").as_deref() == Some(rid));
    named.and_then(|script| text(script, "id")).ok_or_else(Refusal::no_such_resource)
}

/// Creates a script, or replaces the script with the id `replaces`. The body must have the
/// same id.
pub(crate) fn put_script(
    transaction: &mut Transaction<'_>,
    container: &Arc<Container>,
    kind: ScriptKind,
    replaces: Option<&str>,
    mut body: Object,
) -> Result<Value, Refusal> {
    let container = transaction.current(container)?;
    let id = resource_name(&body)?;
    let key = keys::script(container.number(), kind.key_byte(), &id);
    let old = transaction.get(&key)?.and_then(|record| json::parse(&record).ok());
    let exists = old.is_some();
    match replaces {
        None if exists => return Err(Refusal::resource_exists().with_charge(charge::CONFLICT)),
        Some(old) if old != id || !exists => return Err(Refusal::no_such_resource()),
        _ => {}
    }
    let key_range = OwnedKeyRange::prefix(&keys::script_prefix(container.number(), kind.key_byte()));
    if !exists && transaction.entries(&key_range, kind.quota() + 1)?.len() >= kind.quota() {
        return Err(Refusal::new(
            status::FORBIDDEN,
            Layer::Backend,
            format!("The container already has {} scripts of this kind, the maximum.", kind.quota()),
        ));
    }
    let mut state = transaction.state(container.number())?;
    let (child, path) = kind.rid_kind_and_path();
    // A script that is replaced keeps its `_rid`.
    let old_rid = old.as_ref().and_then(|old| old.get("_rid")).and_then(Value::as_str);
    let rid = old_rid.map_or_else(|| container.rid.child(child, state.rid_next), str::to_owned);
    body.set("_rid", rid.as_str().into());
    body.set("_self", format!("{}{path}/{rid}/", container.self_link).into());
    body.set("_etag", etag::etag(state.etag_next, transaction.now).into());
    body.set("_ts", transaction.now.into());
    state.rid_next += 1;
    state.etag_next += 1;
    transaction.put_state(container.number(), &state);
    let body = Value::Object(body);
    transaction.put_record(key, &body);
    Ok(body)
}
