//! The built-in functions: their names, how many arguments they take, and
//! what they do.
//!
//! One table per family. A function sees evaluated arguments (`None` is
//! undefined) and is undefined itself for arguments it is not made for.

mod arrays;
mod convert;
mod dates;
mod maths;
mod strings;
mod types;

use std::borrow::Cow;

use perihelion_model::json::{Number, Value};

use crate::error::EvaluationError;
use crate::eval::{Arg, Context};

pub(crate) type Outcome = Result<Option<Value>, EvaluationError>;
type Run = fn(&[Arg<'_>], &Context) -> Outcome;

/// A function's entry in the tables.
#[derive(Debug)]
pub(crate) struct Signature {
    /// As error messages spell it.
    pub(crate) name: &'static str,
    pub(crate) arguments_min: usize,
    pub(crate) arguments_max: usize,
    run: Run,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Function(&'static Signature);

/// For functions that take any number of arguments.
const MANY: usize = usize::MAX;

impl Function {
    /// Names are case-free.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        let tables = [
            types::FUNCTIONS,
            strings::FUNCTIONS,
            arrays::FUNCTIONS,
            maths::FUNCTIONS,
            convert::FUNCTIONS,
            dates::FUNCTIONS,
        ];
        tables.into_iter().flatten().find(|signature| signature.name.eq_ignore_ascii_case(name)).map(Function)
    }

    pub(crate) fn signature(self) -> &'static Signature {
        self.0
    }

    pub(crate) fn run(self, arguments: &[Arg<'_>], context: &Context) -> Outcome {
        (self.0.run)(arguments, context)
    }
}

const fn entry(name: &'static str, arguments_min: usize, arguments_max: usize, run: Run) -> Signature {
    Signature { name, arguments_min, arguments_max, run }
}

/// The argument at that place, when it is there and defined.
fn value<'a>(arguments: &'a [Arg<'_>], place: usize) -> Option<&'a Value> {
    arguments.get(place)?.as_ref().map(Cow::as_ref)
}

fn text<'a>(arguments: &'a [Arg<'_>], place: usize) -> Option<&'a str> {
    value(arguments, place)?.as_str()
}

fn number(arguments: &[Arg<'_>], place: usize) -> Option<Number> {
    match value(arguments, place)? {
        Value::Number(number) => Some(crate::order::as_query_number(*number)),
        _ => None,
    }
}

fn integer(arguments: &[Arg<'_>], place: usize) -> Option<i64> {
    match number(arguments, place)? {
        Number::Int(whole) => Some(whole),
        other => Some(other.as_f64() as i64),
    }
}

fn array<'a>(arguments: &'a [Arg<'_>], place: usize) -> Option<&'a [Value]> {
    value(arguments, place)?.as_array()
}

/// An optional flag: absent means `false`, anything but a boolean undefined.
fn flag(arguments: &[Arg<'_>], place: usize) -> Option<bool> {
    if place >= arguments.len() {
        return Some(false);
    }
    value(arguments, place)?.as_bool()
}
