//! Guard of the address: whose token a request has, and what this user may get.

use http::StatusCode;
use metahook_core::hash::Fingerprint;
use metahook_core::inspection_paths::ALL;
use metahook_core::recording::buffer::RecordingRefused;
use metahook_core::trace::TracedObject;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::reviews::Reviews;
use crate::cluster::access::is_allowed;
use crate::cluster::api_client::{ApiClient, Unreachable};
use crate::cluster::tokens::AUDIENCE;
use crate::telemetry::error_chain;

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Bytes of a token. Those of service accounts have some 1,000.
const MAX_TOKEN: usize = 16 << 10;

pub(super) struct Guard {
    api: ApiClient,
    /// Users by their tokens.
    users: Reviews<User>,
    /// Whether a user may do something.
    rights: Reviews<bool>,
}

/// A user as the API server names it in a review.
#[derive(Clone)]
pub(super) struct User(Value);

/// Why a request gets no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("there are {}", ALL.join(", "))]
    Path,
    #[error("the command is older than the server, which answers otherwise at {0}: update the command")]
    Withdrawn(&'static str),
    #[error("no object can be changed here: GET alone is answered")]
    Method,
    #[error("the request: {0}")]
    Query(String),
    #[error("pages of browsers are not answered: the host has to be localhost, and there may be no origin")]
    Page,
    #[error("the request has no token: send \"Authorization: Bearer TOKEN\"")]
    NoToken,
    #[error("the token has more than {MAX_TOKEN} bytes")]
    LongToken,
    #[error(
        "the API server does not take the token{0}. Where it has expired, log in again, or make one with `kubectl create token`"
    )]
    BadToken(String),
    #[error("User {user:?} cannot {verb} {right}")]
    Forbidden { user: String, verb: &'static str, right: String },
    #[error(transparent)]
    Recording(#[from] RecordingRefused),
    #[error("the API server does not say whether this may be shown: {0}")]
    Unanswered(String),
    #[error("the server failed to answer: {0}")]
    Failed(String),
}

impl From<Unreachable> for Refusal {
    fn from(error: Unreachable) -> Self {
        Self::Unanswered(error_chain(&error))
    }
}

impl Refusal {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Path => StatusCode::NOT_FOUND,
            Self::Withdrawn(_) => StatusCode::GONE,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Query(_) => StatusCode::BAD_REQUEST,
            Self::Recording(_) => StatusCode::CONFLICT,
            Self::NoToken | Self::LongToken | Self::BadToken(_) => StatusCode::UNAUTHORIZED,
            Self::Page | Self::Forbidden { .. } => StatusCode::FORBIDDEN,
            Self::Unanswered(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl Guard {
    pub(super) fn new(api: ApiClient) -> Self {
        Self { api, users: Reviews::default(), rights: Reviews::default() }
    }

    /// The user whose token this is.
    pub(super) async fn user(&self, token: &str) -> Result<User, Refusal> {
        if token.len() > MAX_TOKEN {
            return Err(Refusal::LongToken);
        }
        let (known, asked) = (Fingerprint::of(token.as_bytes()), Instant::now());
        if let Some(user) = self.users.find(known) {
            return Ok(user);
        }
        // One that was made for servers like this, else one that is for the API server.
        let mut why = None;
        for spec in [json!({ "token": token, "audiences": [AUDIENCE] }), json!({ "token": token })] {
            let question =
                json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec });
            let review = self.ask(TOKEN_REVIEWS, &question).await?;
            let status = review.get("status").unwrap_or(&Value::Null);
            if status.get("authenticated") == Some(&Value::Bool(true)) {
                let user = User(status.get("user").cloned().unwrap_or_default());
                self.users.add(known, asked, user.clone());
                return Ok(user);
            }
            why = status.get("error").and_then(Value::as_str).map(|why| format!(": {why}"));
        }
        Err(Refusal::BadToken(why.unwrap_or_default()))
    }

    /// The user may `get` the object.
    pub(super) async fn may_get(&self, user: &User, object: &TracedObject) -> Result<(), Refusal> {
        self.may("get", user, object).await
    }

    /// The user may `update` the object.
    pub(super) async fn may_update(&self, user: &User, object: &TracedObject) -> Result<(), Refusal> {
        self.may("update", user, object).await
    }

    /// The user may `list` all objects of a kind: the object has no name.
    pub(super) async fn may_list(&self, user: &User, kind: &TracedObject) -> Result<(), Refusal> {
        self.may("list", user, kind).await
    }

    async fn may(&self, verb: &'static str, User(user): &User, object: &TracedObject) -> Result<(), Refusal> {
        let TracedObject { group, resource, namespace, name, .. } = object;
        let question = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.get("username"),
                "groups": user.get("groups"),
                "uid": user.get("uid"),
                "extra": user.get("extra"),
                "resourceAttributes": {
                    "verb": verb, "group": group, "resource": resource, "namespace": namespace, "name": name,
                },
            },
        });
        if self.is_granted(&question).await? {
            return Ok(());
        }
        let user = user.get("username").and_then(Value::as_str).unwrap_or_default().to_owned();
        let of_group = if group.is_empty() { String::new() } else { format!(".{group}") };
        let place =
            if namespace.is_empty() { String::new() } else { format!(" in the namespace {namespace:?}") };
        let name = if name.is_empty() { String::new() } else { format!(" {name:?}") };
        Err(Refusal::Forbidden { user, verb, right: format!("{resource}{of_group}{name}{place}") })
    }

    async fn is_granted(&self, question: &Value) -> Result<bool, Refusal> {
        let (known, asked) = (Fingerprint::of(question.to_string().as_bytes()), Instant::now());
        if let Some(granted) = self.rights.find(known) {
            return Ok(granted);
        }
        let granted = is_allowed(&self.ask(ACCESS_REVIEWS, question).await?);
        self.rights.add(known, asked, granted);
        Ok(granted)
    }

    async fn ask(&self, path: &str, question: &Value) -> Result<Value, Refusal> {
        let answer = self.api.ask(path, question).await?;
        if !answer.status.is_success() {
            return Err(Refusal::Unanswered(answer.message()));
        }
        serde_json::from_str(&answer.body).map_err(|error| Refusal::Unanswered(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use metahook_core::object::id::Key;

    use super::*;
    use crate::cluster::fake;
    use crate::controller::resource;

    #[tokio::test(start_paused = true)]
    async fn the_api_server_is_asked_again_about_the_same_after_ten_seconds() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let guard = Guard::new(fake::answering_bodies(move |_, _| {
            count.fetch_add(1, Ordering::Relaxed);
            json!({ "status": { "authenticated": true, "user": { "username": "ann" }, "allowed": true } })
                .to_string()
        }));
        let kind = resource(metahook_core::api::ControllerKind::Composite);
        let object = |name: &str| TracedObject::new(&kind, &Key::new("", name));
        let questions = async |token: &str, name: &str| {
            let before = asked.load(Ordering::Relaxed);
            let user = guard.user(token).await.unwrap();
            guard.may_get(&user, &object(name)).await.unwrap();
            asked.load(Ordering::Relaxed) - before
        };
        assert_eq!(questions("one", "a").await, 2);
        let start = Instant::now();
        assert_eq!(questions("one", "a").await, 0);
        assert_eq!(questions("other", "a").await, 1, "another token of the same user");
        assert_eq!(questions("one", "b").await, 1, "another object");
        tokio::time::sleep_until(start + Duration::from_secs(11)).await;
        assert_eq!(questions("one", "a").await, 2);
    }
}
