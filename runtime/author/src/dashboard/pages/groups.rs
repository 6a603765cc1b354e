//! Groups of parents with the same message, and the slowest reconciles.

use maud::{Markup, html};
use metahook_core::counted;
use metahook_core::overview::{NamedParents, ParentGroup};

use super::{Tone, badge, id_part};
use crate::explain::{duration, readable_time};

pub(super) fn groups(place: &str, named: &NamedParents) -> Markup {
    html! {
        (groups_of(place, "Failing", &named.failing))
        (groups_of(place, "Waiting", &named.waiting))
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

fn groups_of(place: &str, title: &str, groups: &[ParentGroup]) -> Markup {
    html! {
        @if !groups.is_empty() {
            h2 { (title) }
            @for ParentGroup { category, message, count, parents, .. } in groups {
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

    use super::*;

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
