//! Write transactions.

use std::time::Duration;

use perihelion_driver::transaction::{
    IdempotencyToken, Transaction, TransactionKind, TransactionOperation, TransactionVerb,
};
use perihelion_driver::{Driver, OperationOptions};
use perihelion_model::partition_key::PartitionKey;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Draft, TransactionError, TransactionResults, check_id, id_of, operation, text_of, to_raw};
use crate::container::Container;
use crate::patch::Patch;
use crate::{Error, Etag};

/// Writes to any partitions and containers of one account that are applied together or not at
/// all. [`Client::write_transaction`](crate::Client::write_transaction) begins one.
///
/// ```no_run
/// # use perihelion_client::{Client, Container, Error, Etag, Patch, TransactionError};
/// # async fn example(client: Client, orders: Container, stock: Container, carts: Container, etag: Etag) -> Result<(), Error> {
/// # let order = serde_json::json!({"id": "1", "customer": "ada"});
/// let mut transaction = client.write_transaction();
/// let is_in_stock = "FROM c WHERE c.units >= 2";
/// transaction
///     .create(&orders, "ada", &order)?
///     .patch(&stock, "tea", "tea", &Patch::new().increment("/units", -2)?.with_condition(is_in_stock))?
///     .delete_if_match(&carts, "ada", "cart-1", &etag)?;
/// match transaction.commit().await {
///     Ok(committed) => println!("committed for {} RU", committed.charge()),
///     // Nothing was written. The culprits say why.
///     Err(TransactionError::Aborted(aborted)) => {
///         for (index, result) in aborted.culprits() {
///             println!("operation {index}: {}", result.status());
///         }
///     }
///     // The answer was lost, and so were the answers to the repeats. Commit the same operations
///     // with the same token later: this finds the outcome, and writes nothing twice.
///     Err(TransactionError::OutcomeUnknown(unknown)) => {
///         println!("ask again with token {}", unknown.idempotency_token());
///     }
///     // Nothing was written.
///     Err(TransactionError::Failed(error)) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Lost answers
///
/// Each transaction has an idempotency token. When an answer is lost, the client sends the
/// transaction again with the same token, and the service answers as it did the first time.
/// So [`commit`](DistributedWriteTransaction::commit) may be called again: once the transaction is
/// committed, a further call gets the same answer and writes nothing. To find out the outcome after
/// a crash, store the token before the commit, and give it to a transaction with the same operations
/// in the same order
/// ([`with_idempotency_token`](DistributedWriteTransaction::with_idempotency_token)). Our server
/// remembers a token for a day. How long Azure remembers a token is not published.
///
/// If an earlier commit was not applied, another commit of its token applies it. So a program that
/// has given a token up, and has written its documents in another way, must not replay the token.
/// If an aborted transaction [is retriable](crate::AbortedTransaction::is_retriable), try again with
/// [`AbortedTransaction::next_token`](crate::AbortedTransaction::next_token), and not with a new
/// transaction.
///
/// # Limits
///
/// A transaction has 1 to 100 operations and a request body of at most 2 MiB
/// ([`with_limits`](DistributedWriteTransaction::with_limits) turns these two checks off). All
/// containers are of one account, which must have a single write region. To read and then write,
/// read with a [`DistributedReadTransaction`](crate::DistributedReadTransaction), and write with
/// the etags that it returned.
#[derive(Debug, Clone)]
pub struct DistributedWriteTransaction {
    draft: Draft,
}

impl DistributedWriteTransaction {
    /// The most operations, unless [`with_limits`](Self::with_limits) turns the checks off.
    pub const OPERATIONS_MAX: usize = Transaction::OPERATIONS_MAX;

    /// The most bytes of the request body, 2 MiB, unless [`with_limits`](Self::with_limits) turns the
    /// checks off.
    pub const BYTES_MAX: usize = Transaction::BYTES_MAX;

    pub(crate) fn new(driver: &Driver) -> Self {
        DistributedWriteTransaction { draft: Draft::new(driver, Transaction::new(TransactionKind::Write)) }
    }

    /// Creates a document that must not exist. The document needs a member `id`.
    pub fn create<T: Serialize + ?Sized>(
        &mut self,
        container: &Container,
        key: impl Into<PartitionKey>,
        value: &T,
    ) -> Result<&mut Self, Error> {
        self.push_document(container, TransactionVerb::Create, key.into(), value, None)
    }

    /// Creates a document or replaces it. The document needs a member `id`.
    pub fn upsert<T: Serialize + ?Sized>(
        &mut self,
        container: &Container,
        key: impl Into<PartitionKey>,
        value: &T,
    ) -> Result<&mut Self, Error> {
        self.push_document(container, TransactionVerb::Upsert, key.into(), value, None)
    }

    /// Creates a document, or replaces it if it still has this etag.
    pub fn upsert_if_match<T: Serialize + ?Sized>(
        &mut self,
        container: &Container,
        key: impl Into<PartitionKey>,
        value: &T,
        etag: &Etag,
    ) -> Result<&mut Self, Error> {
        self.push_document(container, TransactionVerb::Upsert, key.into(), value, Some(etag))
    }

    /// Replaces a document that must exist.
    pub fn replace<T: Serialize + ?Sized>(
        &mut self,
        container: &Container,
        key: impl Into<PartitionKey>,
        id: &str,
        value: &T,
    ) -> Result<&mut Self, Error> {
        self.push_replace(container, key.into(), id, value, None)
    }

    /// Replaces a document if it still has this etag.
    pub fn replace_if_match<T: Serialize + ?Sized>(
        &mut self,
        container: &Container,
        key: impl Into<PartitionKey>,
        id: &str,
        value: &T,
        etag: &Etag,
    ) -> Result<&mut Self, Error> {
        self.push_replace(container, key.into(), id, value, Some(etag))
    }

    /// Deletes a document that must exist.
    pub fn delete(
        &mut self,
        container: &Container,
        key: impl Into<PartitionKey>,
        id: &str,
    ) -> Result<&mut Self, Error> {
        self.push(container, TransactionVerb::Delete, key.into(), id.to_owned(), None, None)
    }

    /// Deletes a document if it still has this etag.
    pub fn delete_if_match(
        &mut self,
        container: &Container,
        key: impl Into<PartitionKey>,
        id: &str,
        etag: &Etag,
    ) -> Result<&mut Self, Error> {
        self.push(container, TransactionVerb::Delete, key.into(), id.to_owned(), None, Some(etag))
    }

    /// Updates parts of a document that must exist. If the patch has a condition that the
    /// document does not meet, the transaction is aborted with 412.
    pub fn patch(
        &mut self,
        container: &Container,
        key: impl Into<PartitionKey>,
        id: &str,
        patch: &Patch,
    ) -> Result<&mut Self, Error> {
        self.push_patch(container, key.into(), id, patch, None)
    }

    /// Updates parts of a document if it still has this etag.
    pub fn patch_if_match(
        &mut self,
        container: &Container,
        key: impl Into<PartitionKey>,
        id: &str,
        patch: &Patch,
        etag: &Etag,
    ) -> Result<&mut Self, Error> {
        self.push_patch(container, key.into(), id, patch, Some(etag))
    }

    /// Sets the idempotency token, to ask for the outcome of an earlier commit. The operations
    /// must be those of that commit, with the same documents in the same order: the service
    /// refuses a known token with other operations. If the earlier commit was not applied, the new
    /// commit applies its writes.
    ///
    /// From then on a commit that the service does not decide is
    /// [`OutcomeUnknown`](crate::TransactionError::OutcomeUnknown) and never
    /// [`Failed`](crate::TransactionError::Failed), also if nothing could be sent: the earlier
    /// commit may have been applied.
    pub fn with_idempotency_token(mut self, token: IdempotencyToken) -> Self {
        self.draft.transaction.set_token(token);
        self
    }

    /// The idempotency token that the commit begins with. A program that must know the outcome
    /// even after a crash stores this token before it commits.
    pub fn idempotency_token(&self) -> IdempotencyToken {
        self.draft.transaction.token()
    }

    /// Sets whether the number of operations and the bytes are checked (default yes). The limits
    /// of Azure are not published; turn the checks off if it accepts more.
    pub fn with_limits(mut self, are_checked: bool) -> Self {
        self.draft.transaction.has_limits = are_checked;
        self
    }

    /// Sets the time for the commit, retries included (default 65 s).
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.draft.options.timeout = Some(timeout);
        self
    }

    /// Sets timeouts, priority and the other options of the request. Options about regions and
    /// hedging have no effect: a transaction always goes to the write region.
    pub fn with_options(mut self, options: OperationOptions) -> Self {
        self.draft.options = options;
        self
    }

    /// The number of operations.
    pub fn len(&self) -> usize {
        self.draft.transaction.operations().len()
    }

    /// Whether there are no operations. An empty transaction cannot be committed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Commits the transaction: applies all of its writes, or none. However often this method is
    /// called, the writes are applied at most once. A call after a commit, or after an abort that is not
    /// [retriable](crate::AbortedTransaction::is_retriable), gets the same outcome again. Any other call
    /// tries again.
    pub async fn commit(&self) -> Result<TransactionResults, TransactionError> {
        self.draft.run().await
    }

    /// Adds a create or an upsert, which has its id in the document.
    fn push_document<T: Serialize + ?Sized>(
        &mut self,
        container: &Container,
        verb: TransactionVerb,
        key: PartitionKey,
        value: &T,
        etag: Option<&Etag>,
    ) -> Result<&mut Self, Error> {
        let document = to_raw(value)?;
        let id = id_of(&document)?;
        self.push(container, verb, key, id, Some(document), etag)
    }

    fn push_replace<T: Serialize + ?Sized>(
        &mut self,
        container: &Container,
        key: PartitionKey,
        id: &str,
        value: &T,
        etag: Option<&Etag>,
    ) -> Result<&mut Self, Error> {
        let document = to_raw(value)?;
        check_id(&document, id)?;
        self.push(container, TransactionVerb::Replace, key, id.to_owned(), Some(document), etag)
    }

    fn push_patch(
        &mut self,
        container: &Container,
        key: PartitionKey,
        id: &str,
        patch: &Patch,
        etag: Option<&Etag>,
    ) -> Result<&mut Self, Error> {
        patch.check_not_empty()?;
        let body = to_raw(&patch.as_body())?;
        self.push(container, TransactionVerb::Patch, key, id.to_owned(), Some(body), etag)
    }

    fn push(
        &mut self,
        container: &Container,
        verb: TransactionVerb,
        key: PartitionKey,
        id: String,
        body: Option<Box<RawValue>>,
        etag: Option<&Etag>,
    ) -> Result<&mut Self, Error> {
        let added =
            TransactionOperation { body, if_match: text_of(etag), ..operation(verb, container, key, id) };
        self.draft.push(container, added)?;
        Ok(self)
    }
}
