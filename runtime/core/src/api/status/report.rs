//! Findings about a controller, and the status that they become.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::hook::HookName;
use crate::api::reason::{ConditionReason, ConditionType};
use crate::api::status::earlier::{carried_over, replaced, with_medians_of};
use crate::api::status::{Condition, ControllerStatus, DeletionStatus, HookStatus, ShadowStatus};
use crate::object::id::Key;
use crate::settled::Purity;
use crate::{counted, shorten_middle};

/// Findings about a controller; with times they become a [`ControllerStatus`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub generation: i64,
    pub ready: Finding,
    pub modules: Finding,
    pub kinds: Finding,
    pub pure: Finding,
    pub stable: Finding,
    pub held: Finding,
    /// There is no such condition where it is unknown.
    pub differing: Finding,
    /// Likewise.
    pub settles: Finding,
    /// Likewise.
    pub rollouts: Finding,
    /// Likewise.
    pub api_warnings: Finding,
    /// There is no such condition where it is unknown.
    pub writer: Finding,
    /// Likewise.
    pub rights: Finding,
    /// Likewise.
    pub shadow: Finding,
    /// Likewise.
    pub paused: Finding,
    pub shadows: BTreeMap<String, ShadowStatus>,
    pub hooks: BTreeMap<String, HookStatus>,
    pub counts: ParentCounts,
    pub deletions: DeletionStatus,
    /// Reconciles run.
    pub working: bool,
    /// Parents that are being deleted and wait for the controller, which cannot run: their number, and one of them.
    pub waiting: Option<(usize, Key)>,
}

impl Report {
    /// Why the controller cannot run; `None`: it runs, or nothing is known.
    pub fn problem(&self) -> Option<&str> {
        match &self.ready {
            Finding::Known { reason, message } if !self.working && !reason.is_true() => Some(message),
            Finding::Known { .. } | Finding::Unknown => None,
        }
    }

    /// Takes the module of a hook. `stored`: the digest that the status had before anything was loaded.
    pub fn load(&mut self, hook: HookName, status: HookStatus, stored: Option<&String>) -> ModuleChange {
        let now = self.hooks.get(hook.as_str()).and_then(|hook| hook.digest.as_ref());
        if now == status.digest.as_ref() {
            return ModuleChange::None;
        }
        let before = now.or(stored).filter(|before| Some(*before) != status.digest.as_ref()).cloned();
        let failing = self.working.then_some(self.counts.failing);
        let now = self.hooks.get(hook.as_str());
        let earlier = now.map(|now| replaced(now, failing, status.digest.as_ref())).unwrap_or_default();
        self.hooks.insert(hook.as_str().to_owned(), HookStatus { earlier, ..status });
        before.map_or(ModuleChange::Loaded, |before| ModuleChange::Replaced { before })
    }

    /// Notes the median of the instructions of a version's calls, where it runs; `true` where it had none before, which is worth a write.
    pub fn note_median(&mut self, hook: HookName, digest: &str, median: i64) -> bool {
        let hook = self.hooks.get_mut(hook.as_str()).filter(|hook| hook.digest.as_deref() == Some(digest));
        hook.is_some_and(|hook| hook.instructions_p50.replace(median).is_none())
    }

    fn ready(&self) -> Finding {
        let (Finding::Known { reason, message }, Some((count, first))) = (&self.ready, &self.waiting) else {
            return self.ready.clone();
        };
        let waiting = format!(
            "; {} for it, one is {first}: see its Event FinalizerWaits",
            counted(*count, "parent that is being deleted waits", "parents that are being deleted wait")
        );
        let message = shorten_middle(message, MAX_MESSAGE.saturating_sub(waiting.len()));
        Finding::new(*reason, message + &waiting)
    }
}

/// How the module of a hook has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModuleChange {
    None,
    /// The first one, or the one that was there when the server ended.
    Loaded,
    /// The module was replaced; the earlier one had this digest.
    Replaced {
        before: String,
    },
}

/// How many parents there are, and how many of them are settled, failing and paused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ParentCounts {
    pub parents: i64,
    pub settled: i64,
    pub failing: i64,
    pub paused: i64,
}

/// While a server hosts a controller, its status has a `lastSeen` that is no older than this.
pub const LAST_SEEN_INTERVAL: Duration = Duration::from_mins(5);

/// Length of a condition's message.
const MAX_MESSAGE: usize = 1024;

/// One condition without its time. Unknown until something is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Finding {
    #[default]
    Unknown,
    Known {
        reason: ConditionReason,
        message: String,
    },
}

/// The status that a server leaves behind on a controller that it no longer selects. `None` where the status is another one
/// than the server wrote last: then another server has taken the controller over, and says how it stands.
pub fn released(
    written: Option<&ControllerStatus>,
    now: &ControllerStatus,
    deletions: DeletionStatus,
    time: &str,
) -> Option<ControllerStatus> {
    if written != Some(now) {
        return None;
    }
    let ready = Finding::new(
        ConditionReason::NotSelected,
        "the controller's labels do not match --target-label-selector of the server that ran it: its parents are no longer reconciled, unless another server selects it",
    );
    let report = Report {
        generation: now.observed_generation.unwrap_or_default(),
        ready,
        deletions,
        ..Report::default()
    };
    let next = next(now, &report, time)?;
    Some(ControllerStatus {
        parents: None,
        settled: None,
        failing: None,
        paused: None,
        last_seen: None,
        ..next
    })
}

/// Whether a server that no longer selects the controller wrote this status.
pub fn is_released(status: &ControllerStatus) -> bool {
    let reason = ConditionReason::NotSelected;
    status
        .conditions
        .iter()
        .any(|one| one.kind == reason.condition().as_str() && one.reason == reason.as_str())
}

impl Finding {
    pub fn new(reason: ConditionReason, message: impl Into<String>) -> Self {
        Self::Known { reason, message: shorten_middle(&message.into(), MAX_MESSAGE) }
    }

    /// The reason of the condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unknown => "NotYetKnown",
            Self::Known { reason, .. } => reason.as_str(),
        }
    }

    /// The condition is `True`.
    pub fn is_true(&self) -> bool {
        matches!(self, Self::Known { reason, .. } if reason.is_true())
    }

    /// The condition is `False`.
    pub fn is_false(&self) -> bool {
        matches!(self, Self::Known { reason, .. } if !reason.is_true())
    }
}

/// Finding of the condition `Pure`.
pub fn purity(purity: Purity) -> Finding {
    match purity {
        Purity::Pure => {
            let message = "parents for which nothing changed are not asked about again";
            Finding::new(ConditionReason::RequestsAlone, message)
        }
        Purity::ReadsClock => Finding::new(
            ConditionReason::ReadsClock,
            "the hook asked what time it is: a parent whose last call did is asked about at every trigger",
        ),
        Purity::Differs => Finding::new(
            ConditionReason::AnswersDiffer,
            "the hook gave two answers to one request: it is called at every trigger until its module or a mount changes",
        ),
    }
}

/// The status to write; `None` if it equals `before`, whatever the medians of instructions are.
pub fn next(before: &ControllerStatus, report: &Report, now: &str) -> Option<ControllerStatus> {
    let next = composed(before, report, now);
    let same_medians = with_medians_of(before, next.hooks.clone());
    let is_same = ControllerStatus { hooks: same_medians, ..next.clone() } == *before;
    (!is_same).then(|| ControllerStatus { last_seen: Some(now.to_owned()), ..next })
}

/// The status to write where it is as it was, so that it shows that a server hosts the controller.
pub fn seen_again(before: &ControllerStatus, report: &Report, now: &str) -> ControllerStatus {
    ControllerStatus { last_seen: Some(now.to_owned()), ..composed(before, report, now) }
}

/// The status that a report makes. A condition keeps its transition time as long as its status does not change.
fn composed(before: &ControllerStatus, report: &Report, now: &str) -> ControllerStatus {
    let condition = |kind: ConditionType, finding: &Finding| {
        let (status, message) = match finding {
            Finding::Unknown => ("Unknown", ""),
            Finding::Known { message, .. } => {
                (if finding.is_true() { "True" } else { "False" }, message.as_str())
            }
        };
        let same = before.conditions.iter().find(|c| c.kind == kind.as_str() && c.status == status);
        Condition {
            kind: kind.as_str().to_owned(),
            status: status.to_owned(),
            reason: finding.reason().to_owned(),
            message: message.to_owned(),
            last_transition_time: same.map_or(now, |c| &c.last_transition_time).to_owned(),
            observed_generation: Some(report.generation),
        }
    };
    let mut conditions = vec![
        condition(ConditionType::Ready, &report.ready()),
        condition(ConditionType::ModulesLoaded, &report.modules),
        condition(ConditionType::KindsServed, &report.kinds),
        condition(ConditionType::Pure, &report.pure),
        condition(ConditionType::ChildrenStable, &report.stable),
        condition(ConditionType::DeletionsHeld, &report.held),
    ];
    for (kind, finding) in [
        (ConditionType::ChildrenDiffer, &report.differing),
        (ConditionType::AnswersSettle, &report.settles),
        (ConditionType::RolloutsProceed, &report.rollouts),
        (ConditionType::ApiWarnings, &report.api_warnings),
        (ConditionType::SingleWriter, &report.writer),
        (ConditionType::RightsGranted, &report.rights),
        (ConditionType::ShadowAgrees, &report.shadow),
        (ConditionType::Paused, &report.paused),
    ] {
        if *finding != Finding::Unknown {
            conditions.push(condition(kind, finding));
        }
    }
    ControllerStatus {
        observed_generation: Some(report.generation),
        last_seen: before.last_seen.clone(),
        conditions,
        hooks: carried_over(before, &report.hooks, report.working),
        parents: Some(report.counts.parents),
        settled: Some(report.counts.settled),
        failing: Some(report.counts.failing),
        paused: Some(report.counts.paused),
        deletions: report.deletions.clone(),
        shadows: report.shadows.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(ready: Finding) -> Report {
        Report { generation: 1, ready, ..Report::default() }
    }

    #[test]
    fn the_same_findings_are_written_once() {
        let first =
            next(&ControllerStatus::default(), &report(Finding::new(ConditionReason::Running, "")), "t1")
                .unwrap();
        assert_eq!(next(&first, &report(Finding::new(ConditionReason::Running, "")), "t2"), None);
    }

    #[test]
    fn a_finding_has_the_reason_of_its_condition() {
        let state = |finding: &Finding| (finding.reason(), finding.is_true(), finding.is_false());
        assert_eq!(state(&Finding::Unknown), ("NotYetKnown", false, false));
        assert_eq!(state(&Finding::new(ConditionReason::Running, "")), ("Running", true, false));
        assert_eq!(state(&Finding::new(ConditionReason::InvalidSpec, "")), ("InvalidSpec", false, true));
    }

    #[test]
    fn a_new_leader_is_written_and_nothing_where_none_is_elected() {
        let leader = |who: &str| Report {
            writer: Finding::new(ConditionReason::LeaderElected, who),
            ..report(Finding::Unknown)
        };
        let first = next(&ControllerStatus::default(), &leader("a leads"), "t1").unwrap();
        let second = next(&first, &leader("b leads"), "t2").unwrap();
        let condition = second.conditions.last().unwrap();
        assert_eq!((&*condition.kind, &*condition.status), ("SingleWriter", "True"));
        assert_eq!((&*condition.message, &*condition.last_transition_time), ("b leads", "t1"));
        let alone = next(&second, &report(Finding::Unknown), "t3").unwrap();
        assert!(alone.conditions.iter().all(|one| one.kind != "SingleWriter"));
    }

    #[test]
    fn a_module_that_replaces_another_one_names_it() {
        let module = |digest: &str| HookStatus { digest: Some(digest.to_owned()), ..HookStatus::default() };
        let replaced = |before: &str| ModuleChange::Replaced { before: before.to_owned() };
        let (mut report, stored) = (Report::default(), "a".to_owned());
        assert_eq!(report.load(HookName::Sync, module("a"), Some(&stored)), ModuleChange::Loaded);
        assert_eq!(report.load(HookName::Sync, module("b"), Some(&stored)), replaced("a"));
        report.hooks.get_mut("sync").unwrap().size = Some(1);
        assert_eq!(report.load(HookName::Sync, module("b"), Some(&stored)), ModuleChange::None);
        assert_eq!(report.hooks["sync"].size, Some(1), "what is known of it stays");
        assert_eq!(report.load(HookName::Finalize, module("b"), None), ModuleChange::Loaded);
        let mut restarted = Report::default();
        assert_eq!(restarted.load(HookName::Sync, module("c"), Some(&stored)), replaced("a"));
    }

    #[test]
    fn a_transition_time_moves_with_the_status_only() {
        let first =
            next(&ControllerStatus::default(), &report(Finding::new(ConditionReason::NotListed, "x")), "t1")
                .unwrap();
        let second = next(&first, &report(Finding::new(ConditionReason::InvalidSpec, "y")), "t2").unwrap();
        assert_eq!(second.conditions[0].last_transition_time, "t1");
        let third = next(&second, &report(Finding::new(ConditionReason::Running, "")), "t3").unwrap();
        assert_eq!(third.conditions[0].last_transition_time, "t3");
        assert_eq!(third.conditions[1].last_transition_time, "t1");
    }

    #[test]
    fn a_controller_that_is_not_selected_says_so_unless_another_server_has_it() {
        let deletions = DeletionStatus { accepted: Some("sha256:a".to_owned()), deleted: None };
        let last = DeletionStatus { deleted: Some(2), ..deletions.clone() };
        let counts = ParentCounts { parents: 3, settled: 2, failing: 1, paused: 0 };
        let running = Report { counts, deletions, ..report(Finding::new(ConditionReason::Running, "")) };
        let ours = next(&ControllerStatus::default(), &running, "t1").unwrap();
        assert!(!is_released(&ours));
        let left = released(Some(&ours), &ours, last.clone(), "t2").unwrap();
        assert!(is_released(&left));
        let ready = &left.conditions[0];
        assert_eq!((ready.status.as_str(), ready.last_transition_time.as_str()), ("False", "t2"));
        assert!(left.conditions[1..].iter().all(|one| one.status == "Unknown"));
        assert_eq!((left.parents, left.settled, left.failing, left.paused), (None, None, None, None));
        assert_eq!((&left.deletions, left.observed_generation), (&last, Some(1)));
        // A server that takes it over has written something of its own, or this one never wrote.
        let theirs = next(&left, &running, "t3").unwrap();
        assert_eq!(released(Some(&ours), &theirs, last.clone(), "t4"), None);
        assert_eq!(released(None, &ours, last, "t4"), None);
        assert!(!is_released(&theirs));
    }

    #[test]
    fn parents_that_wait_are_told_of_where_the_controller_cannot_run() {
        let missing = Finding::new(ConditionReason::ModuleNotLoaded, "m".repeat(2000));
        let waits = Report { waiting: Some((2, Key::new("n", "p"))), ..report(missing) };
        assert!(waits.problem().is_some_and(|problem| problem.starts_with("mmm")));
        let message = next(&ControllerStatus::default(), &waits, "t1").unwrap().conditions.remove(0).message;
        assert!(
            message.len() <= 1024
                && message.contains("m…m")
                && message.contains("m; 2 parents that are being deleted wait for it")
                && message.contains(" n/p:"),
            "{message}"
        );
        assert_eq!(Report { working: true, ..waits }.problem(), None);
        assert_eq!(report(Finding::new(ConditionReason::Running, "")).problem(), None);
    }
}
