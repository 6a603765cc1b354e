//! Pages as HTML: what all of them have, and those of errors.

pub(super) mod calls;
pub(super) mod controller;
pub(super) mod controllers;
mod groups;
mod numbers;
pub(super) mod object;
mod parents;
pub(super) mod site;
pub(super) mod terminal;

use maud::{DOCTYPE, Markup, html};
use metahook_core::api::reason::{ConditionReason, ConditionType};
use metahook_core::error_chain;

use crate::dashboard::error::PageError;
use crate::dashboard::guard::Refusal;
use crate::status::{ControllerLine, NO_SERVER};
use site::Site;

/// The page of an error. The script asks for it again, too: the cause may go.
pub(super) fn error(site: &Site, error: &PageError) -> Markup {
    let may_go = !matches!(error, PageError::Method);
    let main = html! {
        section #error data-live {
            h1 { "Nothing to show" }
            p .failure { (error_chain(error)) }
            @if may_go {
                p { "This page asks again every few seconds. " a #all href=(site.link("/")) { "All controllers" } }
            }
        }
    };
    layout(site, "Nothing to show", &html! {}, &main)
}

/// The page of a stranger. It has no link: links have the prefix of the run.
pub(super) fn refusal(refusal: &Refusal) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Nothing to show · metahook" }
                link rel="icon" href="data:,";
            }
            body {
                main #error {
                    h1 { "Nothing to show" }
                    p .failure { (error_chain(refusal)) }
                }
            }
        }
    }
}

/// `fixed`: what stays as it is while the rest of the page is replaced, such as a field that a user writes into.
fn layout(site: &Site, title: &str, fixed: &Markup, main: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · " (site.short_name()) " · metahook" }
                link rel="stylesheet" href=(site.link("/style.css"));
                link rel="icon" href="data:,";
                script src=(site.link("/live.js")) defer {}
            }
            body {
                a .skip href="#main" { "Skip to the content" }
                header {
                    a .brand href=(site.link("/")) { "metahook" }
                    p .cluster {
                        @if let Some(context) = &site.cluster.context { strong { (context) } " " }
                        span .quiet { (site.cluster.server) }
                    }
                    form .find action=(site.link("/find")) role="search" aria-label="An object" {
                        label { span { "Kind" } input name="kind" placeholder="pod" required; }
                        label { span { "Name" } input name="name" placeholder="demo/hello-0" required; }
                        button { "Explain" }
                    }
                    button #live type="button" aria-pressed="true" hidden { "Live" }
                    span #state role="status" {}
                }
                main #main { (fixed) (main) }
                footer { "metahook " (env!("CARGO_PKG_VERSION")) " · nothing is written to the cluster from these pages" }
            }
        }
    }
}

/// A word with a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tone {
    Good,
    Bad,
    Warn,
    Quiet,
}

fn badge(tone: Tone, word: &str) -> Markup {
    let class = match tone {
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Warn => "warn",
        Tone::Quiet => "quiet",
    };
    html! { span class={ "badge " (class) } { (word) } }
}

/// How urgent it is to look at a controller.
fn tone(line: &ControllerLine) -> Tone {
    let fails = line.failing.is_some_and(|failing| failing > 0) || !line.attention.is_empty();
    match &*line.ready {
        "True" if fails || line.reason != ConditionReason::Running.as_str() => Tone::Warn,
        "True" => Tone::Good,
        _ => Tone::Bad,
    }
}

/// The word for how a controller stands.
fn state(line: &ControllerLine) -> &str {
    if line.reason.is_empty() { &line.ready } else { &line.reason }
}

/// Meaning of the reason of a controller's state.
fn meaning(reason: &str) -> String {
    if reason == NO_SERVER {
        return "No server hosts the controller: none wrote its status lately, and none holds a Lease. See whether the server's Pods run.".to_owned();
    }
    let is = |one: &&ConditionReason| one.condition() == ConditionType::Ready && one.as_str() == reason;
    let found = ConditionReason::ALL.iter().find(is);
    found.map(|reason| without_links(reason.meaning())).unwrap_or_default()
}

/// The text of Markdown without the targets of its links: they are pages of the book.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        let Some((words, after)) = link.split_once("](") else { break };
        let Some((_target, after)) = after.split_once(')') else { break };
        plain.push_str(before);
        plain.push_str(words);
        rest = after;
    }
    plain + rest
}

/// A table that scrolls within the page, also by the keyboard. The script keeps its place by `id`.
fn wide(id: &str, label: &str, table: &Markup) -> Markup {
    html! { div .wide id=(id) tabindex="0" role="region" aria-label=(label) { (table) } }
}

/// A part of an `id`: letters, digits and hyphens. Others become their number, so different words stay different.
fn id_part(word: &str) -> String {
    let part = |one: char| match one {
        'a'..='z' | 'A'..='Z' | '0'..='9' => one.to_string(),
        ' ' => "-".to_owned(),
        other => format!("_{:x}_", u32::from(other)),
    };
    word.chars().map(part).collect()
}

/// A number with spaces between thousands.
fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut spaced = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth).is_multiple_of(3) {
            spaced.push('\u{202f}');
        }
        spaced.push(digit);
    }
    spaced
}

/// A rate, such as `12.5/s`.
fn rate(rate: Option<f64>) -> String {
    match rate {
        None => "…".to_owned(),
        Some(rate) if rate >= 100.0 => format!("{rate:.0}/s"),
        Some(rate) => format!("{rate:.1}/s"),
    }
}

#[cfg(test)]
mod tests {
    use metahook_core::trace::TracedObject;

    use super::*;

    #[test]
    fn links_of_the_book_are_words() {
        assert_eq!(without_links("see [Memory](../limits.md#m): [x](y)."), "see Memory: x.");
        for text in ["a [b", "a [b](c", "a [b] c", ""] {
            assert_eq!(without_links(text), text);
        }
    }

    #[test]
    fn each_reason_of_a_state_has_a_meaning() {
        for reason in ConditionReason::ALL.iter().filter(|it| it.condition() == ConditionType::Ready) {
            let meaning = meaning(reason.as_str());
            assert!(!meaning.is_empty() && !meaning.contains("]("), "{reason:?}: {meaning}");
        }
        assert!(meaning(NO_SERVER).starts_with("No server"));
        assert_eq!(meaning("unknown"), "");
    }

    #[test]
    fn numbers_and_rates_can_be_read() {
        assert_eq!([7, 1234, 1_234_567].map(number), ["7", "1\u{202f}234", "1\u{202f}234\u{202f}567"]);
        assert_eq!([None, Some(0.04), Some(12.34), Some(123.4)].map(rate), ["…", "0.0/s", "12.3/s", "123/s"]);
    }

    #[test]
    fn texts_of_a_cluster_are_escaped() {
        let hostile = "<script>alert(1)</script>\"'";
        let mut site = Site::for_tests();
        site.cluster.context = Some(hostile.to_owned());
        let page = error(&site, &PageError::NoPage).into_string();
        assert!(!page.contains("<script>alert") && page.contains("&lt;script&gt;"), "{page}");
        let page = refusal(&Refusal::Host(hostile.to_owned(), 7)).into_string();
        assert!(!page.contains("<script>") && page.contains("&lt;script&gt;"), "{page}");
        let object = TracedObject {
            group: "".into(),
            resource: "pods".into(),
            kind: "Pod".into(),
            namespace: "n".into(),
            name: "a&name=b\" onclick=\"".into(),
        };
        let link = site.object_link(&object);
        assert!(link.ends_with("&name=a%26name%3Db%22+onclick%3D%22"), "{link}");
    }

    #[test]
    fn each_page_names_its_cluster() {
        let page = error(&Site::for_tests(), &PageError::NoPage).into_string();
        assert!(page.contains("<title>Nothing to show · prod · metahook</title>"), "{page}");
        assert!(
            page.contains("<strong>prod</strong> <span class=\"quiet\">https://10.0.0.1:6443</span>"),
            "{page}"
        );
    }

    #[test]
    fn links_are_below_the_prefix_and_strangers_are_shown_none() {
        let page = error(&Site::for_tests(), &PageError::NoPage).into_string();
        let links = ["href=\"", "src=\"", "action=\""].map(|link| page.split(link).skip(1));
        for link in links.into_iter().flatten() {
            assert!(["/0f/", "#", "data:"].iter().any(|start| link.starts_with(start)), "{link}");
        }
        assert!(!refusal(&Refusal::SpentKey).into_string().contains("=\"/"));
    }

    #[test]
    fn different_words_are_different_ids() {
        assert_eq!(id_part("Time of calls 1"), "Time-of-calls-1");
        let ids = ["a.b", "a-b", "a b", "a_b", "a/b", "a_2f_b", "ä"].map(id_part);
        let different: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(different.len(), ids.len(), "{ids:?}");
    }
}
