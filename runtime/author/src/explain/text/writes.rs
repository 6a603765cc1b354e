//! Rows about what a plan decides, and about what was written.

use metahook_core::counted;
use metahook_core::json::places::ChangedValue;
use metahook_core::trace::{
    LeftChild, PlannedWrite, ReconcileTrace, TracedObject, TracedStep, TracedWriteEnd,
};

use super::{duration, name};

/// Microseconds of a write that are shown: most take less.
pub(super) const SLOW_WRITE: u64 = 100_000;

/// An object that was written, with what changed, and why.
pub(super) fn written(
    trace: &ReconcileTrace,
    object: &TracedObject,
    took_us: u64,
    reason: Option<&str>,
) -> String {
    let time = if took_us < SLOW_WRITE { String::new() } else { format!(" in {}", duration(took_us)) };
    let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
    format!("{}{}{time}{reason}", name(object), changes(trace, object))
}

/// How a write ended, with the API server's warnings.
pub(super) fn ended(warnings: &[String], end: &TracedWriteEnd) -> String {
    let end = match end {
        TracedWriteEnd::Changed => String::new(),
        TracedWriteEnd::NoEffect => ", without effect: the API server kept the object as it was".to_owned(),
        TracedWriteEnd::Failed(why) => format!(", FAILED: {why}"),
    };
    let warned = match warnings {
        [] => String::new(),
        all => {
            let all: Vec<_> = all.iter().map(|one| format!("{one}{}", drops(one))).collect();
            format!("; the API server warns: {}", all.join("; "))
        }
    };
    format!("{end}{warned}")
}

/// Text about how the API server treated a field that it does not know.
fn drops(warning: &str) -> &'static str {
    if warning.starts_with("unknown field") { ", and leaves it out" } else { "" }
}

/// Fields that a write changes, with their values, where the plan names them.
fn changes(trace: &ReconcileTrace, object: &TracedObject) -> String {
    let planned = trace.steps.iter().find_map(|step| match step {
        TracedStep::Planned { writes, .. } => writes.iter().find(|write| write.object.is(object)),
        _ => None,
    });
    match planned {
        Some(PlannedWrite { changes, values, .. }) if !changes.is_empty() => {
            let change = |path: &str, before: &str, after: &str| format!("{path}: {before} -> {after}");
            format!(" ({})", with_values(changes, values, change).join(", "))
        }
        _ => String::new(),
    }
}

/// Places, with what stands there before and after a write, where the server says it.
fn with_values(
    places: &[String],
    values: &[ChangedValue],
    print: impl Fn(&str, &str, &str) -> String,
) -> Vec<String> {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
    let place = |(nth, place): (usize, &String)| match values.get(nth) {
        Some(ChangedValue { path, before, after }) if path == place => {
            print(path, &text(before), &text(after))
        }
        _ => place.clone(),
    };
    places.iter().enumerate().map(place).collect()
}

/// The writes are steps of their own where they took place: of the plan, what they do not show.
pub(super) fn planned<'a>(
    trace: &ReconcileTrace,
    (writes, left): (&[PlannedWrite], &[LeftChild]),
    unchanged: usize,
) -> Vec<(&'a str, String)> {
    let mut rows = Vec::new();
    if unchanged > 0 {
        rows.push(("unchanged", counted(unchanged, "child", "children")));
    }
    rows.extend(left.iter().map(|LeftChild { object, why }| ("left", format!("{}: {why}", name(object)))));
    for PlannedWrite { object, drift, values, .. } in writes.iter().filter(|write| !write.drift.is_empty()) {
        // What the API server leaves out at each write, no other client has changed.
        let is_dropped = trace.steps.iter().any(|step| match step {
            TracedStep::Wrote { object: written, end, .. } => {
                *end == TracedWriteEnd::NoEffect && written.is(object)
            }
            _ => false,
        });
        let text = if is_dropped {
            format!("the API server does not keep {}", drift.join(", "))
        } else {
            // The write sets back what the client changed.
            let change = |path: &str, before: &str, after: &str| format!("{path} from {after} to {before}");
            format!("another client changed {}", with_values(drift, values, change).join(", "))
        };
        rows.push(("drift", format!("{}: {text}", name(object))));
    }
    let is_tried = |planned: &TracedObject| {
        trace.steps.iter().any(|step| match step {
            TracedStep::Wrote { object, .. } | TracedStep::Tried { object } => object.is(planned),
            _ => false,
        })
    };
    // Where steps are left out, so may be the writes.
    for PlannedWrite { verb, object, .. } in
        writes.iter().filter(|it| trace.left_out == 0 && !is_tried(&it.object))
    {
        rows.push(("not done", format!("{verb} {}{}", name(object), changes(trace, object))));
    }
    rows
}
