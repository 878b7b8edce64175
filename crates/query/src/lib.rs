//! The Cosmos SQL language: parser, compiler, evaluator, planner and the merge
//! of partitions' results. No I/O and no clock.
//!
//! ```text
//! text ── parse ──> Query ── compile(parameters, now) ──> Program ── rows(document) ──> Row…
//!                     └───── plan(features) ──> QueryPlan      └─── accumulator() ──> groups
//! ```
//!
//! * [`parse`] accepts the whole grammar. Errors have the service's codes and
//!   locations ([`Diagnostic`], [`errors_to_json`]).
//! * [`compile`] resolves names, substitutes [`Parameters`] and folds
//!   constants. It reports the semantic errors (`SC20…`, `SC21…`, `SC22…`).
//! * A [`Program`] tells an engine how to narrow its scan
//!   ([`Program::conjuncts`], [`Program::order`]) and evaluates one document at
//!   a time ([`Program::rows`], [`Program::matches`]). Grouped programs
//!   ([`Program::is_grouped`]) collect documents in an [`Accumulator`] instead.
//!   [`Program::arrange`] sorts rows that fit in memory and applies DISTINCT,
//!   OFFSET, LIMIT and TOP. An engine that streams its rows uses [`compare_order`]
//!   and [`DistinctValues`] instead. A subquery in FROM that needs all documents at
//!   once is a program of its own, [`Program::inner`], and runs first.
//!   [`Program::run`] does all of this for documents in memory.
//! * [`plan`] makes the response to a query-plan request. [`plan_for_container`] also adds the
//!   ranges of the partition keys that can hold a result. [`Program::gateway_verdict`] says what
//!   the service's gateway would do with the statement across partitions.
//! * [`merge`] is the client's side of a plan: it merges the partitions' pages
//!   into one result.
//! * [`PatchCondition`] is the compiled condition of a patch; [`evaluate_condition`] compiles and
//!   evaluates one.
//!
//! ```
//! use perihelion_model::json::{Style, parse_str, to_text};
//! use perihelion_query::{Now, Parameters, compile, parse};
//!
//! let query = parse("SELECT VALUE c.total * 2 FROM c WHERE c.total > 10").expect("it parses");
//! let program = compile(&query, &Parameters::none(), Now::from_unix_milliseconds(0)).expect("it compiles");
//! let mut rows = Vec::new();
//! for order in [r#"{"total":12.5}"#, r#"{"total":3}"#] {
//!     program.rows(&parse_str(order).unwrap(), &mut rows).expect("it runs");
//! }
//! let totals: Vec<String> =
//!     rows.iter().filter_map(|row| row.output.as_ref()).map(|total| to_text(total, Style::Query)).collect();
//! assert_eq!(totals, ["25"]);
//! ```
//!
//! The value `undefined` is `Option::None` throughout. No input makes this
//! crate panic: a statement is bounded in length and nesting, and its evaluation
//! is bounded in steps and bytes.

#![warn(missing_docs)]

mod aggregate;
mod ast;
mod bind;
mod computed;
mod conjunct;
mod context;
mod diagnostic;
mod error;
mod eval;
mod functions;
mod gateway;
mod lexer;
mod like;
pub mod merge;
mod node;
mod number;
mod order;
mod parameters;
mod parser;
mod patch_condition;
mod plan;
mod printer;
mod program;
mod regex;
mod statement;

pub use ast::Direction;
pub use computed::ComputedProperties;
pub use conjunct::{Condition, Conjunct};
pub use diagnostic::{Diagnostic, errors_to_json};
pub use error::EvaluationError;
pub use eval::GroupWindow;
pub use gateway::GatewayVerdict;
pub use node::Step;
pub use number::compare_numbers;
pub use order::{canonical_key, compare_order, compare_values, equal};
pub use parameters::{DistanceFunction, Now, ParameterError, Parameters, VectorEmbedding};
pub use patch_condition::{ConditionError, PatchCondition, evaluate_condition};
pub use plan::{
    FILTER_PLACEHOLDER, PartitionKeyFilter, PlanError, QueryPlan, QueryRange, partition_keys, plan,
    plan_for_container,
};
pub use program::{
    Accumulator, DistinctValues, GroupRows, OrderKey, Program, Row, RowKey, RowPlace, compile, compile_with,
};
pub use statement::{Query, parse};
