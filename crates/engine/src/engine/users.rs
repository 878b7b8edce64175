//! The engine's commands on users and permissions.

use perihelion_model::json::{Object, Value};
use perihelion_model::resource_id::DatabaseRid;

use super::Engine;
use crate::admin::{self, AccessFeed, AccessWrite, StoredPermission};
use crate::refusal::Refusal;

impl Engine {
    /// Writes a user or a permission. If it exists already, it must have the etag `if_match` (`None`
    /// for any). Returns the body, and whether the user or permission is new.
    pub async fn put_access(
        &self,
        feed: AccessFeed,
        write: AccessWrite,
        if_match: Option<String>,
        body: Object,
    ) -> Result<(Value, bool), Refusal> {
        self.store
            .write(move |transaction| {
                admin::put_access(transaction, &feed, &write, if_match.as_deref(), body)
            })
            .await
    }

    /// Deletes a user with its permissions, or a permission, if it has the etag `if_match` (`None` for
    /// any).
    pub async fn delete_access(
        &self,
        feed: AccessFeed,
        id: String,
        if_match: Option<String>,
    ) -> Result<(), Refusal> {
        self.store
            .write(move |transaction| admin::delete_access(transaction, &feed, &id, if_match.as_deref()))
            .await
    }

    /// The bodies of all users of a database, or of all permissions of a user.
    pub fn access(&self, feed: &AccessFeed) -> Result<Vec<Value>, Refusal> {
        admin::access(&*self.store.view()?, feed)
    }

    /// The body of the user or permission with this id.
    pub fn access_entry(&self, feed: &AccessFeed, id: &str) -> Result<Option<Value>, Refusal> {
        admin::access_entry(&*self.store.view()?, feed, id)
    }

    /// The id of the user or permission with this `_rid`.
    pub fn access_id(&self, feed: &AccessFeed, rid: &str) -> Result<Option<String>, Refusal> {
        let record = admin::record_by_rid(&*self.store.view()?, feed, rid)?;
        Ok(record.and_then(|record| record.get("id").and_then(Value::as_str).map(str::to_owned)))
    }

    /// The feed of a user's permissions. `name_or_rid` is the `_rid` of the user if `is_rid` is
    /// true, and otherwise the id of the user.
    pub fn permissions_of(
        &self,
        database: DatabaseRid,
        name_or_rid: &str,
        is_rid: bool,
    ) -> Result<AccessFeed, Refusal> {
        admin::permissions_of_user(&*self.store.view()?, database, name_or_rid, is_rid)
    }

    /// The permission with this `_rid`; `None` if it was deleted.
    pub fn permission(&self, rid: &str) -> Result<Option<StoredPermission>, Refusal> {
        admin::permission_of(&*self.store.view()?, rid)
    }
}
