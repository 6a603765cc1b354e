//! The label of `generateSelector` on children that are there from the beginning: an author does not know the parent's uid.

use std::sync::Arc;

use metahook_core::object::selector::UID_LABEL;
use metahook_core::reconcile::config::KindConfig;

use super::Simulation;
use super::world::Refusal;

impl Simulation {
    /// Labels the children that name a parent as their controller, where the controller generates selectors.
    ///
    /// # Errors
    /// A child is no object any more.
    pub(crate) fn label_children(&mut self) -> Result<(), Refusal> {
        for (parents, config) in &self.configs {
            if !matches!(config.kind, KindConfig::Composite { generate_selector: true, .. }) {
                continue;
            }
            let uids: Vec<_> = self.world.of(parents).map(|parent| parent.uid.clone()).collect();
            let kinds: Vec<_> = config.child_kinds.iter().map(|kind| Arc::clone(&kind.resource)).collect();
            for uid in uids {
                self.world.label_owned(&uid, &kinds, UID_LABEL)?;
            }
        }
        Ok(())
    }
}
