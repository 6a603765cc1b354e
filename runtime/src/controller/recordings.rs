//! Recordings of reconciles that are under way: see [`Recordings`].

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use bytes::Bytes;
use metahook_core::json::size::tree_size;
use metahook_core::object::id::{Key, Resource};
use metahook_core::recording::buffer::{FetchedLines, RecordingRefused, Recordings, Subject};
use metahook_core::recording::{RecordedCall, RecordedLine, print_seed, without_values};
use metahook_core::trace::TracedObject;

use crate::hook::wasm::run::MountedFolder;
use crate::hook::{CallContext, CallResult, LoadedHook};
use crate::sync::lock;
use crate::telemetry::error_chain;

/// Bytes of a request that is recorded, and of an answer: to read one takes many times its size.
const MAX_REQUEST_OR_ANSWER: usize = 1 << 20;

/// Memory that their values may take while they are read: an answer of small objects takes hundreds of times its size.
const MAX_TREE_SIZE: usize = 32 << 20;

/// Those of all controllers.
pub(crate) struct RunningRecordings {
    all: Mutex<Recordings>,
    /// There may be one: nearly always there is none, and nothing is looked up.
    is_any: AtomicBool,
    started: Instant,
}

/// A call that is recorded, until its answer is there.
pub(crate) struct CallToRecord {
    /// Without what is known at its end.
    call: RecordedCall,
    request: Bytes,
    /// The files that its hook may read.
    mounted: Vec<MountedFolder>,
    wanted: [bool; 2],
}

impl Default for RunningRecordings {
    fn default() -> Self {
        Self { all: Mutex::default(), is_any: AtomicBool::new(false), started: Instant::now() }
    }
}

impl RunningRecordings {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// See [`Recordings::fetch`].
    pub(crate) fn fetch(&self, number: &str, subject: &Subject) -> Result<FetchedLines, RecordingRefused> {
        let mut all = lock(&self.all);
        let fetched = all.fetch(number, subject, self.now());
        self.is_any.store(true, Ordering::Relaxed);
        fetched
    }

    /// See [`Recordings::end`].
    pub(crate) fn end(&self, number: &str, subject: &Subject) {
        lock(&self.all).end(number, subject);
    }

    fn wanted(&self, controller: &str, parent: &Key) -> Option<[bool; 2]> {
        if !self.is_any.load(Ordering::Relaxed) {
            return None;
        }
        let (mut all, now) = (lock(&self.all), self.now());
        if all.is_empty(now) {
            self.is_any.store(false, Ordering::Relaxed);
        }
        Some(all.wanted(controller, parent, now)).filter(|wanted| wanted.contains(&true))
    }

    /// A call that begins, where it is recorded. `controller`: its kind and name.
    pub(crate) fn begin(
        &self,
        controller: &str,
        (kind, key): (&Resource, &Key),
        hook: &LoadedHook,
        context: &CallContext<'_>,
        request: &Bytes,
    ) -> Option<CallToRecord> {
        let wanted = self.wanted(controller, key)?;
        if request.len() > MAX_REQUEST_OR_ANSWER {
            lock(&self.all).lose((controller, key), wanted, self.now());
            return None;
        }
        let (digest, limits, mounted): (_, _, Vec<MountedFolder>) = match hook {
            LoadedHook::Webhook(_) => (None, None, Vec::new()),
            LoadedHook::Wasm { loaded, limits } => {
                let digest = loaded.module.digest.to_string();
                (Some(digest), Some((*limits).into()), loaded.mounts.folders.clone())
            }
        };
        let now = context.now.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let call = RecordedCall {
            controller: context.controller.to_owned(),
            parent: TracedObject::new(kind, key),
            hook: context.hook.as_str().to_owned(),
            digest,
            limits,
            mounts: mounted.iter().map(|folder| folder.path.clone()).collect(),
            now_nanos: u64::try_from(now).unwrap_or(u64::MAX),
            seed: Some(print_seed(&context.seed.0)),
            request: String::new(),
            answer: None,
            error: None,
            took_us: 0,
            usage: None,
            replaced: false,
        };
        Some(CallToRecord { call, request: request.clone(), mounted, wanted })
    }

    /// The call has ended.
    pub(crate) fn end_call(
        &self,
        controller: &str,
        CallToRecord { call, request, mounted, wanted }: CallToRecord,
        called: &CallResult,
    ) {
        let parent = call.parent.key();
        let answer = called.answer.as_deref().unwrap_or_default();
        if answer.len() > MAX_REQUEST_OR_ANSWER || tree_size(&request) + tree_size(answer) > MAX_TREE_SIZE {
            lock(&self.all).lose((controller, &parent), wanted, self.now());
            return;
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let call = RecordedCall {
            request: text(&request),
            answer: called.answer.as_ref().ok().map(|answer| text(answer)),
            error: called.answer.as_ref().err().map(|error| error_chain(error)),
            took_us: u64::try_from(called.took.as_micros()).unwrap_or(u64::MAX),
            usage: called.usage,
            ..call
        };
        let [with_secrets, without] = wanted;
        let print = |call| RecordedLine::Call(Box::new(call)).print();
        let whole = with_secrets.then(|| print(call.clone()));
        let files = mounted.iter().flat_map(|folder| folder.files.contents());
        let replaced = if without { call.without_secrets(files).map(print).ok() } else { None };
        if without && replaced.is_none() {
            lock(&self.all).lose((controller, &parent), [false, true], self.now());
        }
        self.add(controller, &parent, [whole.as_deref(), replaced.as_deref()]);
    }

    /// A reconcile ended. `trace`: its trace as JSON.
    pub(crate) fn reconciled(&self, controller: &str, parent: &Key, trace: &str) {
        let Some([with_secrets, without]) = self.wanted(controller, parent) else { return };
        let whole = with_secrets.then(|| format!("{{\"reconcile\":{trace}}}"));
        let read = || serde_json::from_str(trace).ok().map(without_values);
        let replaced = without.then(read).flatten();
        let replaced = replaced.map(|trace| RecordedLine::Reconcile(Box::new(trace)).print());
        self.add(controller, parent, [whole.as_deref(), replaced.as_deref()]);
    }

    fn add(&self, controller: &str, parent: &Key, lines: [Option<&str>; 2]) {
        lock(&self.all).add((controller, parent), lines, self.now());
    }
}
