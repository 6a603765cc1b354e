//! The page of all controllers.

use maud::{Markup, html};
use metahook_core::counted;

use super::site::Site;
use super::{Tone, badge, layout, meaning, rate, state, tone, wide};
use crate::dashboard::charts::sparkline;
use crate::dashboard::reader::{Cluster, RunningLine};
use crate::status::{ControllerLine, age};

/// Controllers that are listed. A search finds the others.
const MAX_LISTED: usize = 200;

pub(crate) fn page(site: &Site, cluster: &Cluster, search: &str) -> Markup {
    let wanted = search.to_lowercase();
    let mut found: Vec<_> =
        cluster.controllers.iter().filter(|one| one.line.name.to_lowercase().contains(&wanted)).collect();
    // Controllers that need a person come first.
    found.sort_by(|one, other| key(&one.line).cmp(&key(&other.line)));
    let all = cluster.controllers.len();
    let fixed = html! {
        h1 { "Controllers" }
        @if all > 1 {
            form .filter role="search" aria-label="Controllers" {
                label { span { "Name" } input type="search" name="search" value=(search); }
                button { "Search" }
                @if !search.is_empty() { a href=(site.link("/")) { "All" } }
            }
        }
    };
    let main = html! {
        section #controllers data-live {
            @for gap in &cluster.gaps {
                p .failure { "Not all is shown: " (gap) }
            }
            @if all == 0 {
                p { "There are no controllers. " code { "metahook new NAME" } " writes a first one, and " code { "metahook apply -f NAME" } " brings it here." }
            } @else {
                p .quiet { (summary(cluster)) }
                (wide("all-controllers", "Controllers", &table(site, &found)))
                (meanings(&found))
                @if found.len() > MAX_LISTED {
                    p { (found.len() - MAX_LISTED) " more: search for their names." }
                }
                @if found.is_empty() { p { "No name has " code { (search) } " in it." } }
            }
        }
    };
    layout(site, "Controllers", &fixed, &main)
}

fn key(line: &ControllerLine) -> (u8, &str, &str) {
    let order = match tone(line) {
        Tone::Bad => 0,
        Tone::Warn => 1,
        Tone::Good | Tone::Quiet => 2,
    };
    (order, &line.name, line.kind)
}

fn summary(Cluster { controllers, .. }: &Cluster) -> String {
    let count = |wanted| controllers.iter().filter(|one| tone(&one.line) == wanted).count();
    let all = counted(controllers.len(), "controller", "controllers");
    match (count(Tone::Bad), count(Tone::Warn)) {
        (0, 0) => format!("{all}, all well"),
        (bad, warn) => format!("{all}: {bad} not ready, {warn} with a remark"),
    }
}

fn table(site: &Site, found: &[&RunningLine]) -> Markup {
    let count = |count: Option<i64>| count.map_or_else(|| "–".to_owned(), |count| count.to_string());
    html! {
        table {
            thead {
                tr {
                    th { "Name" } th { "Kind" } th { "State" }
                    th .number { "Parents" } th .number { "Failing" } th .number { "Paused" }
                    th .number { "Reconciles" } th { span .hidden { "Reconciles over time" } }
                    th .number { "Renewed" }
                }
            }
            tbody {
                @for RunningLine { line, rates } in found.iter().take(MAX_LISTED) {
                    tr {
                        th scope="row" { a id={ "c-" (line.kind) "-" (line.name) } href=(site.controller_link(line.kind, &line.name)) { (line.name) } }
                        td .quiet { (line.kind) }
                        td { (badge(tone(line), state(line))) " " (line.attention_reasons()) }
                        td .number { (count(line.parents)) }
                        td .number .failure[line.failing.is_some_and(|failing| failing > 0)] { (count(line.failing)) }
                        td .number { (count(line.paused)) }
                        @match rates {
                            Some(rates) => {
                                td .number { (rate(rates.reconciles)) }
                                td { (sparkline("Reconciles over time", &rates.history)) }
                            }
                            None => { td .number .quiet { "–" } td {} }
                        }
                        td .number { (line.seen.map_or_else(|| "never".to_owned(), age)) }
                    }
                }
            }
        }
    }
}

/// The meaning of each state that the table has, the most urgent one first.
fn meanings(found: &[&RunningLine]) -> Markup {
    let mut states: Vec<(Tone, &str, String)> = Vec::new();
    for RunningLine { line, .. } in found.iter().take(MAX_LISTED) {
        let (tone, state) = (tone(line), state(line));
        let is_new = !states.iter().any(|(_, other, _)| *other == state);
        let text = meaning(&line.reason);
        if is_new && tone != Tone::Good && !text.is_empty() {
            states.push((tone, state, text));
        }
    }
    html! {
        @if !states.is_empty() {
            dl { @for (tone, state, text) in &states { dt { (badge(*tone, state)) } dd { (text) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn line(name: &str, ready: &str, reason: &str) -> RunningLine {
        let line = ControllerLine {
            kind: "CompositeController",
            name: name.to_owned(),
            ready: ready.to_owned(),
            reason: reason.to_owned(),
            message: String::new(),
            parents: Some(1),
            failing: Some(0),
            paused: Some(0),
            modules: BTreeMap::new(),
            attention: Vec::new(),
            seen: None,
        };
        RunningLine { line, rates: None }
    }

    #[test]
    fn the_meaning_of_a_state_is_on_the_page_once() {
        let controllers = vec![
            line("a", "True", "Running"),
            line("b", "False", "NotServed"),
            line("c", "False", "InvalidSpec"),
            line("d", "False", "InvalidSpec"),
        ];
        let page = page(&Site::for_tests(), &Cluster { controllers, gaps: Vec::new() }, "").into_string();
        assert_eq!(page.matches("<dd>The server refuses the spec").count(), 1, "{page}");
        assert!(!page.contains("title=\"") && !page.contains("<dd>The controller runs"), "{page}");
        assert!(page.contains("href=\"/0f/controllers/CompositeController/a\""), "{page}");
    }
}
