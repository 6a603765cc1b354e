//! `metahook explain --follow`: new reconciles about an object as they come.
//!
//! The command asks the servers once a second. A stream would be faster; but at each poll the server checks the user's rights, and a
//! restart of the server loses one answer. A forwarded port stays open between polls.

use std::collections::{BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

use http::StatusCode;
use metahook_core::hash::hash64;
use metahook_core::object::id::ObjectId;
use metahook_core::trace::{Explained, ReconcileTrace, TracedObject};

use super::{ExplainError, Explainer, PATH, Unremembered, explain_object, merged};
use crate::inspected_server::{InspectError, Question, ServerError, Servers};

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The command lists the server's Pods this often, and reaches those that are new or did not answer.
const REACH_INTERVAL: Duration = Duration::from_secs(5);

/// Reconciles that were printed, and are remembered. An answer has some hundreds at most: twenty of each parent and controller.
const MAX_SEEN: usize = 20_000;

/// The reconciles about an object, poll by poll.
pub struct Follower {
    explainer: Explainer,
    id: ObjectId,
    object: TracedObject,
    servers: Servers,
    reached: Instant,
    seen: Seen,
    /// The last poll failed, which was reported.
    fails: bool,
}

/// Result of a poll.
#[derive(Debug, Default)]
pub struct Followed {
    /// The oldest one first.
    pub reconciles: Vec<ReconcileTrace>,
    /// Why a server did not answer, the first time.
    pub failed: Option<InspectError>,
}

/// Reconciles that were found before.
#[derive(Debug, Default)]
struct Seen {
    all: BTreeSet<u64>,
    /// The oldest first.
    order: VecDeque<u64>,
}

impl Follower {
    /// Finds the object and the servers; the first answer, as of [`Explainer::explain`].
    ///
    /// # Errors
    /// There is no such kind, the server cannot be reached, or the user may not see the object.
    pub async fn start(
        explainer: Explainer,
        kind: &str,
        name: &str,
    ) -> Result<(Self, Explained), ExplainError> {
        let id = explainer.find(kind, name).await?;
        let (object, mut servers) = (TracedObject::new(&id.resource, &id.key), Servers::default());
        let answer = explain_object(&explainer.inspector, &mut servers, &object).await?;
        let mut seen = Seen::default();
        seen.new_of(answer.reconciles.clone());
        let reached = Instant::now();
        Ok((Self { explainer, id, object, servers, reached, seen, fails: false }, answer))
    }

    pub fn object(&self) -> &TracedObject {
        &self.object
    }

    /// Why the first answer said nothing.
    ///
    /// # Errors
    /// The object or the controllers cannot be read.
    pub async fn unremembered(&self) -> Result<Unremembered, ExplainError> {
        self.explainer.unremembered(&self.id).await
    }

    /// Waits for the time of the next poll, and asks. A server that does not answer is asked again by the next poll.
    ///
    /// # Errors
    /// The user may no longer see the object.
    pub async fn poll(&mut self) -> Result<Followed, ExplainError> {
        tokio::time::sleep(POLL_INTERVAL).await;
        let mut unreached = None;
        let reaches = self.reached.elapsed() >= REACH_INTERVAL || self.servers.is_empty();
        if reaches {
            self.reached = Instant::now();
            unreached = match self.explainer.inspector.reach(&mut self.servers).await {
                Ok(unreached) => unreached.map(InspectError::from),
                Err(error) => Some(error),
            };
        }
        let question = Question { path: PATH, object: &self.object, more: &[] };
        let (answers, failed) = self.explainer.inspector.ask(&mut self.servers, question).await;
        let failed = match failed.or(unreached) {
            Some(InspectError::Server(error)) if error.is_final() || self.has_expired(&error) => {
                return Err(InspectError::from(error).into());
            }
            failed => failed,
        };
        let reconciles = merged(answers).map(|it| self.seen.new_of(it.reconciles)).unwrap_or_default();
        let reported = self.fails;
        // The next poll does not ask the server that failed, so its success proves nothing.
        self.fails = failed.is_some() || (reported && !reaches);
        Ok(Followed { reconciles, failed: failed.filter(|_| !reported) })
    }
}

impl Follower {
    /// The server has refused the token that the file has now.
    fn has_expired(&self, error: &ServerError) -> bool {
        let is_unknown = matches!(error, ServerError::Refused { status: StatusCode::UNAUTHORIZED, .. });
        is_unknown && self.explainer.inspector.token_file.is_some()
    }
}

impl Seen {
    /// Those of an answer, the latest first, that are new; the oldest first.
    fn new_of(&mut self, mut reconciles: Vec<ReconcileTrace>) -> Vec<ReconcileTrace> {
        reconciles.reverse();
        reconciles.retain(|trace| self.add(id(trace)));
        reconciles
    }

    /// False where it was there.
    fn add(&mut self, id: u64) -> bool {
        let is_new = self.all.insert(id);
        if is_new {
            self.order.push_back(id);
            if let Some(oldest) = self.order.pop_front_if(|_| self.all.len() > MAX_SEEN) {
                self.all.remove(&oldest);
            }
        }
        is_new
    }
}

/// Numbers of traces begin anew with the server, so a reconcile is known by its controller, parent, begin and length.
fn id(trace: &ReconcileTrace) -> u64 {
    let TracedObject { group, resource, namespace, name, .. } = &trace.parent;
    let mut all = hash64();
    (&trace.controller, group, resource, namespace, name).hash(&mut all);
    (&trace.began, trace.took_us, &trace.resource_version).hash(&mut all);
    all.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(parent: &str, began: u64) -> ReconcileTrace {
        ReconcileTrace {
            controller: "CompositeController c".to_owned(),
            parent: TracedObject {
                group: "".into(),
                resource: "pods".into(),
                kind: "Pod".into(),
                namespace: "n".into(),
                name: parent.into(),
            },
            generation: 1,
            resource_version: "1".to_owned(),
            began: format!("2026-11-27T10:20:31.{began:03}Z"),
            took_us: 1,
            ..ReconcileTrace::default()
        }
    }

    #[test]
    fn each_reconcile_is_new_once_also_after_a_restart() {
        let mut seen = Seen::default();
        assert_eq!(seen.new_of(vec![trace("a", 2), trace("a", 1)]), [trace("a", 1), trace("a", 2)]);
        assert_eq!(seen.new_of(vec![trace("b", 2), trace("a", 2), trace("a", 1)]), [trace("b", 2)]);
        // The server began anew, and one of two did not answer.
        assert_eq!(seen.new_of(Vec::new()), []);
        assert_eq!(seen.new_of(vec![trace("a", 3)]), [trace("a", 3)]);
        assert_eq!(seen.new_of(vec![trace("a", 3), trace("b", 2)]), []);
    }

    #[test]
    fn what_was_seen_is_bounded() {
        let mut seen = Seen::default();
        let all = MAX_SEEN as u64 + 10;
        assert!((0..all).all(|id| seen.add(id)));
        assert_eq!((seen.all.len(), seen.order.len()), (MAX_SEEN, MAX_SEEN));
        assert!(!seen.add(all - 1) && seen.add(0), "the oldest ones are forgotten");
    }
}
