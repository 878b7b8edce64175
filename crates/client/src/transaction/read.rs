//! Read transactions.

use std::sync::Arc;
use std::time::Duration;

use perihelion_driver::transaction::{
    Transaction, TransactionConsistency, TransactionKind, TransactionOperation, TransactionVerb,
};
use perihelion_driver::{Driver, OperationOptions};
use perihelion_model::partition_key::PartitionKey;

use super::{Draft, TransactionError, TransactionResults, operation, text_of};
use crate::container::Container;
use crate::{Error, Etag};

/// Reads of documents in any partitions and containers of one account, from one snapshot: they
/// show all writes of a [`DistributedWriteTransaction`](crate::DistributedWriteTransaction), or
/// none. [`Client::read_transaction`](crate::Client::read_transaction) begins one.
///
/// ```no_run
/// # use perihelion_client::{Client, Container};
/// # #[derive(serde::Deserialize)] struct Account { balance: i64 }
/// # async fn example(client: Client, accounts: Container) -> Result<(), Box<dyn std::error::Error>> {
/// let mut transaction = client.read_transaction();
/// transaction.read(&accounts, "ada", "ada")?.read(&accounts, "bob", "bob")?;
/// let read = transaction.execute().await?;
/// let mut sum = 0;
/// for result in &read {
///     sum += result.value::<Account>()?.balance;
/// }
/// println!("{sum} in all, for {} RU", read.charge());
/// # Ok(())
/// # }
/// ```
///
/// If a document does not exist, the transaction fails with [`TransactionError::Aborted`]. The read
/// of this document is a culprit of the error.
///
/// # What the snapshot guarantees
///
/// Our server reads all documents from one view of the store: the reads are serializable, and
/// the view has every write that the write region had acknowledged before. On Azure the guarantee
/// depends on the consistency level: see [`TransactionConsistency`]. The reads always go to the write
/// region, whatever regions are preferred, and carry the session tokens of this client, so that
/// they show its own writes.
#[derive(Debug, Clone)]
pub struct DistributedReadTransaction {
    draft: Draft,
}

impl DistributedReadTransaction {
    /// The most operations, unless [`with_limits`](Self::with_limits) turns the checks off.
    pub const OPERATIONS_MAX: usize = Transaction::OPERATIONS_MAX;

    pub(crate) fn new(driver: &Driver) -> Self {
        DistributedReadTransaction { draft: Draft::new(driver, Transaction::new(TransactionKind::Read)) }
    }

    /// Reads a document that must exist.
    pub fn read(
        &mut self,
        container: &Container,
        key: impl Into<PartitionKey>,
        id: &str,
    ) -> Result<&mut Self, Error> {
        self.push(container, operation(TransactionVerb::Read, container, key.into(), id))
    }

    /// Reads a document that must exist. If it still has this etag, its result is unchanged
    /// ([`TransactionResult::is_unchanged`](crate::TransactionResult::is_unchanged)) and has no
    /// document.
    pub fn read_if_changed(
        &mut self,
        container: &Container,
        key: impl Into<PartitionKey>,
        id: &str,
        seen: &Etag,
    ) -> Result<&mut Self, Error> {
        let read = operation(TransactionVerb::Read, container, key.into(), id);
        self.push(container, TransactionOperation { if_none_match: text_of(Some(seen)), ..read })
    }

    /// Reads a document that must exist, with at least the writes that this session token
    /// covers. Give the token of another process; this client sends its own tokens itself.
    pub fn read_with_session_token(
        &mut self,
        container: &Container,
        key: impl Into<PartitionKey>,
        id: &str,
        token: impl Into<Arc<str>>,
    ) -> Result<&mut Self, Error> {
        let read = operation(TransactionVerb::Read, container, key.into(), id);
        self.push(container, TransactionOperation { session_token: Some(token.into()), ..read })
    }

    /// Sets the consistency level, instead of the account's. See [`TransactionConsistency`] for
    /// what each level guarantees on our server and on Azure.
    pub fn with_consistency(mut self, consistency: TransactionConsistency) -> Self {
        self.draft.transaction.consistency = Some(consistency);
        self
    }

    /// Sets whether the number of operations and the bytes are checked (default yes).
    pub fn with_limits(mut self, are_checked: bool) -> Self {
        self.draft.transaction.has_limits = are_checked;
        self
    }

    /// Sets the time for the transaction, retries included (default 65 s).
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

    /// Whether there are no operations. An empty transaction cannot be executed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads all documents from one snapshot.
    pub async fn execute(&self) -> Result<TransactionResults, TransactionError> {
        self.draft.run().await
    }

    fn push(&mut self, container: &Container, read: TransactionOperation) -> Result<&mut Self, Error> {
        self.draft.push(container, read)?;
        Ok(self)
    }
}
