//! Rounds of reconciles: each parent once in each, until nothing changes, a state comes again, or there were enough.

use std::collections::BTreeMap;
use std::sync::Arc;

use metahook_core::api::policy::BrakeLimits;
use metahook_core::children::deletion_brake::Census;
use metahook_core::hash::{Fingerprint, Fingerprinter};
use metahook_core::object::id::{Key, ObjectId, Resource};
use metahook_core::reconcile::config::ControllerConfig;
use metahook_server::telemetry::error_chain;
use serde_json::{Value, json};

use super::world::World;
use super::{Remembered, RenderedReconcile, Simulation};

/// All rounds, and how they ended.
#[derive(Debug)]
pub struct Rounds {
    pub rounds: Vec<Vec<RenderedReconcile>>,
    pub end: RenderEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenderEnd {
    /// The last round changed nothing.
    Settled,
    /// The state after the last round is that after an earlier one (from 1 on; 0: the beginning), and something was written
    /// between them: so it goes on for ever.
    Oscillates { like: usize },
    /// There were as many rounds as were asked for.
    Enough,
    /// A reconcile failed in the last round.
    Failed,
}

impl Rounds {
    /// The writes, round by round, without the fields that an API server sets.
    pub(crate) fn plan(&self) -> Value {
        let end = match self.end {
            RenderEnd::Settled => "settled",
            RenderEnd::Enough => "unfinished",
            RenderEnd::Oscillates { .. } => "oscillates",
            RenderEnd::Failed => "failed",
        };
        let round = |round: &Vec<RenderedReconcile>| {
            let changes = round.iter().flat_map(|one| &one.steps).map(|step| {
                let mut change = json!({ "change": step.op, "object": step.effect.id.to_string() });
                if let (Some(after), Some(fields)) = (step.effect.shown_after(), change.as_object_mut()) {
                    fields.insert("after".to_owned(), after);
                }
                change
            });
            let errors = round.iter().filter_map(|one| one.error.as_ref()).map(|error| error_chain(error));
            let errors: Vec<_> = errors.collect();
            let mut value = json!({ "changes": changes.collect::<Vec<_>>() });
            if let (false, Some(fields)) = (errors.is_empty(), value.as_object_mut()) {
                fields.insert("errors".to_owned(), json!(errors));
            }
            value
        };
        json!({ "end": end, "rounds": self.rounds.iter().map(round).collect::<Vec<_>>() })
    }
}

impl Simulation {
    /// The parents that the controller reconciles, in order.
    pub(crate) fn parents(&self) -> Vec<(ObjectId, ControllerConfig)> {
        let mut all = Vec::new();
        for (resource, config) in &self.configs {
            let included = self.world.of(resource).filter(|object| {
                self.only_parent.as_ref().is_none_or(|only| *only == object.key)
                    && config.selection.includes(object)
            });
            let id = |key| ObjectId { resource: Arc::clone(resource), key };
            all.extend(included.map(|object| (id(object.key.clone()), config.clone())));
        }
        all
    }

    pub async fn run(&mut self, max: usize) -> Rounds {
        let mut rounds: Vec<Vec<RenderedReconcile>> = Vec::new();
        let mut seen = BTreeMap::from([(self.state(), 0)]);
        while rounds.len() < max {
            let mut round = Vec::new();
            for (id, config) in self.parents() {
                round.push(self.reconcile(&config, &id).await);
            }
            let failed = round.iter().any(|one| one.error.is_some());
            let changed = round.iter().any(|one| !one.steps.is_empty());
            rounds.push(round);
            let end = match (failed, changed, seen.insert(self.state(), rounds.len())) {
                (true, _, _) => RenderEnd::Failed,
                (false, false, _) if self.put_off().next().is_none() => RenderEnd::Settled,
                (false, true, Some(like)) => RenderEnd::Oscillates { like },
                (false, ..) => continue,
            };
            return Rounds { rounds, end };
        }
        Rounds { rounds, end: RenderEnd::Enough }
    }

    /// A fingerprint of all objects, without what changes with every write.
    fn state(&self) -> Fingerprint {
        let mut all = Fingerprinter::default();
        for (resource, object) in self.world.all() {
            let mut value = object.value().unwrap_or_default();
            if let Some(Value::Object(metadata)) = value.get_mut("metadata") {
                for field in ["uid", "resourceVersion", "generation"] {
                    metadata.remove(field);
                }
            }
            if let Some(Value::Object(status)) = value.get_mut("status") {
                status.remove("observedGeneration");
            }
            all.add(resource.gvk.group_key().as_bytes());
            all.add(value.to_string().as_bytes());
        }
        for (resource, parent) in self.put_off() {
            all.add(format!("{resource:?} {parent}").as_bytes());
        }
        all.finish()
    }

    /// Parents whose status waits for the next reconcile.
    fn put_off(&self) -> impl Iterator<Item = (&Arc<Resource>, &Key)> {
        let of = |(resource, remembered)| Remembered::put_off(remembered).map(move |key| (resource, key));
        self.remembered.iter().flat_map(of)
    }
}

/// The parents and the number of their children.
pub(super) fn census(
    world: &World,
    parents: &[(ObjectId, ControllerConfig)],
    limits: &BrakeLimits,
) -> Census {
    let mut all = Census::default();
    for (id, config) in parents {
        let parent = world.get(id).map(|parent| (id.clone(), Arc::clone(parent)));
        let of = config.census(limits, parent, |parent, kind| world.candidates(config, parent, kind, None));
        all.parents.extend(of.parents);
        all.children += of.children;
    }
    all
}

impl Remembered {
    fn put_off(&self) -> impl Iterator<Item = &Key> {
        self.settled.statuses_due()
    }
}
