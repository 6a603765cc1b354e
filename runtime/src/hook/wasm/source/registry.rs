//! Registry of modules by digest: each is loaded once, however many hooks name it, and known failures are remembered.
//!
//! All that wait for a digest wait for the same load; when none waits any more, the load ends.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use metahook_core::api::policy::Limits;
use tokio::time::Instant;

use super::load_limiter::LoadLimiter;
use super::runners::Runners;
use crate::hook::wasm::compile::{
    CodeLoader, Digest, Inspected, ModuleBounds, ModuleError, Origin, RunnerCode, Unpacked, retry_delay,
};
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
    /// Limits of a call without a controller.
    pub(super) limits: Limits,
    pub(super) code: CodeLoader,
    pub(super) runners: Runners,
    limiter: LoadLimiter,
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
    /// In a row.
    count: u32,
}

impl Failure {
    /// Whether the same bytes are known to fail without another load. What may heal is loaded again after a growing delay;
    /// bytes that a user stores anew, after the first one.
    fn holds(&self, is_retry: bool, now: Instant) -> bool {
        let failures = if is_retry { self.count } else { 1 };
        !self.error.may_heal() || now.duration_since(self.at) < retry_delay(failures)
    }
}

impl ModuleRegistry {
    pub fn new(settings: &RuntimeSettings) -> Result<Self, EngineError> {
        let runtime = Runtime::new(settings)?;
        let code = CodeLoader::new(runtime.engines.clone(), &settings.modules, &settings.limits);
        let runners = Runners::new(settings.modules.runners.clone());
        let (bounds, limits) = (settings.modules.bounds, settings.limits.default);
        let limiter = LoadLimiter::new();
        Ok(Self { runtime, bounds, limits, code, runners, limiter, entries: Mutex::default() })
    }

    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Stored bytes to a module's bytes, when it is their turn; it ends when the module is loaded.
    pub async fn unpack(&self, stored: Vec<u8>) -> Result<Unpacked, ModuleError> {
        self.limiter.unpack(stored, self.bounds).await
    }

    /// Loads a module: compiles it, or finds it compiled.
    ///
    /// *Guarantees*: each digest is compiled once at a time, however many callers there are; a caller that is dropped takes
    /// nothing from the others.
    pub async fn load(self: &Arc<Self>, module: impl Into<Unpacked>) -> Loaded {
        self.load_for(module.into(), false).await
    }

    /// `is_retry`: the bytes are those of the caller's load before, which failed.
    pub(super) async fn load_for(self: &Arc<Self>, module: Unpacked, is_retry: bool) -> Loaded {
        let module = self.code.inspect(module).await?;
        let this = Arc::clone(self);
        self.once(
            module.facts.digest,
            is_retry,
            || async move { this.make(module, &this.bounds, None).await },
        )
        .await
    }

    /// The module under a digest, which is made where it is neither known nor on its way.
    pub(super) async fn once<M: Future<Output = Loaded> + Send + 'static>(
        self: &Arc<Self>,
        digest: Digest,
        is_retry: bool,
        make: impl FnOnce() -> M,
    ) -> Loaded {
        let found = lock(&self.entries).find(digest, is_retry, Instant::now(), || {
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

    pub(super) async fn make(
        &self,
        module: Inspected,
        bounds: &ModuleBounds,
        beside: Option<RunnerCode<'_>>,
    ) -> Loaded {
        let facts = module.facts;
        let (code, origin) = self.code.load(module, bounds, beside).await?;
        let (digest, size) = (facts.digest, facts.size);
        let module = self.runtime.module(facts, &code, origin)?;
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
        is_retry: bool,
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
        let known = self.failures.iter().find(|failure| failure.digest == digest);
        if let Some(failure) = known.filter(|failure| failure.holds(is_retry, now)) {
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
        let known = self.failures.iter().position(|failure| failure.digest == digest);
        let before = known.and_then(|known| self.failures.remove(known)).map_or(0, |failure| failure.count);
        match loaded {
            Ok(module) => {
                self.modules.insert(digest, Entry::Loaded(Arc::downgrade(module)));
            }
            Err(error) => {
                self.modules.remove(&digest);
                let count = before.saturating_add(1);
                self.failures.push_back(Failure { digest, error: error.clone(), at: now, count });
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
        let first = entries.find(digest(1), false, now, never).unwrap_err();
        let second = entries.find(digest(1), false, now, || unreachable!("it is being loaded")).unwrap_err();
        assert!(first.ptr_eq(&second));
        drop(first);
        let third = entries.find(digest(1), false, now, || unreachable!("a caller still waits")).unwrap_err();
        drop((second, third));
        let mut again = false;
        let fourth = entries.find(digest(1), false, now, || {
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
        let mut first = entries.find(digest(1), false, Instant::now(), begin).unwrap_err();
        let second = entries.find(digest(1), false, Instant::now(), never).unwrap_err();
        assert!((&mut first).now_or_never().is_none(), "it drives the load");
        drop(first);
        end.send(()).unwrap();
        assert_eq!(second.await.unwrap_err(), refused());
    }

    #[test]
    fn a_refusal_holds_and_a_failure_that_may_heal_is_tried_again_with_growing_delays() {
        let (refused, late) = (ModuleError::Refused("odd".into()), ModuleError::CompileTime(Duration::ZERO));
        let start = Instant::now();
        for (error, failures, is_retry, later, holds) in [
            (&refused, 1, false, Duration::from_hours(10_000), true),
            (&late, 1, true, Duration::from_secs(9), true),
            (&late, 1, true, Duration::from_secs(10), false),
            (&late, 3, true, Duration::from_secs(39), true),
            (&late, 3, true, Duration::from_secs(40), false),
            (&late, 50, true, Duration::from_secs(599), true),
            (&late, 50, true, Duration::from_mins(10), false),
            // A user stored the bytes anew.
            (&late, 50, false, Duration::from_secs(9), true),
            (&late, 50, false, Duration::from_secs(10), false),
        ] {
            let mut entries = Entries::default();
            for _ in 0..failures {
                entries.ended(digest(1), &fails(error), start);
            }
            let found = entries.find(digest(1), is_retry, start + later, never).ok();
            let expected = holds.then(|| error.clone());
            assert_eq!(found.map(|found| found.unwrap_err()), expected, "{failures} {later:?}");
        }
    }

    #[test]
    fn the_oldest_failures_are_forgotten() {
        let (mut entries, now) = (Entries::default(), Instant::now());
        let error = ModuleError::Refused("odd".into());
        for number in 0..=MAX_FAILURES {
            entries.ended(digest(number), &fails(&error), now);
        }
        assert!(entries.find(digest(0), false, now, never).is_err());
        assert!(entries.find(digest(1), false, now, never).is_ok());
    }
}
