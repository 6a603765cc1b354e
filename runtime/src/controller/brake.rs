//! Deletion brake of a running controller: deletions are counted, and recorded in the controller's status before the first one.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use metahook_core::api::status::{DeletionStatus, Report};
use metahook_core::children::deletion_brake::DeletionBrake;
use metahook_core::reconcile::outcome::Retry;
use tokio::sync::{mpsc, oneshot, watch};

use crate::cluster::objects::RequestError;
use crate::sync::lock;

/// Why the status does not have the number of deletions.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum RecordError {
    #[error(transparent)]
    Write(Arc<RequestError>),
    #[error("the controller stops")]
    Stopped,
}

impl RecordError {
    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Write(error) => error.retry(),
            Self::Stopped => Retry::Silent,
        }
    }
}

/// A reconcile that waits until the status has been written.
pub(crate) type RecordRequest = oneshot::Sender<Result<(), RecordError>>;

/// The way of the number of deletions into the controller's status.
pub(crate) struct StatusRecorder {
    /// The reporter, which ends before the controller does, has the other reference.
    pub(crate) report: Weak<watch::Sender<Report>>,
    pub(crate) requests: mpsc::UnboundedSender<RecordRequest>,
}

/// The deletion brake of a controller, for its parents of all kinds.
pub(crate) struct Brake {
    state: Mutex<DeletionBrake>,
    started: Instant,
    /// `None`: no status is written.
    recorder: Option<StatusRecorder>,
}

impl Brake {
    pub(crate) fn new(state: DeletionBrake, recorder: Option<StatusRecorder>) -> Self {
        Self { state: Mutex::new(state), started: Instant::now(), recorder }
    }

    /// Takes the place of a state that was read while another server led.
    pub(crate) fn set(&self, state: Self) {
        *lock(&self.state) = state.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    }

    /// The second argument is the time since the controller is hosted.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut DeletionBrake, Duration) -> T) -> T {
        act(&mut lock(&self.state), self.started.elapsed())
    }

    /// Reports the deletions. The lock is held meanwhile, so that no older number takes the place of a later one.
    pub(crate) fn report(&self, report: &watch::Sender<Report>) {
        self.with(|brake, now| {
            let deleted = i64::try_from(brake.deleted(now)).unwrap_or(i64::MAX);
            let deletions = DeletionStatus {
                accepted: brake.accepted().map(str::to_owned),
                deleted: (deleted > 0).then_some(deleted),
            };
            report.send_if_modified(|report| {
                let differs = report.deletions != deletions;
                report.deletions = deletions;
                differs
            });
        });
    }

    /// Waits until the controller's status has all deletions that were let through: after a crash the next server goes on
    /// from there. Costs a write after a reconcile that counts, and nothing else.
    pub(crate) async fn record(&self) -> Result<(), RecordError> {
        let Some(count) = self.with(|brake, _| brake.unrecorded()) else { return Ok(()) };
        if let Some(recorder) = &self.recorder {
            self.report(&*recorder.report.upgrade().ok_or(RecordError::Stopped)?);
            let (request, answer) = oneshot::channel();
            recorder.requests.send(request).map_err(|_unsent| RecordError::Stopped)?;
            answer.await.map_err(|_ended| RecordError::Stopped)??;
        }
        self.with(|brake, _| brake.recorded(count));
        Ok(())
    }
}
