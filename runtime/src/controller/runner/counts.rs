//! How the parents of a controller stand, and what its conditions say about that.

use std::collections::BTreeSet;

use metahook_core::api::reason::ConditionReason;
use metahook_core::api::status::Finding;
use metahook_core::api::{ONLY_FINALIZES, PAUSED};
use metahook_core::children::differing;
use metahook_core::controller_metrics::ParentMetrics;
use metahook_core::counted;
use metahook_core::object::id::Key;
use metahook_core::readiness::failing_message;
use metahook_core::reconcile::api_warnings;
use metahook_core::reconcile::changing_place::Unsettled;
use metahook_core::rollout::waiting;
use metahook_core::settled::Purity;

use crate::controller::reconcile::Reconciler;
use crate::controller::reconcile::parents::Parents;

/// Message about a controller that is paused itself.
const PAUSED_BY_SPEC: &str =
    "spec.paused is true: no hook is called and nothing is written until it is false or gone";

/// How the parents of a controller stand.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) parents: ParentsByState,
    children: DifferingChildren,
    /// The controller itself is paused.
    is_paused: bool,
    only_finalizes: bool,
    /// Purity of the hooks, for each kind of parents.
    pub(super) purity: BTreeSet<Purity>,
    unsettled: Unsettled,
    waiting_rollouts: CountWithFirst<String>,
    /// Parents about whose objects the API server warned last.
    warned: CountWithFirst<String>,
    caches: CacheTrouble,
    /// Message about deletions that wait.
    held: Option<String>,
}

/// The parents of a controller, and how many of them are in each state.
#[derive(Default)]
pub(super) struct ParentsByState {
    pub(super) all: usize,
    pub(super) settled: usize,
    /// The first one with the reason of its failure.
    pub(super) failing: CountWithFirst<String>,
    pub(super) paused: CountWithFirst<Key>,
    throttled: usize,
}

/// Children that differ from the hooks' answers after a reconcile.
#[derive(Default)]
struct DifferingChildren {
    /// Children that another client keeps changing back.
    flapping: CountWithFirst<String>,
    /// Children that their update strategy leaves as they are.
    differing: CountWithFirst<String>,
}

/// Why caches of a controller are incomplete or out of date.
#[derive(Default)]
struct CacheTrouble {
    /// Why objects cannot be listed or watched.
    broken: Option<String>,
    /// Why related objects are not in memory.
    too_large: Option<String>,
}

/// A number of objects, and the first of them.
pub(super) struct CountWithFirst<T> {
    pub(super) count: usize,
    first: Option<T>,
}

impl<T> CountWithFirst<T> {
    /// Adds the objects of another kind of parents.
    fn add(&mut self, count: usize, first: Option<T>) {
        self.count += count;
        self.first = self.first.take().or(first);
    }
}

impl<T> Default for CountWithFirst<T> {
    fn default() -> Self {
        Self { count: 0, first: None }
    }
}

impl ParentsByState {
    /// The numbers as metrics show them, without those of parents that are held.
    pub(super) fn metrics(&self) -> ParentMetrics {
        ParentMetrics {
            all: self.all,
            settled: self.settled,
            failing: self.failing.count,
            paused: self.paused.count,
            held: 0,
            throttled: self.throttled,
        }
    }
}

impl Counts {
    /// `held`: the message about deletions that wait.
    pub(super) fn with(held: Option<String>) -> Self {
        Self { held, ..Self::default() }
    }

    pub(super) fn add(&mut self, controller: &Reconciler) {
        self.parents.all += controller.parents.count();
        self.only_finalizes = controller.data.config.selection.only_finalizes;
        self.is_paused = controller.data.config.paused;
        let version = controller.hooks.identity();
        {
            let settled = controller.parents.settled();
            self.parents.settled += settled.settled();
            self.parents.paused.add(settled.paused(), settled.first_paused().cloned());
            self.purity.extend(version.and_then(|version| settled.purity_of(version)));
        }
        self.parents.throttled += controller.parents.throttled();
        let (failing, first) = controller.parents.failing();
        self.parents.failing.add(failing, first);
        let (flapping, first) = controller.parents.histories.flapping(controller.data.elapsed());
        self.children.flapping.add(flapping, first.map(|child| child.to_string()));
        self.add_remarks(&controller.parents);
        {
            let differing = controller.parents.differing();
            let (children, first) = differing.count();
            self.children.differing.add(children, first.map(str::to_owned));
        }
        let trouble = || controller.data.stores().find_map(|store| store.trouble());
        let CacheTrouble { broken, too_large } = &mut self.caches;
        *broken = broken.take().or_else(trouble).or_else(|| controller.related.trouble());
        *too_large = too_large.take().or_else(|| controller.related.too_large());
    }

    fn add_remarks(&mut self, parents: &Parents) {
        parents.add_unsettled(&mut self.unsettled);
        let (rollouts, first) = parents.waiting_rollouts();
        self.waiting_rollouts.add(rollouts, first);
        let (warned, first) = parents.warned();
        self.warned.add(warned, first);
    }

    pub(super) fn settles(&self, before: &Finding) -> Finding {
        or_over(self.unsettled.finding(), before, ConditionReason::NoneThrottled)
    }

    pub(super) fn rollouts(&self, before: &Finding) -> Finding {
        let CountWithFirst { count, first } = &self.waiting_rollouts;
        let waits = first.as_ref().map(|first| waiting::finding(*count, first));
        or_over(waits, before, ConditionReason::NoRolloutWaits)
    }

    pub(super) fn api_warnings(&self, before: &Finding) -> Finding {
        let CountWithFirst { count, first } = &self.warned;
        let warned = first.as_ref().map(|first| api_warnings::finding(*count, first));
        or_over(warned, before, ConditionReason::NoApiWarnings)
    }

    /// The worst of all that there is to say. `modules`: the condition `ModulesLoaded`.
    pub(super) fn ready(&self, modules: &Finding) -> Finding {
        if self.only_finalizes {
            return Finding::new(ConditionReason::NoSyncHook, ONLY_FINALIZES);
        }
        if self.is_paused {
            return Finding::new(ConditionReason::ReadyPaused, PAUSED_BY_SPEC);
        }
        let CacheTrouble { broken, too_large } = &self.caches;
        let trouble = too_large.as_ref().or(broken.as_ref());
        if let Some(held) = &self.held {
            let besides = trouble.map_or_else(String::new, |trouble| format!("{trouble}; besides, "));
            return Finding::new(ConditionReason::WaitsForConsent, besides + held);
        }
        if let Some(too_large) = too_large {
            let message = format!("{too_large}; parents whose hook asks for such objects fail until then");
            return Finding::new(ConditionReason::CacheTooLarge, message);
        }
        match (trouble, &self.parents.failing.first) {
            (Some(trouble), _) => Finding::new(
                ConditionReason::WatchBroken,
                format!("{trouble}; parents are synced as they were seen last"),
            ),
            (None, None) => match modules {
                Finding::Known { reason, message } if !reason.is_true() => {
                    Finding::new(ConditionReason::LastGoodInUse, message)
                }
                Finding::Known { .. } | Finding::Unknown => Finding::new(ConditionReason::Running, ""),
            },
            (None, Some(first)) => {
                let (failing, parents) = (self.parents.failing.count, self.parents.all);
                let message = failing_message(failing, parents, first);
                let reason = if failing < parents {
                    ConditionReason::ParentsFailing
                } else {
                    ConditionReason::AllParentsFailing
                };
                Finding::new(reason, message)
            }
        }
    }

    /// `before`: what was found last. Where nothing has been paused so far there is no finding.
    pub(super) fn pause(&self, before: &Finding) -> Finding {
        match (&self.parents.paused.first, before) {
            _ if self.is_paused => Finding::new(ConditionReason::ControllerPaused, PAUSED_BY_SPEC),
            (Some(first), _) => {
                let message = format!(
                    "{} paused by the annotation {PAUSED}, one is {first}",
                    counted(self.parents.paused.count, "parent is", "parents are")
                );
                Finding::new(ConditionReason::ParentsPaused, message)
            }
            (None, Finding::Unknown) => Finding::Unknown,
            (None, Finding::Known { .. }) => Finding::new(ConditionReason::NothingPaused, ""),
        }
    }

    pub(super) fn held(&self) -> Finding {
        match &self.held {
            None => Finding::new(ConditionReason::NothingHeld, ""),
            Some(held) => Finding::new(ConditionReason::ThresholdExceeded, held),
        }
    }

    /// `before`: what was found last. Where nothing has differed so far there is no finding.
    pub(super) fn differing(&self, before: &Finding) -> Finding {
        let CountWithFirst { count, first } = &self.children.differing;
        match (first, before) {
            (Some(first), _) => {
                Finding::new(ConditionReason::LeftByStrategy, differing::message(*count, first))
            }
            (None, Finding::Unknown) => Finding::Unknown,
            (None, Finding::Known { .. }) => Finding::new(ConditionReason::NoneLeft, ""),
        }
    }

    pub(super) fn stable(&self) -> Finding {
        let CountWithFirst { count, first } = &self.children.flapping;
        let Some(first) = first else {
            return Finding::new(ConditionReason::NoForeignChanges, "");
        };
        let message = format!(
            "{} changed back again and again, the first is {first}; see its parent's Events",
            counted(*count, "child is", "children are")
        );
        Finding::new(ConditionReason::ValueFlapping, message)
    }
}

/// The finding that there is now; where there was one before, that it is over. Else there is no condition.
fn or_over(now: Option<Finding>, before: &Finding, over: ConditionReason) -> Finding {
    match (now, before) {
        (Some(now), _) => now,
        (None, Finding::Unknown) => Finding::Unknown,
        (None, Finding::Known { .. }) => Finding::new(over, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_stable_again_when_none_flaps() {
        let is_true = |flapping: usize| {
            let mut counts = Counts::default();
            let first = (flapping > 0).then(|| "ConfigMap n/a (data.k)".to_owned());
            counts.children.flapping.add(flapping, first);
            let Finding::Known { reason, .. } = counts.stable() else { panic!("unknown") };
            reason.is_true()
        };
        assert_eq!([is_true(0), is_true(1), is_true(0)], [true, false, true]);
    }

    #[test]
    fn no_deletion_is_held_again_when_none_waits() {
        let reason = |held: Option<&str>| {
            let Finding::Known { reason, .. } = Counts::with(held.map(str::to_owned)).held() else {
                panic!("unknown")
            };
            reason
        };
        assert_eq!(reason(Some("3 deletions")), ConditionReason::ThresholdExceeded);
        assert_eq!(reason(None), ConditionReason::NothingHeld);
    }

    #[test]
    fn nothing_is_paused_again_when_all_is_resumed() {
        let reason = |counts: &Counts, before: &Finding| match counts.pause(before) {
            Finding::Known { reason, .. } => Some(reason),
            Finding::Unknown => None,
        };
        let none = Counts::default();
        assert_eq!(reason(&none, &Finding::Unknown), None);
        let mut one = Counts::default();
        one.parents.paused.add(1, Some(Key::new("n", "p")));
        assert_eq!(reason(&one, &Finding::Unknown), Some(ConditionReason::ParentsPaused));
        assert_eq!(reason(&none, &one.pause(&Finding::Unknown)), Some(ConditionReason::NothingPaused));
        let mut all = Counts { is_paused: true, ..one };
        (all.parents.all, all.parents.failing.count) = (1, 1);
        assert_eq!(reason(&all, &Finding::Unknown), Some(ConditionReason::ControllerPaused));
        assert_eq!(all.ready(&Finding::Unknown), Finding::new(ConditionReason::ReadyPaused, PAUSED_BY_SPEC));
    }

    #[test]
    fn children_differ_no_longer_when_none_does() {
        let differing = |first: Option<&str>, before: &Finding| {
            let mut counts = Counts::default();
            counts.children.differing.add(1, first.map(str::to_owned));
            counts.differing(before)
        };
        assert_eq!(differing(None, &Finding::Unknown), Finding::Unknown);
        let found = differing(Some("ConfigMap n/a (data.k)"), &Finding::Unknown);
        assert!(matches!(&found, Finding::Known { reason: ConditionReason::LeftByStrategy, .. }));
        let ended = differing(None, &found);
        assert!(matches!(&ended, Finding::Known { reason: ConditionReason::NoneLeft, .. }));
        assert_eq!(differing(None, &ended), ended);
    }

    #[test]
    fn rollouts_and_warnings_leave_a_condition_that_says_so() {
        let reason = |finding: &Finding| match finding {
            Finding::Known { reason, .. } => Some(*reason),
            Finding::Unknown => None,
        };
        let (none, one) = (Counts::default(), || CountWithFirst { count: 1, first: Some("n/p".to_owned()) });
        let some = Counts { waiting_rollouts: one(), warned: one(), ..Counts::default() };
        let unknown = Finding::Unknown;
        assert_eq!([none.rollouts(&unknown), none.api_warnings(&unknown)], [const { Finding::Unknown }; 2]);
        assert_eq!(reason(&some.rollouts(&unknown)), Some(ConditionReason::RolloutWaits));
        assert_eq!(reason(&none.rollouts(&some.rollouts(&unknown))), Some(ConditionReason::NoRolloutWaits));
        assert_eq!(reason(&some.api_warnings(&unknown)), Some(ConditionReason::WritesWarned));
        let over = none.api_warnings(&some.api_warnings(&unknown));
        assert_eq!(reason(&over), Some(ConditionReason::NoApiWarnings));
    }

    #[test]
    fn ready_says_the_worst() {
        let refused = || Finding::new(ConditionReason::ModuleInvalid, "no module");
        let loaded = || Finding::new(ConditionReason::Loaded, "");
        let with = |modules: Finding, trouble: Option<&str>, held: Option<&str>, failing: usize| {
            let mut counts = Counts::with(held.map(str::to_owned));
            counts.caches.broken = trouble.map(str::to_owned);
            counts.parents.all = 3;
            let first = (failing > 0).then(|| "n/p (HookAnswer): no JSON".to_owned());
            counts.parents.failing.add(failing, first);
            let Finding::Known { reason, message } = counts.ready(&modules) else { panic!("unknown") };
            (reason, message)
        };
        let ready = |trouble, held, failing| with(loaded(), trouble, held, failing);
        assert_eq!(with(Finding::Unknown, None, None, 0).0, ConditionReason::Running);
        let goes_on = (ConditionReason::LastGoodInUse, "no module".to_owned());
        assert_eq!(with(refused(), None, None, 0), goes_on);
        assert_eq!(with(refused(), None, None, 1).0, ConditionReason::ParentsFailing);
        assert_eq!(ready(None, None, 2).0, ConditionReason::ParentsFailing);
        let all = ready(None, None, 3);
        assert_eq!(all.0, ConditionReason::AllParentsFailing);
        assert!(!all.0.is_true() && all.1.starts_with("3 of 3 parents fail"), "{}", all.1);
        assert_eq!(ready(None, None, 0).0, ConditionReason::Running);
        assert_eq!(ready(None, None, 1).0, ConditionReason::ParentsFailing);
        assert_eq!(ready(Some("no Pods"), None, 1).0, ConditionReason::WatchBroken);
        assert_eq!(ready(None, Some("held"), 1), (ConditionReason::WaitsForConsent, "held".to_owned()));
        let both = ready(Some("no Pods"), Some("held"), 1);
        assert_eq!(both, (ConditionReason::WaitsForConsent, "no Pods; besides, held".to_owned()));
        assert!(!both.0.is_true());
        let trouble = |text: &str| Some(text.to_owned());
        let caches = CacheTrouble { broken: trouble("no Pods"), too_large: trouble("too large") };
        let counts = Counts { caches, ..Counts::default() };
        let Finding::Known { reason, message } = counts.ready(&loaded()) else { panic!("unknown") };
        assert_eq!(reason, ConditionReason::CacheTooLarge);
        assert!(!reason.is_true() && message.starts_with("too large; "), "{message}");
    }
}
