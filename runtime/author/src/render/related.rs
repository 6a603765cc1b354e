//! Related objects of a parent: the customize hook's rules, and the objects that they find.

use std::sync::Arc;

use metahook_core::api::customize::{CustomizeBounds, RelatedKindError};
use metahook_core::api::hook::HookName;
use metahook_core::cache::Cache;
use metahook_core::hook::customize;
use metahook_core::hook::customize::CustomizeError;
use metahook_core::object::Object;
use metahook_core::object::id::{Gvr, Resource};
use metahook_core::reconcile::config::ControllerConfig;
use metahook_core::reconcile::input::customize_request;
use metahook_core::reconcile::outcome::Retry;
use metahook_core::reconcile::ports::PortError;
use metahook_core::related::Related;
use metahook_core::related::rule::{Asker, Finds, RelatedRule, RequestedRule, RuleError};
use metahook_core::related::selection::Selection;

use super::RenderedReconcile;
use super::ports::Ports;
use super::world::World;
use crate::kinds::KnownKinds;

/// Objects that are looked at in one step.
const SLICE: usize = 256;

#[derive(Debug, thiserror::Error)]
pub(crate) enum RelatedError {
    #[error("customize hook")]
    Customize(#[from] CustomizeError),
    #[error("customize hook")]
    Rule(#[from] RuleError),
    #[error("customize hook")]
    RelatedKind(#[from] RelatedKindError),
    #[error("customize hook: relatedResources[{at}]")]
    Related { at: usize, source: Box<dyn std::error::Error + Send + Sync> },
}

impl From<RelatedError> for PortError {
    fn from(error: RelatedError) -> Self {
        Self::new("Related", Retry::WithEvent, error)
    }
}

impl RelatedError {
    pub(crate) fn of(at: usize, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Related { at, source: Box::new(source) }
    }
}

impl RenderedReconcile {
    /// The rules of a customize hook's answer.
    pub(crate) fn asked_rules(
        &mut self,
        config: &ControllerConfig,
        answer: &[u8],
    ) -> Result<Vec<(usize, RequestedRule)>, RelatedError> {
        let Some(hook) = &config.hooks.customize else { return Ok(Vec::new()) };
        let answer = customize::rules(answer, hook.via, hook.mode, &CustomizeBounds::default())?;
        let odd = |odd: &_| format!("the customize hook's answer {odd}");
        self.notes.extend(answer.warnings.iter().map(odd));
        self.ignored.extend(hook.ignored(HookName::Customize, &answer.warnings));
        Ok(answer.rules)
    }
}

/// A rule of a state of a parent, whose kind is known; one that the controller may not ask for is an error.
pub(crate) fn allowed_rule(
    config: &ControllerConfig,
    state: &Object,
    (at, asked): (usize, &RequestedRule),
    resource: &Arc<Resource>,
) -> Result<RelatedRule, RelatedError> {
    let version = config.hooks.customize.as_ref().map(|hook| hook.version).unwrap_or_default();

    let rule = asked.rule(at, resource, Asker { version, parent_namespace: &state.key.namespace })?;
    config.related_kinds.allow(at, &asked.gvr, rule.reach().map(|namespace| &**namespace))?;
    Ok(rule)
}

impl Ports<'_> {
    /// The related objects of a state of a parent; none without a customize hook.
    pub(super) async fn related_of(&self, state: &Object) -> Result<Related, PortError> {
        if self.config.hooks.customize.is_none() {
            return Ok(Related::default());
        }
        let answer = self.ask(HookName::Customize, customize_request(self.config, state)).await?;
        let mut shared = self.shared();
        let mut related = Related::default();
        for (at, asked) in shared.round.asked_rules(self.config, &answer)? {
            let resource = self.kinds.resolve(&asked.gvr).map_err(|error| RelatedError::of(at, error))?;
            let rule = allowed_rule(self.config, state, (at, &asked), resource)?;
            related.add(&state.key.namespace, at, &rule, find(self.kinds, shared.world, &rule));
        }
        Ok(related)
    }
}

fn find(kinds: &KnownKinds, world: &World, rule: &RelatedRule) -> Vec<Arc<Object>> {
    let select = |rule: &RelatedRule, namespaces: &[Arc<str>]| {
        world.view(&rule.resource).map(|cache| select(cache, rule, namespaces)).unwrap_or_default()
    };
    let namespaces: Vec<Arc<str>> = match rule.namespace_selector() {
        None => Vec::new(),
        Some(selector) => {
            let namespaces = kinds.resolve(&namespaces()).ok().map(|namespaces| {
                let rule = RelatedRule { resource: Arc::clone(namespaces), finds: Finds::matching(selector) };
                select(&rule, &[])
            });
            namespaces.unwrap_or_default().iter().map(|found| Arc::clone(&found.key.name)).collect()
        }
    };
    select(rule, &namespaces)
}

/// The kind of namespaces.
pub(crate) fn namespaces() -> Gvr {
    Gvr::new("v1", "namespaces")
}

/// The objects of a cache that a rule finds. `namespaces`: those that its selector of namespaces finds.
pub(crate) fn select(cache: &Cache, rule: &RelatedRule, namespaces: &[Arc<str>]) -> Vec<Arc<Object>> {
    let mut selection = Selection::new(&rule.finds, namespaces);
    while selection.step(cache, SLICE) >= SLICE {}
    selection.found
}
