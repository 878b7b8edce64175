//! The steps of a patch, as a file or a command line has them.

use perihelion_client::{Amount, Error, Patch};
use serde::Deserialize;
use serde_json::Value;

/// A step of a patch, in the words of the service.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum PatchStep {
    Add { path: String, value: Value },
    Set { path: String, value: Value },
    Replace { path: String, value: Value },
    Remove { path: String },
    Incr { path: String, value: serde_json::Number },
    Move { from: String, path: String },
}

/// The patch of these steps.
pub(crate) fn build<'a>(steps: impl IntoIterator<Item = &'a PatchStep>) -> Result<Patch, Error> {
    let mut patch = Patch::new();
    for step in steps {
        patch = match step {
            PatchStep::Add { path, value } => patch.add(path, value)?,
            PatchStep::Set { path, value } => patch.set(path, value)?,
            PatchStep::Replace { path, value } => patch.replace(path, value)?,
            PatchStep::Remove { path } => patch.remove(path)?,
            PatchStep::Incr { path, value } => patch.increment(path, amount(value))?,
            PatchStep::Move { from, path } => patch.move_to(from, path)?,
        };
    }
    Ok(patch)
}

fn amount(number: &serde_json::Number) -> Amount {
    match number.as_i64() {
        Some(integer) => Amount::Integer(integer),
        None => Amount::Float(number.as_f64().unwrap_or(f64::NAN)),
    }
}
