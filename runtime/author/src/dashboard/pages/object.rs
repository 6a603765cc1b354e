//! The page of an object: the latest reconciles of it, or of the parents that wrote it or decided about it.

use maud::{Markup, html};
use metahook_core::counted;
use metahook_core::trace::{Explained, ReconcileTrace, TraceEnd, TracedObject};

use super::{Tone, badge, commands, layout, object_link};
use crate::explain::{duration, end, name, rows, settled};

/// Rows of what was asked; the others are what was decided and written.
const ASKED: [&str; 5] = ["related", "call", "read", "finalizers", "next"];

pub(crate) fn page(object: &TracedObject, explained: &Explained) -> Markup {
    let title = name(object);
    let main = html! {
        h1 { (title) }
        section #reconciles data-live {
            @if explained.hidden_parents > 0 {
                p .failure {
                    "The reconciles of " (counted(explained.hidden_parents, "parent is", "parents are"))
                    " not shown: you may not get what they are of, or there are too many."
                }
            }
            @if explained.reconciles.is_empty() && explained.hidden_parents == 0 {
                p { "The server remembers no reconcile of this object, or of a parent that wrote it. It remembers the latest ones since it started, and the first hundred children of each. Triggers that change nothing leave no trace." }
            }
            @for (nth, trace) in explained.reconciles.iter().enumerate() {
                (reconcile(object, trace, nth))
            }
        }
        (commands(&terminal(object)))
    };
    layout(&title, &html! {}, &main)
}

fn reconcile(object: &TracedObject, trace: &ReconcileTrace, nth: usize) -> Markup {
    let rows = rows(trace);
    let (asked, done): (Vec<_>, Vec<_>) = rows.iter().partition(|(what, _)| ASKED.contains(what));
    let tone = match &trace.end {
        TraceEnd::Unchanged => Tone::Quiet,
        TraceEnd::Wrote => Tone::Good,
        TraceEnd::Paused | TraceEnd::Again(_) => Tone::Warn,
        TraceEnd::Failed(_) => Tone::Bad,
    };
    html! {
        article {
            @if let Some(count) = trace.settled.as_ref().filter(|_| trace.end == TraceEnd::Unchanged) {
                p .quiet { (settled(count)) }
            }
            h2 {
                time datetime=(trace.began) { (trace.began.replace('T', " ")) }
                " " (badge(tone, end(&trace.end)))
                span .quiet { " in " (duration(trace.took_us)) }
            }
            p {
                (trace.controller)
                @if !trace.parent.is(object) {
                    ", " a href=(object_link(&trace.parent)) { (name(&trace.parent)) }
                }
                @if !trace.cause.is_empty() { ": " strong { (trace.whole_cause()) } }
                span .quiet { ", generation " (trace.generation) ", resource version " (trace.resource_version) }
            }
            div .columns {
                (column("Asked", &asked, nth))
                (column("Decided and written", &done, nth))
            }
        }
    }
}

/// Rows that are shown at once; the others are behind a click.
const MAX_OPEN: usize = 20;

fn column(title: &str, all: &[&(&str, String)], nth: usize) -> Markup {
    let (first, more) = all.split_at(all.len().min(MAX_OPEN));
    html! {
        section {
            h3 { (title) }
            @if all.is_empty() { p .quiet { "nothing" } }
            (list(first))
            @if !more.is_empty() {
                details id={ "more-" (nth) "-" (title.replace(' ', "-")) } {
                    summary { (more.len()) " more" }
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

fn terminal(object: &TracedObject) -> Vec<String> {
    let kind = &object.resource;
    let kind = if object.group.is_empty() { kind.clone() } else { format!("{kind}.{}", object.group) };
    let (place, flag) = if object.namespace.is_empty() {
        (object.name.clone(), String::new())
    } else {
        (format!("{}/{}", object.namespace, object.name), format!("-n {} ", object.namespace))
    };
    vec![
        format!("metahook explain --follow {kind} {place}"),
        format!("kubectl {flag}describe {kind} {}", object.name),
    ]
}
