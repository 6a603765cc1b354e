//! Related objects of a parent: the customize hook's rules, and the objects of the files that they find.

use std::sync::Arc;

use metahook_core::api::customize::CustomizeBounds;
use metahook_core::api::hook::{HookName, Via};
use metahook_core::hook::{customize, ignored};
use metahook_core::object::Object;
use metahook_core::object::id::Gvr;
use metahook_core::reconcile::config::ControllerConfig;
use metahook_core::reconcile::input::customize_request;
use metahook_core::related::Related;
use metahook_core::related::rule::{Asker, Finds, RelatedRule};
use metahook_core::related::selection::Selection;

use super::{ReconcileError, Reconciled, Simulation};

/// Objects that are looked at in one step.
const SLICE: usize = 256;

impl Simulation {
    /// The related objects of a state of a parent; none without a customize hook.
    pub(super) async fn related(
        &self,
        config: &ControllerConfig,
        state: &Object,
        round: &mut Reconciled,
    ) -> Result<Related, ReconcileError> {
        let mut related = Related::default();
        let Some(hook) = &config.hooks.customize else { return Ok(related) };
        let request = customize_request(config, state);
        let answer = self.call(HookName::Customize, request, round).await?;
        let answer = customize::rules(&answer, hook.via, hook.mode, &CustomizeBounds::default())?;
        round.notes.extend(answer.warnings.iter().map(|odd| format!("the customize hook's answer {odd}")));
        if hook.via == Via::Wasm {
            round.ignored.extend(ignored(HookName::Customize, &answer.warnings));
        }
        let asker = Asker { version: hook.version, parent_namespace: &state.key.namespace };
        for (at, asked) in answer.rules {
            let resource = self.kinds.resolve(&asked.gvr);
            let resource = resource.map_err(|source| ReconcileError::Related { at, source })?;
            let rule = asked.rule(at, resource, asker)?;
            config.related_kinds.allow(at, &asked.gvr, rule.reach().map(|namespace| &**namespace))?;
            related.add(&state.key.namespace, at, &rule, self.find(&rule));
        }
        Ok(related)
    }

    fn find(&self, rule: &RelatedRule) -> Vec<Arc<Object>> {
        let namespaces: Vec<Arc<str>> = match rule.namespace_selector() {
            None => Vec::new(),
            Some(selector) => {
                let namespaces = self.kinds.resolve(&Gvr::new("v1", "namespaces")).ok().map(|namespaces| {
                    let rule =
                        RelatedRule { resource: Arc::clone(namespaces), finds: Finds::matching(selector) };
                    self.select(&rule, &[])
                });
                namespaces.unwrap_or_default().iter().map(|found| Arc::clone(&found.key.name)).collect()
            }
        };
        self.select(rule, &namespaces)
    }

    fn select(&self, rule: &RelatedRule, namespaces: &[Arc<str>]) -> Vec<Arc<Object>> {
        let Some(cache) = self.world.view(&rule.resource) else { return Vec::new() };
        let mut selection = Selection::new(&rule.finds, namespaces);
        while selection.step(cache, SLICE) >= SLICE {}
        selection.found
    }
}
