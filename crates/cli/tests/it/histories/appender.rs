//! A client that reads and appends to lists, and the history of its transactions.

use std::sync::Arc;
use std::time::Duration;

use perihelion_client::{
    Client, DistributedWriteTransaction, Error, Etag, Patch, TransactionError, TransactionResults,
};
use perihelion_testkit::Random;
use perihelion_testkit::history::{Element, Key, Outcome, Transaction};
use tokio::time::Instant;

use super::Mistake;
use super::lists::{List, Lists};
use crate::crashing::Places;

/// The timeout of some commits. It is so short that the outcome of some of them is unknown.
const SHORT_TIMEOUT: Duration = Duration::from_millis(200);

pub(super) struct Appender {
    /// The number of this client.
    pub(super) number: u64,
    pub(super) places: Places,
    pub(super) client: Client,
    pub(super) lists: Arc<Lists>,
    pub(super) random: Random,
    pub(super) mistake: Mistake,
    /// How many elements this client has made.
    pub(super) appended: u64,
    pub(super) history: Vec<Transaction>,
}

/// A list that was read, and its version.
type Seen = (Key, List, Etag);

/// The transactions to commit, and the elements that they append.
type Writes = (Vec<DistributedWriteTransaction>, Vec<(Key, Element)>);

impl Appender {
    /// Runs transactions until the time is up. Returns their history.
    pub(super) async fn work_until(mut self, end: Instant) -> Vec<Transaction> {
        while Instant::now() < end {
            match self.random.below(4) {
                0 => self.append().await,
                _ => self.read_and_append().await,
            }
        }
        self.history
    }

    /// Appends without reading. A list may get two elements.
    async fn append(&mut self) {
        let keys = self.lists.random_keys(&mut self.random, 1, 4);
        let twice = self.random.one_in(3).then_some(keys[0]);
        let invoked_at = self.lists.now();
        let mut appends = Vec::new();
        let mut transaction = self.client.write_transaction();
        for key in keys.into_iter().chain(twice) {
            let element = self.new_element();
            let patch = Patch::new().add("/elements/-", element).expect("a patch");
            self.patch(&mut transaction, key, &patch, None).expect("an operation");
            appends.push((key, element));
        }
        let outcome = self.commit(&[transaction]).await;
        self.record(Vec::new(), appends, invoked_at, outcome);
    }

    /// Reads some lists from one snapshot. Then, mostly, appends to some of them, if none of them
    /// has changed.
    async fn read_and_append(&mut self) {
        let keys = self.lists.random_keys(&mut self.random, 2, 4);
        let invoked_at = self.lists.now();
        let Some(seen) = self.read(&keys).await else { return };
        let reads: Vec<(Key, Vec<Element>)> =
            seen.iter().map(|(key, list, _)| (*key, list.elements.clone())).collect();
        // The read is a transaction by itself, whatever the outcome of the writes is.
        self.record(reads.clone(), Vec::new(), invoked_at, Outcome::Committed);
        if !self.random.one_in(4) {
            let (transactions, appends) = self.build_writes(&seen).expect("valid operations");
            let outcome = self.commit(&transactions).await;
            self.record(reads.clone(), appends, invoked_at, outcome);
        }
        for (key, list) in &reads {
            self.lists.retire_if_long(&self.places, *key, list).await;
        }
    }

    /// Reads lists; `None` if the server did not answer.
    async fn read(&self, keys: &[Key]) -> Option<Vec<Seen>> {
        if self.mistake == Mistake::SeparateReads {
            return self.read_one_by_one(keys).await;
        }
        let mut reads = self.client.read_transaction();
        for key in keys {
            let (container, partition_key) = self.places.place(*key);
            reads.read(container, partition_key, &key.to_string()).expect("a read");
        }
        match reads.execute().await {
            Ok(read) => Some(seen_in(keys, &read)),
            Err(TransactionError::Failed(_)) => None,
            Err(other) => panic!("a read of lists: {other}"),
        }
    }

    async fn read_one_by_one(&self, keys: &[Key]) -> Option<Vec<Seen>> {
        let mut seen = Vec::new();
        for key in keys {
            let (container, partition_key) = self.places.place(*key);
            let item = container.read::<List>(partition_key, &key.to_string()).await.ok()?;
            let etag = item.etag().expect("an etag").clone();
            seen.push((*key, item.into_value(), etag));
        }
        Some(seen)
    }

    /// Builds the transaction that appends to the first list, and to some of the others. With
    /// [`Mistake::SeparateWrites`] there may be several transactions.
    fn build_writes(&mut self, seen: &[Seen]) -> Result<Writes, Error> {
        let mut transactions = vec![self.client.write_transaction()];
        let mut appends = Vec::new();
        for (index, (key, list, etag)) in seen.iter().enumerate() {
            if index > 0 && self.mistake == Mistake::SeparateWrites {
                transactions.push(self.client.write_transaction());
            }
            let is_append = index == 0 || self.random.one_in(2);
            let transaction = transactions.last_mut().expect("one transaction");
            if !is_append {
                // Nothing is appended to this list. The patch increments a counter beside the
                // elements: its precondition checks that the list has not changed since it was read.
                if self.mistake != Mistake::UncheckedReads {
                    let touch = Patch::new().increment("/touched", 1)?;
                    self.patch(transaction, *key, &touch, Some(etag))?;
                }
                continue;
            }
            let element = self.new_element();
            appends.push((*key, element));
            if self.mistake == Mistake::UncheckedReplace || self.random.one_in(2) {
                let is_checked = self.mistake != Mistake::UncheckedReplace;
                self.replace(transaction, *key, list, element, is_checked.then_some(etag))?;
            } else {
                self.patch(transaction, *key, &Patch::new().add("/elements/-", element)?, Some(etag))?;
            }
        }
        transactions.retain(|transaction| !transaction.is_empty());
        Ok((transactions, appends))
    }

    fn patch(
        &self,
        transaction: &mut DistributedWriteTransaction,
        key: Key,
        patch: &Patch,
        etag: Option<&Etag>,
    ) -> Result<(), Error> {
        let ((container, partition_key), id) = (self.places.place(key), key.to_string());
        match etag {
            Some(etag) => transaction.patch_if_match(container, partition_key, &id, patch, etag),
            None => transaction.patch(container, partition_key, &id, patch),
        }
        .map(drop)
    }

    /// Replaces a list by a list with one more element.
    fn replace(
        &self,
        transaction: &mut DistributedWriteTransaction,
        key: Key,
        list: &List,
        element: Element,
        etag: Option<&Etag>,
    ) -> Result<(), Error> {
        let ((container, partition_key), id) = (self.places.place(key), key.to_string());
        let mut longer = list.clone();
        longer.elements.push(element);
        match etag {
            Some(etag) => transaction.replace_if_match(container, partition_key, &id, &longer, etag),
            None => transaction.replace(container, partition_key, &id, &longer),
        }
        .map(drop)
    }

    /// Commits one transaction, or with [`Mistake::SeparateWrites`] several transactions, one after
    /// the other. If some of them are not committed, the outcome of the last of these counts for all.
    async fn commit(&mut self, transactions: &[DistributedWriteTransaction]) -> Outcome {
        let mut whole = Outcome::Committed;
        for transaction in transactions {
            let outcome = self.commit_one(transaction).await;
            if outcome != Outcome::Committed {
                whole = outcome;
            }
        }
        whole
    }

    /// Commits a transaction again and again until its outcome is known. In some cases the client
    /// stops while the outcome is unknown, and never sends the transaction again.
    async fn commit_one(&mut self, transaction: &DistributedWriteTransaction) -> Outcome {
        let mut with_short_timeout =
            self.random.one_in(4).then(|| transaction.clone().with_timeout(SHORT_TIMEOUT));
        loop {
            let attempt = with_short_timeout.take();
            match attempt.as_ref().unwrap_or(transaction).commit().await {
                Ok(_) => return Outcome::Committed,
                Err(TransactionError::Aborted(aborted)) => {
                    assert_eq!(aborted.status().code, 412, "only a condition may fail: {}", aborted.error());
                    return Outcome::Aborted;
                }
                // The client library says that nothing was written.
                Err(TransactionError::Failed(_)) => return Outcome::Aborted,
                Err(TransactionError::OutcomeUnknown(_)) if self.random.one_in(2) => return Outcome::Unknown,
                Err(TransactionError::OutcomeUnknown(_)) => {}
            }
        }
    }

    /// An element that no other append has, of this client or of another one.
    fn new_element(&mut self) -> Element {
        self.appended += 1;
        (self.number << 32) | (self.appended - 1)
    }

    /// Adds a transaction that ends now to the history.
    fn record(
        &mut self,
        reads: Vec<(Key, Vec<Element>)>,
        appends: Vec<(Key, Element)>,
        invoked_at: u64,
        outcome: Outcome,
    ) {
        let completed_at = self.lists.now();
        self.history.push(Transaction { reads, appends, invoked_at, completed_at, outcome });
    }
}

/// The lists in the results of a read transaction, with their etags.
fn seen_in(keys: &[Key], read: &TransactionResults) -> Vec<Seen> {
    let results = keys.iter().zip(read);
    results
        .map(|(key, result)| {
            (*key, result.value().expect("a list"), result.etag().cloned().expect("an etag"))
        })
        .collect()
}
