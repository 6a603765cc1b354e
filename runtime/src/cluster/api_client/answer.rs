//! Answers of the API server, and why a request got none.

use std::time::Duration;

use http::header::WARNING;
use http::{HeaderMap, StatusCode};
use metahook_core::reconcile::api_warnings::{self, MAX_WARNINGS};
use metahook_core::reconcile::outcome::Retry;
use metahook_core::reconcile::too_large;
use serde::Deserialize;
use serde_json::{Value, json};
use tower::BoxError;

use super::REQUEST_TIMEOUT;
use crate::cluster::bounds::{MAX_LARGE, MAX_OBJECT, TooLarge};
use crate::cluster::rights::refusal;
use crate::cluster::write_gate::NotLeading;

/// The kind of a request's answer, where it is not refused.
#[derive(Clone, Copy)]
pub(crate) enum Answers {
    Object,
    Page,
    /// Like a page, of each object its metadata alone.
    Metadata,
    /// As [`Answers::Metadata`], of one object: pages of others are not like it.
    First,
    Large,
}

impl Answers {
    pub(super) fn bound(self) -> u64 {
        match self {
            Self::Object | Self::First => MAX_OBJECT,
            Self::Page | Self::Metadata | Self::Large => MAX_LARGE,
        }
    }

    /// The content type that is asked for.
    pub(super) fn accept(self) -> &'static str {
        match self {
            Self::Metadata | Self::First => {
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
            }
            Self::Object | Self::Page | Self::Large => "application/json",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: String,
    /// Warnings of the API server, or of a webhook of the cluster, about a request that was accepted.
    pub(crate) warnings: Vec<String>,
}

/// Failure of a request that got no answer.
#[derive(Debug, thiserror::Error)]
pub enum Unreachable {
    #[error("the request's body could not be written")]
    Print(#[source] serde_json::Error),
    #[error("the request could not be built")]
    Request(#[source] http::Error),
    #[error("the request failed")]
    Send(#[source] BoxError),
    #[error("the answer broke off")]
    Body(#[source] BoxError),
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    #[error("the answer is not UTF-8")]
    Text(#[source] std::string::FromUtf8Error),
    #[error("no answer within {} s", REQUEST_TIMEOUT.as_secs())]
    Timeout,
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    #[error("the API server is busy and wants to be asked again after {} s", after.as_secs())]
    Busy { after: Duration },
}

impl Unreachable {
    /// How a reconcile that needs the answer is retried.
    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Busy { after } => Retry::After(*after),
            Self::Print(_)
            | Self::Request(_)
            | Self::Send(_)
            | Self::Body(_)
            | Self::TooLarge(_)
            | Self::Text(_)
            | Self::Timeout
            | Self::NotLeading(_) => Retry::WithEvent,
        }
    }
}

/// The fields of a `Status` that are looked at. The others may be as they like: admission webhooks set them.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Refusal {
    reason: String,
    message: String,
}

impl Answer {
    fn refusal(&self) -> Refusal {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// The API server's word for a refusal, for example `AlreadyExists`.
    pub(crate) fn reason(&self) -> String {
        self.refusal().reason
    }

    /// The answer to what was sent: a refusal of what is too large says what is.
    pub(super) fn about(self, sent: &Value) -> Self {
        let too_large =
            if self.status.is_success() { None } else { too_large::explained(&self.message(), sent) };
        match too_large {
            Some(message) => {
                Self { body: json!({ "reason": self.reason(), "message": message }).to_string(), ..self }
            }
            None => self,
        }
    }

    /// Message of a refusal, in one line.
    pub(crate) fn message(&self) -> String {
        let (status, text) = (self.status.as_u16(), self.refusal().message);
        if !text.is_empty() {
            return refusal(status, &text);
        }
        // It is no answer of an API server: of a proxy before it, for example.
        let body: String = self.body.trim().chars().take(300).collect();
        let colon = if body.is_empty() { "" } else { ": " };
        refusal(status, &format!("HTTP status {status}{colon}{body}"))
    }
}

pub(super) fn warnings(headers: &HeaderMap) -> Vec<String> {
    let all = headers.get_all(WARNING).into_iter().take(MAX_WARNINGS);
    all.filter_map(|one| api_warnings::text(&String::from_utf8_lossy(one.as_bytes()))).collect()
}
