//! A database: its record in the store and the body that clients see.

use perihelion_model::json::{Value, object};
use perihelion_model::resource_id::DatabaseRid;

use super::record::{text_member, u32_member, u64_member};

/// A database.
#[derive(Debug, Clone)]
pub struct Database {
    /// The `_rid`.
    pub rid: DatabaseRid,
    /// The `id`.
    pub name: String,
    /// The `_etag`.
    pub etag: String,
    /// The `_ts`.
    pub timestamp: u64,
}

impl Database {
    /// The `_self`.
    pub fn self_link(&self) -> String {
        format!("dbs/{}/", self.rid.to_text())
    }

    /// The body as the service returns it.
    pub fn body(&self) -> Value {
        object([
            ("id", self.name.as_str().into()),
            ("_rid", self.rid.to_text().into()),
            ("_self", self.self_link().into()),
            ("_etag", self.etag.as_str().into()),
            ("_colls", "colls/".into()),
            ("_users", "users/".into()),
            ("_ts", self.timestamp.into()),
        ])
    }

    pub(crate) fn to_record(&self) -> Value {
        object([
            ("number", u64::from(self.rid.0).into()),
            ("name", self.name.as_str().into()),
            ("etag", self.etag.as_str().into()),
            ("timestamp", self.timestamp.into()),
        ])
    }

    pub(super) fn from_record(record: &Value) -> Option<Self> {
        Some(Database {
            rid: DatabaseRid(u32_member(record, "number")?),
            name: text_member(record, "name")?,
            etag: text_member(record, "etag")?,
            timestamp: u64_member(record, "timestamp")?,
        })
    }
}
