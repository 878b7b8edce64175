//! Finds out, when a provider is opened, whether the account has distributed transactions: sends one
//! read transaction of the container's layout document. If there is no clear answer, a provider with
//! `Transaction` is not opened. With `Auto`, the first turn that needs a transaction finds out.

use std::time::Duration;

use tokio::time::Instant;

use crate::failure::Failure;
use crate::ops::orchestration::commit::transaction::is_unsupported;
use crate::options::cross_instance::CrossInstance;
use crate::process::transactions::Transactions;
use crate::store::{RETRY_FOR, Store, retry_while};

/// How long a provider with `Auto` waits for an answer. The provider can be opened without an answer.
const AUTO_TIMEOUT: Duration = Duration::from_secs(3);

/// Asks the account whether it has transactions, unless the option is `Outbox`. Fails if the option
/// demands transactions and the account has none.
pub(crate) async fn detect_transactions(
    store: &Store,
    wanted: CrossInstance,
) -> Result<Transactions, Failure> {
    let transactions = Transactions::new(wanted != CrossInstance::Outbox);
    if wanted == CrossInstance::Outbox {
        return Ok(transactions);
    }
    let timeout = if wanted == CrossInstance::Transaction { RETRY_FOR } else { AUTO_TIMEOUT };
    let ask = || store.read_layout_in_transaction(timeout);
    let answer = match wanted {
        // A provider that demands transactions is not opened before the account has answered.
        CrossInstance::Transaction => {
            retry_while(Instant::now() + RETRY_FOR, Failure::is_service_fault, ask).await
        }
        CrossInstance::Auto | CrossInstance::Outbox => ask().await,
    };
    match answer {
        Ok(()) => {}
        Err(Failure::Storage(error)) if is_unsupported(&error) => match wanted {
            CrossInstance::Transaction => {
                return Err(Failure::Refused(format!(
                    "the account refuses distributed transactions, which `CrossInstance::Transaction` demands: \
                     {error}. Enrol the account in the preview; if the writes of a partition have moved to \
                     another region, open the provider again later; or use `CrossInstance::Auto` or \
                     `CrossInstance::Outbox`"
                )));
            }
            CrossInstance::Auto | CrossInstance::Outbox => transactions.record_refusal(&error),
        },
        Err(failure) if wanted == CrossInstance::Transaction => return Err(failure),
        Err(failure) => tracing::debug!(?failure, "it is not known yet whether the account has transactions"),
    }
    Ok(transactions)
}
