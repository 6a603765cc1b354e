//! `metahook replay --as-case`: each recorded call becomes a case of `metahook test`, with the clock and the random numbers that it had.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use metahook_core::api::hook::HookName;
use metahook_core::counted;
use metahook_core::recording::RecordedCall;
use metahook_server::hook::wasm::compile::{Digest, ModuleBounds};
use metahook_server::hook::wasm::run::Seed;
use metahook_server::hook::wasm::source::unpack::unpack;
use serde_json::Value;

use super::Recorded;
use crate::cases::call_input::CallInput;
use crate::cases::{CONTROLLER, DEFINITIONS, MAX_CASES, beside};
use crate::deploy::written_by_authors;
use crate::documents::MAX_FILE;
use crate::record::folder::{Folder, path_of};
use crate::record::{RecordError, check_key};
use crate::sandbox::LoadError;
use crate::yaml;

/// The beginnings of the files with what a call is given.
const RECORDED: &str =
    "# The hook that was called when this was recorded, its clock and the source of its random numbers.\n";
const REPLACED: &str = "# The hook that was called when this was recorded, and its clock. Values of Secrets were replaced in its request and its answer, and the\n# source of its random numbers is left out: what it makes of them may differ from response.yaml, and --bless takes what comes out now.\n";

#[derive(Debug, thiserror::Error)]
pub enum AsCaseError {
    #[error("{0}: cases are made of a whole recording, so record again, or copy the whole file")]
    CutOff(String),
    #[error("the recording has {0} calls, and at most {MAX_CASES} become cases: record fewer reconciles")]
    TooMany(usize),
    #[error("no call of the recording can be a case. The first: {0}")]
    NoCase(String),
    #[error(
        "two hooks of the recording have the key {0:?}, and a folder of cases has one file of this name: put the folder beside a {CONTROLLER} of your own and its hooks"
    )]
    SameKey(String),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// Cases and files that a recording is written as.
#[derive(Debug, Default)]
pub struct CallCases {
    cases: Vec<CallCase>,
    /// The controller, its definitions and its hooks, by the names of their files.
    shared: BTreeMap<String, Vec<u8>>,
    pub remarks: Vec<String>,
}

/// A recorded call as a case.
#[derive(Debug)]
struct CallCase {
    /// Its folder.
    place: Vec<String>,
    request: String,
    response: String,
    input: String,
}

impl CallCases {
    /// The cases of a recording for a folder. Where a controller lies beside the folder, its author's files are those that count for
    /// `metahook test`, and the recorded ones are left out.
    ///
    /// # Errors
    /// The recording is cut off or damaged, or none of its calls can be a case.
    pub fn of(recorded: &Recorded, folder: &Path) -> Result<Self, AsCaseError> {
        if recorded.is_cut_off {
            return Err(AsCaseError::CutOff(recorded.cut_off()));
        }
        if recorded.calls.len() > MAX_CASES {
            return Err(AsCaseError::TooMany(recorded.calls.len()));
        }
        let kinds: BTreeSet<_> =
            recorded.calls.iter().map(|call| (&call.parent.group, &call.parent.resource)).collect();
        let (mut this, mut taken, mut without) = (Self::default(), BTreeSet::new(), Vec::new());
        for call in &recorded.calls {
            match case_of(call, kinds.len() > 1) {
                Ok(mut case) => {
                    make_distinct(&mut case.place, &mut taken);
                    this.cases.push(case);
                }
                Err(why) => without.push(why),
            }
        }
        if let Some(first) = without.first() {
            if this.cases.is_empty() {
                return Err(AsCaseError::NoCase(first.clone()));
            }
            let number = counted(without.len(), "call is no case", "calls are no cases");
            this.remarks.push(format!("{number}. The first: {first}"));
        }
        let own = beside(folder).join(CONTROLLER);
        if own.is_file() {
            let own = own.display();
            this.remarks.push(format!(
                "{own} counts for `metahook test`: the recorded one is not written, nor its hooks"
            ));
        } else {
            this.add_shared(recorded)?;
        }
        this.remark_on(recorded);
        Ok(this)
    }

    /// The number of cases.
    pub fn number(&self) -> usize {
        self.cases.len()
    }

    /// The names of the files that the cases share.
    pub fn shared(&self) -> impl Iterator<Item = &str> {
        self.shared.keys().map(String::as_str)
    }

    /// Writes all files, or none where one is there already.
    ///
    /// # Errors
    /// A file or a case is there already, or cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), AsCaseError> {
        let mut places = Vec::new();
        for case in &self.cases {
            let place = path_of(folder, &case.place)?;
            if place.symlink_metadata().is_ok() {
                return Err(RecordError::Exists(place).into());
            }
            places.push((place, case));
        }
        let mut shared = Vec::new();
        for (name, bytes) in &self.shared {
            let path = folder.join(name);
            if path.symlink_metadata().is_err() {
                shared.push((path, bytes));
            } else if std::fs::read(&path).ok().as_ref() != Some(bytes) {
                return Err(RecordError::Exists(path).into());
            }
        }
        // Like the recording they hold objects that not everybody may read.
        let mut files = Folder { root: folder, is_private: true, wrote: &mut Vec::new() };
        for (path, bytes) in shared {
            files.write(path, bytes)?;
        }
        for (place, case) in places {
            let named = |name: &str| -> PathBuf { place.join(name) };
            files.write(named("request.json"), case.request.as_bytes())?;
            files.write(named("response.yaml"), case.response.as_bytes())?;
            files.write(named("call.yaml"), case.input.as_bytes())?;
        }
        Ok(())
    }

    fn add_shared(&mut self, recorded: &Recorded) -> Result<(), AsCaseError> {
        let controller = |call: &RecordedCall| {
            let mut request: Value = serde_json::from_str(&call.request).ok()?;
            Some(request.get_mut("controller")?.take())
        };
        if let Some(controller) = recorded.calls.iter().rev().find_map(controller) {
            let printed = yaml::print(&written_by_authors(&controller));
            self.shared.insert(CONTROLLER.to_owned(), printed.into_bytes());
        }
        if !recorded.definitions.is_empty() {
            let printed: Vec<_> = recorded.definitions.iter().map(yaml::print).collect();
            self.shared.insert(DEFINITIONS.to_owned(), printed.join("---\n").into_bytes());
        }
        let mut keys = BTreeSet::new();
        for hook in &recorded.hooks {
            let key = hook.key.clone();
            check_key(&key)?;
            if !keys.insert(key.clone()) {
                return Err(AsCaseError::SameKey(key));
            }
            let stored = hook.stored().unwrap_or_default();
            let plain = unpack(stored.clone(), &ModuleBounds::default()).unwrap_or_default();
            if Digest::of(&plain).to_string() != hook.digest {
                return Err(LoadError::Damaged { key, digest: hook.digest.clone() }.into());
            }
            self.shared.insert(key, stored);
        }
        // A file and a folder cannot have the same name.
        let taken = self.cases.iter().filter_map(|case| case.place.first());
        match taken.into_iter().find(|name| self.shared.contains_key(*name)) {
            Some(name) => Err(RecordError::Name(name.clone()).into()),
            None => Ok(()),
        }
    }

    /// Adds remarks on what `metahook test` needs beside the folder, and on what may differ.
    fn remark_on(&mut self, recorded: &Recorded) {
        let calls = || recorded.calls.iter().filter(|call| call.answer.is_some());
        if calls().any(|call| call.digest.is_none()) {
            let webhook = "a hook of it is a webhook: name a module or a script for `metahook test --module`";
            self.remarks.push(webhook.to_owned());
        }
        let stored: BTreeSet<_> = recorded.hooks.iter().map(|hook| &hook.digest).collect();
        let digests: BTreeSet<_> = calls().filter_map(|call| call.digest.as_ref()).collect();
        self.remarks.extend(digests.difference(&stored).map(|digest| {
            format!("the recording has no {digest}, which some cases are of: another version may answer something else")
        }));
        let mounts: BTreeSet<_> = calls().flat_map(|call| &call.mounts).collect();
        self.remarks.extend(mounts.into_iter().map(|path| {
            format!("a hook reads {path}: name a folder for `metahook test --mount {path}=FOLDER`")
        }));
        let replaced = calls().filter(|call| call.replaced).count();
        if replaced > 0 {
            let cases = counted(replaced, "case", "cases");
            self.remarks.push(format!("values of Secrets are replaced in {cases}: call.yaml says in which"));
        }
    }
}

/// The case of a call; or why there is none. `with_kind`: its place names the parent's kind.
fn case_of(call: &RecordedCall, with_kind: bool) -> Result<CallCase, String> {
    let of = format!("the {} hook for {} {}", call.hook, call.parent.kind, call.parent.key());
    let Some(answer) = &call.answer else {
        let error = call.error.as_deref().unwrap_or("it did not answer");
        return Err(format!("{of} failed: {error}"));
    };
    let answer: Value =
        serde_json::from_str(answer).map_err(|error| format!("the answer of {of} is no JSON: {error}"))?;
    // A value, as what reads the case makes one: it bounds the depth.
    let request = serde_json::from_str::<Value>(&call.request);
    request.map_err(|error| format!("the request of {of} is no JSON: {error}"))?;
    let request = indented(&call.request);
    if request.len() as u64 > MAX_FILE {
        return Err(format!(
            "the request of {of} takes {} bytes over several lines, and `metahook test` reads at most {MAX_FILE}",
            request.len(),
        ));
    }
    let hooks = [HookName::Sync, HookName::Finalize, HookName::Customize];
    let hook = hooks.into_iter().find(|hook| hook.as_str() == call.hook);
    let hook = hook.ok_or_else(|| format!("there is no hook {:?}", call.hook))?;
    let time = Timestamp::from_nanosecond(call.now_nanos.into()).map_err(|error| error.to_string())?;
    let input = CallInput { hook: Some(hook), time: Some(time), seed: call.seed().map(Seed) };
    let begins = if call.replaced { REPLACED } else { RECORDED };
    let kind = with_kind.then_some(&call.parent.resource);
    let called = format!("{}-{hook}", time.strftime("%Y-%m-%dT%H-%M-%S.%3fZ"));
    let place = kind.into_iter().chain([&call.parent.namespace, &call.parent.name]);
    let place = place.map(ToString::to_string).chain([called]);
    Ok(CallCase {
        place: place.filter(|part| !part.is_empty()).collect(),
        request,
        response: yaml::print(&answer),
        input: begins.to_owned() + &input.print(),
    })
}

/// Two calls may have begun in the same millisecond.
fn make_distinct(place: &mut [String], taken: &mut BTreeSet<Vec<String>>) {
    let called = place.last().cloned().unwrap_or_default();
    for number in 2.. {
        if taken.insert(place.to_vec()) {
            return;
        }
        if let Some(last) = place.last_mut() {
            *last = format!("{called}-{number}");
        }
    }
}

/// JSON over several lines. Members keep their order, and numbers how they are written: a hook may follow both.
fn indented(json: &str) -> String {
    let (mut out, mut depth, mut is_text, mut is_escaped) =
        (String::with_capacity(json.len() * 2), 0, false, false);
    let next_line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    let mut chars = json.chars().peekable();
    while let Some(c) = chars.next() {
        if is_text {
            out.push(c);
            is_text = is_escaped || c != '"';
            is_escaped = c == '\\' && !is_escaped;
            continue;
        }
        match c {
            '{' | '[' => {
                out.push(c);
                while chars.next_if(char::is_ascii_whitespace).is_some() {}
                if let Some(end) = chars.next_if(|c| matches!(c, '}' | ']')) {
                    out.push(end);
                } else {
                    depth += 1;
                    next_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                next_line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                next_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => {
                is_text = c == '"';
                out.push(c);
            }
        }
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests;
