//! Watchdog of calls: tells of one that keeps its thread past its timeout while it still does. It cannot end it, since nothing
//! ends what does not give way; when it gives way its turns do (`turns`).

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::sync::lock;

/// A call that keeps its thread for so much longer than its timeout does not give way.
pub(super) const GRACE: Duration = Duration::from_millis(250);

/// How often the watchdog looks.
const INTERVAL: Duration = Duration::from_millis(250);

/// Value of [`Watched::late_at`] for a call that runs no slice.
const IDLE: u64 = u64::MAX;

/// The calls that have begun, and the thread that looks at them.
pub(super) struct Watchdog {
    calls: Arc<Calls>,
    /// The thread ends when it is dropped.
    _ends: Sender<()>,
}

pub(super) struct Calls {
    /// Times are counted from here.
    start: Instant,
    begun: Mutex<WatchedCalls>,
}

#[derive(Default)]
struct WatchedCalls {
    last: u64,
    /// With their numbers. The newest ones end first, nearly always.
    calls: Vec<(u64, Arc<Watched>)>,
}

/// A call as the watchdog sees it.
pub(super) struct Watched {
    pub(super) controller: Box<str>,
    hook: Box<str>,
    /// Microseconds at which the slice that runs is late; [`IDLE`] where none runs.
    late_at: AtomicU64,
}

/// A call that is watched until this is dropped.
pub(super) struct Watch {
    calls: Arc<Calls>,
    number: u64,
    watched: Arc<Watched>,
}

impl Watchdog {
    /// # Errors
    /// The system starts no thread.
    pub(super) fn start() -> io::Result<Self> {
        let calls = Calls::new();
        let (ends, ended) = channel();
        let watched = Arc::clone(&calls);
        thread::Builder::new().name("hook-watchdog".to_owned()).spawn(move || {
            // No task: what is watched may keep the threads of all tasks.
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(INTERVAL) {
                for call in watched.late(Instant::now()) {
                    tracing::warn!(
                        controller = %call.controller,
                        hook = %call.hook,
                        "a hook keeps its thread past its timeout and does not give way: it is ended as soon as it does"
                    );
                }
            }
        })?;
        Ok(Self { calls, _ends: ends })
    }

    pub(super) fn watch(&self, controller: &str, hook: &str) -> Watch {
        self.calls.watch(controller, hook)
    }
}

impl Calls {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { start: Instant::now(), begun: Mutex::default() })
    }

    pub(super) fn watch(self: &Arc<Self>, controller: &str, hook: &str) -> Watch {
        let watched = Arc::new(Watched {
            controller: controller.into(),
            hook: hook.into(),
            late_at: AtomicU64::new(IDLE),
        });
        let mut begun = lock(&self.begun);
        begun.last += 1;
        let number = begun.last;
        begun.calls.push((number, Arc::clone(&watched)));
        drop(begun);
        Watch { calls: Arc::clone(self), number, watched }
    }

    /// The calls whose slices are late, each slice once.
    pub(super) fn late(&self, now: Instant) -> Vec<Arc<Watched>> {
        let now = self.micros(now);
        let is_late = |call: &&Arc<Watched>| {
            let late_at = call.late_at.load(Ordering::Relaxed);
            // Another slice may have begun meanwhile.
            late_at <= now
                && call.late_at.compare_exchange(late_at, IDLE, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        lock(&self.begun).calls.iter().map(|(_, call)| call).filter(is_late).cloned().collect()
    }

    fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.duration_since(self.start).as_micros()).unwrap_or(IDLE)
    }
}

impl Watch {
    /// A slice begins, and the timeout of the call is used up at this time.
    pub(super) fn slice_begins(&self, timeout_at: Instant) {
        let late_at = self.calls.micros(timeout_at + GRACE);
        self.watched.late_at.store(late_at, Ordering::Relaxed);
    }

    pub(super) fn slice_ends(&self) {
        self.watched.late_at.store(IDLE, Ordering::Relaxed);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut begun = lock(&self.calls.begun);
        if let Some(own) = begun.calls.iter().rposition(|(number, _)| *number == self.number) {
            begun.calls.swap_remove(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late(calls: &Calls, after: Duration) -> Vec<(String, String)> {
        let late = calls.late(Instant::now() + after);
        late.iter().map(|call| (call.controller.to_string(), call.hook.to_string())).collect()
    }

    #[test]
    fn a_slice_past_its_timeout_is_told_of_once_while_it_runs() {
        let calls = Calls::new();
        let (short, long) = (calls.watch("short", "sync"), calls.watch("long", "finalize"));
        let hour = Duration::from_hours(1);
        assert!(late(&calls, hour).is_empty(), "neither runs");
        short.slice_begins(Instant::now() + hour);
        long.slice_begins(Instant::now() + 2 * hour);
        assert!(late(&calls, hour).is_empty(), "it has a grace");
        let told = late(&calls, hour + 2 * GRACE);
        assert_eq!(told, [("short".to_owned(), "sync".to_owned())]);
        assert!(late(&calls, hour + 3 * GRACE).is_empty(), "it has been told of");
        long.slice_ends();
        assert!(late(&calls, 9 * hour).is_empty());
        short.slice_begins(Instant::now() + hour);
        assert_eq!(late(&calls, 9 * hour), told, "another slice");
        long.slice_begins(Instant::now() + hour);
        drop(short);
        assert_eq!(
            late(&calls, 9 * hour),
            [("long".to_owned(), "finalize".to_owned())],
            "the other one is still watched"
        );
        drop(long);
        assert!(lock(&calls.begun).calls.is_empty());
    }
}
