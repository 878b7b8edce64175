//! Creating and deleting databases.

use std::sync::Arc;

use perihelion_model::json::Object;
use perihelion_model::resource_id::DatabaseRid;

use super::change_catalog;
use super::containers::drop_container;
use super::offers::{add_offer, check_throughput, drop_offer};
use super::users::delete_access_of;
use crate::catalog::{Container, Database, Throughput, resource_name};
use crate::keys;
use crate::refusal::Refusal;
use crate::transaction::Transaction;

pub(crate) fn create_database(
    transaction: &mut Transaction<'_>,
    body: &Object,
    throughput: Option<Throughput>,
) -> Result<Arc<Database>, Refusal> {
    let name = resource_name(body)?;
    check_throughput(throughput)?;
    if transaction.catalog.databases.contains_key(&name) {
        // The recorded charge.
        return Err(Refusal::resource_exists().with_charge(1.24));
    }
    Ok(change_catalog(transaction, |transaction, catalog, revision| {
        let rid = DatabaseRid(catalog.account.database_next);
        catalog.account.database_next += 1;
        let database =
            Arc::new(Database { rid, name, etag: revision.etag.clone(), timestamp: revision.timestamp });
        transaction.put_record(keys::database(rid.0), &database.to_record());
        catalog.databases.insert(database.name.clone(), Arc::clone(&database));
        if let Some(throughput) = throughput {
            let link = database.self_link();
            add_offer(transaction, catalog, revision, throughput.into(), link, rid.to_text());
        }
        database
    }))
}

/// Deletes a database with its containers, offers, users and permissions.
pub(crate) fn delete_database(transaction: &mut Transaction<'_>, name_or_rid: &str) -> Result<(), Refusal> {
    let database =
        transaction.catalog.database(name_or_rid).cloned().ok_or_else(Refusal::no_such_resource)?;
    delete_access_of(transaction, database.rid)?;
    change_catalog(transaction, |transaction, catalog, _| {
        let containers: Vec<Arc<Container>> = catalog.containers_of(database.rid).cloned().collect();
        for container in containers {
            drop_container(transaction, catalog, &container);
        }
        catalog.databases.remove(&database.name);
        transaction.remove(keys::database(database.rid.0));
        drop_offer(transaction, catalog, &database.rid.to_text());
    });
    Ok(())
}
