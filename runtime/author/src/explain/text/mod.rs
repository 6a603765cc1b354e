//! Traces as text for people.

use std::io::{self, Write};
use std::time::Duration;

use metahook_core::counted;
use metahook_core::hook::Usage;
use metahook_core::trace::settled::SettledTriggers;
use metahook_core::trace::{
    Explained, LeftChild, PlannedWrite, ReconcileTrace, TraceEnd, TracedObject, TracedStep, TracedWriteEnd,
};
use metahook_server::telemetry::escape;

/// Width of the first column of a step.
const WIDTH: usize = 10;

/// Prints the reconciles about an object, the latest one first. `max`: reconciles that are printed.
///
/// # Errors
/// The output is closed.
pub fn print(
    mut out: impl Write,
    object: &TracedObject,
    explained: &Explained,
    max: usize,
) -> Result<(), io::Error> {
    print_gaps(&mut out, object, explained)?;
    let all = &explained.reconciles;
    for trace in all.iter().take(max) {
        if let Some(settled) = trace.settled.as_ref().filter(|_| trace.end == TraceEnd::Unchanged) {
            print_settled(&mut out, object, trace, settled)?;
        }
        one(&mut out, object, trace)?;
    }
    if all.len() > max {
        writeln!(out, "{} more: --count shows them", all.len() - max)?;
    }
    Ok(())
}

/// Prints reconciles about an object as they come: the oldest one first.
///
/// # Errors
/// The output is closed.
pub fn print_following(
    mut out: impl Write,
    object: &TracedObject,
    traces: &[ReconcileTrace],
) -> Result<(), io::Error> {
    for trace in traces {
        one(&mut out, object, trace)?;
        if let Some(settled) = trace.settled.as_ref().filter(|_| trace.end == TraceEnd::Unchanged) {
            print_settled(&mut out, object, trace, settled)?;
        }
    }
    Ok(())
}

/// Prints the number of hidden parents, and a remark where the server remembers no reconcile.
///
/// # Errors
/// The output is closed.
pub fn print_gaps(
    mut out: impl Write,
    object: &TracedObject,
    explained: &Explained,
) -> Result<(), io::Error> {
    let all = &explained.reconciles;
    if all.is_empty() && explained.hidden_parents == 0 {
        return writeln!(
            out,
            "{}: the server remembers no reconcile of it, or of a parent that wrote it. It remembers the latest ones since it started (--trace-memory-max), and the first hundred children of each; triggers that change nothing leave no trace",
            name(object)
        );
    }
    if explained.hidden_parents > 0 {
        let hidden = counted(explained.hidden_parents, "parent is", "parents are");
        writeln!(
            out,
            "The reconciles of {hidden} not shown: you may not get what they are of, or there are too many"
        )?;
    }
    Ok(())
}

/// Prints the triggers after a trace that changed nothing.
fn print_settled(
    out: &mut impl Write,
    object: &TracedObject,
    trace: &ReconcileTrace,
    settled: &SettledTriggers,
) -> Result<(), io::Error> {
    let of = if trace.parent.is(object) { String::new() } else { format!("{} ", name(&trace.parent)) };
    writeln!(out, "{}: {of}{}", trace.controller, self::settled(settled))
}

pub(crate) fn settled(settled: &SettledTriggers) -> String {
    let SettledTriggers { triggers, last, last_cause, .. } = settled;
    let cause = if last_cause.is_empty() { String::new() } else { format!(" ({})", escape(last_cause)) };
    let changed = match triggers {
        1 => format!("1 trigger{cause} changed nothing, at {}", readable_time(last)),
        _ => format!("{triggers} triggers changed nothing, the last one{cause} at {}", readable_time(last)),
    };
    format!("settled; since this reconcile {changed}")
}

/// A time in RFC 3339, as people read it.
pub(crate) fn readable_time(time: &str) -> String {
    time.replace('T', " ")
}

fn one(out: &mut impl Write, object: &TracedObject, trace: &ReconcileTrace) -> Result<(), io::Error> {
    let time = readable_time(&trace.began);
    let of = if trace.parent.is(object) { String::new() } else { format!("{}, ", name(&trace.parent)) };
    let cause = if trace.cause.is_empty() { String::new() } else { format!("{}, ", trace.cause) };
    writeln!(
        out,
        "{time}  {}: {of}{cause}{} in {}",
        trace.controller,
        end(&trace.end),
        duration(trace.took_us)
    )?;
    for (what, text) in rows(trace) {
        row(out, what, &text)?;
    }
    Ok(())
}

/// Steps of a trace as rows of two columns: what was done, and to what.
pub(crate) fn rows(trace: &ReconcileTrace) -> Vec<(&str, String)> {
    let mut rows: Vec<_> = trace.steps.iter().flat_map(|step| rows_of(trace, step)).collect();
    if trace.left_out > 0 {
        rows.push(("…", counted(trace.left_out, "more step", "more steps")));
    }
    match &trace.end {
        TraceEnd::Failed(why) => rows.push(("failed", why.clone())),
        TraceEnd::Again(why) => rows.push(("again", why.clone())),
        TraceEnd::Unchanged | TraceEnd::Wrote | TraceEnd::Paused => {}
    }
    if let Some(next) = trace.next_us {
        rows.push(("next", format!("after {}, unless something changes before", duration(next))));
    }
    rows
}

fn rows_of<'a>(trace: &'a ReconcileTrace, step: &'a TracedStep) -> Vec<(&'a str, String)> {
    let row = match step {
        TracedStep::Finalizers => ("finalizers", name(&trace.parent)),
        TracedStep::Read { object } => ("read", name(object)),
        TracedStep::Claimed { verb, object } => (&**verb, name(object)),
        TracedStep::Called { hook, older, took_us, usage, error } => {
            let of = if *older { " about an older revision" } else { "" };
            let usage = usage.map_or_else(String::new, used);
            let error = error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
            ("call", format!("{hook} hook{of}, {}{usage}{error}", duration(*took_us)))
        }
        TracedStep::Related { earlier, took_us, usage, rules, objects, error } => {
            let answer = if *earlier {
                "the customize hook's earlier answer".to_owned()
            } else {
                format!("customize hook, {}{}", duration(*took_us), usage.map_or_else(String::new, used))
            };
            let found =
                format!("{}, {}", counted(*rules, "rule", "rules"), counted(*objects, "object", "objects"));
            ("related", format!("{answer}: {}", error.as_ref().unwrap_or(&found)))
        }
        TracedStep::Planned { writes, left, unchanged, left_out } => {
            let mut rows = planned(trace, (writes, left), *unchanged);
            if *left_out > 0 {
                rows.push(("…", counted(*left_out, "more decision", "more decisions")));
            }
            return rows;
        }
        TracedStep::RecordedDeletions => {
            ("record", "the number of deletions, for the deletion brake".to_owned())
        }
        TracedStep::Tried { object } => ("dry run", name(object)),
        TracedStep::Wrote { verb, object, reason, end } => {
            let reason = reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
            let end = match end {
                TracedWriteEnd::Changed => String::new(),
                TracedWriteEnd::NoEffect => {
                    ", without effect: the API server kept the object as it was".to_owned()
                }
                TracedWriteEnd::Failed(why) => format!(", FAILED: {why}"),
            };
            (&**verb, format!("{}{reason}{end}", name(object)))
        }
        TracedStep::DeletedRelated { object, deleted } => {
            let gone = if *deleted { "" } else { ", gone before" };
            ("delete", format!("related {}{gone}", name(object)))
        }
    };
    vec![row]
}

/// The writes are steps of their own where they took place: of the plan, what they do not show.
fn planned<'a>(
    trace: &ReconcileTrace,
    (writes, left): (&[PlannedWrite], &[LeftChild]),
    unchanged: usize,
) -> Vec<(&'a str, String)> {
    let mut rows = Vec::new();
    if unchanged > 0 {
        rows.push(("unchanged", counted(unchanged, "child", "children")));
    }
    rows.extend(left.iter().map(|LeftChild { object, why }| ("left", format!("{}: {why}", name(object)))));
    for PlannedWrite { object, drift, .. } in writes.iter().filter(|write| !write.drift.is_empty()) {
        let places = drift.join(", ");
        rows.push(("drift", format!("{}: another client changed {places}", name(object))));
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
        rows.push(("not done", format!("{verb} {}", name(object))));
    }
    rows
}

fn used(usage: Usage) -> String {
    format!(", {} instructions, {} KiB", usage.instructions, usage.memory >> 10)
}

fn row(out: &mut impl Write, what: &str, text: &str) -> Result<(), io::Error> {
    // A line of a message may have anything in it.
    let lines: Vec<_> = text.lines().map(escape).collect();
    writeln!(out, "  {what:WIDTH$}  {}", lines.join("\n              "))
}

pub(crate) fn end(end: &TraceEnd) -> &'static str {
    match end {
        TraceEnd::Unchanged => "nothing to write",
        TraceEnd::Wrote => "written",
        TraceEnd::Paused => "paused",
        TraceEnd::Again(_) => "put off",
        TraceEnd::Failed(_) => "FAILED",
    }
}

pub(crate) fn name(object: &TracedObject) -> String {
    let place = if object.namespace.is_empty() { String::new() } else { format!("{}/", object.namespace) };
    format!("{} {place}{}", object.kind, object.name)
}

pub(crate) fn duration(micros: u64) -> String {
    let time = Duration::from_micros(micros);
    if time >= Duration::from_secs(1) {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        format!("{:.1} ms", time.as_secs_f64() * 1000.0)
    }
}

#[cfg(test)]
mod tests;
