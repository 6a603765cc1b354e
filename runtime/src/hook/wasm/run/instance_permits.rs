//! Permits for instances of calls: where all are taken, the call that has run longest is ended.
//!
//! A call keeps its permit, with an instance of the pool, until it ends. So more controllers that loop than there are permits
//! would keep all others from the cores for as long as their timeouts allow.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::sync::lock;

/// A call that runs for so long waits behind the calls of other controllers before it goes on.
pub(super) const TURN: Duration = Duration::from_millis(250);

/// A call that has run for less is not ended, so that a start of many controllers ends none.
const LONG: Duration = Duration::from_secs(1);

/// One of so many calls: fewer that are long are not why others get no permit.
const FEW: usize = 8;

/// The permits of all calls.
#[derive(Debug)]
pub(super) struct InstancePermits {
    number: usize,
    free: Arc<Semaphore>,
    long: Arc<Mutex<LongCalls>>,
}

/// Calls that have run for [`LONG`], by a number of their own: for how long, and how they learn that they are to end.
#[derive(Debug, Default)]
struct LongCalls {
    next: u64,
    calls: BTreeMap<u64, (Duration, Arc<Notify>)>,
}

/// The permit of one call, until dropped.
#[derive(Debug)]
pub(super) struct InstancePermit {
    _permit: Option<OwnedSemaphorePermit>,
    free: Arc<Semaphore>,
    all: Arc<Mutex<LongCalls>>,
    /// The entry in [`LongCalls`], once the call has run for so long.
    long: Option<(u64, Arc<Notify>)>,
}

impl InstancePermits {
    pub(super) fn new(number: usize) -> Self {
        Self { number, free: Arc::new(Semaphore::new(number)), long: Arc::default() }
    }

    /// Waits for a permit.
    pub(super) async fn acquire(&self) -> InstancePermit {
        // No semaphore is ever closed.
        let permit = match Arc::clone(&self.free).try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) => self.acquire_from_another().await,
        };
        InstancePermit {
            _permit: permit,
            free: Arc::clone(&self.free),
            all: Arc::clone(&self.long),
            long: None,
        }
    }

    async fn acquire_from_another(&self) -> Option<OwnedSemaphorePermit> {
        let mut permit = pin!(Arc::clone(&self.free).acquire_owned());
        loop {
            // One that is in its turn ends after it.
            let patience = if self.end_longest() { 2 * TURN } else { TURN };
            if let Ok(permit) = tokio::time::timeout(patience, &mut permit).await {
                return permit.ok();
            }
        }
    }

    /// Asks the call that has run longest to end. Short calls end by themselves: many of them, of hooks that are often called,
    /// end none of the few long ones beside them.
    fn end_longest(&self) -> bool {
        let mut long = lock(&self.long);
        if long.calls.len() < self.number / FEW {
            return false;
        }
        let longest = long.calls.iter().max_by_key(|(_, (used, _))| *used).map(|(number, _)| *number);
        let Some((_, ends)) = longest.and_then(|number| long.calls.remove(&number)) else { return false };
        ends.notify_one();
        true
    }
}

impl InstancePermit {
    /// The call has run for so long, and waits for its next turn.
    pub(super) fn has_run(&mut self, used: Duration) {
        if used < LONG {
            return;
        }
        let mut all = lock(&self.all);
        if let Some((number, _)) = &self.long {
            if let Some((before, _)) = all.calls.get_mut(number) {
                *before = used;
            }
            return;
        }
        let (number, ends) = (all.next, Arc::new(Notify::new()));
        all.next += 1;
        all.calls.insert(number, (used, Arc::clone(&ends)));
        self.long = Some((number, ends));
    }

    /// Ends once another call is to have the permit, and there is still no other one for it.
    pub(super) async fn is_wanted(&mut self, used: Duration) {
        loop {
            match &self.long {
                Some((_, ends)) => ends.notified().await,
                None => std::future::pending().await,
            }
            if self.free.available_permits() == 0 {
                return;
            }
            self.long = None;
            self.has_run(used);
        }
    }
}

impl Drop for InstancePermit {
    fn drop(&mut self) {
        if let Some((number, _)) = &self.long {
            lock(&self.all).calls.remove(number);
        }
    }
}
