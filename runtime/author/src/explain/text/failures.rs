//! Failures of a parent in the list of its reconciles: what is present, and what was mended since.

use metahook_core::trace::{ReconcileTrace, TraceEnd, TracedObject};

use super::{is_of, name, readable_time};

/// A line for each controller and parent with a failure among its reconciles, the latest of which comes first.
pub(crate) fn summaries(object: &TracedObject, all: &[ReconcileTrace]) -> Vec<String> {
    let mut lines = Vec::new();
    for (nth, latest) in all.iter().enumerate() {
        let of_parent = |trace: &&ReconcileTrace| is_of(trace, latest);
        if all.iter().take(nth).any(|trace| is_of(trace, latest)) {
            continue;
        }
        let traces: Vec<_> = all.iter().filter(of_parent).collect();
        if let Some(text) = summary(&traces) {
            let parent =
                if latest.parent.is(object) { String::new() } else { format!("{} ", name(&latest.parent)) };
            lines.push(format!("{}: {parent}{text}", latest.controller));
        }
    }
    lines
}

/// Whether a failure is followed by a reconcile of the same parent that went well.
pub(crate) fn is_mended(all: &[ReconcileTrace], nth: usize) -> bool {
    let Some(trace) = all.get(nth).filter(|trace| has_failed(trace)) else { return false };
    all.iter().take(nth).any(|later| is_of(later, trace) && went_well(later))
}

/// `traces`: those of one parent, the latest first.
fn summary(traces: &[&ReconcileTrace]) -> Option<String> {
    let well = traces.iter().position(|trace| went_well(trace)).unwrap_or(traces.len());
    let (now, before) = traces.split_at(well);
    let times = |some: &[&ReconcileTrace]| {
        let times = |trace: &&ReconcileTrace| trace.repeated.as_ref().map_or(1, |it| it.times);
        let failed = some.iter().filter(|trace| has_failed(trace));
        failed.map(times).sum::<u64>()
    };
    if let Some(first) = now.iter().rev().find(|trace| has_failed(trace)) {
        let since = first.repeated.as_ref().map_or(&first.began, |it| &it.since);
        // A reconcile that went well divides these from earlier failures. Without one there may have been more: a
        // server that starts calls its own first reconcile the first, so the oldest one that it remembers proves nothing.
        let (at_least, or_earlier) = if before.is_empty() { ("at least ", " or earlier") } else { ("", "") };
        let many = Some(times(now)).filter(|&times| times > 1);
        let many = many.map_or_else(String::new, |it| format!(" {at_least}{it} times"));
        let is_paused = traces.first().is_some_and(|latest| latest.end == TraceEnd::Paused);
        let fails = if is_paused { "is paused now; it failed before," } else { "fails now," };
        return Some(format!("{fails}{many} since {}{or_earlier}", readable_time(since)));
    }
    let last = before.iter().find(|trace| has_failed(trace))?;
    let many = match times(before) {
        1 => "once".to_owned(),
        times => format!("{times} times"),
    };
    let until = readable_time(&last.began);
    Some(format!("failed at least {many} until {until}; no failure since"))
}

fn has_failed(trace: &ReconcileTrace) -> bool {
    matches!(trace.end, TraceEnd::Failed(_))
}

/// One that is put off, or that the API server let wait, says nothing about a failure before it.
fn went_well(trace: &ReconcileTrace) -> bool {
    matches!(trace.end, TraceEnd::Unchanged | TraceEnd::Wrote)
}

#[cfg(test)]
mod tests {
    use metahook_core::trace::repeated::Repeated;

    use super::super::tests::{object, pod, trace};
    use super::*;

    fn ended(end: TraceEnd, minute: u32, times: u64) -> ReconcileTrace {
        let repeated = Repeated { times, since: "2026-11-27T09:00:00.000Z".to_owned() };
        ReconcileTrace {
            began: format!("2026-11-27T10:{minute:02}:00.000Z"),
            repeated: (times > 1).then_some(repeated),
            end,
            ..trace()
        }
    }

    fn failed(minute: u32, times: u64) -> ReconcileTrace {
        ended(TraceEnd::Failed("it trapped".to_owned()), minute, times)
    }

    #[test]
    fn what_was_mended_is_told_from_what_fails_now() {
        let parent = object("Hello", "hellos", "a");
        let [wrote, again] =
            [TraceEnd::Wrote, TraceEnd::Again("waits".to_owned())].map(|end| ended(end, 5, 1));
        let mended = [again.clone(), wrote.clone(), failed(4, 2), failed(3, 1)];
        assert_eq!(
            summaries(&parent, &mended),
            [
                "CompositeController hello: failed at least 3 times until 2026-11-27 10:04:00.000Z; no failure since"
            ]
        );
        assert_eq!([0, 1, 2, 3].map(|nth| is_mended(&mended, nth)), [false, false, true, true]);
        let fails = [again, failed(4, 3), wrote.clone(), failed(3, 1)];
        assert_eq!(
            summaries(&parent, &fails),
            ["CompositeController hello: fails now, 3 times since 2026-11-27 09:00:00.000Z"]
        );
        assert_eq!([1, 3].map(|nth| is_mended(&fails, nth)), [false, true]);
        assert_eq!(
            summaries(&pod("old"), &[failed(4, 1)]),
            ["CompositeController hello: Hello demo/a fails now, since 2026-11-27 10:04:00.000Z or earlier"]
        );
        assert!(summaries(&parent, &[wrote]).is_empty());
    }

    #[test]
    fn failures_of_a_paused_parent_are_past() {
        let parent = object("Hello", "hellos", "a");
        let paused = ended(TraceEnd::Paused, 9, 1);
        assert_eq!(
            summaries(&parent, &[paused.clone(), failed(4, 3)]),
            [
                "CompositeController hello: is paused now; it failed before, at least 3 times since 2026-11-27 09:00:00.000Z or earlier"
            ]
        );
        assert!(summaries(&parent, std::slice::from_ref(&paused)).is_empty());
        let resumed = summaries(&parent, &[failed(10, 1), paused, failed(4, 1)]);
        assert!(resumed[0].contains("hello: fails now, at least 2 times since "), "{resumed:?}");
    }

    #[test]
    fn failures_before_the_oldest_remembered_reconcile_are_not_denied() {
        let parent = object("Hello", "hellos", "a");
        let said = |traces: &[ReconcileTrace]| summaries(&parent, traces).remove(0);
        let since = "since 2026-11-27 09:00:00.000Z";
        // A server that starts, and one that reads a new spec, takes the next reconcile of each parent for its first.
        for cause in ["first reconcile", "spec changed"] {
            let oldest = ReconcileTrace { cause: cause.to_owned(), ..failed(4, 2) };
            assert_eq!(
                said(&[failed(5, 3), oldest]),
                format!("CompositeController hello: fails now, at least 5 times {since} or earlier")
            );
        }
        let wrote = ended(TraceEnd::Wrote, 3, 1);
        let [before, after] =
            [said(&[failed(5, 3), wrote.clone(), failed(2, 1)]), said(&[wrote, failed(2, 1)])];
        assert!(before.ends_with(&format!("fails now, 3 times {since}")), "{before}");
        assert!(after.contains("hello: failed at least once until "), "{after}");
    }
}
