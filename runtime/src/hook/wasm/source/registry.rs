//! Which modules are loaded, on their way, or known to fail: each digest once, however many ask for it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use tokio::time::Instant;

use super::module::{Digest, Module};
use crate::hook::wasm::compile::module_error::ModuleError;

pub(crate) type Loaded = Result<Arc<Module>, ModuleError>;

/// A module on its way, shared by all who wait for it. It goes on as long as one of them does.
pub(crate) type Loading = Shared<BoxFuture<'static, Loaded>>;

/// So many failures are remembered; the oldest is forgotten first.
const FAILURES: usize = 256;

#[derive(Default)]
pub(crate) struct Known {
    modules: BTreeMap<Digest, Entry>,
    failures: VecDeque<Failure>,
}

enum Entry {
    Loading(WeakShared<BoxFuture<'static, Loaded>>),
    /// A module lives as long as somebody uses it.
    Loaded(Weak<Module>),
}

struct Failure {
    digest: Digest,
    error: ModuleError,
    at: Instant,
}

impl Known {
    /// The module, or its failure; else the way to it, which `start` begins if nobody has.
    pub(crate) fn find(
        &mut self,
        digest: Digest,
        now: Instant,
        start: impl FnOnce() -> BoxFuture<'static, Loaded>,
    ) -> Result<Loaded, Loading> {
        match self.modules.get(&digest) {
            Some(Entry::Loaded(module)) => {
                if let Some(module) = module.upgrade() {
                    return Ok(Ok(module));
                }
            }
            Some(Entry::Loading(loading)) => {
                if let Some(loading) = loading.upgrade() {
                    return Err(loading);
                }
            }
            None => {}
        }
        self.failures.retain(|failure| failure.holds(now));
        if let Some(failure) = self.failures.iter().find(|failure| failure.digest == digest) {
            return Ok(Err(failure.error.clone()));
        }
        let loading = start().shared();
        if let Some(weak) = loading.downgrade() {
            self.modules.insert(digest, Entry::Loading(weak));
        }
        Err(loading)
    }

    /// Notes how it ended.
    pub(crate) fn ended(&mut self, digest: Digest, loaded: &Loaded, now: Instant) {
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
                if self.failures.len() > FAILURES {
                    self.failures.pop_front();
                }
            }
        }
    }
}

impl Failure {
    fn holds(&self, now: Instant) -> bool {
        now.duration_since(self.at) < self.error.holds_for()
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
    fn all_wait_for_the_same_and_the_last_to_leave_ends_it() {
        let mut known = Known::default();
        let now = Instant::now();
        let first = known.find(digest(1), now, never).unwrap_err();
        let second = known.find(digest(1), now, || unreachable!("it is on its way")).unwrap_err();
        assert!(first.ptr_eq(&second));
        drop(first);
        let third = known.find(digest(1), now, || unreachable!("somebody still waits")).unwrap_err();
        drop((second, third));
        let mut again = false;
        let fourth = known.find(digest(1), now, || {
            again = true;
            never()
        });
        assert!(fourth.is_err() && again);
    }

    #[tokio::test]
    async fn who_leaves_takes_nothing_from_the_others() {
        let mut known = Known::default();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let refused = || ModuleError::Refused("odd".into());
        let begin = move || {
            async move {
                ended.await.unwrap();
                Err(refused())
            }
            .boxed()
        };
        let mut first = known.find(digest(1), Instant::now(), begin).unwrap_err();
        let second = known.find(digest(1), Instant::now(), never).unwrap_err();
        assert!((&mut first).now_or_never().is_none(), "it drives the load");
        drop(first);
        end.send(()).unwrap();
        assert_eq!(second.await.unwrap_err(), refused());
    }

    #[test]
    fn a_refused_module_stays_refused_and_a_late_one_is_tried_again_after_a_pause() {
        let now = Instant::now();
        for (error, later, holds) in [
            (ModuleError::Refused("odd".into()), Duration::from_hours(10_000), true),
            (ModuleError::CompileTime(Duration::ZERO), Duration::from_secs(299), true),
            (ModuleError::CompileTime(Duration::ZERO), Duration::from_mins(5), false),
            (ModuleError::NoCompiler("busy".into()), Duration::ZERO, false),
        ] {
            let mut known = Known::default();
            known.ended(digest(1), &fails(&error), now);
            let found = known.find(digest(1), now + later, never).ok();
            assert_eq!(found.map(|found| found.unwrap_err()), holds.then_some(error));
        }
    }

    #[test]
    fn failures_are_forgotten_when_there_are_too_many() {
        let (mut known, now) = (Known::default(), Instant::now());
        let error = ModuleError::Refused("odd".into());
        for number in 0..=FAILURES {
            known.ended(digest(number), &fails(&error), now);
        }
        assert!(known.find(digest(0), now, never).is_err());
        assert!(known.find(digest(1), now, never).is_ok());
    }
}
