//! `Pause`: holds requests of the data plane back while management pauses the server.

use tokio::sync::watch;

/// Whether the server is paused.
#[derive(Default)]
pub(crate) struct Pause {
    is_paused: watch::Sender<bool>,
}

impl Pause {
    pub(crate) fn set(&self, is_paused: bool) {
        self.is_paused.send_replace(is_paused);
    }

    /// Returns when the server is not paused.
    pub(crate) async fn wait_while_paused(&self) {
        if *self.is_paused.borrow() {
            // The sender lives as long as `self`, so only a resume ends the wait.
            let _ = self.is_paused.subscribe().wait_for(|is_paused| !is_paused).await;
        }
    }
}
