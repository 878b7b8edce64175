//! `lock` locks a mutex and ignores poisoning. Every critical section of this crate
//! leaves its data consistent, so the data can be used after a panic of another thread.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
