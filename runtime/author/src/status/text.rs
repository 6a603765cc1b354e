//! One controller as text for people.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use jiff::Timestamp;
use metahook_core::api::reason::ConditionType;
use metahook_core::api::status::{Attention, CallFigures, Condition, HookStatus, LAST_SEEN_INTERVAL};
use metahook_core::api::units::print_bytes;
use metahook_core::controller_metrics::OK;
use metahook_core::one_line;
use metahook_core::overview::{CallNumbers, ControllerOverview, MemoryNumbers};
use metahook_server::telemetry::escape;

use crate::status::age;
use crate::status::controller::ShownController;
use crate::status::named::print_named;

/// Width of the first column.
const WIDTH: usize = 12;

/// Before what is counted: it may be long ago.
const SINCE: &str = "since the controller was started: ";

/// Prints a controller.
///
/// # Errors
/// The output is closed.
pub fn print(out: impl Write, shown: &ShownController) -> Result<(), io::Error> {
    print_at(out, shown, Timestamp::now())
}

fn print_at(mut out: impl Write, shown: &ShownController, now: Timestamp) -> Result<(), io::Error> {
    let ShownController { line, status, webhooks, stored, running, .. } = shown;
    writeln!(out, "{} {}", line.kind, escape(&line.name))?;
    row(&mut out, "ready", &format!("{} {}; {}", line.ready, line.reason, renewed(line.seen)))?;
    let is_ready = |condition: &&Condition| condition.kind == ConditionType::Ready.as_str();
    let ready = status.conditions.iter().find(is_ready).map(|condition| &condition.message);
    for condition in &status.conditions {
        let is_ready = is_ready(&condition);
        let is_remark = line.attention.iter().any(|one| one.condition == condition.kind);
        let is_said = is_remark || !is_ready && ready == Some(&condition.message);
        if !condition.message.is_empty() && !is_said {
            let place = if is_ready { "" } else { &*condition.kind };
            let colon = if is_ready { "" } else { ": " };
            row(&mut out, "", &format!("{place}{colon}{}", condition.message))?;
        }
    }
    for (nth, Attention { reason, message, .. }) in line.attention.iter().enumerate() {
        row(&mut out, if nth == 0 { "attention" } else { "" }, &format!("{reason}: {message}"))?;
    }
    for (name, hook) in &status.hooks {
        row(&mut out, &format!("{name} hook"), &hook_line(hook, stored.get(&**name)))?;
    }
    for (name, url) in webhooks {
        row(&mut out, &format!("{name} hook"), &format!("webhook {url}"))?;
    }
    match running {
        Some(running) => {
            print_running(&mut out, running)?;
            print_named(&mut out, running, now)
        }
        None if line.ready == "False" => row(&mut out, "running", "not until it is ready"),
        None => row(&mut out, "running", "on no server that was asked"),
    }
}

/// When a server wrote the status last. While nothing changes it writes it every few minutes, to show that it is there.
pub(crate) fn renewed(seen: Option<Duration>) -> String {
    let minutes = LAST_SEEN_INTERVAL.as_secs() / 60;
    match seen {
        Some(seen) => format!("status renewed {} ago (every {minutes}m while a server runs)", age(seen)),
        None => "no server has written its status".to_owned(),
    }
}

fn print_running(out: &mut impl Write, running: &ControllerOverview) -> Result<(), io::Error> {
    let ControllerOverview { parents, queue, calls, reconciles, writes, memory, .. } = running;
    let numbers = [
        ("settled", parents.settled),
        ("failing", parents.failing),
        ("paused", parents.paused),
        ("throttled", parents.throttled),
    ];
    let numbers = numbers.into_iter().filter(|(what, number)| *number > 0 || *what == "settled");
    let numbers: Vec<_> = numbers.map(|(what, number)| format!("{number} {what}")).collect();
    row(out, "parents", &format!("{}: {}", parents.all, numbers.join(", ")))?;
    let mut busy = vec![format!("{} waiting", queue.waiting), format!("{} running", queue.running)];
    if queue.running > 0 {
        busy.push(format!("the longest for {:.1} s", queue.longest_seconds));
    }
    busy.push(format!("{} to be reconciled later", queue.later));
    row(out, "queue", &busy.join(", "))?;
    row(out, "calls", &format!("{SINCE}{}", calls_line(calls)))?;
    row(out, "reconciles", &format!("{SINCE}{}", sums(reconciles)))?;
    row(out, "writes", &format!("{SINCE}{}", sums(writes)))?;
    row(out, "memory", &memory_line(memory))
}

fn hook_line(hook: &HookStatus, stored: Option<&String>) -> String {
    let mut words: Vec<_> = hook.digest.iter().cloned().collect();
    words.extend(hook.loaded_at.as_ref().map(|at| format!("loaded at {at}")));
    words.extend(hook.shown_median().map(|median| format!("{median} instructions at the median")));
    if let Some(CallFigures { memory_bytes, memory_limit_bytes, instructions, instructions_limit, .. }) =
        &hook.latest
    {
        let print = |bytes: &i64| print_bytes(u64::try_from(*bytes).unwrap_or_default());
        let (memory, limit) = (print(memory_bytes), print(memory_limit_bytes));
        words.push(format!(
            "at most {instructions} of {instructions_limit} instructions, {memory} of {limit}"
        ));
    }
    words.extend(stored.cloned());
    words.join(", ")
}

fn calls_line(calls: &CallNumbers) -> String {
    let all: u64 = calls.results.values().sum();
    let mut words = vec![all.to_string()];
    let failed = calls.results.iter().filter(|(result, _)| *result != OK);
    words.extend(failed.map(|(result, number)| format!("{number} {result}")));
    let within = |share: &str, seconds: Option<f64>| {
        seconds.map(|seconds| format!("{share} within {}", millis(seconds)))
    };
    words.extend(within("half", calls.p50_seconds));
    words.extend(within("99 of 100", calls.p99_seconds));
    words.join(", ")
}

fn millis(seconds: f64) -> String {
    let millis = seconds * 1e3;
    if millis < 1000.0 { format!("{millis} ms") } else { format!("{seconds} s") }
}

pub(crate) fn memory_line(memory: &MemoryNumbers) -> String {
    let waits = if memory.waits > 0 { format!(" ({} had to wait)", memory.waits) } else { String::new() };
    let max_caches = memory.max_caches.map_or_else(String::new, |max| format!(" of {}", print_bytes(max)));
    format!(
        "reconciles of all controllers {} of {}{waits}; traces {}, of all controllers {} of {}; cached objects of all controllers {}{max_caches}",
        bytes(usize::try_from(memory.reserved).unwrap_or(usize::MAX)),
        print_bytes(memory.budget),
        bytes(memory.traces),
        bytes(memory.all_traces),
        bytes(memory.max_traces),
        bytes(usize::try_from(memory.caches).unwrap_or(usize::MAX)),
    )
}

/// In Ki at least, and rounded up.
fn bytes(bytes: usize) -> String {
    print_bytes(u64::try_from(bytes.next_multiple_of(1024)).unwrap_or(u64::MAX))
}

fn sums(sums: &BTreeMap<String, u64>) -> String {
    let words: Vec<_> = sums.iter().map(|(what, sum)| format!("{sum} {what}")).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

fn row(out: &mut impl Write, what: &str, text: &str) -> Result<(), io::Error> {
    let what = escape(what);
    let gap = " ".repeat(WIDTH.saturating_sub(what.chars().count()).max(1));
    writeln!(out, "{what}{gap}{}", escape(&one_line(text)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use metahook_core::api::status::ControllerStatus;
    use metahook_core::object::id::{Gvk, Key, ObjectId, Resource};
    use metahook_core::overview::{
        NamedParents, ParentGroup, ParentNumbers, QueueNumbers, SlowParent, ThrottledParent,
    };
    use serde_json::json;

    use super::*;
    use crate::status::ControllerLine;

    fn shown(running: Option<ControllerOverview>) -> String {
        shown_as("True", running)
    }

    fn shown_as(ready: &str, running: Option<ControllerOverview>) -> String {
        let line = ControllerLine {
            kind: "CompositeController",
            name: "hello".to_owned(),
            ready: ready.to_owned(),
            reason: "ParentsFailing".to_owned(),
            message: String::new(),
            parents: Some(40),
            failing: Some(2),
            paused: Some(0),
            modules: BTreeMap::new(),
            attention: vec![Attention {
                condition: "ChildrenStable",
                reason: "ValueFlapping",
                message: "Pod demo/x is changed back".to_owned(),
            }],
            seen: Some(Duration::from_secs(3)),
        };
        let conditions = json!([{
            "type": "Ready", "status": "True", "reason": "ParentsFailing", "message": "2 of 40 parents fail",
            "lastTransitionTime": "t",
        }, {
            "type": "ModulesLoaded", "status": "True", "reason": "Loaded", "message": "", "lastTransitionTime": "t",
        }, {
            "type": "Pure", "status": "False", "reason": "ReadsClock", "message": "it reads the time",
            "lastTransitionTime": "t",
        }, {
            "type": "ChildrenStable", "status": "False", "reason": "ValueFlapping",
            "message": "Pod demo/x is changed back", "lastTransitionTime": "t",
        }, {
            "type": "Failing", "status": "True", "reason": "ParentsFailing", "message": "2 of 40 parents fail",
            "lastTransitionTime": "t",
        }]);
        let conditions: Vec<Condition> = serde_json::from_value(conditions).unwrap();
        let digest = |digest: &str| HookStatus { digest: Some(digest.to_owned()), ..HookStatus::default() };
        let loaded_at = Some("2026-11-27T10:00:00Z".to_owned());
        let hook = HookStatus { loaded_at, instructions_p50: Some(60_000), ..digest("sha256:4f0c") };
        let hooks = [("customize", digest("sha256:92d7")), ("sync", hook)];
        let hooks = hooks.map(|(name, hook)| (name.to_owned(), hook)).into();
        let status = ControllerStatus { conditions, hooks, ..ControllerStatus::default() };
        let mut out = Vec::new();
        let gvk = Gvk::new("metacontroller.k8s.io/v1alpha1", "CompositeController");
        let plural = "compositecontrollers".into();
        let resource = Resource { gvk, plural, namespaced: false, has_status: true };
        let id = ObjectId { resource: Arc::new(resource), key: Key::new("", "hello") };
        let stored = BTreeMap::from([("sync", "ConfigMap demo/hook, key hook.js".to_owned())]);
        let webhooks = BTreeMap::from([("finalize", "https://example.com/finalize".to_owned())]);
        let shown = ShownController {
            id,
            line,
            status,
            webhooks,
            stored,
            running,
            failed: None,
            without_leases: None,
        };
        print_at(&mut out, &shown, "2026-11-27T10:24:40Z".parse().unwrap()).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn group(category: &str, message: &str, count: usize) -> ParentGroup {
        ParentGroup {
            category: category.to_owned(),
            message: message.to_owned(),
            count,
            last: if message.is_empty() { "" } else { "2026-11-27T10:20:31.120Z" }.to_owned(),
            parents: vec!["Hello demo/a".to_owned(), "Hello demo/b".to_owned()],
        }
    }

    fn example() -> ControllerOverview {
        let named = NamedParents {
            failing: vec![
                group("HookTrap", "the hook trapped:\nunreachable", 2),
                group("ApiConflict", "", 3),
            ],
            throttled: vec![
                ThrottledParent {
                    parent: "Hello demo/t".to_owned(),
                    why: "its hook reads the clock, and each reconcile changes status.time".to_owned(),
                    next_millis: Some(7001),
                },
                ThrottledParent {
                    parent: "Hello demo/u".to_owned(),
                    why: "each reconcile changes status.time".to_owned(),
                    next_millis: None,
                },
            ],
            waiting: vec![group("", "its deletion is under way", 2)],
            slowest: vec![SlowParent {
                parent: "Hello demo/a".to_owned(),
                took_us: 1_234_567,
                began: "2026-11-27T10:20:31.120Z".to_owned(),
            }],
        };
        ControllerOverview {
            parents: ParentNumbers { all: 40, settled: 35, failing: 5, paused: 0, throttled: 3 },
            queue: QueueNumbers { waiting: 3, running: 1, longest_seconds: 2.14, later: 5 },
            calls: CallNumbers {
                results: [("HookTrap", 2), ("ok", 38)].map(|(it, sum)| (it.to_owned(), sum)).into(),
                p50_seconds: Some(50e-6),
                p99_seconds: Some(2.5),
                ..CallNumbers::default()
            },
            reconciles: [("failed".to_owned(), 2), ("wrote".to_owned(), 38)].into(),
            writes: BTreeMap::new(),
            memory: MemoryNumbers {
                reserved: 1 << 20,
                budget: 64 << 20,
                waits: 0,
                traces: 1500,
                all_traces: 4096,
                max_traces: 4 << 20,
                caches: 12 << 20,
                max_caches: Some(1 << 30),
            },
            named: Some(named),
        }
    }

    #[test]
    fn a_controller_is_shown_with_what_fails_and_why() {
        let running = example();
        let expected = "\
CompositeController hello
ready       True ParentsFailing; status renewed 3s ago (every 5m while a server runs)
            2 of 40 parents fail
            Pure: it reads the time
attention   ValueFlapping: Pod demo/x is changed back
customize hook sha256:92d7
sync hook   sha256:4f0c, loaded at 2026-11-27T10:00:00Z, 60000 instructions at the median, ConfigMap demo/hook, key hook.js
finalize hook webhook https://example.com/finalize
parents     40: 35 settled, 5 failing, 3 throttled
queue       3 waiting, 1 running, the longest for 2.1 s, 5 to be reconciled later
calls       since the controller was started: 40, 2 HookTrap, half within 0.05 ms, 99 of 100 within 2.5 s
reconciles  since the controller was started: 2 failed, 38 wrote
writes      since the controller was started: none
memory      reconciles of all controllers 1Mi of 64Mi; traces 2Ki, of all controllers 4Ki of 4Mi; cached objects of all controllers 12Mi of 1Gi

Failing now:
  2 parents, last 4m ago: HookTrap: the hook trapped: unreachable
      Hello demo/a, Hello demo/b
  3 parents: ApiConflict: see their Events, the server no longer has the message
      Hello demo/a, Hello demo/b and 1 more

Throttled now, one reconcile each 10 s:
  Hello demo/t waits 8 s more: its hook reads the clock, and each reconcile changes status.time
  Hello demo/u is reconciled now: each reconcile changes status.time
  and 1 more

Waiting now:
  2 parents, last 4m ago: its deletion is under way
      Hello demo/a, Hello demo/b

Slowest of the latest reconciles:
    1234.5 ms  Hello demo/a  at 2026-11-27T10:20:31.120Z
";
        assert_eq!(shown(Some(running.clone())), expected);
        let unnamed = shown(Some(ControllerOverview { named: None, ..running }));
        assert!(unnamed.contains("Parents are not named") && !unnamed.contains("demo/a"), "{unnamed}");
    }

    #[test]
    fn a_controller_that_no_server_runs_is_shown_by_its_status() {
        assert!(shown(None).ends_with("\nrunning     on no server that was asked\n"), "{}", shown(None));
        let not_ready = shown_as("False", None);
        assert!(not_ready.ends_with("\nrunning     not until it is ready\n"), "{not_ready}");
    }
}
