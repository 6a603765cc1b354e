//! Locking of std mutexes: short critical sections, and poison is ignored.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic in an earlier critical section: each leaves its data complete, at most one count short.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
