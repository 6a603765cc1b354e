//! Servers that pages ask: one background task reaches them, and a page asks those that are reached at the moment.
//!
//! A page neither starts nor ends a port forward, so a browser that goes away ends none, and no page waits for `kubectl` or for a
//! server that does not answer. Each question is a task of its own: it goes on when the page gives it up, and so finds out whether
//! the server is slow or cut off. A page names the servers that it has no answer of.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use metahook_core::error_chain;
use metahook_server::sync::lock;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

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
    /// Ends the questions that no page waits for any more.
    stop: CancellationToken,
}

impl DashboardServers {
    pub(super) fn new(inspector: Inspector) -> Self {
        let named = inspector.address.as_ref().map(|address| Inspector::named(address).map(Arc::new));
        let attempts = Mutex::default();
        Self {
            inspector,
            named,
            attempts,
            cut_off: Notify::new(),
            tried: Notify::new(),
            stop: CancellationToken::new(),
        }
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

    /// The drop of the guard ends all questions.
    pub(super) fn end_with(&self) -> DropGuard {
        self.stop.clone().drop_guard()
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
    pub(super) async fn ask<T: DeserializeOwned + Send + 'static>(
        self: &Arc<Self>,
        question: Question<'_>,
    ) -> (Vec<T>, Vec<InspectError>) {
        self.ask_within(ANSWER_TIMEOUT, question).await
    }

    /// `limit`: how long a server is waited for. A server that is slower is asked all the same, and its answer dropped.
    pub(super) async fn ask_within<T: DeserializeOwned + Send + 'static>(
        self: &Arc<Self>,
        limit: Duration,
        question: Question<'_>,
    ) -> (Vec<T>, Vec<InspectError>) {
        let (servers, unreached) = match &self.named {
            Some(Ok(server)) => (vec![Arc::clone(server)], Vec::new()),
            Some(Err(error)) => (Vec::new(), vec![error.clone()]),
            None => lock(&self.attempts).servers(),
        };
        let asked = join_all(servers.iter().map(|server| self.ask_in_time(server, limit, question))).await;
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

    async fn ask_in_time<T: DeserializeOwned + Send + 'static>(
        self: &Arc<Self>,
        server: &Arc<Reached>,
        limit: Duration,
        Question { path, object, more }: Question<'_>,
    ) -> Result<T, InspectError> {
        let (servers, asked) = (Arc::clone(self), Arc::clone(server));
        let (path, object, more) = (path.to_owned(), object.clone(), more.to_vec());
        let answer = tokio::spawn(async move {
            let question = Question { path: &path, object: &object, more: &more };
            servers.stop.run_until_cancelled(servers.ask_one(&asked, question)).await
        });
        match timeout(limit, answer).await {
            Ok(Ok(Some(answer))) => answer,
            Err(_) | Ok(Err(_) | Ok(None)) => Err(server.late(limit).into()),
        }
    }

    async fn ask_one<T: DeserializeOwned>(
        &self,
        server: &Arc<Reached>,
        question: Question<'_>,
    ) -> Result<T, InspectError> {
        let answer = self.inspector.ask_one(server, question).await;
        match &answer {
            Err(InspectError::Server(error @ ServerError::Unreachable { .. })) => {
                if lock(&self.attempts).cut_off(server, error, Instant::now()) {
                    self.cut_off.notify_one();
                }
            }
            Ok(_) | Err(InspectError::Server(_)) => lock(&self.attempts).answered(server),
            Err(_no_token) => {}
        }
        answer
    }
}
