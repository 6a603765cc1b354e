//! `metahook record --reconciles`: the next reconciles of a controller, as the server does them, with the calls of its hooks.
//!
//! The command fetches the lines once a second; the server keeps them until then, within a bound.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::mem;
use std::time::{Duration, Instant};

use metahook_core::bundle::{children_of, modules_of, parents_of};
use metahook_core::inspection_paths::RECORDING;
use metahook_core::object::id::{Gvr, Key};
use metahook_core::recording::{Beginning, Ending, FORMAT, RecordedAnswer, RecordedHook, RecordedLine};
use metahook_core::trace::TracedObject;
use metahook_server::cluster::discovery::{Discovery, DiscoveryError};
use metahook_server::cluster::objects::RequestError;
use metahook_server::hook::wasm::compile::{Digest, ModuleBounds};
use metahook_server::hook::wasm::source::unpack::unpack;
use metahook_server::telemetry::error_chain;
use serde_json::Value;

use super::defines;
use crate::controllers::{FindError, find};
use crate::deploy::written_by_authors;
use crate::inspected_server::{InspectError, Inspector, Question, Servers};
use crate::object_names::{NameError, Served, object_id, served};
use crate::stored_hooks::stored_bytes;

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A server that starts may run the controller a little later.
const HOSTED_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Debug, thiserror::Error)]
pub enum RecorderError {
    #[error(transparent)]
    Find(#[from] FindError),
    #[error(transparent)]
    Inspect(#[from] InspectError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("the kinds of the parents cannot be read")]
    Discovery(#[from] DiscoveryError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("the controller has no parent {0:?}")]
    NoParent(String),
    #[error("no server that was asked runs the controller {0}: see `metahook status {0}`")]
    NotHosted(String),
    #[error("what the server answers is not of this version: {0}")]
    Line(#[source] serde_json::Error),
    #[error("the operating system gives no random numbers")]
    Random(#[from] getrandom::Error),
    #[error("the file cannot be written")]
    Write(#[from] io::Error),
}

/// A server that is restarted answers again within this time.
const UNANSWERED_TIMEOUT: Duration = Duration::from_mins(1);

/// A recording under way.
pub struct Recorder {
    inspector: Inspector,
    servers: Servers,
    object: TracedObject,
    controller: Value,
    /// Fields of the question to the server, beside the controller.
    more: Vec<(&'static str, String)>,
    has_asked: bool,
    outage: Outage,
    /// Times that the recording began.
    beginnings: usize,
    hooks: CalledHooks,
    ending: Ending,
}

/// Digests of the hooks whose calls are in the file.
#[derive(Default)]
struct CalledHooks {
    /// Their modules and scripts are in the file.
    written: BTreeSet<String>,
    /// Their modules and scripts were not stored when they were looked for.
    missing: BTreeSet<String>,
}

/// An outage of the servers: since when none answers, and since when none runs the controller.
#[derive(Default)]
struct Outage {
    /// Since when no server answers.
    unanswered: Option<Instant>,
    /// Since when no server runs the controller.
    unhosted: Option<Instant>,
}

impl CalledHooks {
    fn is_new(&self, digest: &String) -> bool {
        !self.written.contains(digest) && !self.missing.contains(digest)
    }
}

impl Recorder {
    /// `controller`: as `hello`, or `compositecontroller/hello`. `parent`: one alone, in this namespace where its name has none.
    ///
    /// # Errors
    /// There is no such controller, or no such parent.
    pub async fn of(
        inspector: Inspector,
        controller: &str,
        parent: Option<(&str, &str)>,
        with_secrets: bool,
    ) -> Result<Self, RecorderError> {
        let (id, controller) = find(&inspector.api, controller).await?;
        let mut more = vec![("number", new_number()?), ("withSecrets", with_secrets.to_string())];
        if let Some((name, namespace)) = parent {
            let Key { namespace, name } = parent_of(&inspector, &controller, name, namespace).await?;
            more.extend([("parentNamespace", namespace.to_string()), ("parentName", name.to_string())]);
        }
        let ending = Ending { calls: 0, reconciles: 0, lost: 0 };
        Ok(Self {
            inspector,
            servers: Servers::default(),
            object: TracedObject::new(&id.resource, &id.key),
            controller,
            more,
            has_asked: false,
            outage: Outage::default(),
            beginnings: 0,
            hooks: CalledHooks::default(),
            ending,
        })
    }

    /// Writes the first line, and the definitions of the kinds. Gives back remarks.
    ///
    /// # Errors
    /// The file cannot be written.
    pub async fn begin(&self, out: &mut impl Write) -> Result<Vec<String>, RecorderError> {
        let beginning = Beginning {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            controller: format!("{} {}", self.object.kind, self.object.name),
        };
        writeln!(out, "{}", RecordedLine::Recording(beginning).print())?;
        let mut remarks = Vec::new();
        match self.definitions().await {
            Ok(definitions) => {
                for definition in definitions {
                    writeln!(out, "{}", RecordedLine::Definition(Box::new(definition)).print())?;
                }
            }
            Err(error) => remarks.push(format!("the definitions of its kinds are left out: {error}")),
        }
        Ok(remarks)
    }

    /// Writes the lines that have come, until so many reconciles are written; waits a moment before. How many there are.
    ///
    /// # Errors
    /// The server does not answer, or does not let this user record.
    pub async fn fetch(&mut self, max: usize, out: &mut impl Write) -> Result<usize, RecorderError> {
        if mem::replace(&mut self.has_asked, true) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let question = Question { path: RECORDING, object: &self.object, more: &self.more };
        let asked = self.inspector.reach_and_ask(&mut self.servers, question).await;
        let (answers, failed) = asked.unwrap_or_else(|error| (Vec::<RecordedAnswer>::new(), Some(error)));
        match failed {
            None => self.outage.unanswered = None,
            // The other server may be the one that runs the controller.
            Some(_) if !answers.is_empty() => self.outage.unanswered = None,
            Some(error) => {
                let since = self.outage.unanswered.get_or_insert_with(Instant::now).elapsed();
                // One that answered before may be restarted.
                if is_final(&error) || self.beginnings == 0 || since > UNANSWERED_TIMEOUT {
                    return Err(error.into());
                }
                return Ok(self.ending.reconciles);
            }
        }
        if answers.iter().any(|answer| answer.hosted) {
            self.outage.unhosted = None;
        } else if self.outage.unhosted.get_or_insert_with(Instant::now).elapsed() > HOSTED_TIMEOUT {
            return Err(RecorderError::NotHosted(self.object.name.to_string()));
        }
        self.beginnings += answers.iter().filter(|answer| answer.began).count();
        self.ending.lost += answers.iter().map(|answer| answer.lost).sum::<usize>();
        let (mut lines, mut new_digests) = (Vec::new(), BTreeSet::new());
        for line in answers.iter().flat_map(|answer| &answer.lines) {
            if self.ending.reconciles >= max {
                break;
            }
            match serde_json::from_str(line).map_err(RecorderError::Line)? {
                RecordedLine::Call(call) => {
                    self.ending.calls += 1;
                    new_digests.extend(call.digest.filter(|digest| self.hooks.is_new(digest)));
                }
                RecordedLine::Reconcile(_) => self.ending.reconciles += 1,
                _ => {}
            }
            lines.push(line);
        }
        // While they are stored. Before the calls: a file that is cut off has the hooks of all its calls.
        if !new_digests.is_empty() {
            self.hooks.missing.append(&mut new_digests);
            self.write_hooks(out).await?;
        }
        for line in lines {
            writeln!(out, "{line}")?;
        }
        Ok(self.ending.reconciles)
    }

    /// Writes the hooks that are missing, as the cluster stores them now. Gives back remarks.
    async fn write_hooks(&mut self, out: &mut impl Write) -> Result<Vec<String>, RecorderError> {
        let mut remarks = Vec::new();
        for (place, _) in modules_of(&self.controller) {
            let stored = match stored_bytes(&self.inspector.api, &place).await {
                Ok(stored) => stored,
                Err(error) => {
                    remarks.push(error_chain(&error));
                    continue;
                }
            };
            let unpacked = unpack(stored.clone(), &ModuleBounds::default());
            let digest = unpacked.map(|bytes| Digest::of(&bytes).to_string()).unwrap_or_default();
            if self.hooks.missing.remove(&digest) {
                let hook = RecordedHook::new(digest.clone(), place.key, place.language, &stored);
                writeln!(out, "{}", RecordedLine::Hook(hook).print())?;
                self.hooks.written.insert(digest);
            }
        }
        Ok(remarks)
    }

    /// Writes the hooks that are still missing, and the last line. Gives back remarks.
    ///
    /// # Errors
    /// The file cannot be written.
    pub async fn end(mut self, out: &mut impl Write) -> Result<(Ending, Vec<String>), RecorderError> {
        self.more.push(("end", true.to_string()));
        let question = Question { path: RECORDING, object: &self.object, more: &self.more };
        // Else the server ends it after half a minute.
        drop(self.inspector.ask::<RecordedAnswer>(&mut self.servers, question).await);
        let none_missing = self.hooks.missing.is_empty();
        let mut remarks = if none_missing { Vec::new() } else { self.write_hooks(out).await? };
        remarks.extend(mem::take(&mut self.hooks.missing).into_iter().map(|digest| {
            format!("the version {digest} is no longer stored: `metahook replay` needs its file (--module)")
        }));
        if self.beginnings > 1 {
            remarks.push(format!(
                "{} gaps: a server started anew, or was not asked for half a minute",
                self.beginnings - 1
            ));
        }
        if self.ending.lost > 0 {
            remarks.push(format!(
                "{} lines are lost: the server had no room for them, a request or an answer is larger than 1 MiB or has very many values, or, without --with-secrets, Secrets have too many values",
                self.ending.lost
            ));
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

/// A number for a recording that no other one has.
pub(crate) fn new_number() -> Result<String, RecorderError> {
    Ok(format!("{:016x}", getrandom::u64()?))
}

/// The parent of this name, which is there.
async fn parent_of(
    inspector: &Inspector,
    controller: &Value,
    name: &str,
    namespace: &str,
) -> Result<Key, RecorderError> {
    let discovery = Discovery::new(inspector.api.clone());
    let Served { kinds, failed } = served(&discovery, parents_of(controller).into_iter().collect()).await;
    for kind in kinds {
        let id = object_id(kind, name, namespace)?;
        if inspector.api.read_as::<Value>(&id).await?.is_some() {
            return Ok(id.key);
        }
    }
    Err(failed.map_or_else(|| RecorderError::NoParent(name.to_owned()), RecorderError::from))
}

/// The next request gets the same answer.
fn is_final(error: &InspectError) -> bool {
    matches!(error, InspectError::Server(error) if error.is_final())
}
