//! Requests for one Lease.

use std::time::Duration;

use http::StatusCode;
use metahook_core::leader_election::{Lease, Record, Step};
use metahook_core::object::id::{Gvk, Key, ObjectId, Resource};
use serde_json::json;

use crate::cluster::api_client::{ApiClient, Unreachable};
use crate::cluster::objects::WriteOptions;

/// A request for a Lease that takes longer is given up, so that there is time for another one.
pub(super) const LEASE_REQUEST_TIMEOUT: Duration = Duration::from_secs(4);

const OPTIONS: WriteOptions<'_> = WriteOptions::by("metahook");

pub(super) struct LeaseClient {
    /// Client that neither the gate of writes nor the rate limit holds up.
    api: ApiClient,
    id: ObjectId,
    /// An annotation of the Lease that is written.
    annotation: Option<(&'static str, String)>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum LeaseError {
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error("another server was faster")]
    Conflict,
    #[error("{verb} of the Lease is refused: {message}; let the server get, create and update Leases there")]
    Refused { verb: &'static str, message: String },
    #[error("the API server's answer is no Lease")]
    NoLease,
    #[error("no answer within {} s", LEASE_REQUEST_TIMEOUT.as_secs())]
    Timeout,
}

impl LeaseClient {
    pub(super) fn new(api: &ApiClient, lease: Key) -> Self {
        let resource = Resource {
            gvk: Gvk::new("coordination.k8s.io/v1", "Lease"),
            plural: "leases".into(),
            namespaced: true,
            has_status: false,
        };
        Self {
            api: api.for_leases(),
            id: ObjectId { resource: resource.into(), key: lease },
            annotation: None,
        }
    }

    /// A Lease that it writes has the annotation.
    pub(super) fn annotating(self, annotation: Option<(&'static str, String)>) -> Self {
        Self { annotation, ..self }
    }

    /// `Ok(None)`: there is no Lease.
    pub(super) async fn exchange(&self, step: &Step) -> Result<Option<Lease>, LeaseError> {
        let (id, Key { namespace, name }) = (&self.id, &self.id.key);
        let body = |record: &Record, version: Option<&str>| {
            let mut lease = record.lease(namespace, name, version);
            if let Some(((key, text), metadata)) = self.annotation.as_ref().zip(lease.get_mut("metadata")) {
                metadata["annotations"] = json!({ *key: text });
            }
            lease
        };
        let (verb, answer) = match step {
            Step::Create(record) => {
                ("create", self.api.request_create(id, &body(record, None), OPTIONS).await?)
            }
            Step::Update(record, version) => {
                ("update", self.api.request_replace(id, &body(record, Some(version)), OPTIONS).await?)
            }
            Step::Read | Step::Wait | Step::Lost => ("get", self.api.request_get(id).await?),
        };
        match answer.status {
            StatusCode::NOT_FOUND if *step == Step::Read => Ok(None),
            StatusCode::CONFLICT | StatusCode::NOT_FOUND => Err(LeaseError::Conflict),
            status if status.is_success() => Lease::parse(&answer.body).map(Some).ok_or(LeaseError::NoLease),
            _ => Err(LeaseError::Refused { verb, message: answer.message() }),
        }
    }
}

/// The time, as Leases spell it.
pub(super) fn now_text() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}
