//! Tombstones: the version of a delete, kept so that an older write that
//! arrives late does not bring the document back.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::Version;
use crate::items::Target;
use crate::keys::{self, Span};
use crate::refusal::Refusal;
use crate::storage::Direction;
use crate::transaction::Transaction;
use crate::{Engine, maintenance};

/// How long a tombstone is kept. A region that was cut off for longer may
/// bring deleted documents back.
pub(crate) const RETENTION_SECONDS: u64 = 24 * 60 * 60;

pub(crate) fn put(transaction: &mut Transaction<'_>, target: &Target, id: &str, version: Version) {
    let key = keys::tombstone(target.container.number(), &target.partition, id);
    transaction.put(keys::tombstone_age(version.timestamp, &key), Bytes::new());
    let mut record = version.timestamp.to_be_bytes().to_vec();
    record.extend_from_slice(&version.etag_counter.to_be_bytes());
    transaction.put(key, record);
}

pub(crate) fn get(
    transaction: &Transaction<'_>,
    target: &Target,
    id: &str,
) -> Result<Option<Version>, Refusal> {
    let record = transaction.get(&keys::tombstone(target.container.number(), &target.partition, id))?;
    Ok(record.and_then(|record| {
        let (timestamp, etag_counter) = keys::lsn_and_place(&record)?;
        Some(Version { timestamp, etag_counter })
    }))
}

pub(crate) fn remove(transaction: &mut Transaction<'_>, target: &Target, id: &str, version: Version) {
    let key = keys::tombstone(target.container.number(), &target.partition, id);
    transaction.remove(keys::tombstone_age(version.timestamp, &key));
    transaction.remove(key);
}

/// Removes what is past its time.
pub(crate) async fn purge(engine: &Engine) -> Result<(), Refusal> {
    let Some(before) = engine.clock().seconds().checked_sub(RETENTION_SECONDS) else { return Ok(()) };
    loop {
        let mut aged = Vec::new();
        let span = Span::between(&keys::tombstone_ages(), &keys::tombstone_age(before, &[]));
        engine.view()?.scan(span.as_range(), Direction::Forward, &mut |key, _| {
            aged.push(key.to_vec());
            if aged.len() >= maintenance::STEP { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if aged.is_empty() {
            return Ok(());
        }
        engine
            .write(move |transaction| {
                for key in aged {
                    if let Some((age, tombstone)) = keys::parse_tombstone_age(&key) {
                        // A later delete has a tombstone and an age of its own.
                        let record = transaction.get(tombstone)?;
                        let of = record.and_then(|record| keys::lsn_and_place(&record)).map(|(time, _)| time);
                        if of == Some(age) {
                            transaction.remove(tombstone.to_vec());
                        }
                    }
                    transaction.remove(key);
                }
                Ok(())
            })
            .await?;
    }
}
