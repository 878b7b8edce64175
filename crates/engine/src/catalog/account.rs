//! The account's counters: the next numbers to give out, and the LSN of the
//! catalog.

use perihelion_model::json::{Value, object};

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
    /// The number of changes of the catalog. It is the LSN of answers about the catalog, and
    /// the counter in the etags of databases, containers and offers.
    pub lsn: u64,
}

impl Default for AccountCounters {
    fn default() -> Self {
        AccountCounters { database_next: 1, container_next: 1, offer_next: 1, lsn: 0 }
    }
}

impl AccountCounters {
    pub(crate) fn to_record(self) -> Value {
        object([
            ("databaseNext", u64::from(self.database_next).into()),
            ("containerNext", u64::from(self.container_next).into()),
            ("offerNext", u64::from(self.offer_next).into()),
            ("lsn", self.lsn.into()),
        ])
    }

    pub(super) fn from_record(record: &Value) -> Option<Self> {
        Some(AccountCounters {
            database_next: u32_member(record, "databaseNext")?,
            container_next: u32_member(record, "containerNext")?,
            offer_next: u32_member(record, "offerNext")?,
            lsn: u64_member(record, "lsn")?,
        })
    }
}
