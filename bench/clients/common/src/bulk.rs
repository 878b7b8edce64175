//! A bulk: one call that creates many documents, of the same size and under the same partition
//! keys as the single creates.

use std::time::Instant;

use crate::documents::payload_for;
use crate::drive::{Names, Sample, new_document};
use crate::{Client, Histogram, NewDocument, Problem, Span};

/// A document of a bulk. It owns its id and borrows the other members.
pub struct BulkDocument<'a> {
    id: String,
    pk: &'a str,
    payload: &'a str,
}

impl BulkDocument<'_> {
    pub fn document(&self) -> NewDocument<'_> {
        new_document(&self.id, self.pk, self.payload)
    }
}

/// Creates documents in bulks.
pub(crate) struct Loader<'a, C> {
    client: C,
    names: &'a Names,
    id_prefix: String,
    payload: String,
    /// The number of documents so far.
    documents: u64,
}

impl<'a, C: Client> Loader<'a, C> {
    pub(crate) fn new(client: C, names: &'a Names, run: u64) -> Result<Self, Problem> {
        let id_prefix = format!("b-{run}");
        let payload = payload_for(new_document(&format!("{id_prefix}-000000"), "k-10", ""))?;
        Ok(Self { client, names, id_prefix, payload, documents: 0 })
    }

    /// Creates as many documents as the span says.
    pub(crate) async fn load(&mut self, span: Span) -> Result<Sample, Problem> {
        let Span::Operations(count) = span else {
            return Err("a bulk takes a number of documents, not a time".into());
        };
        let Self { client, names, id_prefix, payload, documents } = self;
        let numbers = *documents..*documents + count;
        *documents += count;
        let keys = &names.write_keys;
        let all = numbers.map(|number| BulkDocument {
            id: format!("{id_prefix}-{number:06}"),
            pk: &keys[number as usize % keys.len()],
            payload,
        });
        let started = Instant::now();
        client.bulk(all).await?;
        Ok(Sample { elapsed: started.elapsed(), operations: count, latencies: Histogram::new() })
    }
}
