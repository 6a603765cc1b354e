//! Hooks of a controller as it is stored, also of one whose spec cannot be run.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::api::hook::HookName;
use crate::api::webhook::Webhook;
use crate::object::Object;

/// Everything that a hook can be.
const TARGETS: [&str; 3] = ["webhook", "wasm", "script"];

/// Those that run in the server.
const SANDBOXED: [&str; 2] = ["wasm", "script"];

/// The hooks that a stored controller names.
#[derive(Clone, Copy)]
pub struct StoredHooks<'a>(&'a Value);

/// Whether a controller is read, and the server calls no hook of it and none cleans up.
pub fn has_no_hooks(controller: &Object) -> bool {
    controller.value().is_ok_and(|controller| StoredHooks::of(&controller).are_none())
}

impl<'a> StoredHooks<'a> {
    pub fn of(controller: &'a Value) -> Self {
        Self(controller.pointer("/spec/hooks").unwrap_or(&Value::Null))
    }

    /// A finalize hook with neither a module nor a webhook counts: CustomResourceDefinitions without wasm hooks leave that of one.
    fn are_none(self) -> bool {
        !self.calls(HookName::Sync, &TARGETS) && self.0["finalize"].is_null()
    }

    pub fn only_finalize(self) -> bool {
        self.calls(HookName::Finalize, &TARGETS) && !self.calls(HookName::Sync, &TARGETS)
    }

    /// Whether one of them is a module, a component or a script.
    pub fn is_any_sandboxed(self) -> bool {
        [HookName::Sync, HookName::Finalize, HookName::Customize]
            .iter()
            .any(|hook| self.calls(*hook, &SANDBOXED))
    }

    /// The addresses of its webhooks by hook, without users and passwords. An invalid webhook is left out.
    pub fn webhooks(self) -> BTreeMap<&'static str, String> {
        let address = |hook: HookName| {
            let webhook = self.0.get(hook.as_str())?.get("webhook")?.clone();
            let webhook: Webhook = serde_json::from_value(webhook).ok()?;
            Some((hook.as_str(), webhook.check("").ok()?.url))
        };
        [HookName::Sync, HookName::Finalize, HookName::Customize].into_iter().filter_map(address).collect()
    }

    fn calls(self, hook: HookName, targets: &[&str]) -> bool {
        let hook = &self.0[hook.as_str()];
        targets.iter().any(|target| !hook[*target].is_null())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// No hooks, only finalize hooks, a sandboxed one.
    fn of(hooks: &Value) -> [bool; 3] {
        let controller = json!({ "spec": { "hooks": hooks } });
        let hooks = StoredHooks::of(&controller);
        [hooks.are_none(), hooks.only_finalize(), hooks.is_any_sandboxed()]
    }

    #[test]
    fn a_controller_without_hooks_is_told_from_one_whose_hooks_were_dropped() {
        let webhook = json!({ "webhook": { "url": "http://x" } });
        for (hooks, expected) in [
            (json!(null), true),
            (json!({}), true),
            (json!({ "sync": {}, "finalize": null, "customize": webhook }), true),
            (json!({ "sync": webhook }), false),
            (json!({ "sync": { "wasm": {} } }), false),
            (json!({ "sync": { "script": {} } }), false),
            (json!({ "finalize": webhook }), false),
            (json!({ "sync": {}, "finalize": {} }), false),
        ] {
            assert_eq!(of(&hooks)[0], expected, "{hooks}");
        }
        assert!(StoredHooks::of(&json!({})).are_none());
    }

    #[test]
    fn webhooks_are_shown_without_passwords() {
        let service = json!({ "webhook": { "path": "/f", "service": { "name": "s", "namespace": "n" } } });
        let controller = json!({ "spec": { "hooks": {
            "sync": { "webhook": { "url": "https://me:secret@example.com/sync" } },
            "finalize": service,
            "customize": { "webhook": { "url": "no address" } },
        } } });
        let expected = [("finalize", "http://s.n:80/f"), ("sync", "https://example.com/sync")];
        let expected = expected.map(|(hook, url)| (hook, url.to_owned()));
        assert_eq!(StoredHooks::of(&controller).webhooks(), BTreeMap::from(expected));
        assert!(
            StoredHooks::of(&json!({ "spec": { "hooks": { "sync": { "wasm": {} } } } }))
                .webhooks()
                .is_empty()
        );
    }

    #[test]
    fn hooks_are_told_by_what_they_are() {
        let (webhook, module) = (json!({ "webhook": {} }), json!({ "wasm": {} }));
        assert_eq!(of(&json!({ "finalize": webhook })), [false, true, false]);
        assert_eq!(of(&json!({ "finalize": module })), [false, true, true]);
        assert_eq!(of(&json!({ "finalize": webhook, "sync": module })), [false, false, true]);
        assert_eq!(of(&json!({ "sync": webhook, "customize": { "script": {} } })), [false, false, true]);
        assert_eq!(of(&json!({ "sync": { "webhook": {}, "wasm": null } })), [false, false, false]);
    }
}
