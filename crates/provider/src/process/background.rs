//! Background work after a commit, in tasks for which no caller waits. When there are too many tasks,
//! the caller runs the work inline, or the work is dropped: each method says which.
//!
//! Invariant: background work may be interrupted at any point, because the reconciler finds
//! unfinished work and repeats it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use crate::process::memory_size::MemorySize;

/// The most background tasks at the same time.
const TASKS_MAX: usize = 64;

/// The most deliveries among these tasks. Deliveries to a partition that hangs take long, and other work
/// needs the rest of the tasks.
const DELIVERIES_MAX: usize = 32;

/// The most late locks at the same time: see [`Background::finish_late_lock`]. Nearly all processes have
/// fewer workers than this.
const LATE_LOCKS_MAX: usize = 1024;

/// While many deliveries continue in tasks, a caller waits only its wait divided by this: see
/// [`Background::deliver_after_or_drop`].
const CROWDED_WAIT_DIVISOR: u32 = 10;

#[derive(Debug)]
pub(crate) struct Background {
    permits: Arc<Semaphore>,
    delivery_permits: Arc<Semaphore>,
    late_lock_permits: Arc<Semaphore>,
    /// Wakes when a task has ended.
    ended: Arc<Notify>,
}

impl Default for Background {
    fn default() -> Self {
        Background {
            permits: Arc::new(Semaphore::new(TASKS_MAX)),
            delivery_permits: Arc::new(Semaphore::new(DELIVERIES_MAX)),
            late_lock_permits: Arc::new(Semaphore::new(LATE_LOCKS_MAX)),
            ended: Arc::default(),
        }
    }
}

impl Background {
    /// Runs the work in a task, or inline when there are too many tasks. The work is boxed first,
    /// so that the futures of the callers stay small.
    pub(crate) fn run(&self, work: impl Future<Output = ()> + Send + 'static) -> impl Future<Output = ()> {
        let work = Box::pin(work);
        async move {
            match Arc::clone(&self.permits).try_acquire_owned() {
                Ok(permit) => drop(self.spawn(work, permit)),
                Err(_) => work.await,
            }
        }
    }

    /// Runs the work, and waits for it for `wait` at most. If it takes longer, it continues as with
    /// [`Background::run`].
    pub(crate) async fn run_after(&self, wait: Duration, work: impl Future<Output = ()> + Send + 'static) {
        let mut work = Box::pin(work);
        if tokio::time::timeout(wait, &mut work).await.is_err() {
            self.run(work).await;
        }
    }

    /// Runs the work, and waits for it for `wait` at most. If it takes longer, it continues in a task.
    /// When there are too many tasks, drops the work and returns false.
    pub(crate) async fn run_after_or_drop(
        &self,
        wait: Duration,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> bool {
        let mut work = Box::pin(work);
        tokio::time::timeout(wait, &mut work).await.is_ok() || self.run_or_drop(work)
    }

    /// Like [`Background::run_after_or_drop`], for deliveries to other partitions. At most
    /// [`DELIVERIES_MAX`] deliveries continue in tasks. While more than half of this number do, some
    /// partition probably hangs. The caller then waits only a tenth of `wait` before its delivery
    /// continues in a task. If there are too many tasks, the caller waits for the rest of `wait` instead.
    pub(crate) async fn deliver_after_or_drop(
        &self,
        wait: Duration,
        delivery: impl Future<Output = ()> + Send + 'static,
    ) -> bool {
        let is_crowded = self.delivery_permits.available_permits() < DELIVERIES_MAX / 2;
        let first_wait = if is_crowded { wait / CROWDED_WAIT_DIVISOR } else { wait };
        let mut delivery = Box::pin(delivery);
        if tokio::time::timeout(first_wait, &mut delivery).await.is_ok() {
            return true;
        }
        let delivery_permit = Arc::clone(&self.delivery_permits).try_acquire_owned().ok();
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok();
        match delivery_permit.zip(permit) {
            Some(permits) => {
                self.spawn(delivery, permits);
                true
            }
            // The delivery cannot continue in a task, so it gets the whole wait.
            None => tokio::time::timeout(wait - first_wait, delivery).await.is_ok(),
        }
    }

    /// Finishes, undoes or gives back a lock whose caller has gone or no longer waits. Partitions that
    /// hang can have as many such locks as the process has workers, so they do not use up the tasks of
    /// other work. With [`LATE_LOCKS_MAX`] of them, drops the work and returns `None`.
    pub(crate) fn finish_late_lock(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Option<JoinHandle<()>> {
        let permit = Arc::clone(&self.late_lock_permits).try_acquire_owned().ok()?;
        Some(self.spawn(work, permit))
    }

    /// Runs the work in a task. When there are too many tasks, drops the work and returns false.
    pub(crate) fn run_or_drop(&self, work: impl Future<Output = ()> + Send + 'static) -> bool {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else { return false };
        self.spawn(work, permit);
        true
    }

    /// The number of background tasks, and the number of tasks that finish late locks.
    pub(crate) fn memory_sizes(&self) -> [MemorySize; 2] {
        let (tasks, late_locks) =
            (self.permits.available_permits(), self.late_lock_permits.available_permits());
        [
            MemorySize::of_work("background tasks", TASKS_MAX - tasks, TASKS_MAX),
            MemorySize::of_work("late locks", LATE_LOCKS_MAX - late_locks, LATE_LOCKS_MAX),
        ]
    }

    /// Runs the work in a task, which has these permits until it ends.
    fn spawn(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
        permits: impl Send + 'static,
    ) -> JoinHandle<()> {
        let ended = Ended(Arc::clone(&self.ended));
        tokio::spawn(async move {
            // When the work ends, or panics, the permits are dropped first. So `_ended` wakes the
            // waiting callers when the permits are free again.
            let (_ended, _permits) = (ended, permits);
            work.await;
        })
    }

    /// Waits until all background tasks have ended. New tasks can begin meanwhile: work that ends late
    /// may need one.
    pub(crate) async fn wait_until_idle(&self) {
        loop {
            let ended = self.ended.notified();
            let free = [self.permits.available_permits(), self.late_lock_permits.available_permits()];
            if free == [TASKS_MAX, LATE_LOCKS_MAX] {
                return;
            }
            ended.await;
        }
    }
}

/// Dropping it wakes the callers that wait for the end of a task.
struct Ended(Arc<Notify>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn work_runs_in_the_background_until_there_are_too_many_tasks() {
        let (background, gate) = (Arc::new(Background::default()), Arc::new(Notify::new()));
        let done = Arc::new(AtomicUsize::new(0));
        let work = || {
            let (gate, done) = (Arc::clone(&gate), Arc::clone(&done));
            async move {
                gate.notified().await;
                done.fetch_add(1, Ordering::SeqCst);
            }
        };
        for _ in 0..TASKS_MAX {
            background.run(work()).await;
        }
        assert_eq!(done.load(Ordering::SeqCst), 0, "the caller did not wait");
        let one_more = tokio::spawn({
            let (background, work) = (Arc::clone(&background), work());
            async move { background.run(work).await }
        });
        for _ in 0..=TASKS_MAX {
            gate.notify_one();
            tokio::task::yield_now().await;
        }
        one_more.await.unwrap();
        background.wait_until_idle().await;
        assert_eq!(done.load(Ordering::SeqCst), TASKS_MAX + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_takes_long_continues_in_the_background() {
        let (background, done) = (Background::default(), Arc::new(AtomicUsize::new(0)));
        let work = |seconds| {
            let done = Arc::clone(&done);
            async move {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                done.fetch_add(1, Ordering::SeqCst);
            }
        };
        background.run_after(Duration::from_secs(2), work(1)).await;
        assert_eq!(done.load(Ordering::SeqCst), 1, "the caller waited for short work");
        background.run_after(Duration::from_secs(2), work(3)).await;
        background.run_or_drop(work(1));
        assert_eq!(done.load(Ordering::SeqCst), 1);
        background.wait_until_idle().await;
        assert_eq!(done.load(Ordering::SeqCst), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn late_locks_leave_the_tasks_to_other_work() {
        let (background, done) = (Background::default(), Arc::new(AtomicUsize::new(0)));
        let late_locks = TASKS_MAX + 36;
        for _ in 0..late_locks {
            let done = Arc::clone(&done);
            background.finish_late_lock(async move {
                tokio::time::sleep(Duration::from_secs(60)).await;
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        assert!(background.run_or_drop(async {}), "there is room for other work");
        background.wait_until_idle().await;
        assert_eq!(done.load(Ordering::SeqCst), late_locks);
    }

    #[tokio::test(start_paused = true)]
    async fn wait_until_idle_also_waits_for_work_that_begins_meanwhile() {
        let (background, done) = (Arc::new(Background::default()), Arc::new(AtomicUsize::new(0)));
        let late_lock = || {
            let done = Arc::clone(&done);
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                done.fetch_add(1, Ordering::SeqCst);
            }
        };
        background.finish_late_lock(late_lock());
        let closing = tokio::spawn({
            let background = Arc::clone(&background);
            async move { background.wait_until_idle().await }
        });
        tokio::time::sleep(Duration::from_millis(500)).await;
        background.finish_late_lock(late_lock());
        closing.await.unwrap();
        assert_eq!(done.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_task_that_panics_has_ended() {
        let background = Arc::new(Background::default());
        let gate = Arc::new(Notify::new());
        let opened = Arc::clone(&gate);
        background.run_or_drop(async move {
            opened.notified().await;
            panic!("on purpose");
        });
        let closing = tokio::spawn({
            let background = Arc::clone(&background);
            async move { background.wait_until_idle().await }
        });
        tokio::task::yield_now().await;
        gate.notify_one();
        tokio::time::timeout(Duration::from_secs(10), closing).await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_delivery_that_cannot_continue_in_a_task_gets_the_whole_wait() {
        let background = Background::default();
        let long = || tokio::time::sleep(Duration::from_secs(60));
        for _ in 0..=DELIVERIES_MAX / 2 {
            assert!(background.deliver_after_or_drop(Duration::from_millis(10), long()).await);
        }
        while background.run_or_drop(long()) {}
        let delivery = tokio::time::sleep(Duration::from_millis(300));
        assert!(background.deliver_after_or_drop(Duration::from_secs(1), delivery).await);
        assert!(!background.deliver_after_or_drop(Duration::from_secs(1), long()).await);
    }
}
