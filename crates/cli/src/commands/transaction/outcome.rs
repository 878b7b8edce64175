//! `Outcome`: the result of a transaction as JSON, with an entry for each operation.

use perihelion_client::{AbortedTransaction, TransactionResult, TransactionResults};
use serde::Serialize;
use serde_json::value::RawValue;

use super::file::{FileOperation, TransactionFile};

/// The result of a transaction.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Outcome<'a> {
    /// `committed`, `read` or `aborted`.
    outcome: &'static str,
    /// The idempotency token of the writes; null for reads.
    token: Option<String>,
    /// The token with which an aborted transaction may succeed later.
    next_token: Option<String>,
    /// What the service says about an abort; null if it says nothing.
    diagnostic: Option<&'a str>,
    request_units: f64,
    attempts: usize,
    operations: Vec<Operation<'a>>,
}

/// One operation of the transaction.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Operation<'a> {
    operation: &'static str,
    container: &'a str,
    id: &'a str,
    status: u16,
    sub_status: u32,
    request_units: f64,
    etag: Option<String>,
    /// The document that was read, exactly as the service sent it.
    document: Option<&'a RawValue>,
}

impl<'a> Outcome<'a> {
    pub(super) fn success(file: &'a TransactionFile, results: &'a TransactionResults) -> Outcome<'a> {
        let outcome = if file.is_read() { "read" } else { "committed" };
        Outcome::new(outcome, file, results)
    }

    pub(super) fn abort(file: &'a TransactionFile, aborted: &'a AbortedTransaction) -> Outcome<'a> {
        Outcome {
            next_token: aborted.next_token().map(|token| token.to_string()),
            diagnostic: aborted.diagnostic(),
            ..Outcome::new("aborted", file, aborted.results())
        }
    }

    fn new(outcome: &'static str, file: &'a TransactionFile, results: &'a TransactionResults) -> Outcome<'a> {
        let operations = file.operations.iter().zip(results);
        Outcome {
            outcome,
            token: (!file.is_read()).then(|| results.idempotency_token().to_string()),
            next_token: None,
            diagnostic: None,
            request_units: results.charge(),
            attempts: results.diagnostics().attempts().count(),
            operations: operations.map(|(operation, result)| Operation::new(operation, result)).collect(),
        }
    }
}

impl<'a> Operation<'a> {
    fn new(operation: &'a FileOperation, result: &'a TransactionResult) -> Operation<'a> {
        let status = result.status();
        Operation {
            operation: operation.verb.name(),
            container: &operation.container,
            id: operation.id(),
            status: status.code,
            sub_status: status.sub,
            request_units: result.charge(),
            etag: result.etag().map(ToString::to_string),
            // A body that is not JSON is left out. The table of a read shows it.
            document: serde_json::from_slice(result.body()).ok(),
        }
    }
}
