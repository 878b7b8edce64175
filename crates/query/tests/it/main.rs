//! Tests of the query language, against the service's recorded behaviour and
//! with tables of small cases. All tests are in one binary, so that it is linked once.

mod errors;
mod evaluation;
mod functions;
mod hostile;
mod merging;
mod parser;
mod planning;
mod plans;
mod search;
mod service;
mod support;
