//! How the parents of a controller stand, and what its conditions say about that.

use std::collections::BTreeSet;

use metahook_core::api::reason::ConditionReason;
use metahook_core::api::status::Finding;
use metahook_core::api::{ONLY_FINALIZES, PAUSED};
use metahook_core::children::differing;
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
    pub(super) parents: usize,
    pub(super) settled: usize,
    pub(super) failing: usize,
    pub(super) paused: usize,
    pub(super) throttled: usize,
    first_paused: Option<Key>,
    /// The controller itself is paused.
    is_paused: bool,
    /// The first that fails, and how.
    first: Option<String>,
    /// Purity of the hooks, for each kind of parents.
    pub(super) purity: BTreeSet<Purity>,
    flapping: usize,
    first_flapping: Option<String>,
    differing: usize,
    first_differing: Option<String>,
    unsettled: Unsettled,
    waiting_rollouts: usize,
    first_waiting_rollout: Option<String>,
    warned: usize,
    first_warned: Option<String>,
    trouble: Option<String>,
    /// Why related objects are not in memory.
    too_large: Option<String>,
    /// Message about deletions that wait.
    held: Option<String>,
    only_finalizes: bool,
}

impl Counts {
    /// `held`: the message about deletions that wait.
    pub(super) fn with(held: Option<String>) -> Self {
        Self { held, ..Self::default() }
    }

    pub(super) fn add(&mut self, controller: &Reconciler) {
        self.parents += controller.parents.count();
        self.only_finalizes = controller.data.config.selection.only_finalizes;
        self.is_paused = controller.data.config.paused;
        let version = controller.hooks.identity();
        {
            let settled = controller.parents.settled();
            self.settled += settled.settled();
            self.paused += settled.paused();
            self.first_paused = self.first_paused.take().or_else(|| settled.first_paused().cloned());
            self.purity.extend(version.and_then(|version| settled.purity_of(version)));
        }
        self.throttled += controller.parents.throttled();
        let (failing, first) = controller.parents.failing();
        self.failing += failing;
        self.first = self.first.take().or(first);
        let (flapping, first) = controller.parents.histories.flapping(controller.data.elapsed());
        self.flapping += flapping;
        self.first_flapping = self.first_flapping.take().or_else(|| first.map(|child| child.to_string()));
        self.add_remarks(&controller.parents);
        {
            let differing = controller.parents.differing();
            let (children, first) = differing.count();
            self.differing += children;
            self.first_differing = self.first_differing.take().or_else(|| first.map(str::to_owned));
        }
        let trouble = || controller.data.stores().find_map(|store| store.trouble());
        self.trouble = self.trouble.take().or_else(trouble).or_else(|| controller.related.trouble());
        self.too_large = self.too_large.take().or_else(|| controller.related.too_large());
    }

    fn add_remarks(&mut self, parents: &Parents) {
        parents.add_unsettled(&mut self.unsettled);
        let (rollouts, first) = parents.waiting_rollouts();
        self.waiting_rollouts += rollouts;
        self.first_waiting_rollout = self.first_waiting_rollout.take().or(first);
        let (warned, first) = parents.warned();
        self.warned += warned;
        self.first_warned = self.first_warned.take().or(first);
    }

    pub(super) fn settles(&self, before: &Finding) -> Finding {
        or_over(self.unsettled.finding(), before, ConditionReason::NoneThrottled)
    }

    pub(super) fn rollouts(&self, before: &Finding) -> Finding {
        let first = self.first_waiting_rollout.as_ref();
        let waits = first.map(|first| waiting::finding(self.waiting_rollouts, first));
        or_over(waits, before, ConditionReason::NoRolloutWaits)
    }

    pub(super) fn api_warnings(&self, before: &Finding) -> Finding {
        let warned = self.first_warned.as_ref().map(|one| api_warnings::finding(self.warned, one));
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
        let trouble = self.too_large.as_ref().or(self.trouble.as_ref());
        if let Some(held) = &self.held {
            let besides = trouble.map_or_else(String::new, |trouble| format!("{trouble}; besides, "));
            return Finding::new(ConditionReason::WaitsForConsent, besides + held);
        }
        if let Some(too_large) = &self.too_large {
            let message = format!("{too_large}; parents whose hook asks for such objects fail until then");
            return Finding::new(ConditionReason::CacheTooLarge, message);
        }
        match (trouble, &self.first) {
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
                let (failing, parents) = (self.failing, self.parents);
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
        match (&self.first_paused, before) {
            _ if self.is_paused => Finding::new(ConditionReason::ControllerPaused, PAUSED_BY_SPEC),
            (Some(first), _) => {
                let message = format!(
                    "{} paused by the annotation {PAUSED}, one is {first}",
                    counted(self.paused, "parent is", "parents are")
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
        match (&self.first_differing, before) {
            (Some(first), _) => {
                Finding::new(ConditionReason::LeftByStrategy, differing::message(self.differing, first))
            }
            (None, Finding::Unknown) => Finding::Unknown,
            (None, Finding::Known { .. }) => Finding::new(ConditionReason::NoneLeft, ""),
        }
    }

    pub(super) fn stable(&self) -> Finding {
        let Some(first) = &self.first_flapping else {
            return Finding::new(ConditionReason::NoForeignChanges, "");
        };
        let message = format!(
            "{} changed back again and again, the first is {first}; see its parent's Events",
            counted(self.flapping, "child is", "children are")
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
            let first_flapping = (flapping > 0).then(|| "ConfigMap n/a (data.k)".to_owned());
            let counts = Counts { flapping, first_flapping, ..Counts::default() };
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
        let one = Counts { paused: 1, first_paused: Some(Key::new("n", "p")), ..Counts::default() };
        assert_eq!(reason(&one, &Finding::Unknown), Some(ConditionReason::ParentsPaused));
        assert_eq!(reason(&none, &one.pause(&Finding::Unknown)), Some(ConditionReason::NothingPaused));
        let all = Counts { is_paused: true, failing: 1, parents: 1, ..one };
        assert_eq!(reason(&all, &Finding::Unknown), Some(ConditionReason::ControllerPaused));
        assert_eq!(all.ready(&Finding::Unknown), Finding::new(ConditionReason::ReadyPaused, PAUSED_BY_SPEC));
    }

    #[test]
    fn children_differ_no_longer_when_none_does() {
        let differing = |first: Option<&str>, before: &Finding| {
            let counts =
                Counts { differing: 1, first_differing: first.map(str::to_owned), ..Counts::default() };
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
        let (none, one) = (Counts::default(), Some("n/p".to_owned()));
        let some =
            Counts { first_waiting_rollout: one.clone(), first_warned: one, warned: 1, ..Counts::default() };
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
            let counts = Counts {
                trouble: trouble.map(str::to_owned),
                held: held.map(str::to_owned),
                first: (failing > 0).then(|| "n/p (HookAnswer): no JSON".to_owned()),
                failing,
                parents: 3,
                ..Counts::default()
            };
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
        let too_large = Some("too large".to_owned());
        let counts = Counts { too_large, trouble: Some("no Pods".to_owned()), ..Counts::default() };
        let Finding::Known { reason, message } = counts.ready(&loaded()) else { panic!("unknown") };
        assert_eq!(reason, ConditionReason::CacheTooLarge);
        assert!(!reason.is_true() && message.starts_with("too large; "), "{message}");
    }
}
