//! The account's counters: the next numbers to give out, and the LSN of the
//! catalog.

use std::time::Duration;

use perihelion_model::json::{Value, object};
use perihelion_model::resource_id::DatabaseRid;

use super::record::{u32_member, u64_member};

/// The account's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountCounters {
    /// The number of the next database.
    pub database_next: u32,
    /// The number of the next container.
    pub container_next: u32,
    /// The number of the next offer.
    pub offer_next: u32,
    /// The number of the next user or permission.
    pub user_next: u32,
    /// The number of changes of the catalog. It is the LSN of answers about the catalog, and
    /// the counter in the etags of databases, containers, offers, users and permissions.
    pub lsn: u64,
    /// Greater than the LSNs of all containers that were deleted.
    pub lsn_floor: u64,
}

/// The member of the account's record with the layout of the keys in the store.
pub(crate) const LAYOUT_MEMBER: &str = "layout";
/// The layout of the keys that this program writes. Raise the number when the meaning of keys
/// changes, and upgrade earlier layouts (`layout.rs`).
pub(crate) const LAYOUT: i64 = 3;

impl Default for AccountCounters {
    fn default() -> Self {
        AccountCounters {
            database_next: 1,
            container_next: 1,
            offer_next: 1,
            user_next: 1,
            lsn: 0,
            lsn_floor: 0,
        }
    }
}

/// The beginning of 2020, in milliseconds since 1970. LSNs that are made from the time count from
/// here. If the clock shows an earlier time, as in tests, neither these LSNs nor the first numbers of
/// databases and containers depend on the time.
const EPOCH: u64 = 1_577_836_800_000;
/// Each millisecond has 2 to the power of this many LSNs. A range takes far fewer writes in a
/// millisecond. Until 2089 the LSNs stay below 2^53, the largest number that all clients read
/// exactly.
const LSNS_PER_MILLISECOND_BITS: u32 = 12;
/// The first numbers of databases and containers are below this.
const NUMBER_FIRST_MAX: u32 = 1 << 30;

impl AccountCounters {
    /// The counters of a new account. The first numbers are made from the time, so that the `_rid`s
    /// differ from those of an earlier account at this address. Clients may still remember some of
    /// the earlier `_rid`s.
    pub(crate) fn of_new_account(unix_time: Duration) -> Self {
        let milliseconds = unix_time.as_millis() as u64;
        if milliseconds < EPOCH {
            return AccountCounters::default();
        }
        // The characters `+` and `-` are legal in a `_rid`, but hard to read in a path.
        let is_plain = |number: &u32| !DatabaseRid(*number).to_text().contains(['+', '-']);
        let mut numbers =
            (0u64..).map(|round| scramble(milliseconds ^ (round << 48)) as u32 % NUMBER_FIRST_MAX);
        let mut next = || numbers.by_ref().filter(|number| *number > 0).find(is_plain).unwrap_or(1);
        AccountCounters { database_next: next(), container_next: next(), ..AccountCounters::default() }
    }

    /// The first LSN of a container that is created now. It is above all LSNs of earlier
    /// containers, even of containers in an earlier store. So the engine recognizes a session token
    /// of another container, and a change feed that continues with such a token starts over.
    pub(crate) fn lsn_first(&self, now_milliseconds: u64) -> u64 {
        let of_time = now_milliseconds.saturating_sub(EPOCH) << LSNS_PER_MILLISECOND_BITS;
        of_time.max(self.lsn_floor).max(1)
    }

    pub(crate) fn to_record(self) -> Value {
        object([
            ("databaseNext", u64::from(self.database_next).into()),
            ("containerNext", u64::from(self.container_next).into()),
            ("offerNext", u64::from(self.offer_next).into()),
            ("userNext", u64::from(self.user_next).into()),
            ("lsn", self.lsn.into()),
            ("lsnFloor", self.lsn_floor.into()),
            (LAYOUT_MEMBER, LAYOUT.into()),
        ])
    }

    pub(super) fn from_record(record: &Value) -> Option<Self> {
        Some(AccountCounters {
            database_next: u32_member(record, "databaseNext")?,
            container_next: u32_member(record, "containerNext")?,
            offer_next: u32_member(record, "offerNext")?,
            // Earlier versions had no users.
            user_next: u32_member(record, "userNext").unwrap_or(1),
            lsn: u64_member(record, "lsn")?,
            // Earlier versions did not write it.
            lsn_floor: u64_member(record, "lsnFloor").unwrap_or(0),
        })
    }
}

/// Turns a number into a number that looks random (the finaliser of SplitMix64).
fn scramble(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time in 2026, in milliseconds since 1970.
    const NOW: u64 = 1_794_873_623_000;

    fn account_created_at(milliseconds: u64) -> AccountCounters {
        AccountCounters::of_new_account(Duration::from_millis(milliseconds))
    }

    #[test]
    fn accounts_created_at_different_times_have_different_numbers() {
        let (first, second) = (account_created_at(NOW), account_created_at(NOW + 1));
        assert_ne!(first.database_next, second.database_next);
        assert_ne!(first.container_next, second.container_next);
        assert_eq!(first, account_created_at(NOW));
    }

    #[test]
    fn a_new_container_has_greater_lsns_than_all_earlier_containers() {
        let (first, second) = (account_created_at(NOW), account_created_at(NOW + 1));
        assert!(first.lsn_first(NOW) + 1000 < second.lsn_first(NOW + 1));
        assert!(second.lsn_first(NOW) < 1 << 53);
        let after_delete = AccountCounters { lsn_floor: first.lsn_first(NOW) + 5, ..first };
        assert_eq!(after_delete.lsn_first(NOW), first.lsn_first(NOW) + 5);
    }

    #[test]
    fn before_2020_numbers_and_lsns_begin_with_1() {
        let account = account_created_at(1000);
        assert_eq!((account.database_next, account.lsn_first(1000)), (1, 1));
    }
}
