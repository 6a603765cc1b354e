//! Failures of a parent in the list of its reconciles: what is present, and what was mended since.

use metahook_core::reconcile::trigger::Trigger;
use metahook_core::trace::{ReconcileTrace, TraceEnd, TracedObject};

use super::{is_of, name, readable_time};

/// A line for each controller and parent with a failure among its reconciles, the latest of which comes first.
pub(super) fn summaries(object: &TracedObject, all: &[ReconcileTrace]) -> Vec<String> {
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
pub(super) fn is_mended(all: &[ReconcileTrace], nth: usize) -> bool {
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
    let is_cut = !traces.last().is_some_and(|oldest| is_first(oldest));
    let at_least = |is_cut: bool| if is_cut { "at least " } else { "" };
    if let Some(first) = now.iter().rev().find(|trace| has_failed(trace)) {
        let since = first.repeated.as_ref().map_or(&first.began, |it| &it.since);
        // A reconcile that went well divides these from earlier failures.
        let is_cut = is_cut && before.is_empty();
        let many = Some(times(now)).filter(|&times| times > 1);
        let many = many.map_or_else(String::new, |it| format!(" {}{it} times", at_least(is_cut)));
        let or_earlier = if is_cut { " or earlier" } else { "" };
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
    Some(format!("failed {}{many} until {until}; no failure since", at_least(is_cut)))
}

/// Whether it is the first reconcile of its parent. Where the oldest that is remembered is another one, earlier ones were left
/// out: there are bounds of their number and of their bytes.
fn is_first(trace: &ReconcileTrace) -> bool {
    trace.cause == Trigger::First.to_string()
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

    /// The oldest of a list is taken for the first one of its parent.
    fn all(mut traces: Vec<ReconcileTrace>) -> Vec<ReconcileTrace> {
        traces.last_mut().unwrap().cause = Trigger::First.to_string();
        traces
    }

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
        let mended = all(vec![again.clone(), wrote.clone(), failed(4, 2), failed(3, 1)]);
        assert_eq!(
            summaries(&parent, &mended),
            ["CompositeController hello: failed 3 times until 2026-11-27 10:04:00.000Z; no failure since"]
        );
        assert_eq!([0, 1, 2, 3].map(|nth| is_mended(&mended, nth)), [false, false, true, true]);
        let fails = all(vec![again, failed(4, 3), wrote.clone(), failed(3, 1)]);
        assert_eq!(
            summaries(&parent, &fails),
            ["CompositeController hello: fails now, 3 times since 2026-11-27 09:00:00.000Z"]
        );
        assert_eq!([1, 3].map(|nth| is_mended(&fails, nth)), [false, true]);
        assert_eq!(
            summaries(&pod("old"), &all(vec![failed(4, 1)])),
            ["CompositeController hello: Hello demo/a fails now, since 2026-11-27 10:04:00.000Z"]
        );
        assert!(summaries(&parent, &[wrote]).is_empty());
    }

    #[test]
    fn failures_of_a_paused_parent_are_past() {
        let parent = object("Hello", "hellos", "a");
        let paused = ended(TraceEnd::Paused, 9, 1);
        assert_eq!(
            summaries(&parent, &all(vec![paused.clone(), failed(4, 3)])),
            [
                "CompositeController hello: is paused now; it failed before, 3 times since 2026-11-27 09:00:00.000Z"
            ]
        );
        assert!(summaries(&parent, &all(vec![paused.clone()])).is_empty());
        let resumed = summaries(&parent, &all(vec![failed(10, 1), paused, failed(4, 1)]));
        assert!(resumed[0].contains("hello: fails now, 2 times since "), "{resumed:?}");
    }

    #[test]
    fn failures_before_the_oldest_remembered_reconcile_are_not_denied() {
        let parent = object("Hello", "hellos", "a");
        let said = |traces: &[ReconcileTrace]| summaries(&parent, traces).remove(0);
        let since = "since 2026-11-27 09:00:00.000Z";
        let cut = [failed(5, 3), failed(4, 2)];
        assert_eq!(
            said(&cut),
            format!("CompositeController hello: fails now, at least 5 times {since} or earlier")
        );
        assert_eq!(
            said(&all(cut.to_vec())),
            format!("CompositeController hello: fails now, 5 times {since}")
        );
        let wrote = ended(TraceEnd::Wrote, 3, 1);
        let [before, after] =
            [said(&[failed(5, 3), wrote.clone(), failed(2, 1)]), said(&[wrote, failed(2, 1)])];
        assert!(before.ends_with(&format!("fails now, 3 times {since}")), "{before}");
        assert!(after.contains("hello: failed at least once until "), "{after}");
    }
}
