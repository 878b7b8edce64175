//! Runs a distributed transaction: reads the metadata of its containers, prints the request with
//! the session tokens, runs it through the pipeline, parses the answer and records the session
//! tokens of the results.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use perihelion_wire::headers;
use perihelion_wire::status::{self, Status};
use tokio::time::Instant;
use tracing::Instrument;

use super::{Driver, class_of};
use crate::error::{Error, ErrorKind};
use crate::metadata::{self, Container, ContainerMetadata};
use crate::observer::EndedOperation;
use crate::operation::{Operation, Scope, Target, TransactionFacts};
use crate::options::{OperationOptions, Settings};
use crate::pipeline::{Call, run};
use crate::response::Response;
use crate::transaction::{
    Content, OperationContext, OperationResult, Transaction, TransactionAnswer, TransactionEnd, parse, print,
    promoted_status, sessions,
};

/// The containers of a transaction, each once, with their metadata.
type Containers = Vec<(Arc<Container>, Arc<ContainerMetadata>)>;

impl Driver {
    /// Runs a distributed transaction to its end.
    ///
    /// The result is an error if the transaction was not processed (nothing was written), or if
    /// its outcome is not known ([`Error::is_ambiguous`]). In the second case, run a transaction
    /// with the same operations and the token of
    /// [`Diagnostics::idempotency_token`](crate::diagnostics::Diagnostics::idempotency_token)
    /// again. If the service has decided the first run, it repeats its answer. Otherwise it runs
    /// the transaction now.
    ///
    /// A transaction that writes is a replay if its token was given ([`Transaction::set_token`]),
    /// or if an earlier run of the transaction or of a clone may have used the token. Every error
    /// of a replay is ambiguous, even an error from before anything was sent: the error does not
    /// say whether an earlier run with the token was applied.
    pub async fn execute_transaction(
        &self,
        transaction: &Transaction,
        options: &OperationOptions,
    ) -> Result<TransactionEnd, Error> {
        let is_replay = transaction.begin_run();
        let end = self.prepare_and_run(transaction, options, is_replay).await;
        match end {
            Err(error) if is_replay => Err(replay_error(transaction, error)),
            Err(error) => {
                if !error.is_ambiguous() {
                    transaction.forget_run();
                }
                Err(error)
            }
            Ok(end) => Ok(end),
        }
    }

    async fn prepare_and_run(
        &self,
        transaction: &Transaction,
        options: &OperationOptions,
        is_replay: bool,
    ) -> Result<TransactionEnd, Error> {
        transaction.check()?;
        let account = self.core.topology().snapshot().account;
        if account.is_multi_write {
            return Err(Error::unsupported(
                "this account has several write regions, and distributed transactions need an account with one: \
                 use batches, which are atomic within one partition key",
            ));
        }
        let mut operation =
            Operation::new(transaction.verb(), Target::transactions(), Scope::Unpartitioned, Bytes::new())
                .with_transaction(TransactionFacts {
                    token: transaction.token(),
                    operations: transaction.operations().len(),
                    is_replay,
                });
        if let Some(consistency) = transaction.consistency {
            let value = HeaderValue::from_static(consistency.header());
            operation = operation.with_header(headers::CONSISTENCY_LEVEL, value);
        }
        let settings = self.core.option_layers().settings_for(options, class_of(&operation))?;
        let deadline = Instant::now() + settings.timeout;
        let containers = self.read_containers(transaction, deadline).await?;
        operation.body = print_body(transaction, &containers)?;
        let end = self.run_transaction(transaction, &operation, &settings, deadline, &containers).await;
        if !end.as_ref().is_err_and(|error| may_be_old_rid(error, is_replay)) {
            return end;
        }
        // A container may have been created again under its name, with another `_rid`. The
        // metadata was discarded after the refusal, and is read again here. The service did not
        // process the first request. The token is the same, so the transaction cannot be applied
        // twice.
        let current = self.read_containers(transaction, deadline).await?;
        let is_same =
            |(old, new): (&(_, Arc<ContainerMetadata>), &(_, Arc<ContainerMetadata>))| old.1.rid == new.1.rid;
        if containers.iter().zip(&current).all(is_same) {
            return end;
        }
        operation.body = print_body(transaction, &current)?;
        self.run_transaction(transaction, &operation, &settings, deadline, &current).await
    }

    async fn run_transaction(
        &self,
        transaction: &Transaction,
        operation: &Operation,
        settings: &Settings,
        deadline: Instant,
        containers: &Containers,
    ) -> Result<TransactionEnd, Error> {
        self.background.ensure_running(Instant::now());
        let call = Call { operation, settings, deadline, route_to: None };
        let span = self.core.telemetry().operation_span(operation);
        let result = run(&self.core, call).instrument(span.clone()).await;
        let Settled { result, content, status } = settle(transaction, result);
        let result = record_session_tokens(transaction, content.as_ref(), containers, result);
        discard_stale_metadata(containers, &result, content.as_ref());
        span.in_scope(|| {
            self.core.telemetry().record(operation, &result, &span, self.has_debug_events);
            if let Some(observer) = &self.observer {
                EndedOperation::notify(observer.as_ref(), operation, &result);
            }
        });
        match (result, content) {
            (Ok(response), content) => Ok(TransactionEnd::Completed(answer(transaction, content, response))),
            (Err(error), Some(content)) => {
                let response = Response {
                    status: status.unwrap_or(status::TRANSACTION_ABORTED),
                    headers: error.headers().clone(),
                    body: error.body().clone(),
                    diagnostics: error.diagnostics().clone(),
                };
                Ok(TransactionEnd::Refused(answer(transaction, Some(content), response), error))
            }
            (Err(error), None) => Err(error),
        }
    }

    /// The metadata of all containers of a transaction.
    async fn read_containers(
        &self,
        transaction: &Transaction,
        deadline: Instant,
    ) -> Result<Containers, Error> {
        let mut containers = Containers::new();
        for operation in transaction.operations() {
            if containers.iter().any(|(known, _)| Arc::ptr_eq(known, &operation.container)) {
                continue;
            }
            let metadata = match operation.container.metadata() {
                Some(metadata) => metadata,
                None => metadata::load(&*self.core, &operation.container, deadline).await?,
            };
            containers.push((Arc::clone(&operation.container), metadata));
        }
        Ok(containers)
    }
}

/// The request body, with the `_rid`s and session tokens that are known now.
fn print_body(transaction: &Transaction, containers: &Containers) -> Result<Bytes, Error> {
    let contexts: Vec<OperationContext> =
        transaction.operations().iter().map(|operation| context_of(operation, containers)).collect();
    let body = print(transaction.operations(), &contexts);
    transaction.check_bytes(body.len())?;
    Ok(body)
}

/// Whether the service refused the whole transaction because of one of its operations. The reason
/// may be an old `_rid` of a container. The error of a replay is ambiguous, so its kind does not
/// show that the service refused.
fn may_be_old_rid(error: &Error, is_replay: bool) -> bool {
    (error.kind() == ErrorKind::Service || is_replay)
        && error.status() == Some(status::TRANSACTION_INVALID_OPERATION)
}

/// Makes the error of a replay ambiguous, and adds the idempotency token, so that the caller can
/// run the transaction again. An error from before the first attempt does not have the token yet.
fn replay_error(transaction: &Transaction, error: Error) -> Error {
    if error.diagnostics().idempotency_token().is_some() {
        return error.into_ambiguous();
    }
    let mut diagnostics = error.diagnostics().clone();
    diagnostics.record_idempotency_token(transaction.token());
    error.with_diagnostics(diagnostics).into_ambiguous()
}

fn context_of(
    operation: &crate::transaction::TransactionOperation,
    containers: &Containers,
) -> OperationContext {
    let known = containers.iter().find(|(container, _)| Arc::ptr_eq(container, &operation.container));
    known.map_or_else(OperationContext::default, |(container, metadata)| OperationContext {
        container_rid: metadata.rid.to_string(),
        session_token: sessions::token_for(operation, metadata, container.has_unknown_range()),
    })
}

/// The result of the pipeline, with the status and the text that the caller gets.
struct Settled {
    /// If an operation caused the error, the error has the status of that operation.
    result: Result<Response, Error>,
    /// The content of the body; `None` when the answer does not decide the transaction.
    content: Option<Content>,
    /// The status of the whole answer; `None` without an answer.
    status: Option<Status>,
}

fn settle(transaction: &Transaction, result: Result<Response, Error>) -> Settled {
    let operations = transaction.operations().len();
    match result {
        Ok(response) => {
            let content =
                parse(&response.body, operations).unwrap_or_else(|| not_modified_content(operations));
            let status = Some(response.status);
            Settled { result: Ok(response), content: Some(content), status }
        }
        Err(error) => {
            let status = error.status();
            let content = if error.is_ambiguous() { None } else { decision(&error, operations) };
            let error = match &content {
                Some(content) => describe_refusal(transaction, content, error),
                None => describe_failure(error),
            };
            Settled { result: Err(error), content, status }
        }
    }
}

/// The content of a refusal; `None` if the refusal does not decide the transaction.
fn decision(error: &Error, operations: usize) -> Option<Content> {
    let status = error.status()?;
    let content = parse(error.body(), operations);
    let is_aborted = status.code == status::TRANSACTION_ABORTED.code;
    let is_refusal = status.code == status::MULTI_STATUS.code || status.code >= 400;
    match content {
        Some(content) if content.results.is_some() && is_refusal => Some(content),
        // The transaction was aborted, but the answer does not say by which operation.
        content if is_aborted => Some(aborted_content(content.unwrap_or_default(), operations)),
        Some(_) | None => None,
    }
}

/// Gives a failure without results a text that says what to do.
fn describe_failure(error: Error) -> Error {
    let Some(status) = error.status() else { return error };
    let is_success = (200..300).contains(&status.code);
    let kind = match error.kind() {
        ErrorKind::Service if is_success => ErrorKind::Answer,
        kind => kind,
    };
    let text = match status {
        _ if is_success => {
            "the answer to the transaction cannot be used: it does not have one result for each operation, or \
             it reports a success and a failed operation"
        }
        status::TRANSACTION_NOT_PARSED => "the service cannot read the transaction",
        status::TRANSACTIONS_DISABLED => {
            "this account has no distributed transactions: enable them, or use batches, which are atomic within \
             one partition key"
        }
        status::TRANSACTION_TOO_MANY_OPERATIONS => "the transaction has too many operations: use fewer",
        status::TRANSACTION_TOKEN_MISSING => "the service did not get the idempotency token",
        status::TRANSACTION_ACCOUNT_NAME_INVALID => "the service does not find an account by this endpoint",
        _ if status.code == status::TRANSACTION_ABORTED.code => {
            "the service has aborted the transaction with this token, but it is not known whether an earlier \
             run has committed it: after an abort, a run tries again with a second token, which is computed \
             from the first"
        }
        status::TRANSACTION_INVALID_OPERATION if error.is_ambiguous() => {
            "the idempotency token was used for other operations, or the service refuses an operation. So it is \
             still unknown whether an earlier run with the token was applied: replay the token with exactly \
             the same operations and documents"
        }
        status::TRANSACTION_INVALID_OPERATION => {
            "the service refuses an operation of the transaction, or its idempotency token was used for other \
             operations: replay a token only with the same operations"
        }
        status::TRANSACTION_IN_PROGRESS => "another request with this idempotency token is still running",
        status::REQUEST_TIMEOUT => "the coordinator of transactions did not finish in time",
        status::TRANSACTION_LEDGER_FAILED
        | status::TRANSACTION_ACCOUNT_FAILED
        | status::TRANSACTION_DISPATCH_FAILED => "the coordinator of transactions failed",
        _ => return error,
    };
    // If the service sent a text, it says more than ours. Our server sends it in a header, because a
    // refusal of this endpoint has no body.
    let reason = error.headers().get(&headers::REASON).and_then(|reason| reason.to_str().ok());
    let words = reason.unwrap_or(error.message());
    // The body of these answers holds the results, so `words` is not an error message.
    let has_results = is_success || status.code == status::TRANSACTION_ABORTED.code;
    let text = if words.is_empty() || has_results { text.to_owned() } else { format!("{text} ({words})") };
    error.with_kind_and_message(kind, text)
}

/// The content of a 304 without a body: all documents are unchanged.
fn not_modified_content(operations: usize) -> Content {
    let result = OperationResult::of_status(status::NOT_MODIFIED);
    Content { results: Some(vec![result; operations]), ..Content::default() }
}

/// The content of an abort without results: each operation has the status of the whole
/// transaction.
fn aborted_content(content: Content, operations: usize) -> Content {
    let result = OperationResult::of_status(status::TRANSACTION_ABORTED);
    Content { results: Some(vec![result; operations]), ..content }
}

/// Gives a refusal the status of the operation that caused it, and a text that names this
/// operation.
fn describe_refusal(transaction: &Transaction, content: &Content, error: Error) -> Error {
    let results = content.results.as_deref().unwrap_or_default();
    let whole_status = error.status().unwrap_or(status::TRANSACTION_ABORTED);
    let index = results.iter().position(OperationResult::is_culprit);
    let status = match index.and_then(|index| results.get(index)) {
        Some(result) if whole_status.code == status::TRANSACTION_ABORTED.code => result.status,
        Some(_) | None => promoted_status(whole_status, results),
    };
    let consequence =
        if transaction.verb().is_read() { "no document was read" } else { "nothing was written" };
    let message = match index.and_then(|index| Some((index, transaction.operations().get(index)?))) {
        Some((index, operation)) => format!(
            "operation {index} of the transaction ({} `{}` in {}) was refused; {consequence}",
            operation.verb.name().to_lowercase(),
            operation.id,
            operation.container.name(),
        ),
        None => format!("the service has aborted the transaction; {consequence}"),
    };
    error.into_operation_refused(index, status, message)
}

/// Records the session tokens of all results. A token that cannot be read is only a warning: it
/// must not make a committed transaction look failed.
fn record_session_tokens(
    transaction: &Transaction,
    content: Option<&Content>,
    containers: &Containers,
    result: Result<Response, Error>,
) -> Result<Response, Error> {
    let results = content.and_then(|content| content.results.as_deref()).unwrap_or_default();
    let mut warnings = Vec::new();
    for (index, (operation, result)) in transaction.operations().iter().zip(results).enumerate() {
        let known = containers.iter().find(|(container, _)| Arc::ptr_eq(container, &operation.container));
        match (sessions::token_of(result), known) {
            (Ok(Some(token)), Some((container, metadata))) => container.record_session_token(token, metadata),
            (Ok(_), _) => {}
            (Err(_), _) => warnings.push(format!(
                "the session token of operation {index} cannot be read: a later read in another region may not see \
                 this transaction"
            )),
        }
    }
    if warnings.is_empty() {
        return result;
    }
    tracing::warn!(
        operations = warnings.len(),
        "session tokens in the answer to a transaction cannot be read"
    );
    match result {
        Ok(mut response) => {
            warnings.into_iter().for_each(|warning| response.diagnostics.record_warning(warning));
            Ok(response)
        }
        Err(error) => {
            let mut diagnostics = error.diagnostics().clone();
            warnings.into_iter().for_each(|warning| diagnostics.record_warning(warning));
            Err(error.with_diagnostics(diagnostics))
        }
    }
}

/// Discards the metadata of the containers if one of them may have been recreated under its
/// name: the next transaction then reads their `_rid`s again.
fn discard_stale_metadata(
    containers: &Containers,
    result: &Result<Response, Error>,
    content: Option<&Content>,
) {
    let is_stale = |status: Status| {
        [
            status::TRANSACTION_INVALID_OPERATION,
            status::OWNER_RESOURCE_NOT_FOUND,
            status::COLLECTION_RID_MISMATCH,
        ]
        .contains(&status)
    };
    let results = content.and_then(|content| content.results.as_deref()).unwrap_or_default();
    let is_refused = result.as_ref().is_err_and(|error| error.status().is_some_and(is_stale));
    if is_refused || results.iter().any(|result| is_stale(result.status)) {
        containers.iter().for_each(|(container, metadata)| container.discard(Some(metadata)));
    }
}

fn answer(transaction: &Transaction, content: Option<Content>, response: Response) -> TransactionAnswer {
    let content = content.unwrap_or_default();
    let results = content.results.unwrap_or_default();
    TransactionAnswer {
        status: promoted_status(response.status, &results),
        results,
        is_retriable: content.is_retriable,
        mode: content.mode,
        diagnostic: content.diagnostic,
        token: response.diagnostics.idempotency_token().unwrap_or(transaction.token()),
        response,
    }
}
