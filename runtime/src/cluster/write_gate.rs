//! Gate of all writes to the API server: with leader election it is open only while this server holds the Lease.
//!
//! # Flow
//! Without leader election the gate is always open. With it, the gate is closed until the server gets the Lease; each renewal
//! extends the deadline, and the gate closes for good when the server loses the Lease or gives it up.
//!
//! # Guarantees
//! No byte of a write is handed to a connection after the deadline: the gate is asked before the request is sent, and once more
//! as its body is read. A machine that was suspended takes that time off the deadline.
//!
//! # Assumptions
//! The server that extends the deadline holds the Lease until then by this machine's clock. A write whose last byte left in
//! time may be carried out later: the API server refuses it by its version where another server has written meanwhile.
//!
//! # Errors
//! A write at a closed gate fails with [`NotLeading`]: nothing of it is sent, or its body breaks off.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use metahook_core::object::id::Key;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::BoxError;

use crate::cluster::suspension::suspended;

/// Until when writes may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// There is no leader election.
    Always,
    /// This server stands by, or has lost the Lease.
    Never,
    /// The time for which the machine was suspended when this was said counts against the deadline from then on.
    Deadline(Instant, Duration),
}

/// Checked as late as possible: a request may wait for the rate limit, for credentials, for a connection.
#[derive(Clone)]
pub(crate) struct WriteGate {
    until: Arc<watch::Sender<Until>>,
    candidate: Option<Arc<Candidate>>,
}

/// A server that takes part in an election: its name there, and the Lease that it holds while it leads.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) identity: String,
    pub(crate) lease: Key,
}

impl WriteGate {
    pub(crate) fn open() -> Self {
        Self { until: Arc::new(watch::Sender::new(Until::Always)), candidate: None }
    }

    pub(crate) fn standby(candidate: Candidate) -> Self {
        let until = Arc::new(watch::Sender::new(Until::Never));
        Self { until, candidate: Some(Arc::new(candidate)) }
    }

    /// `None`: there is no leader election.
    pub(crate) fn candidate(&self) -> Option<&Candidate> {
        self.candidate.as_deref()
    }

    /// The Lease is held until then.
    pub(super) fn extend(&self, deadline: Instant) {
        self.until.send_replace(Until::Deadline(deadline, suspended()));
    }

    pub(super) fn close(&self) {
        self.until.send_replace(Until::Never);
    }

    /// A write may begin now.
    pub(crate) fn is_open(&self) -> bool {
        match *self.until.borrow() {
            Until::Always => true,
            Until::Never => false,
            Until::Deadline(deadline, before) => {
                Instant::now() + suspended().saturating_sub(before) < deadline
            }
        }
    }

    /// Waits until this server leads.
    pub(crate) async fn opened(&self) {
        let mut changes = self.until.subscribe();
        // The sender is held here.
        let _led = changes.wait_for(|until| *until != Until::Never).await;
    }
}

/// The write was not sent: this server does not hold the Lease.
#[derive(Debug, thiserror::Error)]
#[error("this server does not lead: the write is left to the leader")]
pub struct NotLeading;

/// Body of a request, which breaks off where its write would begin too late.
pub(super) struct GatedBody<B> {
    pub(super) body: B,
    pub(super) gate: Option<WriteGate>,
}

impl<B> Body for GatedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.gate.as_ref().is_some_and(|gate| !gate.is_open()) {
            return Poll::Ready(Some(Err(NotLeading.into())));
        }
        Pin::new(&mut self.body).poll_frame(context).map_err(Into::into)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;
    use crate::cluster::suspension::testing::suspend;

    fn standby() -> WriteGate {
        WriteGate::standby(Candidate { identity: "a".to_owned(), lease: Key::new("n", "metacontroller") })
    }

    #[tokio::test(start_paused = true)]
    async fn a_gate_is_open_until_the_deadline_and_no_body_is_sent_past_it() {
        let gate = standby();
        assert!(!gate.is_open() && WriteGate::open().is_open());
        gate.extend(Instant::now() + Duration::from_secs(10));
        gate.opened().await;
        let body = || GatedBody { body: Full::new(Bytes::from("x")), gate: Some(gate.clone()) };
        let (in_time, too_late) = (body(), body());
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(gate.is_open() && in_time.collect().await.is_ok());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!gate.is_open());
        assert_eq!(too_late.size_hint().exact(), Some(1));
        let error = too_late.collect().await.err().unwrap();
        assert!(error.is::<NotLeading>(), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_suspension_is_taken_off_the_deadline() {
        let gate = standby();
        gate.extend(Instant::now() + Duration::from_secs(10));
        suspend(Duration::from_secs(5));
        assert!(gate.is_open());
        suspend(Duration::from_secs(6));
        assert!(!gate.is_open(), "no timer has seen it");
        gate.extend(Instant::now() + Duration::from_secs(1));
        assert!(gate.is_open(), "an earlier suspension does not count");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_stands_by_waits_and_one_without_election_does_not() {
        WriteGate::open().opened().await;
        let gate = standby();
        assert!(tokio::time::timeout(Duration::from_hours(1), gate.opened()).await.is_err());
        gate.extend(Instant::now() + Duration::from_secs(10));
        gate.close();
        assert!(!gate.is_open());
    }
}
