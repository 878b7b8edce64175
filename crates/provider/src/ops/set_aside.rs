//! Sets unreadable queue documents aside.

use perihelion_client::Patch;

use crate::store::Store;

/// Moves an unreadable queue document out of the way of the others: its type becomes
/// `unreadable`, and it stays for a person to look at.
pub(crate) async fn set_aside(store: &Store, instance: &str, id: &str) {
    tracing::error!(
        instance,
        id,
        "a document of a queue is unreadable and is set aside as type 'unreadable'"
    );
    let Ok(patch) = Patch::new().set("/type", "unreadable") else { return };
    if let Err(error) = store.container.patch(instance, id, &patch).await {
        tracing::warn!(instance, id, %error, "an unreadable document could not be set aside");
    }
}
