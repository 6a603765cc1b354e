//! Events about related objects: those that requests do not show, and Secrets.

use metahook_core::api::reason::EventReason;
use metahook_core::hash::Fingerprinter;
use metahook_core::reconcile::input::ReconcileInput;
use metahook_core::related::found::Hidden;

use crate::controller::related::RelatedObjects;

/// Rules that the Event about hidden objects names.
const MAX_HIDDEN_RULES: usize = 10;

impl RelatedObjects {
    /// Records, once until the rules change, the rules whose objects the hook's version has no names for.
    pub(crate) fn record_hidden(&self, input: &ReconcileInput) {
        let Some(hook) = self.data.config.hooks.get(input.hook) else { return };
        let parent = &input.parent;
        let hidden = input.related.hidden(hook.version.naming());
        if hidden.is_empty() {
            self.lock().recorded.remove(&parent.key);
            return;
        }
        let mut which = Fingerprinter::default();
        for Hidden { at, gvk, .. } in hidden {
            which.add(&at.to_le_bytes());
            which.add(gvk.group_key().as_bytes());
        }
        let which = which.finish();
        if self.lock().recorded.insert(parent.key.clone(), which) == Some(which) {
            return;
        }
        let rules: Vec<_> = hidden.iter().take(MAX_HIDDEN_RULES).map(ToString::to_string).collect();
        let more = hidden.len() - rules.len();
        let more = if more == 0 { String::new() } else { format!(", and of {more} more") };
        let message = format!(
            "The {} hook is not shown what the customize hook asked for outside of namespace {}: {}{more}. Declare version v2 for it and for customize",
            input.hook,
            parent.key.namespace,
            rules.join(", ")
        );
        self.data.recorder.record(parent, EventReason::RelatedHidden, &message);
    }

    /// Records, once, that a webhook asked for Secrets.
    pub(super) fn record_secrets(&self) {
        if !std::mem::replace(&mut self.lock().recorded_secrets, true) {
            let message = "The customize hook asks for Secrets, and webhooks get those of any namespace that the server may read: list the kinds that are meant in spec.relatedKinds";
            self.data.recorder.record(&self.data.object, EventReason::SecretsRelated, message);
        }
    }
}
