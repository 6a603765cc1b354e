//! Registry of modules by digest: each is loaded once, however many hooks name it, and known failures are remembered.
//!
//! All that wait for a digest wait for the same load; when none waits any more, the load ends.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use metahook_core::api::policy::Limits;
use tokio::time::Instant;

use super::runners::Runners;
use super::unpack::unpack;
use crate::hook::wasm::compile::{CodeLoader, Digest, ModuleBounds, ModuleError, Origin, blocking};
use crate::hook::wasm::run::{EngineError, Module, Runtime, RuntimeSettings};
use crate::sync::lock;

pub type Loaded = Result<Arc<Module>, ModuleError>;

/// A load that all callers of one digest share. It goes on as long as one of them waits.
type Loading = Shared<BoxFuture<'static, Loaded>>;

/// Failures that are remembered; the oldest is forgotten first.
const MAX_FAILURES: usize = 256;

/// The modules of a runtime.
pub struct ModuleRegistry {
    pub(super) runtime: Runtime,
    pub(super) bounds: ModuleBounds,
    /// Of a call without a controller.
    pub(super) limits: Limits,
    pub(super) code: CodeLoader,
    pub(super) runners: Runners,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    modules: BTreeMap<Digest, Entry>,
    failures: VecDeque<Failure>,
}

enum Entry {
    Loading(WeakShared<BoxFuture<'static, Loaded>>),
    /// A module lives as long as a hook uses it.
    Loaded(Weak<Module>),
}

struct Failure {
    digest: Digest,
    error: ModuleError,
    at: Instant,
}

impl ModuleRegistry {
    pub fn new(settings: &RuntimeSettings) -> Result<Self, EngineError> {
        let runtime = Runtime::new(settings)?;
        let code = CodeLoader::new(runtime.engines.clone(), &settings.modules, &settings.limits);
        let runners = Runners::new(settings.modules.runners.clone());
        let (bounds, limits) = (settings.modules.bounds, settings.limits.default);
        Ok(Self { runtime, bounds, limits, code, runners, entries: Mutex::default() })
    }

    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Stored bytes to a module's bytes.
    pub async fn unpack(&self, stored: Vec<u8>) -> Result<Vec<u8>, ModuleError> {
        let bounds = self.bounds;
        blocking(move || unpack(stored, &bounds)).await
    }

    /// Loads a module: compiles it, or finds it compiled.
    ///
    /// *Guarantees*: each digest is compiled once at a time, however many callers there are; a caller that is dropped takes
    /// nothing from the others.
    pub async fn load(self: &Arc<Self>, bytes: Vec<u8>) -> Loaded {
        let (digest, bytes) = self.code.inspect(bytes).await?;
        let this = Arc::clone(self);
        self.once(digest, || async move { this.make(digest, &bytes, &this.bounds).await }).await
    }

    /// The module under a digest, which is made where it is neither known nor on its way.
    pub(super) async fn once<M: Future<Output = Loaded> + Send + 'static>(
        self: &Arc<Self>,
        digest: Digest,
        make: impl FnOnce() -> M,
    ) -> Loaded {
        let found = lock(&self.entries).find(digest, Instant::now(), || {
            let (this, making) = (Arc::clone(self), make());
            async move {
                let loaded = making.await;
                lock(&this.entries).ended(digest, &loaded, Instant::now());
                loaded
            }
            .boxed()
        });
        match found {
            Ok(loaded) => loaded,
            Err(loading) => loading.await,
        }
    }

    /// Compilations started so far.
    pub fn compilations(&self) -> u64 {
        self.code.compilations()
    }

    pub(super) async fn make(&self, digest: Digest, bytes: &[u8], bounds: &ModuleBounds) -> Loaded {
        let (code, origin) = self.code.load(digest, bytes, bounds).await?;
        let size = bytes.len();
        let module = self.runtime.module(digest, size, &code, origin)?;
        let (cached, time) = match origin {
            Origin::Compiled(time) => (false, time),
            Origin::Cached(time) => (true, time),
        };
        tracing::info!(%digest, size, cached, seconds = time.as_secs_f64(), "module loaded");
        Ok(Arc::new(module))
    }
}

impl Entries {
    /// The module, or its failure; else its load, which `start` begins where none goes on.
    fn find(
        &mut self,
        digest: Digest,
        now: Instant,
        start: impl FnOnce() -> BoxFuture<'static, Loaded>,
    ) -> Result<Loaded, Loading> {
        let known = match self.modules.get(&digest) {
            Some(Entry::Loaded(module)) => module.upgrade().map(|module| Ok(Ok(module))),
            Some(Entry::Loading(loading)) => loading.upgrade().map(Err),
            None => None,
        };
        if let Some(known) = known {
            return known;
        }
        self.failures.retain(|failure| now.duration_since(failure.at) < failure.error.holds_for());
        if let Some(failure) = self.failures.iter().find(|failure| failure.digest == digest) {
            return Ok(Err(failure.error.clone()));
        }
        let loading = start().shared();
        if let Some(weak) = loading.downgrade() {
            self.modules.insert(digest, Entry::Loading(weak));
        }
        Err(loading)
    }

    /// Records the result of a load.
    fn ended(&mut self, digest: Digest, loaded: &Loaded, now: Instant) {
        self.modules.retain(|_, entry| match entry {
            Entry::Loading(loading) => loading.upgrade().is_some(),
            Entry::Loaded(module) => module.strong_count() > 0,
        });
        match loaded {
            Ok(module) => {
                self.modules.insert(digest, Entry::Loaded(Arc::downgrade(module)));
            }
            Err(error) => {
                self.modules.remove(&digest);
                self.failures.push_back(Failure { digest, error: error.clone(), at: now });
                if self.failures.len() > MAX_FAILURES {
                    self.failures.pop_front();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn digest(number: usize) -> Digest {
        Digest::of(&number.to_be_bytes())
    }

    fn never() -> BoxFuture<'static, Loaded> {
        futures_util::future::pending().boxed()
    }

    fn fails(error: &ModuleError) -> Loaded {
        Err(error.clone())
    }

    #[test]
    fn callers_share_a_load_and_the_last_one_ends_it() {
        let mut entries = Entries::default();
        let now = Instant::now();
        let first = entries.find(digest(1), now, never).unwrap_err();
        let second = entries.find(digest(1), now, || unreachable!("it is being loaded")).unwrap_err();
        assert!(first.ptr_eq(&second));
        drop(first);
        let third = entries.find(digest(1), now, || unreachable!("a caller still waits")).unwrap_err();
        drop((second, third));
        let mut again = false;
        let fourth = entries.find(digest(1), now, || {
            again = true;
            never()
        });
        assert!(fourth.is_err() && again);
    }

    #[tokio::test]
    async fn a_dropped_caller_takes_nothing_from_the_others() {
        let mut entries = Entries::default();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let refused = || ModuleError::Refused("odd".into());
        let begin = move || {
            async move {
                ended.await.unwrap();
                Err(refused())
            }
            .boxed()
        };
        let mut first = entries.find(digest(1), Instant::now(), begin).unwrap_err();
        let second = entries.find(digest(1), Instant::now(), never).unwrap_err();
        assert!((&mut first).now_or_never().is_none(), "it drives the load");
        drop(first);
        end.send(()).unwrap();
        assert_eq!(second.await.unwrap_err(), refused());
    }

    #[test]
    fn a_refusal_holds_and_a_late_compilation_is_tried_again() {
        let now = Instant::now();
        for (error, later, holds) in [
            (ModuleError::Refused("odd".into()), Duration::from_hours(10_000), true),
            (ModuleError::CompileTime(Duration::ZERO), Duration::from_secs(299), true),
            (ModuleError::CompileTime(Duration::ZERO), Duration::from_mins(5), false),
            (ModuleError::NoCompiler("busy".into()), Duration::ZERO, false),
        ] {
            let mut entries = Entries::default();
            entries.ended(digest(1), &fails(&error), now);
            let found = entries.find(digest(1), now + later, never).ok();
            assert_eq!(found.map(|found| found.unwrap_err()), holds.then_some(error));
        }
    }

    #[test]
    fn the_oldest_failures_are_forgotten() {
        let (mut entries, now) = (Entries::default(), Instant::now());
        let error = ModuleError::Refused("odd".into());
        for number in 0..=MAX_FAILURES {
            entries.ended(digest(number), &fails(&error), now);
        }
        assert!(entries.find(digest(0), now, never).is_err());
        assert!(entries.find(digest(1), now, never).is_ok());
    }
}
