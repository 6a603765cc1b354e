//! Reconciles as `render` and `diff` print them.

use metahook_author::render::hooks::Called;
use metahook_author::render::{RenderedReconcile, Step};
use metahook_author::yaml;
use metahook_core::json::hidden::hide;
use metahook_core::object::Object;
use metahook_server::telemetry::error_chain;
use serde_json::{Value, json};

/// A reconcile as JSON. `word`: for what a step does.
pub(super) fn one_as_json(one: &RenderedReconcile, word: impl Fn(&Step) -> &'static str) -> Value {
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
