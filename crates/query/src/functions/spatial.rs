//! Functions on GeoJSON: points, lines, polygons and multi-polygons.
//!
//! The `geospatialConfig` of a container has two kinds: *Geography* measures in metres on the
//! WGS 84 ellipsoid, and *Geometry* in the units of the plane. The binder appends the kind to
//! the arguments of every call. In both kinds, longitudes and latitudes count as coordinates of
//! the plane when the code tests whether shapes meet. For very long edges the result differs
//! from the service, whose edges are the shortest lines on the ellipsoid. A clockwise polygon of the
//! kind Geography is all of the earth outside of its ring, as in the service. For values that are
//! not GeoJSON the result is undefined, except in ST_ISVALID and ST_ISVALIDDETAILED.

mod ellipsoid;
mod geometry;
mod relations;

use std::borrow::Cow;

use perihelion_model::json::{Value, object};

use super::{Arg, Outcome, Signature, Treatment, function, value};
use crate::context::Context;
use crate::error::Evaluated;
use crate::number::computed_number;
use geometry::{Geometry, Kind};

pub(super) const FUNCTIONS: &[Signature] = &[
    function("ST_AREA", 1, 1, area).with_treatment(Treatment::Spatial),
    function("ST_DISTANCE", 2, 2, distance).with_treatment(Treatment::Spatial),
    function("ST_INTERSECTS", 2, 2, intersects).with_treatment(Treatment::Spatial),
    function("ST_ISVALID", 1, 1, is_valid).with_treatment(Treatment::Spatial),
    function("ST_ISVALIDDETAILED", 1, 1, is_valid_detailed).with_treatment(Treatment::Spatial),
    function("ST_WITHIN", 2, 2, within).with_treatment(Treatment::Spatial),
];

/// The steps for the distance between two edges on the ellipsoid: some rounds of trigonometry for
/// each end of both edges.
const STEPS_PER_DISTANCE: u64 = 20;

/// The kind of coordinates, which the binder appended to the arguments.
fn kind_of(arguments: &[Arg<'_>]) -> Kind {
    match arguments.last() {
        Some(Some(flag)) if flag.as_bool() == Some(true) => Kind::Planar,
        _ => Kind::Geographic,
    }
}

/// The geometry at the index; `None` when the value is not valid GeoJSON.
fn geometry(arguments: &[Arg<'_>], index: usize, context: &Context) -> Evaluated<Option<Geometry>> {
    Ok(parsed(arguments, index, context)?.and_then(Result::ok))
}

/// The geometry at the index, or the reason why the value is not a valid geometry. In both cases
/// the number of values in the argument is charged. `None` when the argument is undefined.
fn parsed(
    arguments: &[Arg<'_>],
    index: usize,
    context: &Context,
) -> Evaluated<Option<Result<Geometry, Cow<'static, str>>>> {
    let Some(value) = value(arguments, index) else { return Ok(None) };
    context.budget.spend_steps(values_in(value))?;
    Ok(Some(Geometry::parse(value, kind_of(arguments))))
}

/// The number of values in a JSON value at all depths, itself included.
fn values_in(value: &Value) -> u64 {
    match value {
        Value::Array(items) => 1 + items.iter().map(values_in).sum::<u64>(),
        Value::Object(object) => 1 + object.iter().map(|(_, member)| values_in(member)).sum::<u64>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

/// Both geometries. Charges for comparing each edge of one with each edge of the other.
fn both(arguments: &[Arg<'_>], context: &Context) -> Evaluated<Option<(Geometry, Geometry)>> {
    let (Some(a), Some(b)) = (geometry(arguments, 0, context)?, geometry(arguments, 1, context)?) else {
        return Ok(None);
    };
    context.budget.spend_steps((a.size() as u64).saturating_mul(b.size() as u64))?;
    Ok(Some((a, b)))
}

fn number(value: f64) -> Value {
    Value::Number(computed_number(value))
}

fn area(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let kind = kind_of(arguments);
    Ok(geometry(arguments, 0, context)?.map(|geometry| number(relations::area(&geometry, kind))))
}

fn distance(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let kind = kind_of(arguments);
    let Some((a, b)) = both(arguments, context)? else { return Ok(None) };
    let pairs = (a.size() as u64).saturating_mul(b.size() as u64);
    context.budget.spend_steps(pairs.saturating_mul(STEPS_PER_DISTANCE))?;
    Ok(Some(number(relations::distance(&a, &b, kind))))
}

fn intersects(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    Ok(both(arguments, context)?.map(|(a, b)| Value::Bool(relations::intersects(&a, &b))))
}

fn within(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let Some((a, b)) = both(arguments, context)? else { return Ok(None) };
    let is_within = relations::within(&a, &b, |steps| context.budget.spend_steps(steps))?;
    Ok(Some(Value::Bool(is_within)))
}

fn is_valid(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    Ok(parsed(arguments, 0, context)?.map(|geometry| Value::Bool(geometry.is_ok())))
}

fn is_valid_detailed(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    Ok(parsed(arguments, 0, context)?.map(|geometry| match geometry {
        Ok(_) => object([("valid", true.into())]),
        Err(reason) => object([("valid", false.into()), ("reason", reason.as_ref().into())]),
    }))
}
