//! Servers that pages ask: one background task reaches them, and a page asks those that are reached at the moment.
//!
//! A page neither starts nor ends a port forward, so a browser that goes away ends none, and no page waits for `kubectl` or for a
//! server that does not answer. A page names the servers that it has no answer of.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use metahook_core::error_chain;
use metahook_server::sync::lock;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::attempts::ServerAttempts;
use crate::inspected_server::{InspectError, Inspector, Question, Reached, ServerError, ServerPod};

/// The Pods of servers are listed this often, and when a server is cut off.
const LIST_INTERVAL: Duration = Duration::from_secs(10);

/// A list of Pods takes no longer.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// A page waits this long for servers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct DashboardServers {
    inspector: Inspector,
    /// The server whose address the user gave, or why it is refused; `None`: servers are looked for.
    named: Option<Result<Arc<Reached>, ServerError>>,
    attempts: Mutex<ServerAttempts<Reached>>,
    /// A server was cut off.
    cut_off: Notify,
    /// An attempt to reach a server has ended.
    tried: Notify,
}

impl DashboardServers {
    pub(super) fn new(inspector: Inspector) -> Self {
        let named = inspector.address.as_ref().map(|address| inspector.named(address).map(Arc::new));
        let attempts = Mutex::default();
        Self { inspector, named, attempts, cut_off: Notify::new(), tried: Notify::new() }
    }

    /// Keeps servers reached as long as it runs: its end ends attempts to reach one.
    pub(super) async fn keep_reached(self: Arc<Self>) {
        if self.named.is_some() {
            return;
        }
        let mut running = JoinSet::new();
        loop {
            self.list().await;
            let next_list = Instant::now() + LIST_INTERVAL;
            while Instant::now() < next_list {
                while running.try_join_next().is_some() {}
                let (due, next) = lock(&self.attempts).take_due(Instant::now());
                for pod in due {
                    running.spawn(Arc::clone(&self).reach(pod));
                }
                tokio::select! {
                    () = sleep_until(next.map_or(next_list, |next| next.min(next_list))) => {}
                    () = self.tried.notified() => {}
                    () = self.cut_off.notified() => break,
                }
            }
        }
    }

    /// Lets go of all servers, which ends their port forwards.
    pub(super) fn clear(&self) {
        *lock(&self.attempts) = ServerAttempts::default();
    }

    #[cfg(test)]
    pub(super) fn has_reached(&self) -> bool {
        !lock(&self.attempts).servers().0.is_empty()
    }

    async fn list(&self) {
        let listed = match timeout(LIST_TIMEOUT, self.inspector.pods()).await {
            Ok(Ok(pods)) if pods.is_empty() => Err(self.inspector.no_pod()),
            Ok(listed) => listed.map_err(|error| ServerError::List(error_chain(&error))),
            Err(_elapsed) => {
                let why = format!("the API server did not answer within {} s", LIST_TIMEOUT.as_secs());
                Err(ServerError::List(why))
            }
        };
        lock(&self.attempts).list(listed, Instant::now());
    }

    async fn reach(self: Arc<Self>, pod: ServerPod) {
        let reached = self.inspector.forward(&pod).await;
        lock(&self.attempts).end(&pod, reached, Instant::now());
        self.tried.notify_one();
    }

    /// The answers of all servers that are reached now, and a failure for each server without one.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        question: Question<'_>,
    ) -> (Vec<T>, Vec<InspectError>) {
        let (servers, unreached) = match &self.named {
            Some(Ok(server)) => (vec![Arc::clone(server)], Vec::new()),
            Some(Err(error)) => (Vec::new(), vec![error.clone()]),
            None => lock(&self.attempts).servers(),
        };
        let asked = join_all(servers.iter().map(|server| self.ask_one(server, question))).await;
        let (mut answers, mut failures) = (Vec::new(), Vec::new());
        for answer in asked {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(error) => failures.push(error),
            }
        }
        failures.extend(unreached.into_iter().map(InspectError::from));
        (answers, failures)
    }

    async fn ask_one<T: DeserializeOwned>(
        &self,
        server: &Arc<Reached>,
        question: Question<'_>,
    ) -> Result<T, InspectError> {
        let answer = match timeout(ANSWER_TIMEOUT, self.inspector.ask_one(server, question)).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(server.late(ANSWER_TIMEOUT).into()),
        };
        let now = Instant::now();
        let is_cut_off = match &answer {
            Err(InspectError::Server(error @ ServerError::Unreachable { .. })) => {
                lock(&self.attempts).cut_off(server, error, now)
            }
            Err(InspectError::Server(error @ ServerError::Late { .. })) => {
                lock(&self.attempts).late(server, error, now)
            }
            Ok(_) | Err(InspectError::Server(_)) => {
                lock(&self.attempts).answered(server);
                false
            }
            Err(_no_token) => false,
        };
        if is_cut_off {
            self.cut_off.notify_one();
        }
        answer
    }
}
