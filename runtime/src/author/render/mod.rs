//! Reconciles without a cluster: the objects of files in memory, the hooks called, the server's decisions carried out there.
//!
//! The order of the steps is that of `controller::reconcile`; what is decided in each is `metahook_core`'s.

mod children;
mod effect;
pub(crate) mod hooks;
mod notes;
mod reconcile;
mod related;
pub(crate) mod rounds;
pub(crate) mod setup;
pub(crate) mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use metahook_core::api::customize::RelatedKindError;
use metahook_core::api::hook::HookName;
use metahook_core::children::Problem;
use metahook_core::children::desired::DesiredError;
use metahook_core::children::write_history::WriteHistory;
use metahook_core::hook::RequestTooLarge;
use metahook_core::hook::customize::CustomizeError;
use metahook_core::object::id::{ObjectId, Resource};
use metahook_core::object::selector::ChildSelectorError;
use metahook_core::reconcile::config::ControllerConfig;
use metahook_core::reconcile::plan::AnswerError;
use metahook_core::related::rule::RuleError;
use metahook_core::rollout::revisions::RevisionError;

use crate::author::kinds::{KindError, KnownKinds};
use effect::Effect;
use hooks::{Called, HookError, HookSet};
use world::{Refusal, World};

/// A controller, its hooks, and the objects that it works on.
pub(crate) struct Simulation {
    controller: String,
    /// For each kind of parents.
    configs: Vec<(Arc<Resource>, ControllerConfig)>,
    kinds: KnownKinds,
    hooks: HookSet,
    pub(crate) world: World,
    histories: BTreeMap<ObjectId, WriteHistory>,
    /// Parents whose status waits for the next reconcile.
    put_off: BTreeSet<ObjectId>,
}

/// One reconcile of one parent.
#[derive(Debug)]
pub(crate) struct Reconciled {
    pub(crate) parent: ObjectId,
    pub(crate) steps: Vec<Step>,
    /// What the server would record as Events, and what it leaves as it is.
    pub(crate) notes: Vec<String>,
    /// What answers of modules have without any effect.
    pub(crate) ignored: Vec<String>,
    pub(crate) calls: Vec<Called>,
    /// What the API server would drop of what is written, or refuse it for.
    pub(crate) faults: Vec<String>,
    /// The server would write what comes before it, and try again later.
    pub(crate) error: Option<ReconcileError>,
}

/// One object that a reconcile changes.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) op: &'static str,
    pub(crate) effect: Effect,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    #[error("selecting children")]
    Selector(#[from] ChildSelectorError),
    #[error(transparent)]
    Hook(#[from] HookError),
    #[error(transparent)]
    Request(#[from] RequestTooLarge),
    #[error("{0} hook")]
    Answer(HookName, #[source] AnswerError),
    #[error("customize hook")]
    Customize(#[from] CustomizeError),
    #[error("customize hook")]
    Rule(#[from] RuleError),
    #[error("customize hook")]
    RelatedKind(#[from] RelatedKindError),
    #[error("customize hook: relatedResources[{at}]")]
    Related { at: usize, source: KindError },
    #[error("a child")]
    Kind(#[from] KindError),
    #[error("a child, while the others are written")]
    Child(#[from] DesiredError),
    #[error("{id}")]
    Problem { id: Box<ObjectId>, source: Problem },
    #[error(transparent)]
    Revision(#[from] RevisionError),
    #[error(transparent)]
    Refused(#[from] Refusal),
}
