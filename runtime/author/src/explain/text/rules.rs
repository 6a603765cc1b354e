//! Rules of a customize hook as text for people.

use metahook_core::counted;
use metahook_core::trace::rules::TracedRule;

/// A row for each rule. `all`: the number of all rules.
pub(super) fn rows(found: &[TracedRule], all: usize) -> Vec<(&'static str, String)> {
    let mut rows: Vec<_> = found.iter().map(|rule| ("rule", text(rule))).collect();
    let more = all.saturating_sub(found.len());
    if more > 0 && !found.is_empty() {
        rows.push(("rule", counted(more, "more rule", "more rules")));
    }
    rows
}

/// Text about the objects that a rule asks for, and those that it finds.
fn text(rule: &TracedRule) -> String {
    let group = rule.api_version.split_once('/').map_or(String::new(), |(group, _)| format!(".{group}"));
    let part = |before: &str, text: &str| {
        if text.is_empty() { String::new() } else { format!(" {before} {text}") }
    };
    let names = match (rule.names.is_empty(), rule.more_names) {
        (true, 0) => String::new(),
        (true, more) => format!(" by {}", counted(more, "name", "names")),
        (false, 0) => format!(" named {}", rule.names.join(", ")),
        (false, more) => format!(" named {} and {more} more", rule.names.join(", ")),
    };
    [
        format!("asks for {}{group}", rule.resource),
        part("in namespace", &rule.namespace),
        part("in namespaces with", &rule.namespace_selector),
        part("with", &rule.label_selector),
        names,
        format!(": {}", finds(rule)),
    ]
    .concat()
}

fn finds(rule: &TracedRule) -> String {
    let Some(objects) = rule.objects else {
        if rule.unreviewed {
            return "names and numbers are not shown: there are too many kinds and namespaces to ask whether you may list these objects".to_owned();
        }
        return "names and numbers are not shown, as you may not list these objects".to_owned();
    };
    let found = match objects {
        0 => "finds nothing".to_owned(),
        _ => format!("finds {}", counted(objects, "object", "objects")),
    };
    let unseen = match rule.unseen {
        0 => String::new(),
        all if all == objects => ", which the hook is not shown".to_owned(),
        some => format!(", of which the hook is not shown {some}"),
    };
    // Where all is well the remark would only be noise.
    let remark = if rule.unseen > 0 {
        "; a hook of version v1 is shown objects of its parent's namespace alone, one of v2 all"
    } else if rule.parent_namespace_only && rule.finds_nothing() {
        "; a customize hook of version v1 looks in its parent's namespace alone, one of v2 in all"
    } else {
        ""
    };
    found + &unseen + remark
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn said(change: &[(&str, Value)]) -> String {
        let mut rule = json!({ "apiVersion": "v1", "resource": "configmaps", "namespace": "shop" });
        for (field, value) in change {
            rule[*field] = value.clone();
        }
        text(&serde_json::from_value(rule).unwrap())
    }

    #[test]
    fn a_rule_that_finds_nothing_is_flagged() {
        let labels = ("labelSelector", json!("role=prices"));
        assert_eq!(
            said(&[labels.clone(), ("objects", json!(0))]),
            "asks for configmaps in namespace shop with role=prices: finds nothing"
        );
        assert_eq!(
            said(&[labels, ("objects", json!(0)), ("parentNamespaceOnly", json!(true))]),
            "asks for configmaps in namespace shop with role=prices: finds nothing; a customize hook of version v1 looks in its parent's namespace alone, one of v2 in all"
        );
    }

    #[test]
    fn names_selectors_and_what_is_hidden_are_said() {
        let names = ("names", json!(["a", "b"]));
        for (change, expected) in [
            (vec![("objects", json!(1))], "asks for configmaps in namespace shop: finds 1 object"),
            (
                vec![names.clone(), ("moreNames", json!(3)), ("objects", json!(4))],
                "asks for configmaps in namespace shop named a, b and 3 more: finds 4 objects",
            ),
            (
                vec![("moreNames", json!(2))],
                "asks for configmaps in namespace shop by 2 names: names and numbers are not shown, as you may not list these objects",
            ),
            (
                vec![("moreNames", json!(2)), ("unreviewed", json!(true))],
                "asks for configmaps in namespace shop by 2 names: names and numbers are not shown: there are too many kinds and namespaces to ask whether you may list these objects",
            ),
            (
                vec![
                    ("apiVersion", json!("apps/v1")),
                    ("namespace", json!("")),
                    ("namespaceSelector", json!("team=a")),
                    ("objects", json!(2)),
                ],
                "asks for configmaps.apps in namespaces with team=a: finds 2 objects",
            ),
            (
                vec![names, ("objects", json!(3)), ("unseen", json!(2))],
                "asks for configmaps in namespace shop named a, b: finds 3 objects, of which the hook is not shown 2; a hook of version v1 is shown objects of its parent's namespace alone, one of v2 all",
            ),
        ] {
            assert_eq!(said(&change), expected);
        }
    }

    #[test]
    fn the_rest_of_many_rules_is_counted() {
        let rule: TracedRule =
            serde_json::from_value(json!({ "apiVersion": "v1", "resource": "pods", "objects": 1 })).unwrap();
        let rows = rows(&[rule.clone(), rule], 12);
        assert_eq!((rows.len(), &*rows[2].1), (3, "10 more rules"));
        assert!(super::rows(&[], 12).is_empty(), "an older server names none");
    }
}
