//! `lock` locks a mutex and ignores poisoning: every critical section of this
//! crate leaves its data whole, so a panic elsewhere changes nothing about it.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
