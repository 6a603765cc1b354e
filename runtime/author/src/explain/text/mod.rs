//! Traces as text for people.

mod failures;
mod held;
mod rules;
mod writes;

use std::io::{self, Write};
use std::time::Duration;

use jiff::Timestamp;
use metahook_core::counted;
use metahook_core::hook::Usage;
use metahook_core::trace::repeated::Repeated;
use metahook_core::trace::settled::SettledTriggers;
use metahook_core::trace::{Explained, ReconcileTrace, TraceEnd, TracedObject, TracedStep};
use metahook_server::telemetry::escape;

pub(crate) use failures::{is_mended, summaries as failure_summaries};

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
    print_gaps(&mut out, explained)?;
    let all = &explained.reconciles;
    for summary in failure_summaries(object, all) {
        writeln!(out, "{summary}")?;
    }
    for (nth, trace) in all.iter().enumerate().take(max) {
        if let Some(settled) = trace.settled.as_ref().filter(|_| trace.end == TraceEnd::Unchanged) {
            print_settled(&mut out, object, trace, settled)?;
        }
        let later = all.get(..nth).unwrap_or_default();
        let since = Since { is_mended: is_mended(all, nth), is_planned_anew: is_planned_anew(trace, later) };
        one(&mut out, object, trace, since)?;
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
    for (nth, trace) in traces.iter().enumerate() {
        let later = traces.get(nth + 1..).unwrap_or_default();
        one(
            &mut out,
            object,
            trace,
            Since { is_mended: false, is_planned_anew: is_planned_anew(trace, later) },
        )?;
        if let Some(settled) = trace.settled.as_ref().filter(|_| trace.end == TraceEnd::Unchanged) {
            print_settled(&mut out, object, trace, settled)?;
        }
    }
    Ok(())
}

/// Prints the number of hidden parents.
///
/// # Errors
/// The output is closed.
pub fn print_gaps(mut out: impl Write, explained: &Explained) -> Result<(), io::Error> {
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

/// Facts about a reconcile from later reconciles of its parent.
#[derive(Clone, Copy)]
struct Since {
    /// It failed, and one of them went well.
    is_mended: bool,
    /// One of them made another plan.
    is_planned_anew: bool,
}

fn one(
    out: &mut impl Write,
    object: &TracedObject,
    trace: &ReconcileTrace,
    Since { is_mended, is_planned_anew }: Since,
) -> Result<(), io::Error> {
    let time = readable_time(&trace.began);
    let of = if trace.parent.is(object) { String::new() } else { format!("{}, ", name(&trace.parent)) };
    let cause = trace.whole_cause();
    let cause = if cause.is_empty() { cause } else { format!("{}, ", escape(&cause)) };
    let mended = if is_mended { " (mended since)" } else { "" };
    let repeated = repeated(trace);
    let (controller, end, took) = (&trace.controller, end(&trace.end), duration(trace.took_us));
    writeln!(out, "{time}  {controller}: {of}{cause}{end}{mended} in {took}{repeated}")?;
    for (what, text) in rows(trace, is_planned_anew) {
        row(out, what, &text)?;
    }
    Ok(())
}

/// How many equal reconciles a trace stands for; empty where it is of one.
pub(crate) fn repeated(trace: &ReconcileTrace) -> String {
    trace.repeated.as_ref().map_or_else(String::new, |Repeated { times, since }| {
        format!("; the same {times} times since {}", readable_time(since))
    })
}

/// Whether one of the later reconciles of the same parent made a plan.
pub(crate) fn is_planned_anew<'a>(
    trace: &ReconcileTrace,
    later: impl IntoIterator<Item = &'a ReconcileTrace>,
) -> bool {
    let is_plan = |step: &TracedStep| matches!(step, TracedStep::Planned { .. } | TracedStep::Held { .. });
    later.into_iter().any(|later| is_of(later, trace) && later.steps.iter().any(is_plan))
}

/// Whether both are reconciles of the same parent by the same controller.
fn is_of(trace: &ReconcileTrace, other: &ReconcileTrace) -> bool {
    trace.controller == other.controller && trace.parent.is(&other.parent)
}

/// Steps of a trace as rows of two columns: what was done, and to what. `is_planned_anew`: what it decided counts no longer.
pub(crate) fn rows(trace: &ReconcileTrace, is_planned_anew: bool) -> Vec<(&str, String)> {
    let rows_of = |step| rows_of(trace, step, is_planned_anew);
    let mut rows: Vec<_> = trace.steps.iter().flat_map(rows_of).collect();
    if trace.left_out > 0 {
        rows.push(("…", counted(trace.left_out, "more step", "more steps")));
    }
    match &trace.end {
        TraceEnd::Failed(why) => rows.push(("failed", why.clone())),
        TraceEnd::Again(why) => rows.push(("again", why.clone())),
        TraceEnd::Unchanged | TraceEnd::Wrote | TraceEnd::Paused => {}
    }
    if let Some(why) = &trace.throttled {
        rows.push(("throttled", format!("{why}{}", until(trace))));
    }
    if let Some(next) = next(trace) {
        rows.push(("next", format!("{next}, unless something changes before")));
    }
    rows
}

/// Until when the next reconcile waits, where that is known.
fn until(trace: &ReconcileTrace) -> String {
    let at = trace.next_us.and_then(|next| {
        let began: Timestamp = trace.began.parse().ok()?;
        began.checked_add(Duration::from_micros(trace.took_us.saturating_add(next))).ok()
    });
    at.map_or_else(String::new, |at| {
        format!(". The next one waits until {}", at.strftime("%Y-%m-%d %H:%M:%SZ"))
    })
}

/// Reconciles that come by themselves: one that the hook asked for or that repeats a failure, and the controller's resync.
fn next(trace: &ReconcileTrace) -> Option<String> {
    let delay = trace.next_us.map(|next| format!("after {}", duration(next)));
    let resync = trace.next_resync_us.map(|next| format!("the controller's resync after {}", duration(next)));
    [delay, resync].into_iter().flatten().reduce(|delay, resync| format!("{delay}, and {resync}"))
}

fn rows_of<'a>(
    trace: &'a ReconcileTrace,
    step: &'a TracedStep,
    is_planned_anew: bool,
) -> Vec<(&'a str, String)> {
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
        TracedStep::Related { earlier, took_us, usage, rules, objects, found, error } => {
            let answer = if *earlier {
                "the customize hook's earlier answer".to_owned()
            } else {
                format!("customize hook, {}{}", duration(*took_us), usage.map_or_else(String::new, used))
            };
            let counts =
                format!("{}, {}", counted(*rules, "rule", "rules"), counted(*objects, "object", "objects"));
            let first = ("related", format!("{answer}: {}", error.as_ref().unwrap_or(&counts)));
            return std::iter::once(first).chain(rules::rows(found, *rules)).collect();
        }
        TracedStep::Planned { writes, left, unchanged, left_out } => {
            let mut rows = writes::planned(trace, (writes, left), *unchanged);
            if *left_out > 0 {
                rows.push(("…", counted(*left_out, "more decision", "more decisions")));
            }
            return rows;
        }
        TracedStep::RecordedDeletions => {
            ("record", "the number of deletions, for the deletion brake".to_owned())
        }
        TracedStep::Tried { object } => ("dry run", name(object)),
        TracedStep::Wrote { verb, object, took_us, reason, warnings, end } => {
            let what = writes::written(trace, object, *took_us, reason.as_deref());
            (&**verb, format!("{what}{}", writes::ended(warnings, end)))
        }
        TracedStep::Held { children, objects, version } => {
            let mut rows = held::rows(*children, objects);
            if !is_planned_anew {
                rows.extend(held::ways_out(&trace.controller, version));
            }
            return rows;
        }
        TracedStep::Unknown => ("…", "a step that this metahook does not know: update it".to_owned()),
        TracedStep::StatusLeft { why } => ("status", format!("{}: {why}", name(&trace.parent))),
        TracedStep::LeftFields { conflicts, more, waits } => {
            return left_fields(trace, (conflicts, *more), *waits);
        }
        TracedStep::DeletedRelated { object, deleted } => {
            let gone = if *deleted { "" } else { ", gone before" };
            let related = match object {
                Some(object) => format!("related {}", name(object)),
                None => "a related object".to_owned(),
            };
            ("delete", format!("{related}{gone}"))
        }
    };
    vec![row]
}

/// Fields that other decorators have, or may have.
fn left_fields<'a>(
    trace: &ReconcileTrace,
    (conflicts, more): (&[String], usize),
    waits: bool,
) -> Vec<(&'a str, String)> {
    let mut rows: Vec<_> = conflicts.iter().map(|conflict| ("left", conflict.clone())).collect();
    if more > 0 {
        rows.push(("…", counted(more, "more conflict", "more conflicts")));
    }
    if waits {
        let why = "fields of it wait until older DecoratorControllers have reconciled it";
        rows.push(("left", format!("{}: {why}", name(&trace.parent))));
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
