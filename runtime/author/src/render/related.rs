//! Related objects of a parent: the customize hook's rules, and the objects of the files that they find.

use std::sync::Arc;

use metahook_core::api::customize::{CustomizeBounds, RelatedKindError};
use metahook_core::api::hook::HookName;
use metahook_core::hook::customize;
use metahook_core::hook::customize::CustomizeError;
use metahook_core::object::Object;
use metahook_core::object::id::Gvr;
use metahook_core::reconcile::input::customize_request;
use metahook_core::reconcile::outcome::Retry;
use metahook_core::reconcile::ports::PortError;
use metahook_core::related::Related;
use metahook_core::related::rule::{Asker, Finds, RelatedRule, RuleError};
use metahook_core::related::selection::Selection;

use super::ports::Ports;
use super::world::World;
use crate::kinds::{KindError, KnownKinds};

/// Objects that are looked at in one step.
const SLICE: usize = 256;

#[derive(Debug, thiserror::Error)]
enum RelatedError {
    #[error("customize hook")]
    Customize(#[from] CustomizeError),
    #[error("customize hook")]
    Rule(#[from] RuleError),
    #[error("customize hook")]
    RelatedKind(#[from] RelatedKindError),
    #[error("customize hook: relatedResources[{at}]")]
    Related { at: usize, source: KindError },
}

impl From<RelatedError> for PortError {
    fn from(error: RelatedError) -> Self {
        Self::new("Related", Retry::WithEvent, error)
    }
}

impl Ports<'_> {
    /// The related objects of a state of a parent; none without a customize hook.
    pub(super) async fn related_of(&self, state: &Object) -> Result<Related, PortError> {
        let Some(hook) = &self.config.hooks.customize else { return Ok(Related::default()) };
        let answer = self.ask(HookName::Customize, customize_request(self.config, state)).await?;
        let answer = customize::rules(&answer, hook.via, hook.mode, &CustomizeBounds::default());
        let answer = answer.map_err(RelatedError::from)?;
        let mut shared = self.shared();
        let odd = |odd: &_| format!("the customize hook's answer {odd}");
        shared.round.notes.extend(answer.warnings.iter().map(odd));
        shared.round.ignored.extend(hook.ignored(HookName::Customize, &answer.warnings));
        let asker = Asker { version: hook.version, parent_namespace: &state.key.namespace };
        let mut related = Related::default();
        for (at, asked) in answer.rules {
            let resource = self.kinds.resolve(&asked.gvr);
            let resource = resource.map_err(|source| RelatedError::Related { at, source })?;
            let rule = asked.rule(at, resource, asker).map_err(RelatedError::from)?;
            let allowed =
                self.config.related_kinds.allow(at, &asked.gvr, rule.reach().map(|namespace| &**namespace));
            allowed.map_err(RelatedError::from)?;
            related.add(&state.key.namespace, at, &rule, find(self.kinds, shared.world, &rule));
        }
        Ok(related)
    }
}

fn find(kinds: &KnownKinds, world: &World, rule: &RelatedRule) -> Vec<Arc<Object>> {
    let namespaces: Vec<Arc<str>> = match rule.namespace_selector() {
        None => Vec::new(),
        Some(selector) => {
            let namespaces = kinds.resolve(&Gvr::new("v1", "namespaces")).ok().map(|namespaces| {
                let rule = RelatedRule { resource: Arc::clone(namespaces), finds: Finds::matching(selector) };
                select(world, &rule, &[])
            });
            namespaces.unwrap_or_default().iter().map(|found| Arc::clone(&found.key.name)).collect()
        }
    };
    select(world, rule, &namespaces)
}

fn select(world: &World, rule: &RelatedRule, namespaces: &[Arc<str>]) -> Vec<Arc<Object>> {
    let Some(cache) = world.view(&rule.resource) else { return Vec::new() };
    let mut selection = Selection::new(&rule.finds, namespaces);
    while selection.step(cache, SLICE) >= SLICE {}
    selection.found
}
