//! The dedup record of an instance: the messages that the instance has consumed. Only
//! messages that must not be delivered twice (`Message::needs_dedup`) are recorded.
//!
//! Every sender numbers its messages. A sender is a process that enqueues messages, or
//! another instance whose commits send messages. The receiver keeps the consumed numbers as
//! ranges, because most numbers of a process are consecutive.
//!
//! Numbers are forgotten in three cases. Each message of a process carries a low-water mark:
//! the process will not send lower numbers again, so the receiver forgets them. (A message
//! from an instance has the mark zero.) A process is forgotten some time after its last
//! message. When the record is full, old numbers are forgotten. A forgotten number counts as
//! not consumed, so its message would be delivered again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::timing::ENQUEUER_KEPT_FOR;

/// The number of low bits of a message's number that hold its position within its commit.
const POSITION_BITS: u32 = 20;

/// How many milliseconds an enqueuing process is remembered after its last message.
const ENQUEUER_KEPT_FOR_MS: u64 = ENQUEUER_KEPT_FOR.as_millis() as u64;

/// The most senders remembered, about sixty bytes each. Most instances have a handful. The
/// sender whose last message was consumed longest ago is forgotten first.
const SENDERS_MAX: usize = 1024;

/// The most ranges of one sender. The numbers between two ranges of a process belong to
/// messages that are in delivery, were given up, or need no dedup. Each commit of an instance
/// begins a new range. When there are more ranges, the lowest are forgotten.
const RANGES_MAX: usize = 256;

/// The most ranges of all senders: about ninety kilobytes. When there are more, the sender
/// whose last message was consumed longest ago is forgotten, then the next, until the rest
/// fits.
const RANGES_TOTAL_MAX: usize = 4096;

/// A parsed message id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MessageId<'a> {
    sender: &'a str,
    number: u64,
}

/// The id of a message that a process enqueues.
pub(crate) fn enqueued_message_id(sender: &str, number: u64) -> String {
    format!("m:{sender}:{number:x}")
}

/// The id of a message that a commit of another instance sends. `sender` is a hash of that
/// instance's id and incarnation.
pub(crate) fn sent_message_id(sender: &str, commit_number: u64, position: usize) -> String {
    format!("x:{sender}:{:x}", sent_message_number(commit_number, position))
}

/// The number of a message that a commit sends. It is greater than all numbers of earlier
/// commits, because a commit sends fewer than 2^20 messages.
fn sent_message_number(commit_number: u64, position: usize) -> u64 {
    (commit_number << POSITION_BITS) | position as u64
}

/// Parses the id of an enqueued or sent message; `None` for any other id.
fn parse_message_id(id: &str) -> Option<MessageId<'_>> {
    let (sender, number) = id.rsplit_once(':')?;
    let is_known = sender.starts_with("m:") || sender.starts_with("x:");
    Some(MessageId { sender, number: u64::from_str_radix(number, 16).ok()? }).filter(|_| is_known)
}

/// A message that must not be delivered again: it was consumed, or its target was deleted
/// while it was in delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DedupEntry {
    pub(crate) id: String,
    /// The sender will not send lower numbers again.
    pub(crate) low_water_mark: u64,
}

/// The numbers of consumed messages, by sender.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct DedupRecord {
    senders: BTreeMap<String, SenderRecord>,
}

/// The numbers of consumed messages of one sender.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct SenderRecord {
    /// When the last message was consumed: milliseconds since 1970.
    #[serde(rename = "at")]
    last_consumed_ms: u64,
    /// The first and last number of each range, in order. No two ranges touch.
    #[serde(rename = "r")]
    ranges: Vec<(u64, u64)>,
}

impl DedupRecord {
    pub(crate) fn is_empty(&self) -> bool {
        self.senders.is_empty()
    }

    pub(crate) fn contains(&self, id: &str) -> bool {
        let Some(MessageId { sender, number }) = parse_message_id(id) else { return false };
        self.senders.get(sender).is_some_and(|record| record.contains(number))
    }

    /// Adds messages, and forgets messages that cannot arrive again. Forgets more if the
    /// record is full.
    pub(crate) fn extend(&mut self, messages: &[DedupEntry], now_ms: u64) {
        for DedupEntry { id, low_water_mark } in messages {
            let Some(MessageId { sender, number }) = parse_message_id(id) else { continue };
            let record = self.senders.entry(sender.to_owned()).or_default();
            record.last_consumed_ms = record.last_consumed_ms.max(now_ms);
            record.insert(number);
            record.forget_below(*low_water_mark);
        }
        self.senders.retain(|sender, record| {
            let is_enqueuer = sender.starts_with("m:");
            let expires_ms = record.last_consumed_ms.saturating_add(ENQUEUER_KEPT_FOR_MS);
            let is_expired = is_enqueuer && expires_ms < now_ms;
            !(is_expired || record.ranges.is_empty())
        });
        let mut range_count: usize = self.senders.values().map(|record| record.ranges.len()).sum();
        while self.senders.len() > SENDERS_MAX || range_count > RANGES_TOTAL_MAX {
            let oldest = self.senders.iter().min_by_key(|(_, record)| record.last_consumed_ms);
            let oldest = oldest.map(|(sender, _)| sender.clone());
            let Some(forgotten) = oldest.and_then(|sender| self.senders.remove(&sender)) else { return };
            range_count -= forgotten.ranges.len();
        }
    }
}

impl SenderRecord {
    fn contains(&self, number: u64) -> bool {
        let after = self.ranges.partition_point(|range| range.0 <= number);
        after > 0 && self.ranges[after - 1].1 >= number
    }

    fn insert(&mut self, number: u64) {
        let after = self.ranges.partition_point(|range| range.0 <= number);
        let joins_before = after > 0 && self.ranges[after - 1].1.saturating_add(1) >= number;
        let joins_after = self.ranges.get(after).is_some_and(|range| range.0 == number.saturating_add(1));
        match (joins_before, joins_after) {
            (true, true) => {
                self.ranges[after - 1].1 = self.ranges[after].1;
                self.ranges.remove(after);
            }
            (true, false) => self.ranges[after - 1].1 = self.ranges[after - 1].1.max(number),
            (false, true) => self.ranges[after].0 = number,
            (false, false) => self.ranges.insert(after, (number, number)),
        }
        let surplus = self.ranges.len().saturating_sub(RANGES_MAX);
        self.ranges.drain(..surplus);
    }

    fn forget_below(&mut self, low_water_mark: u64) {
        self.ranges.retain(|range| range.1 >= low_water_mark);
        if let Some(first) = self.ranges.first_mut() {
            first.0 = first.0.max(low_water_mark);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn entry(sender: &str, number: u64, low_water_mark: u64) -> DedupEntry {
        DedupEntry { id: enqueued_message_id(sender, number), low_water_mark }
    }

    #[test]
    fn ranges_agree_with_a_set_of_all_numbers() {
        for seed in 0..50 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut record, mut model, mut low) = (DedupRecord::default(), BTreeSet::new(), 0);
            for _ in 0..300 {
                low = low.max(random.u64(..120).saturating_sub(60));
                let number = low + random.u64(..60);
                record.extend(&[entry("p", number, low)], 1);
                model.insert(number);
                model.retain(|number| *number >= low);
                for number in low.saturating_sub(5)..low + 70 {
                    let expected = model.contains(&number);
                    assert_eq!(
                        record.contains(&enqueued_message_id("p", number)),
                        expected,
                        "{seed} {number}"
                    );
                }
                let json = serde_json::to_string(&record).expect("JSON");
                assert_eq!(serde_json::from_str::<DedupRecord>(&json).expect("a record"), record);
            }
        }
    }

    #[test]
    fn ten_thousand_messages_take_one_range_while_one_is_outstanding() {
        let mut record = DedupRecord::default();
        for number in (0..10_000).filter(|number| *number != 5) {
            record.extend(&[entry("p", number, number.min(5))], 1);
        }
        for number in 5..10_000 {
            assert_eq!(record.contains(&enqueued_message_id("p", number)), number != 5);
        }
        assert!(serde_json::to_string(&record).expect("JSON").len() < 100);
    }

    #[test]
    fn the_record_stays_small_with_thousands_of_senders() {
        let mut record = DedupRecord::default();
        for n in 0..5_000_u64 {
            record.extend(
                &[DedupEntry { id: sent_message_id(&format!("{n:016x}"), 7, 0), low_water_mark: 0 }],
                n,
            );
            record.extend(&[entry("gaps", 2 * n, 0)], n);
        }
        let json = serde_json::to_string(&record).expect("JSON");
        assert!(json.len() < 100_000, "{}", json.len());
        assert!(record.contains(&sent_message_id(&format!("{:016x}", 4_999), 7, 0)));
        assert!(record.contains(&enqueued_message_id("gaps", 2 * 4_999)));
        // After this time a process is forgotten, but an instance is not.
        record.extend(&[entry("other", 1, 0)], 5_000 + ENQUEUER_KEPT_FOR_MS);
        assert!(
            !record.contains(&enqueued_message_id("gaps", 2 * 4_999)),
            "no process sends a message again that late"
        );
        assert!(
            record.contains(&sent_message_id(&format!("{:016x}", 4_999), 7, 0)),
            "an outbox may be delivered that late"
        );
    }

    #[test]
    fn only_ids_of_enqueued_and_sent_messages_are_recorded() {
        let mut record = DedupRecord::default();
        let ids = ["c:1:2", "i", "", "x:", "m:1:zz"];
        record.extend(&ids.map(|id| DedupEntry { id: id.to_owned(), low_water_mark: 0 }), 1);
        assert!(record.is_empty() && ids.iter().all(|id| !record.contains(id)));
    }
}
