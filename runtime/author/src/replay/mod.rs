//! `metahook replay`: the calls of a recording made again, with the same requests, clocks and random numbers, and what they answer now.

pub mod as_case;
mod plans;
mod text;

use std::collections::BTreeMap;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use metahook_core::api::hook::HookName;
use metahook_core::api::policy::{LimitBounds, Limits};
use metahook_core::recording::{FORMAT, RecordedCall, RecordedHook, RecordedLine};
use metahook_server::hook::LoadedHook;
use metahook_server::hook::wasm::run::{Module, MountedFolder, Seed};
use metahook_server::hook::wasm::source::LoadedModule;
use metahook_server::telemetry::error_chain;
use serde::Serialize;
use serde_json::Value;

use crate::sandbox::{Input, LoadError, Sandbox};
pub use plans::Plans;
pub use text::{print_one, print_summary};

/// Bytes of one line: more than any request and answer have together.
const MAX_LINE: u64 = 256 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("{}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: line {line}: {why}", path.display())]
    Line { path: PathBuf, line: usize, why: String },
    #[error("{}: this is no recording: `metahook record --reconciles` writes one", .0.display())]
    NoRecording(PathBuf),
    #[error("{}: metahook {version} wrote it in the format {format}, and this program reads the format {FORMAT}: use one of that version", path.display())]
    Format { path: PathBuf, version: String, format: u32 },
    #[error("{}: it has no call of a hook", .0.display())]
    NoCall(PathBuf),
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Content of a recording.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The controller's kind and name.
    pub controller: String,
    pub calls: Vec<RecordedCall>,
    pub hooks: Vec<RecordedHook>,
    pub definitions: Vec<Value>,
    /// It has no last line.
    pub is_cut_off: bool,
    pub remarks: Vec<String>,
}

impl Recorded {
    /// Reads a recording. One that is cut off is read as far as it goes, and a remark says so.
    ///
    /// # Errors
    /// The file cannot be read, or is no recording of this form.
    pub fn read(path: &Path, mut file: impl BufRead) -> Result<Self, ReplayError> {
        let (mut recorded, mut number) = (Self { is_cut_off: true, ..Self::default() }, 0);
        loop {
            let mut line = Vec::new();
            let read = file.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
            let read = read.map_err(|source| ReplayError::Read { path: path.to_owned(), source })?;
            if read == 0 {
                break;
            }
            number += 1;
            let is_last = line.last() != Some(&b'\n');
            let at = |why: String| ReplayError::Line { path: path.to_owned(), line: number, why };
            match serde_json::from_slice(&line) {
                Ok(RecordedLine::Recording(begin)) if number == 1 => {
                    if begin.format != FORMAT {
                        let (version, format) = (begin.version, begin.format);
                        return Err(ReplayError::Format { path: path.to_owned(), version, format });
                    }
                    recorded.controller = begin.controller;
                }
                Ok(_) | Err(_) if number == 1 => return Err(ReplayError::NoRecording(path.to_owned())),
                Ok(RecordedLine::Call(call)) => recorded.calls.push(*call),
                Ok(RecordedLine::Hook(hook)) => recorded.hooks.push(hook),
                Ok(RecordedLine::Definition(definition)) => recorded.definitions.push(*definition),
                Ok(RecordedLine::Reconcile(_)) => {}
                Ok(RecordedLine::Recording(_)) => {
                    return Err(at("a second recording begins here".to_owned()));
                }
                Ok(RecordedLine::End(ending)) => {
                    recorded.is_cut_off = false;
                    if ending.lost > 0 {
                        let lost = format!("{} lines were lost when it was recorded", ending.lost);
                        recorded.remarks.push(lost);
                    }
                }
                Err(_) if is_last => break,
                Err(error) => return Err(at(error.to_string())),
            }
        }
        if number == 0 {
            return Err(ReplayError::NoRecording(path.to_owned()));
        }
        if recorded.is_cut_off {
            recorded.remarks.push(recorded.cut_off());
        }
        if recorded.calls.is_empty() {
            return Err(ReplayError::NoCall(path.to_owned()));
        }
        Ok(recorded)
    }

    fn cut_off(&self) -> String {
        format!("the recording is cut off: it has no last line, and {} calls", self.calls.len())
    }
}

/// Calls that are made again.
pub struct Replayer<'a> {
    pub sandbox: &'a Sandbox,
    /// By digest.
    modules: BTreeMap<String, Arc<Module>>,
    /// Definitions of the kinds of the recorded controller.
    definitions: Vec<Value>,
    /// The module that takes the place of all.
    pub instead: Option<Arc<Module>>,
    pub mounts: Vec<MountedFolder>,
}

/// A call that was made again.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replayed {
    pub hook: String,
    pub parent: String,
    #[serde(flatten)]
    pub compared: Compared,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded_instructions: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "is")]
pub enum Compared {
    Same,
    /// Something else is answered. `replaced`: the values of Secrets are not those of the server. `plans`: what the server
    /// would write after each answer; a customize hook has none.
    Different {
        recorded: Value,
        now: Value,
        replaced: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        plans: Option<Plans>,
    },
    /// There was an answer, and now there is an error; or the other way round, or another error.
    OtherEnd {
        recorded: Option<String>,
        now: Option<String>,
    },
    /// The call cannot be made again.
    NotMade {
        why: String,
    },
}

impl Replayed {
    /// Why the call was not made again.
    pub fn not_made(&self) -> Option<&str> {
        if let Compared::NotMade { why } = &self.compared { Some(why) } else { None }
    }
}

/// Numbers of calls.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplaySummary {
    pub calls: usize,
    pub same: usize,
    pub different: usize,
    /// Calls with another answer after which the server would write the same.
    pub same_plan: usize,
    pub not_made: usize,
    /// Instructions that the recording has for the calls that were made again.
    pub recorded_instructions: u64,
    pub instructions: u64,
}

impl<'a> Replayer<'a> {
    /// `instead`: the module that is called in place of those of the recording.
    ///
    /// # Errors
    /// A module of the recording cannot be loaded.
    pub async fn of(
        sandbox: &'a Sandbox,
        recorded: &Recorded,
        instead: Option<Arc<Module>>,
        mounts: Vec<MountedFolder>,
    ) -> Result<Self, LoadError> {
        let mut modules = BTreeMap::new();
        for hook in recorded.hooks.iter().filter(|_| instead.is_none()) {
            let stored = hook.stored().unwrap_or_default();
            let module = sandbox.load_stored(Path::new(&hook.key), hook.language(), stored).await?;
            if module.digest.to_string() != hook.digest {
                return Err(LoadError::Damaged { key: hook.key.clone(), digest: hook.digest.clone() });
            }
            modules.insert(hook.digest.clone(), module);
        }
        Ok(Self { sandbox, modules, definitions: recorded.definitions.clone(), instead, mounts })
    }

    /// Makes a call again.
    pub async fn replay(&self, call: &RecordedCall) -> Replayed {
        let parent = format!("{} {}", call.parent.kind, call.parent.key());
        let mut replayed = Replayed {
            hook: call.hook.clone(),
            parent,
            compared: Compared::Same,
            recorded_instructions: call.usage.map(|usage| usage.instructions),
            instructions: None,
        };
        let (module, hook) = match self.callable(call) {
            Ok(callable) => callable,
            Err(why) => return Replayed { compared: Compared::NotMade { why }, ..replayed },
        };
        let limits = call.limits.map_or(LimitBounds::default().default, Limits::from);
        let loaded = LoadedModule::of_files(module, self.mounts.clone());
        let input = Input {
            controller: &call.controller,
            hook,
            request: call.request.clone().into(),
            now: call.now(),
            seed: call.seed().map(Seed).unwrap_or_default(),
        };
        let called = self.sandbox.call(&LoadedHook::Wasm { loaded, limits }, input).await;
        replayed.instructions = called.usage.map(|usage| usage.instructions);
        let answer = called.answer.map_err(|error| error_chain(&error));
        let mut compared = compared(call, &answer);
        if let (Compared::Different { plans, .. }, Some(recorded), Ok(now)) =
            (&mut compared, &call.answer, &answer)
            && hook != HookName::Customize
        {
            *plans = Some(Plans::of(call, &self.definitions, recorded, now).await);
        }
        Replayed { compared, ..replayed }
    }

    fn callable(&self, call: &RecordedCall) -> Result<(Arc<Module>, HookName), String> {
        let hooks = [HookName::Sync, HookName::Finalize, HookName::Customize];
        let hook = hooks.into_iter().find(|hook| hook.as_str() == call.hook);
        let hook = hook.ok_or_else(|| format!("there is no hook {:?}", call.hook))?;
        let missing = call.mounts.iter().find(|path| self.mounts.iter().all(|mount| mount.path != **path));
        if let Some(path) = missing {
            return Err(format!("it reads {path}: name a folder with --mount {path}=FOLDER"));
        }
        let stored = || self.modules.get(call.digest.as_ref()?).cloned();
        let module = self.instead.clone().or_else(stored).ok_or_else(|| match &call.digest {
            None => "its hook is a webhook: name a module or a script with --module to compare".to_owned(),
            Some(digest) => format!("the recording has no {digest}: name its file with --module"),
        })?;
        Ok((module, hook))
    }
}

/// `now`: the answer, or its error.
fn compared(call: &RecordedCall, now: &Result<Vec<u8>, String>) -> Compared {
    match (&call.answer, now) {
        (Some(recorded), Ok(now)) => {
            let now = String::from_utf8_lossy(now);
            let read = |text: &str| serde_json::from_str::<Value>(text).ok();
            let (before, after) = (read(recorded), read(&now));
            // The order of fields says nothing.
            if *recorded == now || (before.is_some() && before == after) {
                return Compared::Same;
            }
            let shown = |value: Option<Value>, text: &str| value.unwrap_or_else(|| Value::from(text));
            let (recorded, now) = (shown(before, recorded), shown(after, &now));
            Compared::Different { recorded, now, replaced: call.replaced, plans: None }
        }
        // The words of an error are not recorded where they may repeat a Secret.
        (None, Err(now)) if call.replaced || call.error.as_ref() == Some(now) => Compared::Same,
        (_, Err(now)) => Compared::OtherEnd { recorded: call.error.clone(), now: Some(now.clone()) },
        (None, Ok(_)) => Compared::OtherEnd { recorded: call.error.clone(), now: None },
    }
}

impl ReplaySummary {
    pub fn add(&mut self, one: &Replayed) {
        self.calls += 1;
        match &one.compared {
            Compared::Same => self.same += 1,
            Compared::Different { plans: Some(Plans::Same), .. } => {
                self.different += 1;
                self.same_plan += 1;
            }
            Compared::Different { .. } | Compared::OtherEnd { .. } => self.different += 1,
            Compared::NotMade { .. } => self.not_made += 1,
        }
        if let (Some(recorded), Some(now)) = (one.recorded_instructions, one.instructions) {
            self.recorded_instructions += recorded;
            self.instructions += now;
        }
    }
}

#[cfg(test)]
mod tests;
