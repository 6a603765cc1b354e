//! The page of an object: the latest reconciles of it, or of the parents that wrote it or decided about it.

use std::collections::BTreeSet;

use maud::{Markup, html};
use metahook_core::counted;
use metahook_core::trace::{Explained, ReconcileTrace, TraceEnd, TracedObject};

use super::site::Site;
use super::terminal::commands;
use super::{Tone, badge, id_part, layout};
use crate::explain::{
    duration, end, failure_summaries, is_mended, is_planned_anew, name, readable_time, repeated, rows,
    settled,
};

/// Rows of what was asked; the others are what was decided and written.
const ASKED: [&str; 6] = ["related", "rule", "call", "read", "finalizers", "next"];

pub(crate) fn page(site: &Site, object: &TracedObject, explained: &Explained) -> Markup {
    let title = name(object);
    let main = html! {
        h1 { (title) }
        @let controllers = controllers_of(object, explained);
        section #calls data-live {
            @for (kind, name) in &controllers {
                p { a id={ "calls-" (kind) "-" (name) } href=(site.calls_link((kind, name), object)) { "Requests and answers of " (kind) " " (name) } }
            }
        }
        section #reconciles data-live {
            @if explained.hidden_parents > 0 {
                p .failure {
                    "The reconciles of " (counted(explained.hidden_parents, "parent is", "parents are"))
                    " not shown: you may not get what they are of, or there are too many."
                }
            }
            @if explained.reconciles.is_empty() && explained.hidden_parents == 0 {
                p { "The server remembers no reconcile of this object, or of a parent that wrote it. It remembers the latest ones since it started, and the first hundred children of each. Triggers that change nothing leave no trace. The first command below asks the cluster for the reason." }
            }
            @for summary in failure_summaries(object, &explained.reconciles) { p { (summary) } }
            @for nth in 0..explained.reconciles.len() {
                (reconcile(site, object, &explained.reconciles, nth))
            }
        }
        (commands(&site.terminal.of_object(object)))
    };
    layout(site, &title, &html! {}, &main)
}

/// The kinds and names of the controllers whose parent the object is.
fn controllers_of<'a>(object: &TracedObject, explained: &'a Explained) -> BTreeSet<(&'a str, &'a str)> {
    let own = explained.reconciles.iter().filter(|trace| trace.parent.is(object));
    own.filter_map(|trace| trace.controller.split_once(' ')).collect()
}

/// The one of this number, of all reconciles of the page, the latest of which comes first.
fn reconcile(site: &Site, object: &TracedObject, all: &[ReconcileTrace], nth: usize) -> Markup {
    let Some(trace) = all.get(nth) else { return html! {} };
    let later = all.get(..nth).unwrap_or_default();
    let rows = rows(trace, is_planned_anew(trace, later));
    let (asked, done): (Vec<_>, Vec<_>) = rows.iter().partition(|(what, _)| is_asked(what));
    // A new reconcile comes before this one, so its position is no name.
    let id = id_part(&format!("{} {} {}", trace.controller, name(&trace.parent), trace.began));
    html! {
        article {
            @if let Some(count) = trace.settled.as_ref().filter(|_| trace.end == TraceEnd::Unchanged) {
                p .quiet { (settled(count)) }
            }
            (heading(trace, is_mended(all, nth)))
            p {
                (trace.controller)
                @if !trace.parent.is(object) {
                    ", " a id={ "parent-" (id) } href=(site.object_link(&trace.parent)) { (name(&trace.parent)) }
                }
                @if !trace.cause.is_empty() { ": " strong { (trace.whole_cause()) } }
                span .quiet { ", generation " (trace.generation) ", resource version " (trace.resource_version) }
            }
            div .columns {
                (column("Asked", &asked, &format!("asked-{id}")))
                (column("Decided and written", &done, &format!("done-{id}")))
            }
        }
    }
}

/// When a reconcile began, and how it ended. `is_mended`: a later one of its parent went well.
pub(super) fn heading(trace: &ReconcileTrace, is_mended: bool) -> Markup {
    let tone = match &trace.end {
        TraceEnd::Unchanged => Tone::Quiet,
        TraceEnd::Wrote => Tone::Good,
        TraceEnd::Paused | TraceEnd::Again(_) => Tone::Warn,
        TraceEnd::Failed(_) => Tone::Bad,
    };
    html! {
        h2 {
            time datetime=(trace.began) { (readable_time(&trace.began)) }
            " " (badge(tone, end(&trace.end)))
            @if is_mended { " mended since" }
            span .quiet { " in " (duration(trace.took_us)) (repeated(trace)) }
        }
    }
}

/// Whether a row of a trace is about what was asked.
pub(super) fn is_asked(what: &str) -> bool {
    ASKED.contains(&what)
}

/// Rows that are shown at once; the others are behind a click.
const MAX_OPEN: usize = 20;

pub(super) fn column(title: &str, all: &[&(&str, String)], id: &str) -> Markup {
    let (first, more) = all.split_at(all.len().min(MAX_OPEN));
    html! {
        section {
            h3 { (title) }
            @if all.is_empty() { p .quiet { "nothing" } }
            (list(first))
            @if !more.is_empty() {
                details id={ "more-" (id) } {
                    summary id={ "summary-" (id) } { (more.len()) " more" }
                    (list(more))
                }
            }
        }
    }
}

fn list(rows: &[&(&str, String)]) -> Markup {
    html! {
        dl {
            @for (what, text) in rows {
                dt .failure[fails(what, text)] { (what) }
                dd { (text) }
            }
        }
    }
}

fn fails(what: &str, text: &str) -> bool {
    what == "failed" || text.contains(", FAILED: ")
}

#[cfg(test)]
mod tests {
    use metahook_core::trace::TracedStep;
    use metahook_core::trace::repeated::Repeated;

    use super::*;

    fn trace(began: &str) -> ReconcileTrace {
        let object = TracedObject {
            group: "".into(),
            resource: "pods".into(),
            kind: "Pod".into(),
            namespace: "demo".into(),
            name: "a".into(),
        };
        let steps = vec![TracedStep::Tried { object: object.clone() }; MAX_OPEN + 1];
        ReconcileTrace {
            controller: "CompositeController c".to_owned(),
            parent: TracedObject { name: "parent".into(), ..object },
            generation: 1,
            resource_version: "7".to_owned(),
            began: began.to_owned(),
            took_us: 1,
            steps,
            end: TraceEnd::Wrote,
            ..ReconcileTrace::default()
        }
    }

    fn shown(traces: &[ReconcileTrace]) -> String {
        let site = Site::for_tests();
        let object = TracedObject { name: "child".into(), ..traces[0].parent.clone() };
        let explained = Explained { version: String::new(), reconciles: traces.to_vec(), hidden_parents: 0 };
        page(&site, &object, &explained).into_string()
    }

    fn ids(traces: &[ReconcileTrace]) -> Vec<String> {
        let page = shown(traces);
        let ids = page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next());
        ids.filter(|id| id.contains("2026")).map(str::to_owned).collect()
    }

    #[test]
    fn what_is_open_keeps_its_id_when_a_reconcile_comes() {
        let (old, new) = (trace("2026-11-27T10:00:00.000Z"), trace("2026-11-27T10:00:01.000Z"));
        let before = ids(std::slice::from_ref(&old));
        assert_eq!(before.len(), 3, "parent, details and summary: {before:?}");
        let after = ids(&[new, old]);
        assert_eq!(after[3..], before);
        assert!(before.iter().all(|id| !after[..3].contains(id)), "{after:?}");
    }

    #[test]
    fn equal_reconciles_are_counted() {
        let since = "2026-11-27T09:00:00.000Z".to_owned();
        let one = trace("2026-11-27T10:00:00.000Z");
        let many = ReconcileTrace { repeated: Some(Repeated { times: 212, since }), ..one.clone() };
        let page = shown(&[many, one]);
        let said = " in 0.0 ms; the same 212 times since 2026-11-27 09:00:00.000Z</span>";
        assert_eq!((page.matches(said).count(), page.matches(" in 0.0 ms</span>").count()), (1, 1), "{page}");
    }

    #[test]
    fn a_mended_failure_differs_from_a_lasting_one() {
        let ended = |began: &str, end: TraceEnd| ReconcileTrace { end, ..trace(began) };
        let (failed, began) = (|| TraceEnd::Failed("it trapped".to_owned()), "2026-11-27T10:00:00.000Z");
        let page = shown(&[ended("2026-11-27T10:00:01.000Z", failed()), ended(began, failed())]);
        assert!(page.contains("fails now, at least 2 times since") && !page.contains("mended"), "{page}");
        let page = shown(&[ended("2026-11-27T10:00:01.000Z", TraceEnd::Wrote), ended(began, failed())]);
        assert!(page.contains("no failure since") && page.contains("mended since"), "{page}");
    }

    #[test]
    fn the_ways_out_stand_at_the_present_hold_alone() {
        let holds = |began: &str, version: &str| {
            let (objects, version) = (Vec::new(), version.to_owned());
            ReconcileTrace { steps: vec![TracedStep::Held { children: 1, objects, version }], ..trace(began) }
        };
        let page =
            shown(&[holds("2026-11-27T10:00:01.000Z", "new"), holds("2026-11-27T10:00:00.000Z", "old")]);
        assert!(page.contains("allow-deletions=new") && !page.contains("allow-deletions=old"), "{page}");
    }
}
