//! Attempts to reach servers, by Pod: which servers are reached, and when the others are tried again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::inspected_server::{ServerError, ServerPod};

/// The delay before the second attempt. Each further one doubles it, until the server answers.
const MIN_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_mins(1);

/// `S`: a reached server.
pub(super) struct ServerAttempts<S> {
    /// By the uid of the Pod.
    pods: BTreeMap<String, PodAttempts<S>>,
    /// Why the latest list of Pods is not known.
    unlisted: Option<ServerError>,
}

/// The attempts at one Pod.
struct PodAttempts<S> {
    pod: ServerPod,
    state: AttemptState<S>,
    /// Why the latest attempt failed, or the server was cut off.
    error: Option<ServerError>,
    /// The delay after the next failure.
    delay: Duration,
}

enum AttemptState<S> {
    /// An attempt is due at this time.
    Waiting(Instant),
    /// An attempt is under way.
    Running,
    Reached(Arc<S>),
}

impl<S> Default for ServerAttempts<S> {
    fn default() -> Self {
        Self { pods: BTreeMap::new(), unlisted: Some(ServerError::NotListed) }
    }
}

impl<S> PodAttempts<S> {
    fn fail(&mut self, error: ServerError, now: Instant) {
        self.state = AttemptState::Waiting(now + self.delay);
        self.delay = (self.delay * 2).clamp(MIN_DELAY, MAX_DELAY);
        self.error = Some(error);
    }
}

impl<S> ServerAttempts<S> {
    /// Adds the Pods that are new, and lets go of the servers whose Pods are gone. Without a list all are kept.
    pub(super) fn list(&mut self, listed: Result<Vec<ServerPod>, ServerError>, now: Instant) {
        let pods = match listed {
            Ok(pods) => pods,
            Err(error) => {
                if matches!(error, ServerError::NoPod { .. }) {
                    self.pods.clear();
                }
                self.unlisted = Some(error);
                return;
            }
        };
        self.unlisted = None;
        self.pods.retain(|uid, _| pods.iter().any(|pod| pod.uid == *uid));
        for pod in pods {
            self.pods.entry(pod.uid.clone()).or_insert_with(|| PodAttempts {
                pod,
                state: AttemptState::Waiting(now),
                error: None,
                delay: MIN_DELAY,
            });
        }
    }

    /// The Pods that an attempt is due at, which begins now; and when the next one is due.
    pub(super) fn take_due(&mut self, now: Instant) -> (Vec<ServerPod>, Option<Instant>) {
        let (mut due, mut next) = (Vec::new(), None::<Instant>);
        for attempts in self.pods.values_mut() {
            match attempts.state {
                AttemptState::Waiting(at) if at <= now => {
                    attempts.state = AttemptState::Running;
                    due.push(attempts.pod.clone());
                }
                AttemptState::Waiting(at) => next = Some(next.map_or(at, |next| next.min(at))),
                AttemptState::Running | AttemptState::Reached(_) => {}
            }
        }
        (due, next)
    }

    /// An attempt has ended. A server whose Pod is gone by now is dropped.
    pub(super) fn end(&mut self, pod: &ServerPod, reached: Result<S, ServerError>, now: Instant) {
        let Some(attempts) = self.pods.get_mut(&pod.uid) else { return };
        match reached {
            Ok(server) => {
                attempts.state = AttemptState::Reached(Arc::new(server));
            }
            Err(error) => attempts.fail(error, now),
        }
    }

    /// The servers that are reached, and an error for each other Pod.
    pub(super) fn servers(&self) -> (Vec<Arc<S>>, Vec<ServerError>) {
        let (mut servers, mut errors) = (Vec::new(), Vec::from_iter(self.unlisted.clone()));
        for PodAttempts { pod, state, error, .. } in self.pods.values() {
            match state {
                AttemptState::Reached(server) => servers.push(Arc::clone(server)),
                AttemptState::Waiting(_) | AttemptState::Running => errors.push(
                    error.clone().unwrap_or_else(|| ServerError::BeingReached { pod: pod.name.clone() }),
                ),
            }
        }
        (servers, errors)
    }

    pub(super) fn answered(&mut self, server: &Arc<S>) {
        if let Some(attempts) = self.of(server) {
            (attempts.delay, attempts.error) = (Duration::ZERO, None);
        }
    }

    /// The server cannot be reached. True where it was reached until now.
    pub(super) fn cut_off(&mut self, server: &Arc<S>, error: &ServerError, now: Instant) -> bool {
        let attempts = self.of(server);
        attempts.map(|attempts| attempts.fail(error.clone(), now)).is_some()
    }

    /// The Pod of a server, unless the server was let go of since: another request found it cut off, or its Pod is gone.
    fn of(&mut self, wanted: &Arc<S>) -> Option<&mut PodAttempts<S>> {
        let is = |attempts: &&mut PodAttempts<S>| matches!(&attempts.state, AttemptState::Reached(server) if Arc::ptr_eq(server, wanted));
        self.pods.values_mut().find(is)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str) -> ServerPod {
        ServerPod::of(&json!({ "metadata": { "name": name, "uid": name } }))
    }

    fn error() -> ServerError {
        ServerError::Forward { pod: "a".to_owned(), why: "it fails".to_owned() }
    }

    fn reached(pods: &[&str], now: Instant) -> ServerAttempts<String> {
        let mut all = ServerAttempts::default();
        all.list(Ok(pods.iter().map(|name| pod(name)).collect()), now);
        for pod in all.take_due(now).0 {
            all.end(&pod, Ok(pod.name.clone()), now);
        }
        all
    }

    fn errors<S>(all: &ServerAttempts<S>) -> Vec<String> {
        all.servers().1.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_pod_that_is_not_reached_is_named_and_tried_ever_later() {
        let (mut all, mut now) = (ServerAttempts::<String>::default(), Instant::now());
        assert_eq!(errors(&all), ["the server's Pods are being looked for"]);
        all.list(Ok(vec![pod("a")]), now);
        assert_eq!(errors(&all), ["the server in the Pod a is being reached"]);
        let mut delays = Vec::new();
        for _ in 0..9 {
            assert_eq!(all.take_due(now), (vec![pod("a")], None));
            assert_eq!(all.take_due(now), (vec![], None), "one attempt at once");
            all.end(&pod("a"), Err(error()), now);
            assert_eq!(errors(&all), [error().to_string()]);
            let (due, next) = all.take_due(now);
            assert_eq!(due, []);
            delays.push(next.unwrap().duration_since(now).as_secs());
            now = next.unwrap();
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[test]
    fn a_server_that_has_answered_is_reached_again_at_once() {
        let now = Instant::now();
        let mut all = reached(&["a", "b"], now);
        let (servers, none) = all.servers();
        assert_eq!((servers.len(), none.len()), (2, 0));
        all.answered(&servers[0]);
        assert!(all.cut_off(&servers[0], &error(), now) && all.cut_off(&servers[1], &error(), now));
        assert_eq!(all.take_due(now), (vec![pod("a")], Some(now + MIN_DELAY)), "b never answered");
        all.end(&pod("a"), Ok("new".to_owned()), now);
        assert!(!all.cut_off(&servers[0], &error(), now), "a late answer of the old connection");
        assert_eq!(*all.servers().0[0], "new");
    }

    #[test]
    fn servers_go_with_their_pods_alone() {
        let now = Instant::now();
        let mut all = reached(&["a", "b"], now);
        all.list(Err(ServerError::List("it is down".to_owned())), now);
        assert_eq!((all.servers().0.len(), errors(&all).len()), (2, 1));
        all.list(Ok(vec![pod("b"), pod("c")]), now);
        assert_eq!(all.servers().0, [Arc::new("b".to_owned())]);
        assert_eq!(all.take_due(now).0, [pod("c")]);
        all.list(Err(ServerError::NoPod { namespace: "n".to_owned() }), now);
        assert!(all.servers().0.is_empty());
        all.end(&pod("c"), Ok("c".to_owned()), now);
        assert!(all.servers().0.is_empty(), "its Pod went while it was reached");
    }
}
