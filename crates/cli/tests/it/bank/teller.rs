//! `Teller`: a client that moves money, and its record of every transaction that it sent.

use std::time::Duration;

use perihelion_client::{
    Client, DistributedWriteTransaction, Etag, IdempotencyToken, TransactionError, TransactionResults,
};
use perihelion_testkit::Random;
use tokio::time::Instant;

use super::Account;
use super::transfer::Transfer;
use crate::crashing::Places;

/// The timeout of some commits. It is so short that the client library cannot send a transaction
/// again after its answer was lost. So the teller has to find out the outcome.
const SHORT_TIMEOUT: Duration = Duration::from_millis(200);

/// The counts of one teller.
#[derive(Debug, Default, Clone)]
pub(super) struct Counts {
    pub(super) committed: u64,
    /// Aborted because another client was faster, or because of too little money.
    pub(super) conflicts: u64,
    /// Requests that the client library sent again with the same token.
    pub(super) sent_again: u64,
    /// Commits that ended with an unknown outcome.
    pub(super) unknown: u64,
    /// Commits that were not processed.
    pub(super) failed: u64,
    /// Commits, during the load, of a token that the teller had sent before.
    pub(super) replayed: u64,
    /// Tokens that were left undecided until the end.
    pub(super) undecided: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Counts) {
        self.committed += other.committed;
        self.conflicts += other.conflicts;
        self.sent_again += other.sent_again;
        self.unknown += other.unknown;
        self.failed += other.failed;
        self.replayed += other.replayed;
        self.undecided += other.undecided;
    }
}

/// The outcome of a token: whether it was committed, and the status and etag of each operation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Decided {
    is_committed: bool,
    results: Vec<(u16, Option<Etag>)>,
}

impl Decided {
    fn new(is_committed: bool, results: &TransactionResults) -> Decided {
        let results = results.into_iter().map(|result| (result.status().code, result.etag().cloned()));
        Decided { is_committed, results: results.collect() }
    }
}

/// The knowledge of a teller about the outcome of a token.
#[derive(Debug, Clone)]
enum Knowledge {
    Decided(Decided),
    Unknown,
    /// The client library said that nothing was written, and the token is not used again.
    GivenUp,
}

/// A transaction that was sent.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) transfer: Transfer,
    token: IdempotencyToken,
    knowledge: Knowledge,
}

impl Record {
    pub(super) fn is_committed(&self) -> bool {
        matches!(&self.knowledge, Knowledge::Decided(decided) if decided.is_committed)
    }

    /// Sends the token again, unless it was given up. Panics if the outcome differs from the known
    /// outcome.
    pub(super) async fn replay(&self, client: &Client, places: &Places) -> Record {
        let transaction = self.transfer.build(client, places).with_idempotency_token(self.token);
        let outcome = match &self.knowledge {
            Knowledge::GivenUp => return self.clone(),
            Knowledge::Unknown | Knowledge::Decided(_) => decide(&transaction).await,
        };
        if let Knowledge::Decided(known) = &self.knowledge {
            assert_eq!(outcome, *known, "token {} of {:?} has two outcomes", self.token, self.transfer);
        }
        Record { knowledge: Knowledge::Decided(outcome), ..self.clone() }
    }
}

/// Commits until there is an outcome.
async fn decide(transaction: &DistributedWriteTransaction) -> Decided {
    loop {
        match transaction.commit().await {
            Ok(done) => return Decided::new(true, &done),
            Err(TransactionError::Aborted(aborted)) => return Decided::new(false, aborted.results()),
            Err(TransactionError::OutcomeUnknown(_)) => {}
            Err(TransactionError::Failed(error)) => panic!("a replay is never a failure: {error}"),
        }
    }
}

pub(super) struct Teller {
    places: Places,
    client: Client,
    random: Random,
    counts: Counts,
    records: Vec<Record>,
}

impl Teller {
    pub(super) fn new(places: Places, client: Client, random: Random) -> Teller {
        Teller { places, client, random, counts: Counts::default(), records: Vec::new() }
    }

    /// Moves money until the time is up. Returns all transactions that the teller sent.
    pub(super) async fn work_until(mut self, end: Instant) -> (Vec<Record>, Counts) {
        while Instant::now() < end {
            let mut transfer = Transfer::random(&mut self.random);
            if self.random.one_in(2) && !self.compute(&mut transfer).await {
                continue;
            }
            let record = self.send(transfer).await;
            if self.random.one_in(20) && matches!(record.knowledge, Knowledge::Decided(_)) {
                self.counts.replayed += 1;
                record.replay(&self.client, &self.places).await;
            }
            self.records.push(record);
        }
        (self.records, self.counts)
    }

    /// Reads the accounts of the transfer and computes their balances. Returns whether that
    /// succeeded and there is enough money.
    async fn compute(&self, transfer: &mut Transfer) -> bool {
        let mut reads = self.client.read_transaction();
        for change in &transfer.changes {
            let (container, key) = self.places.place(change.account);
            reads.read(container, key, &change.account.to_string()).expect("a read");
        }
        match reads.execute().await {
            Ok(read) => {
                let accounts: Vec<(Account, Etag)> = read
                    .into_iter()
                    .map(|result| {
                        (result.value().expect("an account"), result.etag().cloned().expect("an etag"))
                    })
                    .collect();
                transfer.compute(&accounts)
            }
            Err(TransactionError::Failed(_)) => false,
            Err(other) => panic!("a read of accounts: {other}"),
        }
    }

    /// Commits a transfer until its outcome is known, or until the teller leaves it undecided or
    /// gives it up.
    async fn send(&mut self, transfer: Transfer) -> Record {
        let transaction = transfer.build(&self.client, &self.places);
        let token = transaction.idempotency_token();
        let record = |knowledge| Record { transfer: transfer.clone(), token, knowledge };
        let (mut is_first, mut may_be_committed) = (true, false);
        loop {
            let has_short_timeout = is_first && self.random.one_in(4);
            let with_short_timeout =
                has_short_timeout.then(|| transaction.clone().with_timeout(SHORT_TIMEOUT));
            let outcome = with_short_timeout.as_ref().unwrap_or(&transaction).commit().await;
            self.counts.replayed += u64::from(!is_first);
            is_first = false;
            match outcome {
                Ok(done) => {
                    self.counts.committed += 1;
                    self.counts.sent_again += done.diagnostics().attempts().count() as u64 - 1;
                    return record(Knowledge::Decided(Decided::new(true, &done)));
                }
                Err(TransactionError::Aborted(aborted)) => {
                    assert_eq!(aborted.status().code, 412, "only a condition may fail: {}", aborted.error());
                    self.counts.conflicts += 1;
                    return record(Knowledge::Decided(Decided::new(false, aborted.results())));
                }
                Err(TransactionError::OutcomeUnknown(unknown)) => {
                    assert_eq!(unknown.idempotency_token(), token);
                    self.counts.unknown += 1;
                    may_be_committed = true;
                    if self.random.one_in(4) {
                        self.counts.undecided += 1;
                        return record(Knowledge::Unknown);
                    }
                }
                Err(TransactionError::Failed(error)) => {
                    assert!(!may_be_committed, "an unknown outcome became a failure: {error}");
                    self.counts.failed += 1;
                    if self.random.one_in(2) {
                        return record(Knowledge::GivenUp);
                    }
                }
            }
        }
    }
}
