//! Reconciles as `render` and `diff` print them.

use metahook_author::line_diff;
use metahook_author::render::hooks::Called;
use metahook_author::render::{Reconciled, Step};
use metahook_author::yaml;
use metahook_core::json::hidden::{hide, remove_records};
use metahook_core::object::Object;
use metahook_server::telemetry::error_chain;
use serde_json::{Value, json};

/// A reconcile as JSON. `word`: for what a step does.
pub(super) fn one_as_json(one: &Reconciled, word: impl Fn(&Step) -> &'static str) -> Value {
    let call = |call: &Called| {
        json!({
            "hook": call.hook.as_str(),
            "seconds": call.took.as_secs_f64(),
            "instructions": call.instructions,
            "pure": call.pure,
            "log": call.log,
        })
    };
    let step = |step: &Step| {
        json!({
            "change": word(step),
            "object": step.effect.id.to_string(),
            "before": value(step.effect.before.as_deref()),
            "after": value(step.effect.after.as_deref()),
        })
    };
    json!({
        "parent": one.parent.to_string(),
        "changes": one.steps.iter().map(step).collect::<Vec<_>>(),
        "calls": one.calls.iter().map(call).collect::<Vec<_>>(),
        "notes": one.notes,
        "error": one.error.as_ref().map(|error| error_chain(error)),
    })
}

/// An object without the values of Secrets.
pub(super) fn value(object: Option<&Object>) -> Value {
    let mut value = object.and_then(|object| object.value().ok()).unwrap_or_default();
    hide(&mut value);
    value
}

/// An object as YAML, without the values of Secrets; empty where there is none.
pub(super) fn shown(object: Option<Value>) -> String {
    let print = |mut value| {
        hide(&mut value);
        yaml::print(&value)
    };
    object.map(print).unwrap_or_default()
}

/// The lines of an object that differ, without the values of Secrets. Those of the annotations that repeat what an object was made of
/// are shown where nothing else differs.
pub(super) fn difference(before: Option<Value>, after: Option<Value>, colours: bool) -> String {
    let without_records = |object: &Option<Value>| {
        let mut object = object.clone();
        object.iter_mut().for_each(remove_records);
        shown(object)
    };
    let text = line_diff::print(&without_records(&before), &without_records(&after), colours);
    if text.is_empty() { line_diff::print(&shown(before), &shown(after), colours) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_what_was_applied_is_shown_where_nothing_else_differs() {
        let object = |text: &str, record: &str| {
            let annotations = json!({ "metacontroller.k8s.io/last-applied-configuration": record });
            Some(json!({ "metadata": { "annotations": annotations }, "data": { "text": text } }))
        };
        let both = difference(object("a", "{1}"), object("b", "{2}"), false);
        assert!(both.contains("-   text: a\n+   text: b\n") && !both.contains("last-applied"), "{both}");
        let record = difference(object("a", "{1}"), object("a", "{2}"), false);
        assert!(record.contains("last-applied-configuration"), "{record}");
        assert_eq!(difference(object("a", "{1}"), object("a", "{1}"), false), "");
    }
}
