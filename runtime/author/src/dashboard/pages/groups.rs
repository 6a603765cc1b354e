//! Groups of parents with the same message, those that are throttled, and the slowest reconciles.

use jiff::Timestamp;
use maud::{Markup, html};
use metahook_core::counted;
use metahook_core::overview::{ControllerOverview, ParentGroup, ThrottledParent};

use super::{Tone, badge, id_part};
use crate::explain::{duration, readable_time};
use crate::status::{since_last, throttled_title, wait_and_cause};

/// Nothing where the user may not list the parents.
pub(super) fn groups(place: &str, running: &ControllerOverview, now: Timestamp) -> Markup {
    let Some(named) = &running.named else { return html! {} };
    html! {
        (groups_of(place, "Failing", &named.failing, now))
        (throttled(place, &named.throttled, running.parents.throttled))
        (groups_of(place, "Waiting", &named.waiting, now))
        @if !named.slowest.is_empty() {
            h2 { "Slowest of the latest reconciles" }
            table {
                thead { tr { th .number { "Took" } th { "Parent" } th { "Began" } } }
                tbody {
                    @for slow in &named.slowest {
                        @let id = format!("slow-{}-{}", id_part(&slow.parent), id_part(&slow.began));
                        tr {
                            td .number { (duration(slow.took_us)) }
                            td { (found(place, &slow.parent, &id)) }
                            td { (readable_time(&slow.began)) }
                        }
                    }
                }
            }
        }
    }
}

/// `count`: all that are throttled.
fn throttled(place: &str, throttled: &[ThrottledParent], count: usize) -> Markup {
    let more = count.saturating_sub(throttled.len());
    html! {
        @if !throttled.is_empty() {
            h2 { (throttled_title()) }
            @for one in throttled {
                p { (found(place, &one.parent, &format!("throttled-{}", id_part(&one.parent)))) " " (wait_and_cause(one)) }
            }
            @if more > 0 { p .quiet { "and " (more) " more" } }
        }
    }
}

fn groups_of(place: &str, title: &str, groups: &[ParentGroup], now: Timestamp) -> Markup {
    html! {
        @if !groups.is_empty() {
            h2 { (title) }
            @for group in groups {
                @let ParentGroup { category, message, count, parents, .. } = group;
                article {
                    p {
                        strong { (counted(*count, "parent", "parents")) } (since_last(group, now)) " "
                        @if !category.is_empty() { (badge(Tone::Bad, category)) " " }
                        @if message.is_empty() { "see their Events: the server no longer has the message" }
                        @else { (message) }
                    }
                    p .quiet {
                        @for (nth, parent) in parents.iter().enumerate() {
                            @if nth > 0 { ", " }
                            (found(place, parent, &format!("{title}-{}", id_part(parent))))
                        }
                        @if *count > parents.len() { " and " (count - parents.len()) " more" }
                    }
                }
            }
        }
    }
}

/// A link to a parent that is named as `Hello demo/a`, in the list of all: a kind of this name may be in several API groups.
fn found(place: &str, parent: &str, id: &str) -> Markup {
    let name = parent.split_once(' ').map_or(parent, |(_kind, name)| name);
    // The list has parents without a namespace as `/a`.
    let name = if name.contains('/') { name.to_owned() } else { format!("/{name}") };
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("search", &name).finish();
    html! { a id=(id) href={ (place) "?" (query) "#list" } { (parent) } }
}

#[cfg(test)]
mod tests {
    use metahook_core::overview::parent_list::ParentFilter;
    use metahook_core::overview::{NamedParents, ParentNumbers};

    use super::*;

    fn shown(named: NamedParents, throttled: usize) -> String {
        let parents = ParentNumbers { throttled, ..ParentNumbers::default() };
        let running = ControllerOverview { parents, named: Some(named), ..ControllerOverview::default() };
        groups("/c", &running, "2026-11-27T10:24:40Z".parse().unwrap()).into_string()
    }

    #[test]
    fn a_group_has_the_time_since_its_latest_reconcile() {
        let group = |last: &str| ParentGroup { count: 2, last: last.to_owned(), ..ParentGroup::default() };
        let failing = vec![group("2026-11-27T10:20:31.120Z"), group("")];
        let page = shown(NamedParents { failing, ..NamedParents::default() }, 0);
        assert_eq!(page.matches("<strong>2 parents</strong>").count(), 2, "{page}");
        assert_eq!(page.matches("<strong>2 parents</strong>, last 4m ago ").count(), 1, "{page}");
    }

    #[test]
    fn throttled_parents_are_listed_with_cause_and_wait() {
        let one = |name: &str, next_millis| ThrottledParent {
            parent: format!("Hello demo/{name}"),
            why: "each reconcile changes status.time".to_owned(),
            next_millis,
        };
        let throttled = vec![one("t", Some(7001)), one("u", None)];
        let page = shown(NamedParents { throttled, ..NamedParents::default() }, 3);
        for part in [
            "<h2>Throttled now, one reconcile each 10 s</h2>",
            ">Hello demo/t</a> waits 8 s more: each reconcile changes status.time</p>",
            ">Hello demo/u</a> is reconciled now: each reconcile changes status.time</p>",
            ">and 1 more</p>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!shown(NamedParents::default(), 3).contains("Throttled"), "an older server names none");
    }

    #[test]
    fn a_parent_of_a_group_is_found_in_the_list() {
        let link = found("/c", "Hello demo/a&b", "i").into_string();
        assert_eq!(link, r#"<a id="i" href="/c?search=demo%2Fa%26b#list">Hello demo/a&amp;b</a>"#);
        let of_the_cluster = found("/c", "World a", "i").into_string();
        assert!(of_the_cluster.contains("?search=%2Fa#list"), "{of_the_cluster}");
        let filter = ParentFilter { search: "/a".to_owned(), ..ParentFilter::default() };
        assert!(filter.is_named("", "a") && !filter.is_named("", "ba"));
    }
}
