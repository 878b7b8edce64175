//! The Cosmos SQL language: from text to answers, with no I/O and no clock.
//!
//! ```text
//! text ── parse ──> Query ── compile(parameters, now) ──> Program ── rows(document) ──> Row…
//!                     └───── plan(features) ──> QueryPlan      └─── accumulator() ──> groups
//! ```
//!
//! * [`parse`] reads the whole grammar, or says what is wrong in the service's
//!   own codes and places ([`Diagnostic`], [`errors_to_json`]).
//! * [`compile`] resolves names, puts [`Parameters`] in and computes what is
//!   constant; the meaning errors (`SC20…`, `SC21…`) come from here.
//! * A [`Program`] tells an engine how to narrow its scan
//!   ([`Program::conjuncts`], [`Program::order`]) and evaluates one document at
//!   a time ([`Program::rows`], [`Program::matches`]). Grouped programs
//!   ([`Program::is_grouped`]) collect documents in an [`Accumulator`] instead.
//!   [`Program::arrange`] does the rest for answers that fit in memory: sort,
//!   DISTINCT, OFFSET, LIMIT, TOP; [`compare_order`] and [`DistinctValues`] are
//!   its parts for engines that stream. A subquery in FROM that is about all
//!   documents together is a program of its own, [`Program::inner`], to be run
//!   first; [`Program::answer`] does it all for documents that are at hand.
//! * [`plan`] answers a client's query-plan request; [`Program::gateway_verdict`]
//!   says what the service's gateway would do across partitions.
//! * [`merge`] is the client's side of a plan: it puts the partitions' pages
//!   together to one answer.
//! * [`evaluate_condition`] is for the condition of a patch.
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
//! Undefined is `Option::None` throughout. Nothing here panics on any input:
//! text is bounded in length and nesting, evaluation in steps and bytes.

mod aggregate;
mod ast;
mod bind;
mod condition;
mod conjunct;
mod diagnostic;
mod error;
mod eval;
mod functions;
mod gateway;
mod lexer;
mod like;
pub mod merge;
mod node;
mod order;
mod parameters;
mod parser;
mod plan;
mod printer;
mod program;
mod regex;

pub use ast::Direction;
pub use condition::{ConditionError, evaluate_condition};
pub use conjunct::{Condition, Conjunct};
pub use diagnostic::{Diagnostic, errors_to_json};
pub use error::EvaluationError;
pub use gateway::GatewayVerdict;
pub use node::Step;
pub use order::{canonical_key, compare_numbers, compare_order, compare_values, equal};
pub use parameters::{Now, ParameterError, Parameters};
pub use plan::{PartitionKeyFilter, PlanError, QueryPlan, QueryRange, partition_keys, plan};
pub use program::{Accumulator, DistinctValues, OrderKey, Program, Row};

/// A statement that parsed.
#[derive(Debug, Clone)]
pub struct Query {
    text: Box<str>,
    select: Box<ast::Select>,
}

/// Reads a statement; at most one diagnostic, for the first mistake.
pub fn parse(text: &str) -> Result<Query, Vec<Diagnostic>> {
    let select = parser::parse(text).map_err(|diagnostic| vec![diagnostic])?;
    Ok(Query { text: text.into(), select })
}

/// Makes a statement ready to run. `now` is what the date functions see.
pub fn compile(query: &Query, parameters: &Parameters, now: Now) -> Result<Program, Vec<Diagnostic>> {
    Program::new(&query.text, &query.select, parameters, now)
}

impl Query {
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The statement in the parser's normal form, on one line.
    pub fn normal_form(&self) -> String {
        let mut out = String::new();
        printer::print_select(&mut out, &self.select, printer::Layout::OneLine);
        out
    }
}
