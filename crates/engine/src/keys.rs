//! The layout of the keyspace: which key holds what.
//!
//! Every key begins with a byte for its kind of content. Numbers are big-endian,
//! so that bytes sort as numbers do. Documents are sorted by segment and then by
//! the counter in their `_rid`, which is the order in which the service returns
//! rows without ORDER BY. (A segment belongs to a range, or to all
//! children of a split range together.) Ids and partition members (the list of
//! documents in each logical partition) are sorted by logical partition. So a point read is
//! two look-ups, and a query of one logical partition reads no other.
//!
//! A function whose name ends in `_prefix` returns the prefix of all keys of one kind, or
//! of the keys that its parameters select (`after_prefix` is the exception). Times are
//! seconds since 1970. `rid` is the counter in a document's `_rid`, and `ordinal` the number of a
//! change among the changes with the same LSN.

mod logical_partition;
mod ranges;

pub(crate) use self::logical_partition::LogicalPartition;
pub(crate) use self::ranges::{OwnedKeyRange, after_prefix};

/// A container's number. An account never uses a number for a second container.
pub type ContainerNumber = u32;
/// A physical partition's id within its container.
pub type RangeId = u32;
/// A segment: where the documents of a physical partition are stored. A partition
/// begins with a segment of its own. The children of a split share the segment of
/// their parent.
pub(crate) type SegmentId = u32;

/// The first byte of a key, by its kind of content. The numbers are stored: never
/// change one.
#[repr(u8)]
#[derive(Clone, Copy)]
enum KeyPrefix {
    Account = 0x00,
    Database = 0x01,
    Container = 0x02,
    Offer = 0x03,
    ContainerState = 0x04,
    Script = 0x05,
    PendingPurge = 0x06,
    PendingExpiryUpdate = 0x07,
    NamedValue = 0x08,
    User = 0x09,
    Permission = 0x0A,
    Document = 0x10,
    // 0x11, 0x12 and 0x15: ids, partition members and unique keys of layout 1 (`layout.rs`).
    FeedEntry = 0x13,
    LoggedVersion = 0x14,
    Index = 0x16,
    Expiry = 0x17,
    Id = 0x18,
    PartitionMember = 0x19,
    UniqueKey = 0x1A,
    Outbox = 0x20,
    OutboxNext = 0x21,
    AppliedUpTo = 0x22,
    // 0x23: tombstones of layout 1. Their age keys are still read.
    TombstoneAge = 0x24,
    Tombstone = 0x25,
    LedgerEntry = 0x30,
    LedgerAge = 0x31,
    LedgerUse = 0x32,
}

/// Appends the parts of a key.
struct KeyBuilder(Vec<u8>);

impl KeyBuilder {
    fn new(prefix: KeyPrefix) -> Self {
        let mut bytes = Vec::with_capacity(64);
        bytes.push(prefix as u8);
        KeyBuilder(bytes)
    }
    fn u16(mut self, value: u16) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }
    fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }
    fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }
    fn bytes(mut self, value: &[u8]) -> Self {
        self.0.extend_from_slice(value);
        self
    }
    fn done(self) -> Vec<u8> {
        self.0
    }
}

/// The record of the account: the next numbers to give out, and the catalog's LSN.
pub(crate) fn account() -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Account).done()
}

pub(crate) fn database(number: u32) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Database).u32(number).done()
}

pub(crate) fn database_prefix() -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Database).done()
}

pub(crate) fn container(number: ContainerNumber) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Container).u32(number).done()
}

pub(crate) fn container_prefix() -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Container).done()
}

pub(crate) fn offer(number: u32) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Offer).u32(number).done()
}

pub(crate) fn offer_prefix() -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Offer).done()
}

/// A container's counters.
pub(crate) fn container_state(container: ContainerNumber) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::ContainerState).u32(container).done()
}

/// Marks a deleted container whose documents are still to be purged.
pub(crate) fn pending_purge(container: ContainerNumber) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::PendingPurge).u32(container).done()
}

pub(crate) fn pending_purge_prefix() -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::PendingPurge).done()
}

/// Marks a container whose default TTL changed: its expiry list is to be updated. The value is the
/// etag of the container after the change, so that a second change can be told from the first.
pub(crate) fn pending_expiry_update(container: ContainerNumber) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::PendingExpiryUpdate).u32(container).done()
}

pub(crate) fn pending_expiry_update_prefix() -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::PendingExpiryUpdate).done()
}

/// The container of a key of a pending purge, a pending expiry update or a script.
pub(crate) fn parse_container(key: &[u8]) -> Option<ContainerNumber> {
    Some(number_at(key, 1, 4)? as u32)
}

/// A stored procedure, trigger or user-defined function. It is stored but not run.
pub(crate) fn script(container: ContainerNumber, kind: u8, id: &str) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Script).u32(container).bytes(&[kind]).bytes(id.as_bytes()).done()
}

pub(crate) fn script_prefix(container: ContainerNumber, kind: u8) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Script).u32(container).bytes(&[kind]).done()
}

pub(crate) fn all_scripts_prefix() -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Script).done()
}

/// A user of a database.
pub(crate) fn user(database: u32, id: &str) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::User).u32(database).bytes(id.as_bytes()).done()
}

pub(crate) fn user_prefix(database: u32) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::User).u32(database).done()
}

pub(crate) fn all_users_prefix() -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::User).done()
}

/// A permission of a user. The user has a number here, because its id can change.
pub(crate) fn permission(database: u32, user: u32, id: &str) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Permission).u32(database).u32(user).bytes(id.as_bytes()).done()
}

pub(crate) fn permission_prefix(database: u32, user: u32) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Permission).u32(database).u32(user).done()
}

/// The permissions of all users of a database.
pub(crate) fn database_permission_prefix(database: u32) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Permission).u32(database).done()
}

pub(crate) fn all_permissions_prefix() -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Permission).done()
}

/// The database of the key of a user or of a permission.
pub(crate) fn parse_database(key: &[u8]) -> Option<u32> {
    Some(number_at(key, 1, 4)? as u32)
}

pub(crate) fn document(container: ContainerNumber, segment: SegmentId, rid: u64) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Document).u32(container).u32(segment).u64(rid).done()
}

pub(crate) fn document_prefix(container: ContainerNumber, segment: SegmentId) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Document).u32(container).u32(segment).done()
}

/// Maps (logical partition, id) to the counter in the document's `_rid`.
pub(crate) fn id(container: ContainerNumber, partition: &LogicalPartition, id: &str) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Id).u32(container).bytes(&partition.0).bytes(id.as_bytes()).done()
}

/// The prefix of the ids of a container.
pub(crate) fn id_prefix(container: ContainerNumber) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Id).u32(container).done()
}

/// An entry of the list of a logical partition's documents, in `_rid` order.
pub(crate) fn partition_member(
    container: ContainerNumber,
    partition: &LogicalPartition,
    rid: u64,
) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::PartitionMember).u32(container).bytes(&partition.0).u64(rid).done()
}

/// The prefix of the documents of a logical partition, or of all logical partitions whose hierarchical
/// keys begin with some levels. `partition` is the name of the partition or of these levels; empty for
/// all logical partitions.
pub(crate) fn partition_member_prefix(container: ContainerNumber, partition: &[u8]) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::PartitionMember).u32(container).bytes(partition).done()
}

/// An entry of the change feed: the position of a document's latest version.
pub(crate) fn feed_entry(container: ContainerNumber, segment: SegmentId, lsn: u64, ordinal: u64) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::FeedEntry).u32(container).u32(segment).u64(lsn).u64(ordinal).done()
}

/// The prefix of the change feed's entries of a segment.
pub(crate) fn feed_entry_prefix(container: ContainerNumber, segment: SegmentId) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::FeedEntry).u32(container).u32(segment).done()
}

/// A version or a delete of a document, for containers whose change feed is read
/// in the mode "all versions and deletes".
pub(crate) fn logged_version(
    container: ContainerNumber,
    segment: SegmentId,
    lsn: u64,
    ordinal: u64,
) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::LoggedVersion).u32(container).u32(segment).u64(lsn).u64(ordinal).done()
}

/// The range in which a change was made: the upper 32 bits of the change's ordinal. The children of a
/// split share the keys of a segment, but each child counts its own LSNs. So without the range two
/// changes could have the same key.
pub(crate) fn range_of_ordinal(ordinal: u64) -> RangeId {
    (ordinal >> 32) as RangeId
}

/// The prefix of the logged versions of a segment.
pub(crate) fn logged_version_prefix(container: ContainerNumber, segment: SegmentId) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::LoggedVersion).u32(container).u32(segment).done()
}

/// The values of a unique key within a logical partition. `constraint` is the index
/// of the unique key in the container's definition.
pub(crate) fn unique_key(
    container: ContainerNumber,
    partition: &LogicalPartition,
    constraint: u16,
    values: &[u8],
) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::UniqueKey)
        .u32(container)
        .bytes(&partition.0)
        .u16(constraint)
        .bytes(values)
        .done()
}

/// The prefix of the unique keys of a container.
pub(crate) fn unique_key_prefix(container: ContainerNumber) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::UniqueKey).u32(container).done()
}

/// The prefixes that only keys of layout 1 have: ids, partition members and unique keys, all by the
/// hash of the partition key.
pub(crate) fn prefixes_of_layout_1() -> [Vec<u8>; 3] {
    [vec![0x11], vec![0x12], vec![UNIQUE_KEY_OF_LAYOUT_1]]
}

const UNIQUE_KEY_OF_LAYOUT_1: u8 = 0x15;

/// A unique key of layout 1. `hash` is the hash of the partition key.
pub(crate) fn unique_key_of_layout_1(
    container: ContainerNumber,
    hash: &[u8],
    constraint: u16,
    values: &[u8],
) -> Vec<u8> {
    let mut key = vec![UNIQUE_KEY_OF_LAYOUT_1];
    key.extend_from_slice(&container.to_be_bytes());
    key.extend_from_slice(hash);
    key.extend_from_slice(&constraint.to_be_bytes());
    key.extend_from_slice(values);
    key
}

/// All documents of a container, in all segments.
pub(crate) fn all_documents_prefix(container: ContainerNumber) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Document).u32(container).done()
}

/// The prefix of all entries of one index.
pub(crate) fn index_prefix(container: ContainerNumber, index: u16) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Index).u32(container).u16(index).done()
}

/// An entry of the expiry list: the time at which a document expires.
pub(crate) fn expiry(at: u64, container: ContainerNumber, segment: SegmentId, rid: u64) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Expiry).u64(at).u32(container).u32(segment).u64(rid).done()
}

/// The prefix of the expiry entries of all containers.
pub(crate) fn expiry_prefix() -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Expiry).done()
}

/// The bounds of the expiry entries at or before `at`: the lower one is included,
/// the upper one is not.
pub(crate) fn expiry_bounds(at: u64) -> (Vec<u8>, Vec<u8>) {
    let from = KeyBuilder::new(KeyPrefix::Expiry).done();
    let to = KeyBuilder::new(KeyPrefix::Expiry).u64(at.saturating_add(1)).done();
    (from, to)
}

/// The parts of an expiry key: time, container, segment, rid.
pub(crate) fn parse_expiry(key: &[u8]) -> Option<(u64, ContainerNumber, SegmentId, u64)> {
    if key.len() != 25 {
        return None;
    }
    Some((
        number_at(key, 1, 8)?,
        number_at(key, 9, 4)? as u32,
        number_at(key, 13, 4)? as u32,
        number_at(key, 17, 8)?,
    ))
}

/// A named text that the engine's owner stores, see [`crate::Engine::set_named_value`].
pub(crate) fn named_value(name: &str) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::NamedValue).bytes(name.as_bytes()).done()
}

/// The LSN up to which the logged versions of a range were removed.
pub(crate) fn pruned_versions(container: ContainerNumber, range: RangeId) -> Vec<u8> {
    named_value(&format!("{}range/{range}", pruned_versions_name(container)))
}

/// The LSN up to which an earlier version of this program removed the logged versions of a segment. It
/// did so only while the segment had one range.
pub(crate) fn pruned_versions_of_segment(container: ContainerNumber, segment: SegmentId) -> Vec<u8> {
    named_value(&format!("{}{segment}", pruned_versions_name(container)))
}

/// The beginning of the names in [`pruned_versions`] and [`pruned_versions_of_segment`]. It ends with
/// a slash, so it is not the beginning of another container's names.
fn pruned_versions_name(container: ContainerNumber) -> String {
    format!("pruned-versions/{container}/")
}

/// A change that other regions are to apply, by the number of its outbox entry and
/// its ordinal in that entry.
pub(crate) fn outbox(sequence: u64, ordinal: u64) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Outbox).u64(sequence).u64(ordinal).done()
}

pub(crate) fn outbox_prefix() -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Outbox).done()
}

/// The number of the next outbox entry.
pub(crate) fn outbox_next() -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::OutboxNext).done()
}

/// The number of the last entry of a region's outbox that is applied here.
pub(crate) fn applied_up_to(region: u8) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::AppliedUpTo).bytes(&[region]).done()
}

/// The recorded answer of a distributed transaction, by its idempotency token.
pub(crate) fn ledger_entry(token: [u8; 16]) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::LedgerEntry).bytes(&token).done()
}

/// An entry of the list of ledger entries, sorted by the time of the transaction.
pub(crate) fn ledger_age(at: u64, token: [u8; 16]) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::LedgerAge).u64(at).bytes(&token).done()
}

/// The bounds of the ledger's age keys before `at`: the lower one is included, the upper one
/// is not.
pub(crate) fn ledger_age_bounds(at: u64) -> (Vec<u8>, Vec<u8>) {
    (KeyBuilder::new(KeyPrefix::LedgerAge).done(), KeyBuilder::new(KeyPrefix::LedgerAge).u64(at).done())
}

/// The token of a ledger's age key.
pub(crate) fn parse_ledger_age(key: &[u8]) -> Option<[u8; 16]> {
    key.get(9..)?.try_into().ok()
}

/// The number of ledger entries and their bytes.
pub(crate) fn ledger_use() -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::LedgerUse).done()
}

/// The tombstone of a document: the version of its delete.
pub(crate) fn tombstone(container: ContainerNumber, partition: &LogicalPartition, id: &str) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::Tombstone).u32(container).bytes(&partition.0).bytes(id.as_bytes()).done()
}

/// An entry of the list of tombstones, sorted by the time of the delete.
pub(crate) fn tombstone_age(time: u64, tombstone: &[u8]) -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::TombstoneAge).u64(time).bytes(tombstone).done()
}

pub(crate) fn tombstone_age_prefix() -> Vec<u8> {
    KeyBuilder::new(KeyPrefix::TombstoneAge).done()
}

/// The parts of a tombstone age key: the time, and the tombstone's key.
pub(crate) fn parse_tombstone_age(key: &[u8]) -> Option<(u64, &[u8])> {
    Some((number_at(key, 1, 8)?, key.get(9..)?))
}

/// The prefixes of the keys that maintenance purges with a deleted container. Expiry
/// entries and the age keys of tombstones do not begin with the container, so they are
/// not purged. Maintenance removes them when their time comes (expiry entries only in a
/// region that removes expired documents).
pub(crate) fn prefixes_of_container(container: ContainerNumber) -> impl Iterator<Item = Vec<u8>> {
    [
        KeyPrefix::ContainerState,
        KeyPrefix::Script,
        KeyPrefix::Document,
        KeyPrefix::Id,
        KeyPrefix::PartitionMember,
        KeyPrefix::FeedEntry,
        KeyPrefix::LoggedVersion,
        KeyPrefix::UniqueKey,
        KeyPrefix::Index,
        KeyPrefix::Tombstone,
    ]
    .into_iter()
    .map(move |prefix| KeyBuilder::new(prefix).u32(container).done())
    .chain([named_value(&pruned_versions_name(container))])
}

/// The big-endian number at the end of a key or record.
pub(crate) fn last_u64(key: &[u8]) -> Option<u64> {
    number_at(key, key.len().checked_sub(8)?, 8)
}

/// The two big-endian numbers at the end of a key or record.
pub(crate) fn last_u64_pair(key: &[u8]) -> Option<(u64, u64)> {
    let at = key.len().checked_sub(16)?;
    Some((number_at(key, at, 8)?, number_at(key, at + 8, 8)?))
}

/// The big-endian number in `length` bytes (at most 8) from the offset `at` on.
fn number_at(key: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = key.get(at..at + length)?;
    Some(bytes.iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte)))
}
