//! The engine's distributed transactions.

use perihelion_wire::transaction::{Fingerprint, IdempotencyToken};

use super::Engine;
use crate::blocking;
use crate::distributed::{self, DistributedAnswer, DistributedOutcome, DistributedRead, DistributedWrite};
use crate::documents::ItemOutcome;
use crate::keys;
use crate::ledger::{self, LedgerUse, RecordedAnswer};
use crate::refusal::Refusal;

impl Engine {
    /// Commits or aborts a write transaction. `print` makes the answer from the outcome. The
    /// answer is recorded in the commit of the transaction. A request whose token already has a
    /// recorded answer gets that answer, and `print` is not called.
    ///
    /// An error refuses the whole request: nothing was written or recorded, and the token may be
    /// used again. But if the store failed, the outcome is unknown, as with every write. The charge
    /// of the refusal is for the documents that were read.
    pub async fn commit_distributed(
        &self,
        mut write: DistributedWrite,
        print: impl FnOnce(&DistributedOutcome) -> RecordedAnswer + Send + 'static,
    ) -> Result<DistributedAnswer, Refusal> {
        if let Err(refusal) = self.check_distributed(&write) {
            // An earlier request with the same token may have been committed after the caller
            // asked for the recorded answer. Its writes may be the reason for this refusal.
            let answer = self.recorded_answer(write.token, &write.fingerprint)?.ok_or(refusal)?;
            return Ok(DistributedAnswer { answer, is_replay: true, charges: Vec::new() });
        }
        let prepared = self.prepare_distributed(&mut write)?;
        // These clones share the large values, so the values are freed here and not by the writer.
        // Freeing them takes time, and all writes wait for the writer.
        let _kept = (prepared.clone(), write.clone());
        let (gate, limits) = (self.store.write_gate(), self.options.ledger);
        self.store
            .write(move |transaction| {
                gate.check()?;
                prepared.give_to(transaction);
                distributed::commit(transaction, &gate, limits, write, print)
            })
            .await
    }

    /// Refuses a transaction before it reaches the writer, if none of its containers exists or if it
    /// changes too many bytes of documents.
    fn check_distributed(&self, write: &DistributedWrite) -> Result<(), Refusal> {
        distributed::check_containers(&write.operations)?;
        if !distributed::may_change_many_bytes(&write.operations) {
            return Ok(());
        }
        blocking::run(|| distributed::check_document_bytes(&*self.store.view()?, &write.operations))
    }

    /// The answer that was recorded for a token; `None` when the token is new. Refused when the
    /// token was used for another body.
    pub fn recorded_answer(
        &self,
        token: IdempotencyToken,
        fingerprint: &Fingerprint,
    ) -> Result<Option<RecordedAnswer>, Refusal> {
        let record = self.store.view()?.get(&keys::ledger_entry(token.to_bytes()))?;
        ledger::recorded_answer(record, fingerprint)
    }

    /// The number of recorded answers, and their bytes.
    pub fn ledger_use(&self) -> Result<LedgerUse, Refusal> {
        Ok(ledger::decode_use(self.store.view()?.get(&keys::ledger_use())?))
    }

    /// Reads documents of any containers from one snapshot. The outer refusal is for the whole
    /// transaction, and its charge is for the documents that were read.
    pub fn read_distributed(
        &self,
        reads: &[DistributedRead],
    ) -> Result<Vec<Result<ItemOutcome, Refusal>>, Refusal> {
        distributed::read(&*self.store.view()?, reads, self.clock().seconds())
    }
}
