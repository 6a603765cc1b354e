//! `metahook record --reconciles`: the next reconciles of a controller, as the server does them, with the calls of its hooks.
//!
//! The command fetches the lines once a second; the server keeps them until then, within a bound.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use metahook_core::bundle::{children_of, modules_of, parents_of};
use metahook_core::object::id::{Gvr, Key};
use metahook_core::recording::{Beginning, Ending, FORMAT, RecordedAnswer, RecordedHook, RecordedLine};
use metahook_core::trace::TracedObject;
use metahook_server::hook::wasm::compile::{Digest, ModuleBounds};
use metahook_server::hook::wasm::source::unpack::unpack;
use metahook_server::telemetry::error_chain;
use serde_json::Value;

use super::defines;
use crate::controllers::{FindError, find};
use crate::deploy::written_by_authors;
use crate::inspected_server::{InspectError, Inspector, Question, Servers};
use crate::stored_hooks::stored_bytes;

/// Where servers answer about a recording.
const PATH: &str = "/v1/recording";

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A server that starts may run the controller a little later.
const HOSTED_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Debug, thiserror::Error)]
pub enum RecorderError {
    #[error(transparent)]
    Find(#[from] FindError),
    #[error(transparent)]
    Inspect(#[from] InspectError),
    #[error("no server that was asked runs the controller {0}: see `metahook status {0}`")]
    NotHosted(String),
    #[error("what the server answers is not of this version: {0}")]
    Line(#[source] serde_json::Error),
    #[error("the operating system gives no random numbers")]
    Random(#[from] getrandom::Error),
    #[error("the file cannot be written")]
    Write(#[from] io::Error),
}

/// A recording under way.
pub struct Recorder {
    inspector: Inspector,
    servers: Servers,
    object: TracedObject,
    controller: Value,
    /// What the server is asked beside the controller.
    more: Vec<(&'static str, String)>,
    began: Instant,
    is_hosted: bool,
    digests: BTreeSet<String>,
    ending: Ending,
}

impl Recorder {
    /// `controller`: as `hello`, or `compositecontroller/hello`. `parent`: one alone.
    ///
    /// # Errors
    /// There is no such controller.
    pub async fn of(
        inspector: Inspector,
        controller: &str,
        parent: Option<&Key>,
        with_secrets: bool,
    ) -> Result<Self, RecorderError> {
        let (id, controller) = find(&inspector.api, controller).await?;
        let mut more = vec![
            ("number", format!("{:016x}", getrandom::u64()?)),
            ("withSecrets", with_secrets.to_string()),
        ];
        if let Some(Key { namespace, name }) = parent {
            more.extend([("parentNamespace", namespace.to_string()), ("parentName", name.to_string())]);
        }
        let ending = Ending { calls: 0, reconciles: 0, lost: 0 };
        Ok(Self {
            inspector,
            servers: Servers::default(),
            object: TracedObject::new(&id.resource, &id.key),
            controller,
            more,
            began: Instant::now(),
            is_hosted: false,
            digests: BTreeSet::new(),
            ending,
        })
    }

    /// Writes the first line.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(&self, out: &mut impl Write) -> Result<(), RecorderError> {
        let beginning = Beginning {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            controller: format!("{} {}", self.object.kind, self.object.name),
        };
        Ok(writeln!(out, "{}", RecordedLine::Recording(beginning).print())?)
    }

    /// Writes the lines that have come, until so many reconciles are written; waits a moment before. How many there are.
    ///
    /// # Errors
    /// The server does not answer, or does not let this user record.
    pub async fn fetch(&mut self, max: usize, out: &mut impl Write) -> Result<usize, RecorderError> {
        if self.is_hosted {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let question = Question { path: PATH, object: &self.object, more: &self.more };
        let (answers, failed): (Vec<RecordedAnswer>, _) =
            self.inspector.reach_and_ask(&mut self.servers, question).await?;
        match failed {
            // The other server may be the one that runs the controller.
            Some(error) if answers.is_empty() || is_final(&error) => return Err(error.into()),
            _ => {}
        }
        self.is_hosted |= answers.iter().any(|answer| answer.hosted);
        if !self.is_hosted && self.began.elapsed() > HOSTED_TIMEOUT {
            return Err(RecorderError::NotHosted(self.object.name.clone()));
        }
        self.ending.lost += answers.iter().map(|answer| answer.lost).sum::<usize>();
        for line in answers.iter().flat_map(|answer| &answer.lines) {
            if self.ending.reconciles >= max {
                break;
            }
            match serde_json::from_str(line).map_err(RecorderError::Line)? {
                RecordedLine::Call(call) => {
                    self.ending.calls += 1;
                    self.digests.extend(call.digest);
                }
                RecordedLine::Reconcile(_) => self.ending.reconciles += 1,
                _ => {}
            }
            writeln!(out, "{line}")?;
        }
        Ok(self.ending.reconciles)
    }

    /// Writes what the calls need to be made again, and the last line. Gives back remarks.
    ///
    /// # Errors
    /// The file cannot be written.
    pub async fn end(mut self, out: &mut impl Write) -> Result<(Ending, Vec<String>), RecorderError> {
        let mut remarks = Vec::new();
        self.more.push(("end", true.to_string()));
        let question = Question { path: PATH, object: &self.object, more: &self.more };
        // Else the server ends it after half a minute.
        drop(self.inspector.ask::<RecordedAnswer>(&mut self.servers, question).await);
        for (place, _) in modules_of(&self.controller) {
            let stored = stored_bytes(&self.inspector.api, &place).await;
            let stored = match stored {
                Ok(stored) => stored,
                Err(error) => {
                    remarks.push(error_chain(&error));
                    continue;
                }
            };
            let digest = unpack(stored.clone(), &ModuleBounds::default());
            let digest = digest.map(|bytes| Digest::of(&bytes).to_string()).unwrap_or_default();
            if self.digests.remove(&digest) {
                let hook = RecordedHook::new(digest, place.key, place.language, &stored);
                writeln!(out, "{}", RecordedLine::Hook(hook).print())?;
            }
        }
        remarks.extend(self.digests.iter().map(|digest| {
            format!("the version {digest} is no longer stored: `metahook replay` needs its file (--module)")
        }));
        match self.definitions().await {
            Ok(definitions) => {
                for definition in definitions {
                    writeln!(out, "{}", RecordedLine::Definition(Box::new(definition)).print())?;
                }
            }
            Err(error) => remarks.push(format!("the definitions of its kinds are left out: {error}")),
        }
        if self.ending.lost > 0 {
            remarks.push(format!("{} lines are lost: the server had no room for them", self.ending.lost));
        }
        writeln!(out, "{}", RecordedLine::End(self.ending.clone()).print())?;
        out.flush()?;
        Ok((self.ending, remarks))
    }

    /// The definitions of the kinds of parents and children.
    async fn definitions(&self) -> Result<Vec<Value>, String> {
        let kinds: Vec<Gvr> =
            parents_of(&self.controller).into_iter().chain(children_of(&self.controller)).collect();
        let all = self.inspector.api.definitions().await.map_err(|error| error_chain(&error))?;
        let wanted = all.iter().filter(|one| kinds.iter().any(|kind| defines(one, kind)));
        Ok(wanted.map(written_by_authors).collect())
    }
}

/// The next request gets the same answer.
fn is_final(error: &InspectError) -> bool {
    matches!(error, InspectError::Server(error) if error.is_final())
}
