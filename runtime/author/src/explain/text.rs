//! Traces as text for people.

use std::io::{self, Write};
use std::time::Duration;

use metahook_core::counted;
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
    let SettledTriggers { triggers, last, last_cause, .. } = settled;
    let of = if trace.parent.is(object) { String::new() } else { format!("{} ", name(&trace.parent)) };
    let cause = if last_cause.is_empty() { String::new() } else { format!(" ({})", escape(last_cause)) };
    let changed = match triggers {
        1 => format!("1 trigger{cause} changed nothing, at {}", time(last)),
        _ => format!("{triggers} triggers changed nothing, the last one{cause} at {}", time(last)),
    };
    writeln!(out, "{}: {of}settled; since this reconcile {changed}", trace.controller)
}

fn time(time: &str) -> String {
    time.replace('T', " ")
}

fn one(out: &mut impl Write, object: &TracedObject, trace: &ReconcileTrace) -> Result<(), io::Error> {
    let time = time(&trace.began);
    let of = if trace.parent.is(object) { String::new() } else { format!("{}, ", name(&trace.parent)) };
    let cause = if trace.cause.is_empty() { String::new() } else { format!("{}, ", trace.cause) };
    writeln!(
        out,
        "{time}  {}: {of}{cause}{} in {}",
        trace.controller,
        end(&trace.end),
        duration(trace.took_us)
    )?;
    for step in &trace.steps {
        print_step(out, trace, step)?;
    }
    if trace.left_out > 0 {
        row(out, "…", &counted(trace.left_out, "more step", "more steps"))?;
    }
    match &trace.end {
        TraceEnd::Failed(why) => row(out, "failed", why)?,
        TraceEnd::Again(why) => row(out, "again", why)?,
        TraceEnd::Unchanged | TraceEnd::Wrote | TraceEnd::Paused => {}
    }
    if let Some(next) = trace.next_us {
        row(out, "next", &format!("after {}, unless something changes before", duration(next)))?;
    }
    Ok(())
}

fn print_step(out: &mut impl Write, trace: &ReconcileTrace, step: &TracedStep) -> Result<(), io::Error> {
    match step {
        TracedStep::Finalizers => row(out, "finalizers", &name(&trace.parent)),
        TracedStep::Read { object } => row(out, "read", &name(object)),
        TracedStep::Claimed { verb, object } => row(out, verb, &name(object)),
        TracedStep::Called { hook, older, took_us, usage, error } => {
            let of = if *older { " about an older revision" } else { "" };
            let usage = usage.map_or_else(String::new, |usage| {
                format!(", {} instructions, {} KiB", usage.instructions, usage.memory >> 10)
            });
            let error = error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
            row(out, "call", &format!("{hook} hook{of}, {}{usage}{error}", duration(*took_us)))
        }
        TracedStep::Planned { writes, left, unchanged, left_out } => {
            planned(out, trace, (writes, left), *unchanged)?;
            if *left_out > 0 {
                row(out, "…", &counted(*left_out, "more decision", "more decisions"))?;
            }
            Ok(())
        }
        TracedStep::RecordedDeletions => {
            row(out, "record", "the number of deletions, for the deletion brake")
        }
        TracedStep::Tried { object } => row(out, "dry run", &name(object)),
        TracedStep::Wrote { verb, object, reason, end } => {
            let reason = reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
            let end = match end {
                TracedWriteEnd::Changed => String::new(),
                TracedWriteEnd::NoEffect => {
                    ", without effect: the API server kept the object as it was".to_owned()
                }
                TracedWriteEnd::Failed(why) => format!(", FAILED: {why}"),
            };
            row(out, verb, &format!("{}{reason}{end}", name(object)))
        }
        TracedStep::DeletedRelated { object, deleted } => {
            let gone = if *deleted { "" } else { ", gone before" };
            row(out, "delete", &format!("related {}{gone}", name(object)))
        }
    }
}

/// The writes are steps of their own where they took place: of the plan, what they do not show.
fn planned(
    out: &mut impl Write,
    trace: &ReconcileTrace,
    (writes, left): (&[PlannedWrite], &[LeftChild]),
    unchanged: usize,
) -> Result<(), io::Error> {
    if unchanged > 0 {
        row(out, "unchanged", &counted(unchanged, "child", "children"))?;
    }
    for LeftChild { object, why } in left {
        row(out, "left", &format!("{}: {why}", name(object)))?;
    }
    for PlannedWrite { object, drift, .. } in writes.iter().filter(|write| !write.drift.is_empty()) {
        row(out, "drift", &format!("{}: another client changed {}", name(object), drift.join(", ")))?;
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
        row(out, "not done", &format!("{verb} {}", name(object)))?;
    }
    Ok(())
}

fn row(out: &mut impl Write, what: &str, text: &str) -> Result<(), io::Error> {
    // A line of a message may have anything in it.
    let lines: Vec<_> = text.lines().map(escape).collect();
    writeln!(out, "  {what:WIDTH$}  {}", lines.join("\n              "))
}

fn end(end: &TraceEnd) -> &'static str {
    match end {
        TraceEnd::Unchanged => "nothing to write",
        TraceEnd::Wrote => "written",
        TraceEnd::Paused => "paused",
        TraceEnd::Again(_) => "put off",
        TraceEnd::Failed(_) => "FAILED",
    }
}

fn name(object: &TracedObject) -> String {
    let place = if object.namespace.is_empty() { String::new() } else { format!("{}/", object.namespace) };
    format!("{} {place}{}", object.kind, object.name)
}

fn duration(micros: u64) -> String {
    let time = Duration::from_micros(micros);
    if time >= Duration::from_secs(1) {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        format!("{:.1} ms", time.as_secs_f64() * 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use metahook_core::hook::Usage;

    use super::*;

    fn object(kind: &str, resource: &str, name: &str) -> TracedObject {
        TracedObject {
            group: String::new(),
            resource: resource.to_owned(),
            kind: kind.to_owned(),
            namespace: "demo".to_owned(),
            name: name.to_owned(),
        }
    }

    fn pod(name: &str) -> TracedObject {
        object("Pod", "pods", name)
    }

    fn trace() -> ReconcileTrace {
        let call = TracedStep::Called {
            hook: "sync".to_owned(),
            older: false,
            took_us: 700,
            usage: Some(Usage { instructions: 60_117, memory: 1 << 20 }),
            error: None,
        };
        let planned = |verb: &str, name: &str, drift: &[&str]| PlannedWrite {
            verb: verb.to_owned(),
            object: pod(name),
            drift: drift.iter().map(|&place| place.to_owned()).collect(),
        };
        let plan = TracedStep::Planned {
            writes: vec![planned("delete", "old", &[]), planned("replace", "web", &["spec.replicas"])],
            left: vec![LeftChild { object: pod("going"), why: "it is being deleted".to_owned() }],
            unchanged: 2,
            left_out: 0,
        };
        let wrote = |verb: &str, name: &str, reason: Option<&str>, end| TracedStep::Wrote {
            verb: verb.to_owned(),
            object: pod(name),
            reason: reason.map(str::to_owned),
            end,
        };
        ReconcileTrace {
            controller: "CompositeController hello".to_owned(),
            parent: object("Hello", "hellos", "a"),
            generation: 2,
            resource_version: "7".to_owned(),
            began: "2026-11-27T10:20:31.120Z".to_owned(),
            took_us: 12_345,
            cause: "spec changed".to_owned(),
            steps: vec![
                call,
                plan,
                wrote("delete", "old", Some("the answer does not list it"), TracedWriteEnd::Changed),
                wrote("replace", "web", None, TracedWriteEnd::Failed("no right".to_owned())),
            ],
            left_out: 0,
            end: TraceEnd::Failed("replace Pod demo/web: no right".to_owned()),
            next_us: Some(5_000_000),
            settled: None,
        }
    }

    fn printed(object: &TracedObject, reconciles: Vec<ReconcileTrace>, max: usize) -> String {
        printed_with(0, object, reconciles, max)
    }

    fn printed_with(
        hidden_parents: usize,
        object: &TracedObject,
        reconciles: Vec<ReconcileTrace>,
        max: usize,
    ) -> String {
        let mut out = Vec::new();
        let explained = Explained { version: "1".to_owned(), reconciles, hidden_parents };
        print(&mut out, object, &explained, max).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_reconcile_is_told_from_its_cause_to_what_comes_next() {
        let expected = "\
2026-11-27 10:20:31.120Z  CompositeController hello: spec changed, FAILED in 12.3 ms
  call        sync hook, 0.7 ms, 60117 instructions, 1024 KiB
  unchanged   2 children
  left        Pod demo/going: it is being deleted
  drift       Pod demo/web: another client changed spec.replicas
  delete      Pod demo/old: the answer does not list it
  replace     Pod demo/web, FAILED: no right
  failed      replace Pod demo/web: no right
  next        after 5.0 s, unless something changes before
";
        assert_eq!(printed(&object("Hello", "hellos", "a"), vec![trace()], 5), expected);
        let of_child = printed(&pod("old"), vec![trace(), trace()], 1);
        assert!(
            of_child.starts_with(
                "2026-11-27 10:20:31.120Z  CompositeController hello: Hello demo/a, spec changed,"
            )
        );
        assert!(of_child.ends_with("1 more: --count shows them\n"), "{of_child}");
    }

    #[test]
    fn triggers_that_changed_nothing_stand_beside_the_latest_reconcile() {
        let settled = |triggers| SettledTriggers {
            triggers,
            first: "2026-11-27T10:20:40.000Z".to_owned(),
            last: "2026-11-27T10:31:02.512Z".to_owned(),
            last_cause: "Pod demo/x changed".to_owned(),
        };
        let mut calm = trace();
        calm.end = TraceEnd::Unchanged;
        calm.settled = Some(settled(212));
        let line = "CompositeController hello: settled; since this reconcile 212 triggers changed nothing, the last one (Pod demo/x changed) at 2026-11-27 10:31:02.512Z\n";
        let parent = object("Hello", "hellos", "a");
        let said = printed(&parent, vec![calm.clone(), trace()], 5);
        assert!(said.starts_with(line), "{said}");
        let mut followed = Vec::new();
        print_following(&mut followed, &parent, &[trace(), calm.clone()]).unwrap();
        assert!(String::from_utf8(followed).unwrap().ends_with(line));
        calm.settled = Some(settled(1));
        let said = printed(&pod("old"), vec![calm], 5);
        let line = "CompositeController hello: Hello demo/a settled; since this reconcile 1 trigger (Pod demo/x changed) changed nothing, at 2026-11-27 10:31:02.512Z\n";
        assert!(said.starts_with(line), "{said}");
    }

    #[test]
    fn what_is_not_shown_and_what_was_not_done_is_said() {
        let mut cut = trace();
        cut.steps.truncate(3);
        let said = printed_with(2, &pod("web"), vec![cut.clone()], 5);
        assert!(said.starts_with("The reconciles of 2 parents are not shown"), "{said}");
        assert!(
            said.contains("  not done    replace Pod demo/web\n") && !said.contains("not done    delete"),
            "{said}"
        );
        cut.left_out = 1;
        let said = printed(&pod("web"), vec![cut], 5);
        assert!(said.contains("1 more step\n") && !said.contains("not done"), "{said}");
    }

    #[test]
    fn a_message_does_nothing_to_the_terminal() {
        let mut odd = trace();
        odd.end = TraceEnd::Failed("\u{1b}[2Jone\ntwo".to_owned());
        let said = printed(&pod("web"), vec![odd], 5);
        assert!(said.contains("failed      \\u{1b}[2Jone\n              two\n"), "{said}");
    }

    #[test]
    fn an_object_that_nothing_is_remembered_of_is_told_so() {
        let said = printed(&pod("x"), Vec::new(), 5);
        assert!(said.starts_with("Pod demo/x: the server remembers no reconcile of it"), "{said}");
    }
}
