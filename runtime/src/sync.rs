//! Locks and tasks: std mutexes whose poison is ignored, tasks whose panics are noticed.

use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Locks, also after a panic in an earlier critical section: each leaves its data complete, at most one count short.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tasks beside a controller's reconciles. After a panic in one of them the controller misses changes and has to start anew.
#[derive(Default)]
pub(crate) struct Tasks {
    running: Mutex<JoinSet<()>>,
    broken: CancellationToken,
}

/// The tasks end when it is dropped: they hold what holds them.
pub(crate) struct UntilDropped<'a>(&'a Tasks);

impl Tasks {
    /// For a task that is spawned elsewhere.
    pub(crate) fn watched<T: Future<Output = ()>>(&self, task: T) -> impl Future<Output = ()> + use<T> {
        let broken = self.broken.clone();
        async move {
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                broken.cancel();
            }
        }
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let watched = self.watched(task);
        let mut running = lock(&self.running);
        while running.try_join_next().is_some() {}
        running.spawn(watched);
    }

    /// Waits until one of them has panicked.
    pub(crate) async fn broken(&self) {
        self.broken.cancelled().await;
    }

    pub(crate) fn until_dropped(&self) -> UntilDropped<'_> {
        UntilDropped(self)
    }
}

impl Drop for UntilDropped<'_> {
    fn drop(&mut self) {
        lock(&self.0.running).abort_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_noticed_and_an_end_is_none() {
        let tasks = Tasks::default();
        tasks.spawn(std::future::ready(()));
        assert!(tokio::time::timeout(Duration::from_secs(9), tasks.broken()).await.is_err());
        tasks.spawn(async { panic!("a bug") });
        tasks.broken().await;
    }

    #[tokio::test]
    async fn tasks_do_not_outlive_their_controller() {
        let tasks = Arc::new(Tasks::default());
        let held = Arc::clone(&tasks);
        tasks.spawn(async move {
            std::future::pending::<()>().await;
            drop(held);
        });
        drop(tasks.until_dropped());
        while Arc::strong_count(&tasks) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
