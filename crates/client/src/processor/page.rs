//! Gives one page of changes to the handler: first the whole page, up to `attempts_max` times;
//! then each document alone, to find the documents that cannot be processed.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::handler::{
    ChangeHandler, Changes, HandlerError, PoisonDocument, ProcessorEvent, panic_text, report,
};
use super::options::ProcessorOptions;
use crate::FeedRange;

/// Processes a page. Ends with an error when the handler does not accept a poison document;
/// the page is then processed again later.
pub(super) async fn process_page<H: ChangeHandler>(
    handler: &H,
    options: &ProcessorOptions,
    range: &FeedRange,
    documents: &[Box<RawValue>],
) -> Result<(), HandlerError> {
    let (valid, invalid) = divide::<H::Item>(documents);
    if !valid.is_empty()
        && let Err(error) = handle_with_retries(handler, options, range, &valid).await
    {
        match valid.as_slice() {
            [only] => poison(handler, range, only, error, options.attempts_max.max(1)).await?,
            several => process_one_by_one(handler, options, range, several).await?,
        }
    }
    for (document, error) in invalid {
        poison(handler, range, document, error, 0).await?;
    }
    Ok(())
}

/// The documents that can be parsed, and the others with their errors.
fn divide<T: DeserializeOwned>(
    documents: &[Box<RawValue>],
) -> (Vec<&RawValue>, Vec<(&RawValue, HandlerError)>) {
    let (mut valid, mut invalid) = (Vec::new(), Vec::new());
    for document in documents {
        match serde_json::from_str::<T>(document.get()) {
            Ok(_) => valid.push(&**document),
            Err(error) => invalid.push((&**document, HandlerError::from(error))),
        }
    }
    (valid, invalid)
}

async fn process_one_by_one<H: ChangeHandler>(
    handler: &H,
    options: &ProcessorOptions,
    range: &FeedRange,
    documents: &[&RawValue],
) -> Result<(), HandlerError> {
    for document in documents {
        if let Err(error) = handle_with_retries(handler, options, range, &[*document]).await {
            poison(handler, range, document, error, options.attempts_max.max(1)).await?;
        }
    }
    Ok(())
}

/// Gives the documents to the handler, at most `attempts_max` times. Returns the last error.
async fn handle_with_retries<H: ChangeHandler>(
    handler: &H,
    options: &ProcessorOptions,
    range: &FeedRange,
    documents: &[&RawValue],
) -> Result<(), HandlerError> {
    let mut attempt = 1;
    loop {
        let items = documents.iter().map(|document| serde_json::from_str(document.get()));
        let items = items.collect::<Result<Vec<H::Item>, _>>()?;
        let changes = Changes { items, range: range.clone(), attempt };
        let Err(error) = panics_as_errors(async { handler.handle(changes).await }).await else {
            return Ok(());
        };
        if attempt >= options.attempts_max {
            return Err(error);
        }
        report(handler, ProcessorEvent::HandlerFailed { range: range.clone(), error });
        attempt += 1;
        tokio::time::sleep(options.retry_wait).await;
    }
}

/// Runs a handler. A panic becomes an error, so that a document that makes the handler panic is
/// counted and reported like every other document that cannot be processed.
async fn panics_as_errors(
    handling: impl Future<Output = Result<(), HandlerError>>,
) -> Result<(), HandlerError> {
    let mut handling = pin!(handling);
    poll_fn(|context| {
        let poll = AssertUnwindSafe(|| handling.as_mut().poll(context));
        catch_unwind(poll).unwrap_or_else(|panic| Poll::Ready(Err(panic_error(panic.as_ref()))))
    })
    .await
}

/// The error of a handler that has panicked.
pub(super) fn panic_error(panic: &(dyn Any + Send)) -> HandlerError {
    format!("the handler panicked: {}", panic_text(panic)).into()
}

/// Tells the handler about a document that cannot be processed. Fails if the handler returns an
/// error.
async fn poison<H: ChangeHandler>(
    handler: &H,
    range: &FeedRange,
    document: &RawValue,
    error: HandlerError,
    attempts: u32,
) -> Result<(), HandlerError> {
    let document = document.get().to_owned();
    handler.poison(PoisonDocument { document, range: range.clone(), error, attempts }).await
}
