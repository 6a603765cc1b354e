//! The page of one controller: how it stands, its hooks, and its parents.

use std::collections::BTreeMap;

use jiff::Timestamp;
use maud::{Markup, html};
use metahook_core::api::reason::ConditionType;
use metahook_core::api::status::{Condition, HookStatus};
use metahook_core::api::units::print_bytes;
use metahook_core::controller_metrics::BUCKETS;
use metahook_core::overview::CallNumbers;
use metahook_core::overview::parent_list::ParentFilter;

use super::groups::groups;
use super::numbers::{numbers, time};
use super::parents::{filters, list};
use super::site::Site;
use super::terminal::commands;
use super::{Tone, badge, id_part, layout, meaning, number, state, tone, wide};
use crate::dashboard::charts::{Bar, histogram, in_bars, trimmed};
use crate::dashboard::reader::OneController;
use crate::status::renewed;

pub(crate) fn page(site: &Site, one: &OneController, filter: &ParentFilter) -> Markup {
    let OneController { shown, rates, parents } = one;
    let line = &shown.line;
    let place = site.controller_link(line.kind, &line.name);
    let fixed = html! { h1 { span .quiet { (line.kind) } " " (line.name) } };
    let seen = renewed(line.seen);
    let main = html! {
        section #state-of-it data-live {
            p {
                (badge(tone(line), state(line)))
                " " span .quiet { (seen) }
            }
            p { (meaning(&line.reason)) }
            @if let Some(error) = &shown.failed {
                p .failure { "What the server knows is not shown: " (metahook_core::error_chain(error)) }
            }
            @if let Some(error) = &shown.without_leases {
                p .failure { "Not all is shown: " (metahook_core::error_chain(error)) }
            }
            (conditions(&shown.status.conditions))
            @match &shown.running {
                Some(running) => (numbers(running, rates)),
                None => p { "No server that was asked runs the controller." },
            }
        }
        section #hooks data-live {
            h2 { "Hooks" }
            (hooks(&shown.status.hooks, &shown.webhooks))
            @if let Some(running) = &shown.running { (charts(&running.calls)) }
        }
        section #groups data-live {
            @if let Some(running) = &shown.running { (groups(&place, running, Timestamp::now())) }
        }
        h2 #list { "Parents" }
        (filters(&place, filter))
        section #parents data-live { (list(site, parents, filter, &place)) }
        (commands(&site.terminal.of_controller(line.kind, &line.name)))
    };
    layout(site, &line.name, &fixed, &main)
}

/// All conditions, with the colour of what each says.
fn conditions(conditions: &[Condition]) -> Markup {
    html! {
        dl .conditions {
            @for condition in conditions {
                dt { (condition.kind) }
                dd {
                    (badge(tone_of(condition), &condition.status)) " " (condition.reason)
                    @if !condition.message.is_empty() { ": " (condition.message) }
                }
            }
        }
    }
}

fn tone_of(condition: &Condition) -> Tone {
    let is = |kinds: &[ConditionType]| kinds.iter().any(|kind| kind.as_str() == condition.kind);
    // True of these needs a look.
    let is_remark = is(&[
        ConditionType::ChildrenDiffer,
        ConditionType::ApiWarnings,
        ConditionType::DeletionsHeld,
        ConditionType::Paused,
    ]);
    // Without these the controller does not do what it should.
    let is_needed = is(&[
        ConditionType::Ready,
        ConditionType::ModulesLoaded,
        ConditionType::KindsServed,
        ConditionType::RightsGranted,
    ]);
    match (&*condition.status, is_remark) {
        ("True", false) => Tone::Good,
        ("False", false) if is_needed => Tone::Bad,
        ("True", true) | ("False", false) => Tone::Warn,
        _ => Tone::Quiet,
    }
}

fn hooks(hooks: &BTreeMap<String, HookStatus>, webhooks: &BTreeMap<&str, String>) -> Markup {
    html! {
        @if hooks.is_empty() && webhooks.is_empty() { p .quiet { "The status has no hooks: none is loaded." } }
        @for (name, url) in webhooks { p { (name) " hook: webhook " code { (url) } } }
        @if !hooks.is_empty() { (table_of_hooks(hooks)) }
    }
}

/// The modules and scripts of a controller.
fn table_of_hooks(hooks: &BTreeMap<String, HookStatus>) -> Markup {
    let used = |used: i64, limit: i64, print: fn(u64) -> String| {
        let print = |number: i64| print(u64::try_from(number).unwrap_or_default());
        html! {
            meter min="0" max=(limit.max(1)) value=(used) high=(limit / 10 * 8) {}
            " " (print(used)) " of " (print(limit))
        }
    };
    let table = html! {
        table {
            thead {
                tr {
                    th { "Hook" } th { "Version" } th { "Loaded" } th .number { "Instructions, median" }
                    th { "Most instructions" } th { "Most memory" }
                }
            }
            tbody {
                @for (name, hook) in hooks {
                    tr {
                        th scope="row" { (name) }
                        td { code title=[hook.digest.as_ref()] { (hook.short_digest.as_deref().unwrap_or("–")) } }
                        td { (hook.loaded_at.as_deref().unwrap_or("–")) }
                        td .number {
                            (hook.shown_median().map_or_else(|| "–".to_owned(), |it| number(it.unsigned_abs())))
                        }
                        @match &hook.latest {
                            Some(latest) => {
                                td { (used(latest.instructions, latest.instructions_limit, number)) }
                                td { (used(latest.memory_bytes, latest.memory_limit_bytes, print_bytes)) }
                            }
                            None => { td { "–" } td { "–" } }
                        }
                    }
                }
            }
        }
    };
    wide("table-of-hooks", "Hooks", &table)
}

fn charts(calls: &CallNumbers) -> Markup {
    let is_unknown = calls.buckets.is_empty() && calls.results.values().sum::<u64>() > 0;
    html! {
        div .charts {
            @if is_unknown {
                p .quiet { "The server does not report the times of calls: it is older than this command." }
            } @else if calls.hook_buckets.is_empty() {
                (histogram("times", "Time of calls of all hooks", &by_time(&calls.buckets)))
            }
            @for (hook, buckets) in &calls.hook_buckets {
                @let title = format!("Time of calls of the {hook} hook");
                (histogram(&format!("times-{}", id_part(hook)), &title, &by_time(buckets)))
            }
            @for (hook, instructions) in &calls.instructions {
                @let title = format!("Instructions of the latest {} calls of the {hook} hook", instructions.len());
                (histogram(&format!("instructions-{}", id_part(hook)), &title, &in_bars(instructions, |from| format!("from {}", number(from)))))
            }
        }
    }
}

fn by_time(buckets: &[u64]) -> Vec<Bar> {
    let bounds = BUCKETS.iter().map(|bound| format!("up to {}", time(*bound)));
    let labels = bounds.chain(["longer".to_owned()]);
    trimmed(labels.zip(buckets).map(|(label, count)| Bar { label, count: *count }).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_old_server_reports_no_times() {
        let results = [("ok".to_owned(), 1234)].into();
        let old = charts(&CallNumbers { results, ..CallNumbers::default() }).into_string();
        assert!(old.contains("does not report the times") && !old.contains("no calls yet"), "{old}");
        assert!(charts(&CallNumbers::default()).into_string().contains("no calls yet"));
    }

    #[test]
    fn each_hook_has_a_chart_of_its_times() {
        let hook_buckets =
            ["finalize", "sync"].map(|hook| (hook.to_owned(), vec![1; BUCKETS.len() + 1])).into();
        let drawn = charts(&CallNumbers { hook_buckets, ..CallNumbers::default() }).into_string();
        for hook in ["finalize", "sync"] {
            assert!(drawn.contains(&format!("Time of calls of the {hook} hook")), "{drawn}");
        }
        assert!(!drawn.contains("of all hooks"), "{drawn}");
    }

    #[test]
    fn a_chart_that_is_open_keeps_its_id() {
        let ids = |calls: u64| {
            let buckets = vec![calls; BUCKETS.len() + 1];
            let instructions = [("sync".to_owned(), vec![7; usize::try_from(calls).unwrap()])].into();
            let drawn =
                charts(&CallNumbers { buckets, instructions, ..CallNumbers::default() }).into_string();
            let ids = drawn.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next());
            ids.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(ids(12), ids(13));
        assert_eq!(ids(12).len(), 4);
    }

    #[test]
    fn all_conditions_are_shown_with_status_and_reason() {
        let one = |kind: &str, status: &str, reason: &str, message: &str| -> Condition {
            let fields = json!({ "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "t" });
            serde_json::from_value(fields).unwrap()
        };
        let all = [
            one("Ready", "False", "NotServed", "it is gone"),
            one("ModulesLoaded", "True", "Loaded", ""),
            one("Pure", "False", "ReadsClock", "it reads the time"),
            one("DeletionsHeld", "False", "None", ""),
            one("Paused", "True", "Paused", ""),
        ];
        let tones = all.each_ref().map(tone_of);
        assert_eq!(tones, [Tone::Bad, Tone::Good, Tone::Warn, Tone::Quiet, Tone::Warn]);
        let shown = conditions(&all).into_string();
        let ready = r#"<dt>Ready</dt><dd><span class="badge bad">False</span> NotServed: it is gone</dd>"#;
        let loaded = r#"<dt>ModulesLoaded</dt><dd><span class="badge good">True</span> Loaded</dd>"#;
        assert!(shown.contains(ready) && shown.contains(loaded), "{shown}");
    }
}
