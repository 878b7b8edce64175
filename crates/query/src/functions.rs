//! The built-in functions: their names, numbers of arguments and
//! implementations.
//!
//! Each group of functions has a file with its table (`FUNCTIONS`). A new
//! function is one line in a table and its implementation below. Functions
//! receive evaluated arguments (`None` is undefined). Most return undefined for
//! arguments of the wrong type; the type tests return false, and IIF returns its third
//! argument.

mod arrays;
mod conversion;
mod dates;
mod full_text;
mod math;
mod spatial;
mod strings;
mod types;
mod vectors;

use std::borrow::Cow;

use perihelion_model::json::{Number, Value};

use crate::context::Context;
use crate::error::Evaluated;
use crate::number::as_query_number;

/// The value of an expression, such as an argument: borrowed or owned; `None` is
/// undefined.
pub(crate) type Arg<'e> = Option<Cow<'e, Value>>;

/// The result of a function; `None` is undefined.
pub(crate) type Outcome = Evaluated<Option<Value>>;

type Implementation = fn(&[Arg<'_>], &Context) -> Outcome;

/// One line of a table of functions.
#[derive(Debug)]
pub(crate) struct Signature {
    /// The name as error messages print it; calls may use any letter case.
    pub(crate) name: &'static str,
    pub(crate) arguments_min: usize,
    pub(crate) arguments_max: usize,
    implementation: Implementation,
    treatment: Treatment,
}

/// How the binder and the planner treat a call of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Treatment {
    /// Like any other call.
    Ordinary,
    /// RegexMatch: the binder compiles a constant pattern if the modifiers are constant
    /// too.
    RegexMatch,
    /// IS_NULL: the planner treats `IS_NULL(c.pk)` like `c.pk = null`.
    NullTest,
    /// VectorDistance and `_VectorScore`: the binder finds the distance function.
    Vectors,
    /// The functions on GeoJSON: the binder appends the kind of coordinates.
    Spatial,
    /// RAND: the value differs from call to call, so the binder does not fold it.
    Random,
}

/// A built-in function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Function(&'static Signature);

/// The maximum number of arguments of functions that take any number of them.
const MANY: usize = usize::MAX;

impl Function {
    /// The function of that name, in any letter case.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        let tables = [
            types::FUNCTIONS,
            strings::FUNCTIONS,
            arrays::FUNCTIONS,
            math::FUNCTIONS,
            conversion::FUNCTIONS,
            dates::FUNCTIONS,
            vectors::FUNCTIONS,
            full_text::FUNCTIONS,
            spatial::FUNCTIONS,
        ];
        tables.into_iter().flatten().find(|signature| signature.name.eq_ignore_ascii_case(name)).map(Function)
    }

    pub(crate) fn signature(self) -> &'static Signature {
        self.0
    }

    pub(crate) fn is_regex_match(self) -> bool {
        self.0.treatment == Treatment::RegexMatch
    }

    pub(crate) fn is_array_contains(self) -> bool {
        matches!(self.0.name, "ARRAY_CONTAINS" | "_TRY_ARRAY_CONTAINS")
    }

    pub(crate) fn is_absolute_value(self) -> bool {
        self.0.name == "ABS"
    }

    pub(crate) fn is_null_test(self) -> bool {
        self.0.treatment == Treatment::NullTest
    }

    pub(crate) fn compares_vectors(self) -> bool {
        self.0.treatment == Treatment::Vectors
    }

    pub(crate) fn is_spatial(self) -> bool {
        self.0.treatment == Treatment::Spatial
    }

    /// Whether ORDER BY may sort by the function's value.
    pub(crate) fn sorts_rows(self) -> bool {
        self.compares_vectors() || ["_FullTextScore", "ST_DISTANCE"].contains(&self.0.name)
    }

    pub(crate) fn is_random(self) -> bool {
        self.0.treatment == Treatment::Random
    }

    pub(crate) fn run(self, arguments: &[Arg<'_>], context: &Context) -> Outcome {
        (self.0.implementation)(arguments, context)
    }
}

/// One line of a table: name, least and most arguments, implementation.
const fn function(
    name: &'static str,
    arguments_min: usize,
    arguments_max: usize,
    implementation: Implementation,
) -> Signature {
    Signature { name, arguments_min, arguments_max, implementation, treatment: Treatment::Ordinary }
}

impl Signature {
    const fn with_treatment(self, treatment: Treatment) -> Self {
        Signature { treatment, ..self }
    }
}

/// The argument at the index, when it is present and defined.
fn value<'a>(arguments: &'a [Arg<'_>], index: usize) -> Option<&'a Value> {
    arguments.get(index)?.as_ref().map(Cow::as_ref)
}

/// The argument at the index as text; `None` when it is not a string.
fn text<'a>(arguments: &'a [Arg<'_>], index: usize) -> Option<&'a str> {
    value(arguments, index)?.as_str()
}

/// The argument at the index as a number; `None` when it is not a number.
fn number(arguments: &[Arg<'_>], index: usize) -> Option<Number> {
    match value(arguments, index)? {
        Value::Number(number) => Some(as_query_number(*number)),
        _ => None,
    }
}

/// The argument at the index as an integer; `None` when it is not a number. A double is
/// truncated, and a double beyond i64 counts as the nearest i64.
fn integer(arguments: &[Arg<'_>], index: usize) -> Option<i64> {
    match number(arguments, index)? {
        Number::Int(whole) => Some(whole),
        other => Some(other.as_f64() as i64),
    }
}

/// The argument at the index as an integer; `None` when it is not a number, or a number with a
/// fraction, or infinite. A double beyond i64 counts as the nearest i64.
fn whole_number(arguments: &[Arg<'_>], index: usize) -> Option<i64> {
    match number(arguments, index)? {
        Number::Int(whole) => Some(whole),
        other => Some(other.as_f64()).filter(|double| double.fract() == 0.0).map(|double| double as i64),
    }
}

/// The argument at the index as an array; `None` when it is not an array.
fn array<'a>(arguments: &'a [Arg<'_>], index: usize) -> Option<&'a [Value]> {
    value(arguments, index)?.as_array()
}

/// An optional boolean argument: `false` when it is absent, `None` when it is
/// not a boolean.
fn flag(arguments: &[Arg<'_>], index: usize) -> Option<bool> {
    if index >= arguments.len() {
        return Some(false);
    }
    value(arguments, index)?.as_bool()
}
