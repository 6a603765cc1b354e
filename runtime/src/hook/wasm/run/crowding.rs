//! Places of calls that have begun: where there are too few, the call that has had the most turns is ended.
//!
//! A call keeps its place, with an instance of the pool, until it ends. So more controllers that loop than there are places
//! would keep all others from the cores for as long as their timeouts allow.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::sync::lock;

/// The places.
#[derive(Debug)]
pub(super) struct Places {
    /// A call waits for a place so long before it asks for another one.
    patience: Duration,
    free: Arc<Semaphore>,
    long: Arc<LongCalls>,
}

/// Calls that have had a turn and want another.
#[derive(Debug, Default)]
struct LongCalls(Mutex<ByNumber>);

#[derive(Debug, Default)]
struct ByNumber {
    next: u64,
    calls: BTreeMap<u64, (u32, Arc<Notify>)>,
}

/// The place of one call, until dropped.
#[derive(Debug)]
pub(super) struct Place {
    _permit: Option<OwnedSemaphorePermit>,
    all: Arc<LongCalls>,
    /// Since its second turn.
    long: Option<(u64, Arc<Notify>)>,
}

impl Places {
    pub(super) fn new(number: usize, patience: Duration) -> Self {
        Self { patience, free: Arc::new(Semaphore::new(number)), long: Arc::default() }
    }

    /// Waits for a place: at once, and whenever its patience is over, one of the calls that have had a turn is ended.
    pub(super) async fn take(&self) -> Place {
        // No semaphore is ever closed.
        let permit = match Arc::clone(&self.free).try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) => self.take_from_another().await,
        };
        Place { _permit: permit, all: Arc::clone(&self.long), long: None }
    }

    async fn take_from_another(&self) -> Option<OwnedSemaphorePermit> {
        let mut permit = pin!(Arc::clone(&self.free).acquire_owned());
        loop {
            self.long.end_longest();
            if let Ok(permit) = tokio::time::timeout(self.patience, &mut permit).await {
                return permit.ok();
            }
        }
    }
}

impl LongCalls {
    /// Asks the call that has had the most turns to end.
    fn end_longest(&self) {
        let mut all = lock(&self.0);
        let longest = all.calls.iter().max_by_key(|(_, (turns, _))| *turns).map(|(number, _)| *number);
        if let Some((_, ends)) = longest.and_then(|number| all.calls.remove(&number)) {
            ends.notify_one();
        }
    }
}

impl Place {
    /// The call has had a turn and wants another.
    pub(super) fn wants_another_turn(&mut self) {
        let mut all = lock(&self.all.0);
        let Some((number, _)) = &self.long else {
            let (number, ends) = (all.next, Arc::new(Notify::new()));
            all.next += 1;
            all.calls.insert(number, (1, Arc::clone(&ends)));
            self.long = Some((number, ends));
            return;
        };
        if let Some((turns, _)) = all.calls.get_mut(number) {
            *turns += 1;
        }
    }

    /// Ends once another call is to have the place.
    pub(super) async fn is_wanted(&self) {
        match &self.long {
            Some((_, ends)) => ends.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((number, _)) = &self.long {
            lock(&self.all.0).calls.remove(number);
        }
    }
}
