//! Observer of reconciles: the calls, writes and ends that `metahook dev` prints, over a bounded channel.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use metahook_core::api::hook::HookName;
use metahook_core::object::id::ObjectId;
use metahook_core::reconcile::outcome::RetryState;
use metahook_core::reconcile::trigger::Beginning;
use metahook_core::shorten;
use tokio::sync::mpsc;

use crate::hook::wasm::run::Log;
use crate::store::Writer;

/// Events that wait to be printed: some hundred reconciles. Whoever prints falls behind only where nobody can read along.
const MAX_WAITING: usize = 4096;

/// Bytes of an error.
const MAX_ERROR: usize = 64 << 10;

/// Gets nothing where nobody observes, as in a server.
#[derive(Clone, Default)]
pub struct Observer(Option<Sender>);

#[derive(Clone)]
struct Sender {
    events: mpsc::Sender<Observed>,
    lost: Arc<AtomicUsize>,
}

/// The receiving end.
pub struct Observations {
    pub events: mpsc::Receiver<Observed>,
    lost: Arc<AtomicUsize>,
}

#[derive(Debug)]
pub enum Observed {
    Called {
        parent: ObjectId,
        call: ObservedCall,
    },
    Wrote {
        parent: ObjectId,
        what: String,
    },
    Reconciled(Box<ObservedReconcile>),
    Module {
        hook: HookName,
        digest: String,
        compiled: Option<Duration>,
    },
    /// A problem of the controller as a whole.
    Problem {
        message: String,
    },
}

#[derive(Debug)]
pub struct ObservedCall {
    pub hook: HookName,
    /// `None`: of a webhook.
    pub instructions: Option<u64>,
    pub log: Log,
}

/// The end of a reconcile that called a hook, wrote, or failed.
#[derive(Debug)]
pub struct ObservedReconcile {
    pub parent: ObjectId,
    pub beginning: Beginning,
    pub retry_state: RetryState,
    pub took: Duration,
    pub end: ReconcileEnd,
}

#[derive(Debug, PartialEq, Eq)]
pub enum ReconcileEnd {
    Ok,
    /// The reconcile is repeated by itself: another client was faster, or something has to be waited for.
    Again(String),
    Failed(String),
}

impl Observer {
    pub fn new() -> (Self, Observations) {
        let (events, received) = mpsc::channel(MAX_WAITING);
        let lost = Arc::new(AtomicUsize::new(0));
        (Self(Some(Sender { events, lost: Arc::clone(&lost) })), Observations { events: received, lost })
    }

    /// `event` is made only where somebody observes.
    pub(crate) fn note(&self, event: impl FnOnce() -> Observed) {
        let Some(Sender { events, lost }) = &self.0 else { return };
        if events.try_send(event()).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_observed(&self) -> bool {
        self.0.is_some()
    }

    /// A write that changed an object.
    pub(crate) fn wrote(&self, writer: &Writer, verb: &str, id: &ObjectId) {
        self.note(|| {
            let parent = ObjectId { resource: Arc::clone(&writer.parents), key: writer.parent.clone() };
            // Its own name would be said twice.
            let what = if *id == parent { verb.to_owned() } else { format!("{verb} {id}") };
            Observed::Wrote { parent, what }
        });
    }
}

impl Observations {
    /// Events since the last call that found no room.
    pub fn lost(&self) -> usize {
        self.lost.swap(0, Ordering::Relaxed)
    }
}

impl ReconcileEnd {
    pub(crate) fn failed(error: &str) -> Self {
        Self::Failed(shorten(error, MAX_ERROR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn events_beyond_the_bound_are_counted() {
        let (observer, mut received) = Observer::new();
        for number in 0..=MAX_WAITING {
            observer.note(|| Observed::Problem { message: number.to_string() });
        }
        assert_eq!((received.lost(), received.lost()), (1, 0));
        let mut waiting = 0;
        while received.events.try_recv().is_ok() {
            waiting += 1;
        }
        assert_eq!(waiting, MAX_WAITING);
        Observer::default().note(|| unreachable!("nobody observes"));
    }

    #[test]
    fn errors_are_cut_at_their_bound() {
        let length = |error: String| match ReconcileEnd::failed(&error) {
            ReconcileEnd::Failed(error) => error.len(),
            ReconcileEnd::Ok | ReconcileEnd::Again(_) => 0,
        };
        assert_eq!(length("x".repeat(MAX_ERROR)), MAX_ERROR);
        assert_eq!(length("x".repeat(MAX_ERROR + 1)), MAX_ERROR);
    }
}
