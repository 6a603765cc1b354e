//! Status of a running controller: conditions and counters, written when they change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use metahook_core::api::hook::HookName;
use metahook_core::api::policy::BrakeLimits;
use metahook_core::api::reason::{ConditionReason, EventReason};
use metahook_core::api::status::{
    self, CallFigures, DeletionStatus, Finding, HookStatus, ModuleChange, ParentCounts, Report,
};
use metahook_core::children::deletion_brake::{ALLOW_DELETIONS, DeletionBrake, HeldDeletions};
use metahook_core::controller_metrics::ParentMetrics;
use metahook_core::object::Object;
use metahook_core::pacing::lanes::Cause;
use metahook_core::refused_versions::VersionProblem;
use metahook_core::settled::Purity;
use metahook_core::shadow::counts;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cluster::presence::OtherServers;
use crate::cluster::write_gate::Candidate;
use crate::controller::Context;
use crate::controller::brake::{Brake, RecordRequest, StatusRecorder};
use crate::controller::runner::ControllerRunner;
use crate::controller::runner::counts::Counts;
use crate::controller::runner::parent_queue::ParentQueue;
use crate::controller::runner::status_writer::{StatusWriter, seen};
use crate::store::Store;
use crate::sync::lock;
use crate::telemetry::hosted::HostedMeter;
use crate::telemetry::timestamp;

/// Writer of a running controller's status.
pub(crate) struct Reporter {
    report: Arc<watch::Sender<Report>>,
    records: mpsc::UnboundedSender<RecordRequest>,
    /// Who leads, in a leader election.
    leader: Finding,
    others: OtherServers,
    /// Held for the scrapes.
    hosted: Arc<HostedMeter>,
    /// Digests of the modules that the status named before, by hook.
    before: BTreeMap<String, String>,
    /// When counts of shadows were told.
    shadows_told: Mutex<ReportInterval>,
    task: JoinHandle<()>,
}

impl Reporter {
    pub(crate) fn start(
        context: &Context,
        store: Arc<Store>,
        controller: &Object,
        stop: CancellationToken,
    ) -> Self {
        let cluster = &context.cluster;
        // A server that starts goes on from what the one before it accepted.
        let stored = store.get(&controller.key).map(|object| seen(&object)).unwrap_or_default();
        let digest = |(name, hook): (&String, &HookStatus)| Some((name.clone(), hook.digest.clone()?));
        let before = stored.hooks.iter().filter_map(digest).collect();
        let leader = |candidate: &Candidate| {
            let Candidate { identity, lease } = candidate;
            let message = format!("{identity} leads: it holds the Lease {lease}");
            Finding::new(ConditionReason::LeaderElected, message)
        };
        // A status that is written is the leader's.
        let leader = cluster.api.gate().candidate().map(leader).unwrap_or_default();
        let report = Arc::new(watch::Sender::new(Report {
            generation: controller.generation,
            deletions: stored.deletions,
            writer: leader.clone(),
            ..Report::default()
        }));
        let (ready, gate) = (report.subscribe(), cluster.api.gate().clone());
        let ready = move || gate.is_open().then(|| ready.borrow().ready.clone());
        let hosted = context.telemetry.metrics.hosted(&controller.gvk.kind, &controller.key.name, ready);
        let (records, requests) = mpsc::unbounded_channel();
        let writer = StatusWriter::new(context, store, controller, requests);
        let task = tokio::spawn(writer.run(report.subscribe(), stop));
        let others = cluster.others.clone();
        Self { report, records, leader, others, hosted, before, shadows_told: Mutex::default(), task }
    }

    /// The report, for a task that ends before the reporter does.
    pub(crate) fn shared(&self) -> watch::Sender<Report> {
        (*self.report).clone()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Report)) {
        changed(&self.report, change);
    }

    /// Reports the module of a hook.
    pub(crate) fn load(&self, name: HookName, status: HookStatus) -> ModuleChange {
        let mut load = ModuleChange::None;
        self.change(|report| load = report.load(name, status, self.before.get(name.as_str())));
        load
    }

    /// Counts versions of a hook that are refused.
    pub(crate) fn note_version(&self, hook: HookName, problem: Option<VersionProblem>) {
        self.hosted.note_version(hook, problem);
    }

    /// Goes on from what the leader before this server accepted.
    pub(crate) fn read_again(&self, controller: Option<&Object>) {
        if let Some(controller) = controller {
            self.change(|report| report.deletions = seen(controller).deletions);
        }
    }

    /// The deletion brake as the server before this one, or the controller with the spec before this one, left it.
    pub(crate) fn brake(&self, limits: BrakeLimits) -> Brake {
        let DeletionStatus { accepted, deleted } = self.report.borrow().deletions.clone();
        let deleted = deleted.and_then(|deleted| usize::try_from(deleted).ok()).unwrap_or_default();
        let recorder =
            StatusRecorder { report: Arc::downgrade(&self.report), requests: self.records.clone() };
        Brake::new(DeletionBrake::new(limits, accepted, deleted), Some(recorder))
    }

    fn writer(&self) -> Finding {
        if !self.others.is_any() {
            return self.leader.clone();
        }
        // The same from both servers, so that they do not write the status in turn.
        let message = "another server hosts the same controllers, and both write: stop one of them, give each another --target-label-selector, or give both --leader-election; the log of each names the other";
        Finding::new(ConditionReason::OtherServer, message)
    }

    pub(crate) async fn ended(self) {
        drop(self.report);
        // Ends by itself; a panic has been printed, and its message is all there is to say.
        self.task.await.unwrap_or_default();
    }
}

/// Counts of shadows change with each answer, also where all is at rest: they are told once in a minute.
const SHADOWS_INTERVAL: Duration = Duration::from_mins(1);

#[derive(Default)]
struct ReportInterval(Option<Instant>);

impl ReportInterval {
    fn is_due(&mut self) -> bool {
        let is_due = self.0.is_none_or(|at| at.elapsed() >= SHADOWS_INTERVAL);
        if is_due {
            self.0 = Some(Instant::now());
        }
        is_due
    }
}

/// Changes the report; wakes its readers only where it is another one now.
pub(crate) fn changed(report: &watch::Sender<Report>, change: impl FnOnce(&mut Report)) {
    report.send_if_modified(|report| {
        let before = report.clone();
        change(report);
        *report != before
    });
}

impl Reporter {
    /// Reports the latest calls, if there were any.
    pub(crate) fn figures(&self, parts: &[ParentQueue]) {
        // Calls are counted for all of them together.
        let Some(ParentQueue { reconciler: controller, .. }) = parts.first() else { return };
        for (name, limits) in controller.hooks.limits() {
            if let Some(figures) = controller.data.telemetry.meter.counts().calls.figures(name, limits) {
                self.change(|report| {
                    if let Some(hook) = report.hooks.get_mut(name.as_str()) {
                        hook.latest = Some(CallFigures { until: Some(timestamp()), ..figures });
                    }
                });
            }
        }
    }

    /// Notes medians for the next write. The first one of a version is a reason to write, a changed one is none.
    fn note_medians(&self, parts: &[ParentQueue]) {
        // Calls are counted for all of them together.
        let medians = parts.first().map(|part| part.reconciler.hooks.medians()).unwrap_or_default();
        self.report.send_if_modified(|report| {
            let mut is_first = false;
            for (hook, digest, median) in &medians {
                is_first |= report.note_median(*hook, digest, *median);
            }
            is_first
        });
    }

    pub(crate) fn count(&self, parts: &[ParentQueue], brake: &Brake) {
        brake.report(&self.report);
        let held = brake.with(|brake, _| brake.held());
        let mut counts = Counts::with(held.as_ref().map(ToString::to_string));
        for part in parts {
            counts.add(&part.reconciler);
        }
        let mut shadows = BTreeMap::new();
        if let Some(ParentQueue { reconciler: controller, .. }) = parts.first() {
            let mut counted = controller.data.telemetry.meter.counts();
            shadows.clone_from(&counted.shadows);
            let held = held.as_ref().map_or(0, |held| held.parents);
            counted.parents = ParentMetrics { held, ..counts.parents.metrics() };
        }
        self.note_medians(parts);
        // The worst there is.
        let purity = counts.purity.last().copied();
        self.change(|report| {
            report.working = true;
            report.ready = counts.ready(&report.modules);
            report.stable = counts.stable();
            report.differing = counts.differing(&report.differing);
            report.settles = counts.settles(&report.settles);
            report.rollouts = counts.rollouts(&report.rollouts);
            report.api_warnings = counts.api_warnings(&report.api_warnings);
            report.pure = purity.map_or(Finding::Unknown, status::purity);
            if let Some(sync) = report.hooks.get_mut(HookName::Sync.as_str()) {
                sync.pure = purity.map(|purity| purity == Purity::Pure);
            }
            report.held = counts.held();
            report.paused = counts.pause(&report.paused);
            report.writer = self.writer();
            let said = shadows.iter().map(|(name, counts)| (name.to_string(), counts.status())).collect();
            if counts::is_news(&report.shadows, &said) || lock(&self.shadows_told).is_due() {
                report.shadow = counts::finding(&shadows);
                report.shadows = said;
            }
            report.counts = ParentCounts {
                parents: count(counts.parents.all),
                settled: count(counts.parents.settled),
                failing: count(counts.parents.failing.count),
                paused: count(counts.parents.paused.count),
            };
        });
    }
}

impl ControllerRunner {
    /// Records deletions that wait, once their number no longer rises, and lets them go on where a user agrees.
    pub(crate) fn tend_brake(
        &self,
        brake: &Brake,
        parts: &[ParentQueue],
        last: &mut Option<(HeldDeletions, bool)>,
    ) {
        let (is_changed, held) = brake.with(|brake, _| (brake.is_changed(), brake.held()));
        if !is_changed {
            *last = None;
            return;
        }
        let name = &self.object.key.name;
        let object = self.context.controllers.get(self.kind, name);
        if let Some(digest) = object.and_then(|object| object.annotations().remove(ALLOW_DELETIONS)) {
            let waiting = brake.with(|brake, _| brake.allow(&digest));
            if !waiting.is_empty() {
                tracing::info!(controller = %self.object.key, digest, parents = waiting.len(), "a user lets deletions go on");
            }
            for parent in waiting {
                let part = parts.iter().find(|part| part.reconciler.data.parents.resource == parent.resource);
                if let Some(part) = part {
                    part.queue.add(parent.key, Cause::Related);
                }
            }
            // The annotation may be an old one, about another version.
            if !brake.with(|brake, _| brake.is_changed()) {
                return;
            }
        }
        *last = held.map(|held| match last.take() {
            Some((before, recorded)) if before == held => {
                if !recorded {
                    self.warn(EventReason::DeletionsHeld, &held.to_string());
                }
                (held, true)
            }
            Some(_) | None => (held, false),
        });
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
