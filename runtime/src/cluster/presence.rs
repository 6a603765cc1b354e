//! Notice of other servers that host the same controllers: a Lease that each of them signs.

use std::sync::Arc;
use std::time::Duration;

use metahook_core::hosting::SELECTOR;
use metahook_core::leader_election::{Lease, Step};
use metahook_core::object::id::Key;
use metahook_core::object::selector::Selector;
use metahook_core::presence::{Presence, SIGN_INTERVAL, lease_name};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::cluster::api_client::ApiClient;
use crate::cluster::lease_client::{LEASE_REQUEST_TIMEOUT, LeaseClient, LeaseError, now_text};
use crate::cluster::restores::{Growing, Restores};
use crate::cluster::write_gate::{Candidate, WriteGate};
use crate::telemetry::error_chain;

/// A server that may not use Leases asks again after this time.
const REFUSED_INTERVAL: Duration = Duration::from_mins(5);

/// Other servers, as far as they are known. The Lease is signed as long as this is held.
#[derive(Clone)]
pub(crate) struct OtherServers {
    other: watch::Receiver<Option<Arc<str>>>,
    _task: Option<Arc<AbortOnDropHandle<()>>>,
}

struct Signer {
    client: LeaseClient,
    /// A server that stands by does not sign.
    gate: WriteGate,
    presence: Presence,
    /// The Lease's versions: a read is never behind.
    versions: Growing,
    restores: Restores,
    start: Instant,
    other: watch::Sender<Option<Arc<str>>>,
}

impl OtherServers {
    /// `selector`: of the controllers that this server hosts.
    pub(crate) fn watch(api: &ApiClient, selector: &Selector) -> Result<Self, getrandom::Error> {
        let lease = Key::new(api.client.default_namespace(), &lease_name(selector));
        let annotation = (*selector != Selector::default()).then(|| (SELECTOR, selector.to_string()));
        let Candidate { identity, lease } = Candidate::new(lease)?;
        let (other, others) = watch::channel(None);
        let signer = Signer {
            client: LeaseClient::new(api, lease).annotating(annotation),
            gate: api.gate().clone(),
            presence: Presence::new(identity),
            versions: Growing::default(),
            restores: api.restores.clone(),
            start: Instant::now(),
            other,
        };
        let task = AbortOnDropHandle::new(tokio::spawn(signer.run()));
        Ok(Self { other: others, _task: Some(Arc::new(task)) })
    }

    /// There never are any, or none that matters.
    pub(crate) fn none() -> Self {
        Self { other: watch::channel(None).1, _task: None }
    }

    /// There is another server with the same controllers.
    pub(crate) fn is_any(&self) -> bool {
        self.other.borrow().is_some()
    }
}

impl Signer {
    async fn run(mut self) {
        loop {
            self.gate.opened().await;
            let pause = match self.sign().await {
                Ok(()) => SIGN_INTERVAL,
                Err(error) => {
                    tracing::debug!(
                        error = error_chain(&error),
                        "the Lease that servers sign cannot be used"
                    );
                    if matches!(error, LeaseError::Refused { .. }) { REFUSED_INTERVAL } else { SIGN_INTERVAL }
                }
            };
            self.tell();
            tokio::time::sleep(pause).await;
        }
    }

    async fn sign(&mut self) -> Result<(), LeaseError> {
        let read = self.request(&Step::Read).await?;
        let version = read.as_ref().and_then(Lease::version_number);
        if self.versions.goes_back(version) {
            self.restores.note("Lease");
        }
        let step = self.presence.sign(read, self.start.elapsed(), &now_text());
        let written = self.request(&step).await;
        match written {
            Ok(lease) => self.presence.signed(lease),
            // Its signature is read the next time.
            Err(LeaseError::Conflict) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn request(&self, step: &Step) -> Result<Option<Lease>, LeaseError> {
        let answer = tokio::time::timeout(LEASE_REQUEST_TIMEOUT, self.client.exchange(step));
        answer.await.map_err(|_elapsed| LeaseError::Timeout)?
    }

    /// Logs who is noticed, and who is gone, once.
    fn tell(&self) {
        let other: Option<Arc<str>> = self.presence.other(self.start.elapsed()).map(Into::into);
        let changed = self.other.send_if_modified(|known| {
            let changed = known.is_some() != other.is_some();
            known.clone_from(&other);
            changed
        });
        match other {
            Some(other) if changed => tracing::warn!(
                other = &*other,
                "another server hosts the same controllers, and both write: stop one of them, give each another --target-label-selector, or give both --leader-election"
            ),
            None if changed => tracing::info!("no other server hosts the same controllers any more"),
            Some(_) | None => {}
        }
    }
}
