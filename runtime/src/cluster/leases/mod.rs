//! Leader election at the API server: reads, takes, renews and gives up the Lease, and opens the gate of writes while it is held.

use std::time::Duration;

use metahook_core::leader_election::{LeaderElector, Lease, Step, Timing};
use metahook_core::object::id::Key;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::api_client::ApiClient;
use crate::cluster::lease_client::{LEASE_REQUEST_TIMEOUT, LeaseClient, LeaseError, now_text};
use crate::cluster::restores::{Growing, Restores};
use crate::cluster::suspension::suspended;
use crate::cluster::write_gate::{Candidate, WriteGate};
use crate::telemetry::error_chain;

/// The task of a server's election, where it takes part in one.
pub(crate) struct ElectionTask {
    task: Option<JoinHandle<Result<(), LeaseLost>>>,
    drained: CancellationToken,
}

impl ElectionTask {
    /// For the gate of this client.
    pub(crate) fn start(api: &ApiClient) -> Self {
        let drained = CancellationToken::new();
        let election = api.gate().candidate().map(|candidate| LeaderElection::new(api, candidate));
        Self { task: election.map(|election| tokio::spawn(election.run(drained.clone()))), drained }
    }

    /// Ends when the Lease is lost, or the task panicked.
    pub(crate) async fn lost(&mut self) -> LeaseLost {
        match &mut self.task {
            // It does not end otherwise, unless it panicked.
            Some(task) => task.await.ok().and_then(Result::err).unwrap_or_default(),
            None => std::future::pending().await,
        }
    }

    /// All writes have ended: gives the Lease up. One that is lost meanwhile had closed the gate.
    pub(crate) async fn end(self) {
        self.drained.cancel();
        if let Some(task) = self.task {
            drop(task.await);
        }
    }
}

/// One server of an election.
struct LeaderElection {
    client: LeaseClient,
    gate: WriteGate,
    lease: Key,
    identity: String,
    elector: LeaderElector,
    /// The Lease's versions: a read is never behind.
    versions: Growing,
    restores: Restores,
    timing: Timing,
    clock: ElectionClock,
    /// As they were logged last.
    logged: Logged,
}

/// Clock of an election, which goes on while the machine is suspended.
struct ElectionClock {
    start: Instant,
    /// The time that the machine was suspended before the start.
    suspended: Duration,
}

#[derive(Default)]
struct Logged {
    holder: Option<String>,
    leads: bool,
    /// There is no Lease.
    absent: bool,
    problem: Option<String>,
}

impl ElectionClock {
    fn start() -> Self {
        Self { start: Instant::now(), suspended: suspended() }
    }

    /// The time since the start, also that of a machine that was suspended.
    fn now(&self) -> Duration {
        self.start.elapsed() + suspended().saturating_sub(self.suspended)
    }

    /// The instant of `time` on the clock of timers, unless the machine is suspended before.
    fn instant(&self, time: Duration) -> Instant {
        Instant::now() + time.saturating_sub(self.now())
    }
}

/// This server led, and does no longer.
#[derive(Debug, Default, thiserror::Error)]
#[error("leader election lost: {}; this one ends, to stand by when it is started again", self.why())]
pub struct LeaseLost {
    /// The server that holds the Lease now, where one was seen.
    holder: Option<String>,
}

impl LeaseLost {
    fn why(&self) -> String {
        match &self.holder {
            Some(holder) => format!("{holder} holds the Lease, and leads"),
            None => format!(
                "the Lease was not renewed within {} s, so another server may lead",
                Timing::default().renew_deadline.as_secs()
            ),
        }
    }
}

impl LeaderElection {
    fn new(api: &ApiClient, Candidate { identity, lease }: &Candidate) -> Self {
        let timing = Timing::default();
        Self {
            client: LeaseClient::new(api, lease.clone()),
            gate: api.gate().clone(),
            lease: lease.clone(),
            elector: LeaderElector::new(identity.clone(), timing),
            versions: Growing::default(),
            restores: api.restores.clone(),
            identity: identity.clone(),
            timing,
            clock: ElectionClock::start(),
            logged: Logged::default(),
        }
    }

    /// Takes part until `end`, when all writes have ended: then it gives the Lease up.
    ///
    /// # Errors
    /// The Lease is lost. The gate is closed.
    async fn run(mut self, end: CancellationToken) -> Result<(), LeaseLost> {
        tracing::info!(lease = %self.lease, identity = self.identity, "attempting to acquire leader lease");
        let lost = tokio::select! {
            biased;
            () = end.cancelled() => false,
            () = self.hold() => true,
        };
        self.gate.close();
        if lost {
            let holder = self.elector.holder().filter(|holder| *holder != self.identity);
            let lost = LeaseLost { holder: holder.map(str::to_owned) };
            tracing::error!(lease = %self.lease, "{lost}");
            return Err(lost);
        }
        match self.give_up().await {
            Ok(true) => tracing::info!(lease = %self.lease, "the leader lease is given up"),
            Ok(false) => {}
            Err(error) => {
                tracing::info!(
                    error = error_chain(&error),
                    "the leader lease is not given up: another server takes it when it ends"
                );
            }
        }
        Ok(())
    }

    /// Gives up the Lease, and returns whether there was one.
    async fn give_up(&mut self) -> Result<bool, LeaseError> {
        let Some(step) = self.elector.release(&now_text()) else { return Ok(false) };
        match self.request(&step).await {
            Err(LeaseError::Conflict) => {
                let lease = self.request(&Step::Read).await?;
                self.elector.observe(lease, self.clock.now());
                let step = self.elector.release_as_read(&now_text()).ok_or(LeaseError::Conflict)?;
                self.request(&step).await.map(|_| true)
            }
            answer => answer.map(|_| true),
        }
    }

    /// Ends when the Lease is lost.
    async fn hold(&mut self) {
        loop {
            let sent = self.clock.now();
            let step = self.elector.step(sent, &now_text());
            match &step {
                Step::Lost => return,
                Step::Wait => self.pause().await,
                Step::Read | Step::Create(_) | Step::Update(..) => {
                    let answer = self.request(&step).await;
                    let now = self.clock.now();
                    if let Ok(Some(lease)) = &answer
                        && self.versions.goes_back(lease.version_number())
                    {
                        self.restores.note("Lease");
                    }
                    let failed = answer.is_err();
                    match (&step, answer) {
                        (_, Err(error)) => {
                            self.elector.failed();
                            self.log_problem(&error);
                        }
                        (Step::Read, Ok(lease)) => {
                            self.log_absence(lease.is_none());
                            self.elector.observe(lease, now);
                        }
                        (_, Ok(None)) => self.elector.failed(),
                        (_, Ok(Some(lease))) => {
                            self.logged.absent = false;
                            self.elector.wrote(lease, sent, now);
                        }
                    }
                    self.tell();
                    if failed || step != Step::Read {
                        self.pause().await;
                    }
                }
            }
        }
    }

    /// Opens the gate until the deadline; logs who leads, where that changed.
    fn tell(&mut self) {
        if let Some(until) = self.elector.write_until() {
            self.gate.extend(self.clock.instant(until));
            self.logged.problem = None;
            if !std::mem::replace(&mut self.logged.leads, true) {
                tracing::info!(lease = %self.lease, identity = self.identity, "Successfully acquired lease");
            }
        }
        let holder = self.elector.holder();
        if holder != self.logged.holder.as_deref() {
            self.logged.holder = holder.map(str::to_owned);
            if let Some(holder) = holder {
                tracing::info!(lease = %self.lease, leader = holder, "new leader elected");
            }
        }
    }

    /// Logs once that there is no Lease, for which a server that does not lead waits.
    fn log_absence(&mut self, is_absent: bool) {
        let was_absent = std::mem::replace(&mut self.logged.absent, is_absent);
        if is_absent && !was_absent && self.elector.write_until().is_none() {
            let seconds = self.timing.lease.as_secs();
            tracing::info!(
                lease = %self.lease,
                "there is no Lease: waiting for at least {seconds} s, in which a server that led may still write"
            );
        }
    }

    fn log_problem(&mut self, error: &LeaseError) {
        let text = error_chain(error);
        if self.logged.problem.as_deref() != Some(&text) {
            tracing::warn!(lease = %self.lease, error = text, "the leader lease could not be used; it is tried again");
            self.logged.problem = Some(text);
        }
    }

    /// Waits until the next try; a leader's wait ends with its deadline.
    async fn pause(&self) {
        let retry = Instant::now() + self.timing.retry;
        let until = self.elector.write_until().map_or(retry, |until| retry.min(self.clock.instant(until)));
        tokio::time::sleep_until(until).await;
    }

    /// `Ok(None)`: there is no Lease.
    async fn request(&self, step: &Step) -> Result<Option<Lease>, LeaseError> {
        let last = Instant::now() + LEASE_REQUEST_TIMEOUT;
        let until = self.elector.write_until().map_or(last, |until| last.min(self.clock.instant(until)));
        tokio::time::timeout_at(until, self.client.exchange(step))
            .await
            .map_err(|_elapsed| LeaseError::Timeout)?
    }
}

impl Candidate {
    /// With a name that no other server has, nor this one when it is started again.
    pub(crate) fn new(lease: Key) -> Result<Self, getrandom::Error> {
        let mut random = [0; 8];
        getrandom::fill(&mut random)?;
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = if host.trim().is_empty() { "metahook" } else { host.trim() };
        Ok(Self { identity: format!("{host}_{:016x}", u64::from_be_bytes(random)), lease })
    }
}

#[cfg(test)]
mod tests;
