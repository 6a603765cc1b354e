//! Access reviews: whether an account may read what a controller of its starts with.

use metahook_core::api::access::Reads;
use metahook_core::api::policy::ServiceAccountRef;
use serde_json::{Value, json};

use crate::cluster::api_client::{ApiClient, Unreachable};
use crate::cluster::rights::ROLES;

/// What an account lacks before a controller of its can start; `None`: nothing. `api` acts as the account.
pub(crate) async fn missing(
    api: &ApiClient,
    account: &ServiceAccountRef,
    needs: &[Reads],
) -> Result<Option<String>, Unreachable> {
    const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
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
        let is_allowed = serde_json::from_str(&answer.body)
            .is_ok_and(|review: Value| review.pointer("/status/allowed") == Some(&Value::Bool(true)));
        if let Some(asked) = asked.filter(|_| !is_allowed) {
            return Ok(Some(format!("User {:?} cannot {asked}; {ROLES}", account.user())));
        }
    }
    Ok(None)
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
