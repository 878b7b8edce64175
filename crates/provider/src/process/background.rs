//! What is left to do after a commit and nobody waits for: it goes on in tasks
//! of its own, so many at once; beyond that whoever has more does it himself.
//!
//! What always holds: a chore may be cut off anywhere, because what it does is
//! found and done again by the reconciler.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::Semaphore;

/// Background that go on at the same time.
const CHORES_MAX: u32 = 64;

#[derive(Debug)]
pub(crate) struct Background {
    room: Arc<Semaphore>,
}

impl Default for Background {
    fn default() -> Self {
        Background { room: Arc::new(Semaphore::new(CHORES_MAX as usize)) }
    }
}

impl Background {
    /// Does it beside what comes next; before, when there are too many.
    pub(crate) async fn run(&self, chore: impl Future<Output = ()> + Send + 'static) {
        match Arc::clone(&self.room).try_acquire_owned() {
            Ok(permit) => {
                tokio::spawn(async move {
                    chore.await;
                    drop(permit);
                });
            }
            Err(_) => chore.await,
        }
    }

    /// Waits until all that was added is done.
    pub(crate) async fn done(&self) {
        let _ = self.room.acquire_many(CHORES_MAX).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn chores_go_on_beside_and_when_there_are_too_many_they_are_waited_for() {
        let (background, open) = (Arc::new(Background::default()), Arc::new(Notify::new()));
        let done = Arc::new(AtomicUsize::new(0));
        let chore = || {
            let (open, done) = (Arc::clone(&open), Arc::clone(&done));
            async move {
                open.notified().await;
                done.fetch_add(1, Ordering::SeqCst);
            }
        };
        for _ in 0..CHORES_MAX {
            background.run(chore()).await;
        }
        assert_eq!(done.load(Ordering::SeqCst), 0, "nobody has waited");
        let one_more = tokio::spawn({
            let (background, chore) = (Arc::clone(&background), chore());
            async move { background.run(chore).await }
        });
        for _ in 0..=CHORES_MAX {
            open.notify_one();
            tokio::task::yield_now().await;
        }
        one_more.await.unwrap();
        background.done().await;
        assert_eq!(done.load(Ordering::SeqCst), CHORES_MAX as usize + 1);
    }
}
