//! Pages as HTML: what all of them have, and those of errors.

pub(super) mod controller;
pub(super) mod controllers;
pub(super) mod object;

use maud::{DOCTYPE, Markup, html};
use metahook_core::api::reason::{ConditionReason, ConditionType};
use metahook_core::error_chain;
use metahook_core::trace::TracedObject;

use crate::dashboard::error::PageError;
use crate::status::{ControllerLine, NO_SERVER};

/// The page of an error. It is asked for again, too: the cause may go.
pub(super) fn error(error: &PageError) -> Markup {
    let is_shown = !matches!(error, PageError::Stranger(_) | PageError::Method);
    layout(
        "Nothing to show",
        &html! {},
        &html! {
            section #error data-live {
                h1 { "Nothing to show" }
                p .failure { (error_chain(error)) }
                @if is_shown {
                    p { "This page asks again every few seconds. " a href="/" { "All controllers" } }
                }
            }
        },
    )
}

/// `fixed`: what stays as it is while the rest of the page is replaced, such as a field that a user writes into.
fn layout(title: &str, fixed: &Markup, main: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · metahook" }
                link rel="stylesheet" href="/style.css";
                link rel="icon" href="data:,";
                script src="/live.js" defer {}
            }
            body {
                a .skip href="#main" { "Skip to the content" }
                header {
                    a .brand href="/" { "metahook" }
                    form .find action="/find" role="search" {
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
    let fails = line.failing.is_some_and(|failing| failing > 0);
    match &*line.ready {
        "True" if fails || line.reason != ConditionReason::Running.as_str() => Tone::Warn,
        "True" => Tone::Good,
        _ => Tone::Bad,
    }
}

/// What the reason of a controller's state means.
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

/// Where the page of an object is.
pub(super) fn object_link(TracedObject { group, resource, kind, namespace, name }: &TracedObject) -> String {
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("group", group)
        .append_pair("resource", resource)
        .append_pair("kind", kind)
        .append_pair("namespace", namespace)
        .append_pair("name", name)
        .finish();
    format!("/object?{query}")
}

/// Commands that show more, or do something about it.
fn commands(lines: &[String]) -> Markup {
    html! {
        section .commands {
            h2 { "In a terminal" }
            pre { @for line in lines { code { (line) } "\n" } }
        }
    }
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
        let error = PageError::Stranger(hostile.to_owned());
        let page = super::error(&error).into_string();
        assert!(!page.contains("<script>alert") && page.contains("&lt;script&gt;"), "{page}");
        let object = TracedObject {
            group: String::new(),
            resource: "pods".to_owned(),
            kind: "Pod".to_owned(),
            namespace: "n".to_owned(),
            name: "a&name=b\" onclick=\"".to_owned(),
        };
        let link = object_link(&object);
        assert!(link.ends_with("&name=a%26name%3Db%22+onclick%3D%22"), "{link}");
    }
}
