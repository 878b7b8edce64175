//! Sets unreadable queue documents aside.

use perihelion_client::Patch;

use crate::store::Store;

/// Takes an unreadable document out of its queue: its type becomes `unreadable`, and it is
/// kept for a person to look at. If the write fails, the document stays in its queue, and
/// the next read of the document tries again.
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
