//! The page of one controller: how it stands, its hooks, and its parents.

use std::collections::BTreeMap;

use maud::{Markup, html};
use metahook_core::api::reason::ConditionType;
use metahook_core::api::status::{Condition, HookStatus};
use metahook_core::api::units::print_bytes;
use metahook_core::controller_metrics::{BUCKETS, OK};
use metahook_core::counted;
use metahook_core::overview::parent_list::{ListedParent, PAGE, ParentFilter, ParentList};
use metahook_core::overview::{CallNumbers, ControllerOverview, NamedParents, ParentGroup};
use metahook_core::settled::parent_state::ParentState;

use super::{Tone, badge, commands, layout, meaning, number, object_link, rate, tone};
use crate::dashboard::charts::{Bar, histogram, in_bars, sparkline, trimmed};
use crate::dashboard::reader::OneController;
use crate::dashboard::samples::Rates;
use crate::explain::{duration, end};
use crate::status::age;

pub(crate) fn page(one: &OneController, filter: &ParentFilter) -> Markup {
    let OneController { shown, rates, parents } = one;
    let line = &shown.line;
    let place = format!("/controllers/{}/{}", line.kind, line.name);
    let fixed = html! { h1 { span .quiet { (line.kind) } " " (line.name) } };
    let seen = line.seen.map_or_else(|| "never seen".to_owned(), |seen| format!("seen {} ago", age(seen)));
    let main = html! {
        section #state-of-it data-live {
            p {
                (badge(tone(line), if line.reason.is_empty() { &line.ready } else { &line.reason }))
                " " span .quiet { (seen) }
            }
            p { (meaning(&line.reason)) }
            @if let Some(error) = &shown.failed {
                p .failure { "What the server knows is not shown: " (metahook_core::error_chain(error)) }
            }
            (conditions(&shown.status.conditions))
            @match &shown.running {
                Some(running) => (numbers(running, rates)),
                None => p { "No server that was asked runs the controller." },
            }
        }
        section #hooks data-live {
            h2 { "Hooks" }
            (hooks(&shown.status.hooks))
            @if let Some(running) = &shown.running { (charts(&running.calls)) }
        }
        section #groups data-live {
            @if let Some(named) = shown.running.as_ref().and_then(|running| running.named.as_ref()) {
                (groups(&place, named))
            }
        }
        h2 #list { "Parents" }
        (filters(&place, filter))
        section #parents data-live { (list(parents, filter, &place)) }
        (commands(&terminal(line.kind, &line.name)))
    };
    layout(&line.name, &fixed, &main)
}

/// The messages of all conditions that have one.
fn conditions(conditions: &[Condition]) -> Markup {
    html! {
        dl {
            @for condition in conditions.iter().filter(|one| !one.message.is_empty()) {
                @let is_ready = condition.kind == ConditionType::Ready.as_str();
                dt { (if is_ready { "Message" } else { &condition.kind }) }
                dd { (condition.message) }
            }
        }
    }
}

fn numbers(running: &ControllerOverview, rates: &Rates) -> Markup {
    let ControllerOverview { parents, queue, calls, reconciles, writes, memory, .. } = running;
    let failed: u64 = calls.results.iter().filter(|(result, _)| *result != OK).map(|(_, sum)| sum).sum();
    let tile = |what: &str, value: String, is_bad: bool| {
        html! { div { dt { (what) } dd .failure[is_bad] { (value) } } }
    };
    html! {
        dl .tiles {
            (tile("Parents", parents.all.to_string(), false))
            (tile("Settled", parents.settled.to_string(), false))
            (tile("Failing", parents.failing.to_string(), parents.failing > 0))
            (tile("Paused", parents.paused.to_string(), false))
            (tile("Throttled", parents.throttled.to_string(), parents.throttled > 0))
            (tile("Waiting for a worker", queue.waiting.to_string(), false))
            (tile("Reconciled now", queue.running.to_string(), false))
            (tile("Reconciled later", queue.later.to_string(), false))
            (tile("Reconciles", rate(rates.reconciles), false))
            (tile("Calls", rate(rates.calls), false))
            (tile("Calls that failed", number(failed), failed > 0))
        }
        @if rates.history.len() > 1 {
            p .quiet { "Reconciles over time " (sparkline("Reconciles over time", &rates.history)) }
        }
        dl {
            dt { "Reconciles" } dd { (sums(reconciles)) }
            dt { "Writes" } dd { (sums(writes)) }
            dt { "Calls" } dd { (sums(&calls.results)) }
            dt { "Memory" }
            dd {
                "reconciles of all controllers " (print_bytes(memory.reserved)) " of " (print_bytes(memory.budget))
                @if memory.waits > 0 { " (" (memory.waits) " had to wait)" }
            }
        }
    }
}

fn sums(sums: &BTreeMap<String, u64>) -> String {
    let words: Vec<_> = sums.iter().map(|(what, sum)| format!("{} {what}", number(*sum))).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

fn hooks(hooks: &BTreeMap<String, HookStatus>) -> Markup {
    if hooks.is_empty() {
        return html! { p .quiet { "The status has no hooks: they are webhooks, or none is loaded." } };
    }
    let used = |used: i64, limit: i64, print: fn(u64) -> String| {
        let print = |number: i64| print(u64::try_from(number).unwrap_or_default());
        html! {
            meter min="0" max=(limit.max(1)) value=(used) high=(limit / 10 * 8) {}
            " " (print(used)) " of " (print(limit))
        }
    };
    html! {
        div .wide {
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
                                (hook.instructions_p50.map_or_else(|| "–".to_owned(), |it| number(it.unsigned_abs())))
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
        }
    }
}

fn charts(calls: &CallNumbers) -> Markup {
    let bounds = BUCKETS.iter().map(|bound| format!("up to {}", time(*bound)));
    let labels = bounds.chain(["longer".to_owned()]);
    let bars = labels.zip(&calls.buckets).map(|(label, count)| Bar { label, count: *count }).collect();
    html! {
        div .charts {
            (histogram("Time of calls of all hooks", &trimmed(bars)))
            @for (hook, instructions) in &calls.instructions {
                @let title = format!("Instructions of the latest {} calls of the {hook} hook", instructions.len());
                (histogram(&title, &in_bars(instructions, |from| format!("from {}", number(from)))))
            }
        }
    }
}

fn time(seconds: f64) -> String {
    match seconds {
        0.0..0.001 => format!("{} µs", (seconds * 1e6).round()),
        0.001..1.0 => format!("{} ms", seconds * 1e3),
        _ => format!("{seconds} s"),
    }
}

fn groups(place: &str, named: &NamedParents) -> Markup {
    let group = |title: &str, groups: &[ParentGroup]| {
        html! {
            @if !groups.is_empty() {
                h2 { (title) }
                @for ParentGroup { category, message, count, parents } in groups {
                    article {
                        p {
                            strong { (counted(*count, "parent", "parents")) } " "
                            @if !category.is_empty() { (badge(Tone::Bad, category)) " " }
                            @if message.is_empty() { "see their Events: the server no longer has the message" }
                            @else { (message) }
                        }
                        p .quiet {
                            @for (nth, parent) in parents.iter().enumerate() {
                                @if nth > 0 { ", " }
                                (found(place, parent))
                            }
                            @if *count > parents.len() { " and " (count - parents.len()) " more" }
                        }
                    }
                }
            }
        }
    };
    html! {
        (group("Failing", &named.failing))
        (group("Waiting", &named.waiting))
        @if !named.slowest.is_empty() {
            h2 { "Slowest of the latest reconciles" }
            table {
                @for slow in &named.slowest {
                    tr { td .number { (duration(slow.took_us)) } td { (found(place, &slow.parent)) } td { (slow.began) } }
                }
            }
        }
    }
}

/// A link to a parent that is named as `Hello demo/a`, in the list of all: a kind of this name may be in several API groups.
fn found(place: &str, parent: &str) -> Markup {
    let name = parent.split_once(' ').map_or(parent, |(_kind, name)| name);
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("search", name).finish();
    html! { a href={ (place) "?" (query) "#list" } { (parent) } }
}

/// The search for parents: it stays as it is while the list changes.
fn filters(place: &str, filter: &ParentFilter) -> Markup {
    let is = |state: Option<ParentState>| filter.state == state;
    html! {
        form .filter action={ (place) "#list" } role="search" {
            label { span { "Namespace or name" } input type="search" name="search" value=(filter.search); }
            label {
                span { "State" }
                select name="state" {
                    option value="" selected[is(None)] { "all" }
                    @for state in ParentState::ALL {
                        option value=(state.as_str()) selected[is(Some(state))] { (state.as_str()) }
                    }
                }
            }
            button { "Search" }
        }
    }
}

fn list(parents: &Result<ParentList, String>, filter: &ParentFilter, place: &str) -> Markup {
    let ParentList { found, parents } = match parents {
        Ok(list) => list,
        Err(why) => return html! { p .failure { "The parents are not listed: " (why) } },
    };
    if *found == 0 {
        return html! { p { "There are no such parents." } };
    }
    let last = filter.skip + parents.len();
    let to = |skip: usize| {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("search", &filter.search)
            .append_pair("state", filter.state.map(ParentState::as_str).unwrap_or_default())
            .append_pair("skip", &skip.to_string())
            .finish();
        format!("{place}?{query}#list")
    };
    html! {
        p .quiet {
            @if parents.is_empty() { (found) " are found, all of them on earlier pages. " a href=(to(0)) { "The first page" } }
            @else { (filter.skip + 1) " to " (last) " of " (found) }
        }
        div .wide {
            table {
                thead {
                    tr { th { "Parent" } th { "State" } th { "Latest reconcile" } th .number { "Took" } th { "Cause" } th { "End" } }
                }
                tbody { @for parent in parents { (row(parent)) } }
            }
        }
        nav aria-label="Pages" {
            @if filter.skip > 0 { a #earlier href=(to(filter.skip.saturating_sub(PAGE))) { "Earlier" } " " }
            @if last < *found { a #later href=(to(last)) { "Later" } }
        }
    }
}

fn row(ListedParent { parent, state, category, latest }: &ListedParent) -> Markup {
    let (tone, word) = match state {
        ParentState::Failing => (Tone::Bad, &**category),
        ParentState::Settled => (Tone::Good, state.as_str()),
        ParentState::Unsettled => (Tone::Quiet, state.as_str()),
        ParentState::Paused => (Tone::Warn, state.as_str()),
    };
    let name = crate::explain::name(parent);
    html! {
        tr {
            th scope="row" { a id={ "p-" (name.replace(' ', "-")) } href=(object_link(parent)) { (name) } }
            td { (badge(tone, word)) }
            @match latest {
                Some(latest) => {
                    td { (latest.began.replace('T', " ")) }
                    td .number { (duration(latest.took_us)) }
                    td { (latest.cause) }
                    td { (end(&latest.end)) }
                }
                None => td colspan="4" .quiet { "the server remembers none" }
            }
        }
    }
}

fn terminal(kind: &str, name: &str) -> Vec<String> {
    vec![
        format!("metahook status {name} --watch"),
        format!("metahook diff --controller {name}"),
        format!("metahook history {name}"),
        format!("kubectl describe {} {name}", kind.to_lowercase()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_buckets_are_short() {
        let times: Vec<_> = BUCKETS.iter().map(|bound| time(*bound)).collect();
        assert_eq!(times[..6], ["25 µs", "50 µs", "100 µs", "250 µs", "500 µs", "1 ms"]);
        assert_eq!(times[9..], ["25 ms", "100 ms", "250 ms", "1 s", "2.5 s", "10 s", "60 s"]);
    }

    #[test]
    fn a_parent_of_a_group_is_found_in_the_list() {
        let link = found("/c", "Hello demo/a&b").into_string();
        assert_eq!(link, r#"<a href="/c?search=demo%2Fa%26b#list">Hello demo/a&amp;b</a>"#);
    }

    #[test]
    fn pages_of_parents_lead_to_each_other() {
        let parents = vec![];
        let list_of = |found, skip| {
            let filter = ParentFilter { search: "a b".to_owned(), state: Some(ParentState::Failing), skip };
            list(&Ok(ParentList { found, parents: parents.clone() }), &filter, "/c").into_string()
        };
        assert!(list_of(0, 0).contains("no such parents"));
        assert!(list_of(500, 300).contains(r#"href="/c?search=a+b&amp;state=failing&amp;skip=200#list""#));
        assert!(list_of(500, 900).contains("earlier pages"));
        assert!(!list_of(1, 0).contains("Earlier"));
    }
}
