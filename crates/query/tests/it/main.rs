//! The query language against the service's recorded behaviour and against
//! tables of small cases. One binary, so that it links once.

mod evaluation;
mod parser;
mod plans;
mod support;
