//! Access reviews: whether an account may read what a controller of its starts with, and write what it has to.

use http::StatusCode;
use metahook_core::api::access::{OwnerGuard, Reads, Writes};
use metahook_core::api::missing_rights;
use metahook_core::api::policy::ServiceAccountRef;
use metahook_core::api::rbac::SERVER;
use metahook_core::api::read_access::Lists;
use metahook_core::object::Object;
use serde_json::{Value, json};

use crate::cluster::api_client::{ApiClient, Unreachable};
use crate::cluster::rights::ROLES;

/// Why nothing is known about a right.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReviewError {
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error("{0}")]
    Unanswered(String),
}

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Rights that an account lacks before a controller of its can start; `None`: it lacks none. `api` acts as the account.
pub(crate) async fn missing(
    api: &ApiClient,
    account: &ServiceAccountRef,
    needs: &[Reads],
) -> Result<Option<String>, Unreachable> {
    // Whether the server may act as the account shows with the first question.
    let can_act = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "configmaps"}},
    });
    let questions = needs.iter().map(|one| (one.review(), Some(one)));
    for (question, asked) in std::iter::once((can_act, None)).chain(questions) {
        let answer = api.ask(REVIEWS, &question).await?;
        if !answer.status.is_success() {
            return Ok(Some(answer.message()));
        }
        if let Some(asked) = asked.filter(|_| !is_allowed(&read(&answer.body))) {
            return Ok(Some(format!("User {:?} cannot {asked}; {ROLES}", account.user())));
        }
    }
    Ok(None)
}

/// The first of these rights that an account lacks in a namespace, or in all of them; `None`: none of them. `api` acts as the account.
pub(crate) async fn unreadable(
    api: &ApiClient,
    account: &ServiceAccountRef,
    lists: &[Lists],
    namespace: Option<&str>,
) -> Result<Option<String>, ReviewError> {
    for right in lists {
        let answer = api.ask(REVIEWS, &right.review(namespace)).await?;
        match answer.status {
            status if status.is_success() => {}
            // The server may not act as the account.
            StatusCode::FORBIDDEN => return Ok(Some(answer.message())),
            _ => return Err(ReviewError::Unanswered(answer.message())),
        }
        if !is_allowed(&read(&answer.body)) {
            let place = namespace.map_or_else(String::new, |name| format!(" in the namespace {name:?}"));
            return Ok(Some(format!("User {:?} cannot {right}{place}; {ROLES}", account.user())));
        }
    }
    Ok(None)
}

/// A review; null where it is none, which allows nothing.
fn read(review: &str) -> Value {
    serde_json::from_str(review).unwrap_or_default()
}

/// Whether a review allows the access.
pub(crate) fn is_allowed(review: &Value) -> bool {
    review.pointer("/status/allowed") == Some(&Value::Bool(true))
}

/// Whether the account may do it everywhere, or in its own namespace; `None`: the API server does not say.
pub(crate) async fn may(
    api: &ApiClient,
    account: Option<&ServiceAccountRef>,
    what: &Writes,
) -> Result<Option<bool>, Unreachable> {
    for namespace in [None, account.map(|account| account.namespace.as_str())] {
        let answer = api.ask(REVIEWS, &what.review(namespace)).await?;
        if !answer.status.is_success() {
            return Ok(None);
        }
        if is_allowed(&read(&answer.body)) {
            return Ok(Some(true));
        }
        if account.is_none() {
            break;
        }
    }
    Ok(Some(false))
}

/// Message about the rights that a controller's account lacks, and what to do about them. `server` has the server's own rights.
pub(crate) async fn message(
    server: &ApiClient,
    account: Option<&ServiceAccountRef>,
    missing: &[&Writes],
    controller: &str,
) -> String {
    let own = user(server).await;
    let flags = server_flags(&own);
    let who = account.map_or(own, ServiceAccountRef::user);
    let missing = missing_rights::named(missing);
    format!(
        "User {who:?} cannot {missing}; grant it: `metahook rbac --controller {controller}{flags}` prints the roles that it \
         needs"
    )
}

/// Flags that give `metahook rbac` the server's account, where it is not the one that the command assumes.
fn server_flags(user: &str) -> String {
    let account = user.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
    let Some((namespace, name)) = account else { return String::new() };
    let flag = |flag: &str, value: &str| {
        if value == SERVER { String::new() } else { format!(" --server-{flag} {value}") }
    };
    flag("namespace", namespace) + &flag("account", name)
}

/// The user that the API server takes a client for.
async fn user(api: &ApiClient) -> String {
    let question = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = api.ask("/apis/authentication.k8s.io/v1/selfsubjectreviews", &question).await.ok();
    let review = answer.and_then(|answer| serde_json::from_str::<Value>(&answer.body).ok());
    let name = review.as_ref().and_then(|review| review.pointer("/status/userInfo/username")?.as_str());
    name.unwrap_or("of the server").to_owned()
}

/// A refusal of an [`OwnerGuard`] in the words of other refusals, and what to do about it. `forbidden`: what the client may not do.
pub(crate) async fn guarded(api: &ApiClient, forbidden: &str) -> String {
    format!("User {:?} cannot {forbidden}; {ROLES}", user(api).await)
}

/// Whether the API server guards owner references, by a dry run about a controller. One that cannot be made says no.
pub(crate) async fn guards_owners(api: &ApiClient, controller: &Object) -> Result<bool, Unreachable> {
    const DRY_RUN: &str = "/api/v1/namespaces/default/events?dryRun=All";
    let answer = api.ask(DRY_RUN, &OwnerGuard::probe(controller)).await?;
    Ok(OwnerGuard::is_on(answer.status.as_u16(), &answer.message()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use metahook_core::api::ControllerKind;
    use metahook_core::api::access::to_start;
    use metahook_core::object::Object;

    use super::*;
    use crate::cluster::fake;

    /// The answer about a controller whose account needs two objects, and the number of questions, where the questions are
    /// answered like this.
    async fn asked(
        answer: impl Fn(usize) -> (u16, Value) + Send + Sync + 'static,
    ) -> (Option<String>, usize) {
        let controller = json!({
            "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController", "metadata": {"name": "c"},
            "spec": {
                "parentResource": {"apiVersion": "e/v1", "resource": "things"},
                "hooks": {"sync": {"wasm": {
                    "configMap": {"namespace": "n", "name": "hook"},
                    "mounts": [{"path": "/a", "secret": {"namespace": "n", "name": "password"}}],
                }}},
                "serviceAccountRef": {"namespace": "n", "name": "a"},
            },
        });
        let controller = Object::parse(&controller.to_string(), None).unwrap();
        let (account, needs) = to_start(ControllerKind::Composite, &controller).unwrap();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let api = fake::answering(move |_| {
            let (status, body) = answer(counted.fetch_add(1, Ordering::Relaxed));
            http::Response::builder().status(status).body(body.to_string()).ok()
        });
        let missing = missing(&api, &account, &needs).await.unwrap();
        (missing, count.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn what_is_missing_first_is_named() {
        let review = |allowed: bool| (201, json!({"status": {"allowed": allowed}}));
        // Whether it may read all ConfigMaps does not matter.
        assert_eq!(asked(move |number| review(number > 0)).await, (None, 3));
        let (missing, questions) = asked(move |number| review(number != 2)).await;
        let missing = missing.unwrap();
        assert!(
            missing.starts_with(
                "User \"system:serviceaccount:n:a\" cannot get resource \"secrets\" n/password; grant"
            ),
            "{missing}"
        );
        assert_eq!(questions, 3);
    }

    #[tokio::test]
    async fn a_right_in_the_accounts_own_namespace_is_one() {
        let account = || serde_json::from_value(json!({"namespace": "n", "name": "a"})).unwrap();
        let may = async |account: Option<ServiceAccountRef>, allowed: [Option<bool>; 2]| {
            let count = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&count);
            let api = fake::answering(move |_| {
                let allowed = allowed.get(counted.fetch_add(1, Ordering::Relaxed))?;
                let status = allowed.map_or(403, |_| 201);
                let body = json!({"status": {"allowed": allowed}}).to_string();
                http::Response::builder().status(status).body(body).ok()
            });
            let may = may(&api, account.as_ref(), &Writes::anything()).await.unwrap();
            (may, count.load(Ordering::Relaxed))
        };
        assert_eq!(may(None, [Some(true), None]).await, (Some(true), 1));
        assert_eq!(may(None, [Some(false), None]).await, (Some(false), 1));
        assert_eq!(may(Some(account()), [Some(false), Some(true)]).await, (Some(true), 2));
        assert_eq!(may(Some(account()), [Some(false), Some(false)]).await, (Some(false), 2));
        assert_eq!(may(Some(account()), [None, None]).await, (None, 1));
    }

    #[tokio::test]
    async fn a_guard_of_owner_references_shows_by_a_dry_run_that_it_refuses() {
        let guarded = "events \"x\" is forbidden: cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion probe.metahook.dev/v1 Kind Unserved: no matches";
        let controller =
            Object::parse(r#"{"apiVersion":"m/v1","kind":"C","metadata":{"name":"c","uid":"u"}}"#, None)
                .unwrap();
        for (status, message, is_on) in [
            (201, "", false),
            (403, guarded, true),
            (403, "events is forbidden: User \"u\" cannot create resource \"events\"", false),
            (400, "admission webhook \"w\" does not support dry run", false),
        ] {
            let api = fake::answering(move |request| {
                assert_eq!(request.uri().query(), Some("dryRun=All"));
                let body = json!({"message": message}).to_string();
                http::Response::builder().status(status).body(body).ok()
            });
            assert_eq!(guards_owners(&api, &controller).await.unwrap(), is_on, "{message}");
        }
    }

    #[tokio::test]
    async fn the_user_of_a_guarded_write_is_named() {
        let api = fake::answering(|_| {
            let review = json!({"status": {"userInfo": {"username": "u"}}});
            http::Response::builder().status(201).body(review.to_string()).ok()
        });
        let message = guarded(&api, "update resource \"things/finalizers\"").await;
        assert_eq!(message, format!("User \"u\" cannot update resource \"things/finalizers\"; {ROLES}"));
    }

    #[tokio::test]
    async fn the_command_names_the_account_of_the_server_where_it_has_another_one() {
        let greeter: ServiceAccountRef =
            serde_json::from_value(json!({"namespace": "hello", "name": "greeter"})).unwrap();
        for (user, account, who, flags) in [
            (
                "system:serviceaccount:metacontroller:metacontroller",
                None,
                "metacontroller:metacontroller",
                "",
            ),
            ("system:serviceaccount:mc:metacontroller", None, "mc:metacontroller", " --server-namespace mc"),
            (
                "system:serviceaccount:metacontroller:hooks",
                None,
                "metacontroller:hooks",
                " --server-account hooks",
            ),
            (
                "system:serviceaccount:a:b",
                Some(&greeter),
                "hello:greeter",
                " --server-namespace a --server-account b",
            ),
            // The server runs on a machine.
            ("kubernetes-admin", None, "kubernetes-admin", ""),
        ] {
            let api = fake::answering(move |_| {
                let review = json!({"status": {"userInfo": {"username": user}}});
                http::Response::builder().status(201).body(review.to_string()).ok()
            });
            let message = message(&api, account, &[], "compositecontroller/c").await;
            let command = format!(
                "`metahook rbac --controller compositecontroller/c{flags}` prints the roles that it needs"
            );
            assert!(message.ends_with(&command), "{user}: {message}");
            assert!(message.contains(&format!("{who}\" cannot")), "{user}: {message}");
        }
    }

    #[tokio::test]
    async fn an_account_that_the_server_may_not_act_as_is_told_by_the_api_server() {
        let refused =
            "serviceaccounts \"a\" is forbidden: User \"s\" cannot impersonate resource \"serviceaccounts\"";
        let (missing, questions) =
            asked(move |_| (403, json!({"message": refused, "reason": "Forbidden"}))).await;
        let missing = missing.unwrap();
        assert!(missing.starts_with(refused) && missing.contains("metahook rbac"), "{missing}");
        assert_eq!(questions, 1);
    }
}
