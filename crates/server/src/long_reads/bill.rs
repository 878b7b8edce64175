//! `Bill`: takes the charge of a read, exactly once.
//!
//! The thread that runs a read settles its bill with the outcome, because the future of the request may
//! be dropped at any moment. A bill that is dropped without an outcome belongs to a read whose client
//! has left. Such a read is charged for the documents that it has read. A query is charged as if none of
//! these documents had given a row. So a client that leaves pays as much as a client that waits for a
//! query without rows. A client that leaves cannot avoid the throughput limit of its container.

use std::cell::Cell;

use perihelion_engine::Refusal;

/// The charge of one read, until it is taken.
pub(crate) struct Bill<T> {
    /// Takes a charge from the throughput bucket (`perihelion_engine::Bucket`) of the read. `None`
    /// after the charge was taken.
    spend: Option<Box<dyn FnOnce(f64) + Send>>,
    /// The charge of an answer.
    of_answer: fn(&T) -> f64,
    /// The charge of a number of documents without an answer.
    of_documents: fn(u64) -> f64,
    /// The documents that a long read has read. The documents of its first slice do not count,
    /// because the long read begins again and reads them a second time.
    documents: Cell<u64>,
}

impl<T> Bill<T> {
    pub(crate) fn new(
        spend: impl FnOnce(f64) + Send + 'static,
        of_answer: fn(&T) -> f64,
        of_documents: fn(u64) -> f64,
    ) -> Bill<T> {
        Bill { spend: Some(Box::new(spend)), of_answer, of_documents, documents: Cell::new(0) }
    }

    /// The bill of a read that is not charged.
    #[cfg(test)]
    pub(super) fn free() -> Bill<T> {
        Bill::new(|_| {}, |_| 0.0, |_| 0.0)
    }

    /// Counts a document that is about to be read.
    pub(super) fn count_document(&self) {
        self.documents.set(self.documents.get().saturating_add(1));
    }

    /// Takes the charge of this outcome.
    pub(super) fn settle(mut self, outcome: Result<T, Refusal>) -> Result<T, Refusal> {
        let charge = outcome.as_ref().map_or_else(|refusal| refusal.charge, self.of_answer);
        self.take(charge);
        outcome
    }

    fn take(&mut self, charge: f64) {
        if let Some(spend) = self.spend.take() {
            spend(charge);
        }
    }
}

impl<T> Drop for Bill<T> {
    fn drop(&mut self) {
        let charge = (self.of_documents)(self.documents.get());
        self.take(charge);
    }
}
