//! The list of a controller's parents, page by page, with its search.

use maud::{Markup, html};
use metahook_core::overview::parent_list::{ListedParent, PAGE, ParentFilter, ParentList};
use metahook_core::settled::parent_state::ParentState;

use super::site::Site;
use super::{Tone, badge, id_part, wide};
use crate::explain::{duration, end, readable_time};

/// The search for parents: it stays as it is while the list changes.
pub(super) fn filters(place: &str, filter: &ParentFilter) -> Markup {
    let is = |state: Option<ParentState>| filter.state == state;
    html! {
        form .filter action={ (place) "#list" } role="search" aria-label="Parents" {
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

pub(super) fn list(
    site: &Site,
    parents: &Result<ParentList, String>,
    filter: &ParentFilter,
    place: &str,
) -> Markup {
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
            @if parents.is_empty() { (found) " are found, all of them on earlier pages. " a #first href=(to(0)) { "The first page" } }
            @else { (filter.skip + 1) " to " (last) " of " (found) }
        }
        (wide("table-of-parents", "Parents", &table(site, parents)))
        nav aria-label="Pages" {
            @if filter.skip > 0 { a #earlier href=(to(filter.skip.saturating_sub(PAGE))) { "Earlier" } " " }
            @if last < *found { a #later href=(to(last)) { "Later" } }
        }
    }
}

fn table(site: &Site, parents: &[ListedParent]) -> Markup {
    html! {
        table {
            thead {
                tr { th { "Parent" } th { "State" } th { "Latest reconcile" } th .number { "Took" } th { "Cause" } th { "End" } }
            }
            tbody { @for parent in parents { (row(site, parent)) } }
        }
    }
}

fn row(site: &Site, ListedParent { parent, state, category, latest }: &ListedParent) -> Markup {
    let (tone, word) = match state {
        ParentState::Failing => (Tone::Bad, &**category),
        ParentState::Settled => (Tone::Good, state.as_str()),
        ParentState::Unsettled => (Tone::Quiet, state.as_str()),
        ParentState::Paused => (Tone::Warn, state.as_str()),
    };
    let name = crate::explain::name(parent);
    // Several API groups may have a kind of one name.
    let id = id_part(&format!("{name} {}", parent.group));
    html! {
        tr {
            th scope="row" { a id={ "p-" (id) } href=(site.object_link(parent)) { (name) } }
            td { (badge(tone, word)) }
            @match latest {
                Some(latest) => {
                    td { (readable_time(&latest.began)) }
                    td .number { (duration(latest.took_us)) }
                    td { (latest.cause) }
                    td { (end(&latest.end)) }
                }
                None => td colspan="4" .quiet { "the server remembers none" }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_parents_lead_to_each_other() {
        let parents = vec![];
        let list_of = |found, skip| {
            let filter = ParentFilter { search: "a b".to_owned(), state: Some(ParentState::Failing), skip };
            list(&Site::for_tests(), &Ok(ParentList { found, parents: parents.clone() }), &filter, "/c")
                .into_string()
        };
        assert!(list_of(0, 0).contains("no such parents"));
        assert!(list_of(500, 300).contains(r#"href="/c?search=a+b&amp;state=failing&amp;skip=200#list""#));
        assert!(list_of(500, 900).contains("earlier pages"));
        assert!(!list_of(1, 0).contains("Earlier"));
    }
}
