//! The page of the calls about a parent: the request and the answer of each call, beside what the reconcile decided and wrote.

use jiff::Timestamp;
use maud::{Markup, html};
use metahook_core::api::units::print_bytes;
use metahook_core::counted;
use metahook_core::trace::{ReconcileTrace, TracedStep};

use super::object::{column, heading, is_asked};
use super::site::Site;
use super::terminal::commands;
use super::{id_part, layout, number};
use crate::dashboard::call_recordings::{
    CallSubject, RecordedCalls, RecordedReconcile, ShownCall, ShownText,
};
use crate::explain::{duration, is_planned_anew, name, rows};

pub(crate) fn page(site: &Site, subject: &CallSubject, calls: &RecordedCalls) -> Markup {
    let CallSubject { controller, parent } = subject;
    let controller = (&*controller.kind, &*controller.name);
    let title = name(parent);
    let fixed = html! {
        h1 { "Requests and answers of " (title) }
        p {
            a href=(site.controller_link(controller.0, controller.1)) { (controller.0) " " (controller.1) }
            ", " a href=(site.object_link(parent)) { "latest reconciles" }
        }
    };
    let main = html! {
        section #calls data-live {
            p .quiet { (since(calls)) " Values of Secrets are replaced." }
            @if let Some(missing) = missing(calls) { p .failure { (missing) } }
            @if calls.reconciles.is_empty() {
                p { "There was no reconcile yet. The server reconciles a settled parent when something changes, and at a resync." }
            }
            @for (nth, reconcile) in calls.reconciles.iter().enumerate() {
                @let later = calls.reconciles.iter().take(nth).map(|later| &later.trace);
                (article(reconcile, is_planned_anew(&reconcile.trace, later)))
            }
        }
        (commands(&site.terminal.of_calls(controller, parent)))
    };
    layout(site, &format!("Requests and answers of {title}"), &fixed, &main)
}

fn since(calls: &RecordedCalls) -> String {
    let began =
        calls.began.map_or_else(|| "this moment".to_owned(), |time| readable(time, "%Y-%m-%d %H:%M:%SZ"));
    format!(
        "Servers keep no requests, so they record those that come while this page is open: since {began}, the latest reconcile first."
    )
}

/// What the page cannot show.
fn missing(RecordedCalls { gaps, lost, .. }: &RecordedCalls) -> Option<String> {
    let gaps = (*gaps > 0).then(|| {
        let gaps = counted(*gaps, "gap", "gaps");
        format!("There are {gaps}: a server started anew, or the page was not shown, or not live, for half a minute.")
    });
    let lost = (*lost > 0).then(|| {
        let lost = counted(*lost, "call or reconcile is", "calls and reconciles are");
        format!(
            "{lost} not shown: the server had no room for them, a request or an answer is larger than 1 MiB or has very many values, or Secrets have too many values."
        )
    });
    let missing: Vec<_> = [gaps, lost].into_iter().flatten().collect();
    (!missing.is_empty()).then(|| missing.join(" "))
}

fn article(
    RecordedReconcile { calls, left_out, trace }: &RecordedReconcile,
    is_planned_anew: bool,
) -> Markup {
    let rows = rows(trace, is_planned_anew);
    let done: Vec<_> = rows.iter().filter(|(what, _)| !is_asked(what)).collect();
    let id = id_part(&trace.began);
    html! {
        article {
            (heading(trace, false))
            @if !trace.cause.is_empty() { p { strong { (trace.whole_cause()) } } }
            @if calls.is_empty() { p .quiet { (without_calls(trace)) } }
            @if *left_out > 0 { p .quiet { (counted(*left_out, "call before is", "calls before are")) " left out." } }
            @for (nth, call) in calls.iter().enumerate() { (shown(call, &format!("{id}-{nth}"))) }
            (column("Decided and written", &done, &format!("done-{id}")))
        }
    }
}

fn without_calls(trace: &ReconcileTrace) -> &'static str {
    let is_call = |step: &TracedStep| {
        matches!(step, TracedStep::Called { .. } | TracedStep::Related { earlier: false, .. })
    };
    if trace.left_out == 0 && !trace.steps.iter().any(is_call) {
        return "No hook was called.";
    }
    "The recording does not have the calls: they began before it, the server had no room for them, a request or an answer is larger than 1 MiB or has very many values, or Secrets have too many values."
}

fn shown(ShownCall { call, request, answer, changed }: &ShownCall, id: &str) -> Markup {
    let began = Timestamp::from_nanosecond(call.now_nanos.into()).unwrap_or_default();
    html! {
        p {
            strong { (call.hook) " hook" }
            " at " (readable(began, "%H:%M:%S%.3fZ")) " in " (duration(call.took_us))
            @if let Some(usage) = call.usage {
                ", " (number(usage.instructions)) " instructions, " (print_bytes(usage.memory)) " of memory"
            }
        }
        @if !changed.text.is_empty() {
            details id={ "changed-" (id) } {
                summary id={ "summary-" (id) } { "Changed since the call before" }
                (text(changed, &format!("lines-{id}"), "Changed lines of the request"))
            }
        }
        div .columns {
            section { h3 { "Request" } (text(request, &format!("request-{id}"), "Request")) }
            section {
                h3 { "Answer" }
                @match answer {
                    Ok(answer) => (text(answer, &format!("answer-{id}"), "Answer")),
                    Err(error) => p .failure { (error) },
                }
            }
        }
    }
}

fn text(ShownText { text, left_out }: &ShownText, id: &str, label: &str) -> Markup {
    html! {
        (json(text, id, label))
        @if *left_out > 0 {
            p .quiet { (number(*left_out as u64)) " bytes more: `metahook record --reconciles` keeps all of it." }
        }
    }
}

/// Lines that scroll within the page, also by the keyboard. The script keeps their place by `id`.
fn json(text: &str, id: &str, label: &str) -> Markup {
    html! { pre .json id=(id) tabindex="0" role="region" aria-label=(label) { (text) } }
}

fn readable(time: Timestamp, format: &str) -> String {
    time.strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use metahook_core::trace::TracedObject;
    use serde_json::json;

    use super::*;

    const HOSTILE: &str = "<script>alert(1)</script>";

    fn subject() -> CallSubject {
        let object = |kind: &str| TracedObject {
            group: "".into(),
            resource: "".into(),
            kind: kind.into(),
            namespace: "n".into(),
            name: "a".into(),
        };
        CallSubject { controller: object("CompositeController"), parent: object("Hello") }
    }

    fn shown_text(text: &str, left_out: usize) -> ShownText {
        ShownText { text: text.to_owned(), left_out }
    }

    fn call(answer: Result<ShownText, String>, changed: &str) -> ShownCall {
        let call = json!({ "controller": "a", "parent": subject().parent, "hook": "sync", "nowNanos": 1_500_000_000, "request": "",
            "tookUs": 1200, "usage": { "instructions": 12345, "memory": 65536 } });
        let call = serde_json::from_value(call).unwrap();
        ShownCall { call, request: shown_text(HOSTILE, 7), answer, changed: shown_text(changed, 0) }
    }

    fn of_one(calls: Vec<ShownCall>, left_out: usize, trace: ReconcileTrace) -> RecordedCalls {
        let reconciles = [Arc::new(RecordedReconcile { calls, left_out, trace })].into();
        RecordedCalls { reconciles, ..RecordedCalls::default() }
    }

    fn shown_page(calls: &RecordedCalls) -> String {
        page(&Site::for_tests(), &subject(), calls).into_string()
    }

    #[test]
    fn a_call_is_shown_with_its_request_and_its_answer() {
        let calls = vec![
            call(Ok(shown_text("{ \"children\": [] }", 0)), "- \"n\": 1"),
            call(Err(format!("HookTrap: {HOSTILE}")), ""),
        ];
        let page = shown_page(&of_one(calls, 3, ReconcileTrace::default()));
        assert!(!page.contains("<script>alert") && page.contains("HookTrap: &lt;script&gt;"), "{page}");
        assert!(
            page.contains("at 00:00:01.500Z in 1.2 ms, 12\u{202f}345 instructions, 64Ki of memory"),
            "{page}"
        );
        assert!(page.contains("{ &quot;children&quot;: [] }") && page.contains("7 bytes more"), "{page}");
        assert_eq!(page.matches("Changed since the call before").count(), 1, "{page}");
        assert!(page.contains("3 calls before are left out"), "{page}");
        assert!(
            page.contains("metahook record --controller compositecontroller/a n/a --reconciles 5"),
            "{page}"
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        let page = shown_page(&RecordedCalls::default());
        assert!(page.contains("There was no reconcile yet") && !page.contains("failure"), "{page}");
        let page = shown_page(&RecordedCalls { gaps: 2, lost: 1, ..RecordedCalls::default() });
        assert!(
            page.contains("There are 2 gaps") && page.contains("1 call or reconcile is not shown"),
            "{page}"
        );
        let page = shown_page(&of_one(Vec::new(), 0, ReconcileTrace::default()));
        assert!(page.contains("No hook was called"), "{page}");
        let hook = "sync".to_owned();
        let called = TracedStep::Called { hook, older: false, took_us: 1, usage: None, error: None };
        let trace = ReconcileTrace { steps: vec![called], ..ReconcileTrace::default() };
        let page = shown_page(&of_one(Vec::new(), 0, trace));
        assert!(
            page.contains("The recording does not have the calls") && !page.contains("No hook"),
            "{page}"
        );
    }
}
