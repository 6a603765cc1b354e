//! Reconciles without a cluster: the objects of files in memory, the hooks called, the server's decisions carried out there.
//!
//! The sequence is that of `metahook_core::reconcile`; this is a world for it.

pub(crate) mod effect;
pub mod hooks;
mod labels;
mod notes;
mod ports;
mod reconcile;
pub(crate) mod related;
pub mod rounds;
pub mod setup;
pub(crate) mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metahook_core::children::deletion_brake::DeletionBrake;
use metahook_core::children::write_history::WriteHistory;
use metahook_core::hash::Fingerprint;
use metahook_core::object::id::{Key, ObjectId, Resource};
use metahook_core::reconcile::config::ControllerConfig;
use metahook_core::reconcile::error::ReconcileError;
use metahook_core::settled::SettledParents;

use crate::kinds::KnownKinds;
use effect::Effect;
use hooks::{Called, HookSet};
use world::World;

/// A controller, its hooks, and the objects that it works on.
pub struct Simulation {
    controller: String,
    /// Configuration for each kind of parents.
    configs: Vec<(Arc<Resource>, ControllerConfig)>,
    kinds: KnownKinds,
    hooks: HookSet,
    pub(crate) world: World,
    /// The version of the hooks, as the deletion brake counts.
    version: Fingerprint,
    brake: DeletionBrake,
    remembered: BTreeMap<Arc<Resource>, Remembered>,
    /// The only object that counts as a parent.
    only_parent: Option<Key>,
}

/// State of the parents of one kind that is kept from reconcile to reconcile.
#[derive(Default)]
struct Remembered {
    settled: SettledParents,
    histories: BTreeMap<Key, Arc<WriteHistory>>,
}

/// One reconcile of one parent.
#[derive(Debug)]
pub struct RenderedReconcile {
    pub parent: ObjectId,
    pub steps: Vec<Step>,
    /// Events that the server would record, and objects that it leaves as they are.
    pub notes: Vec<String>,
    /// Parts of modules' answers that have no effect.
    pub(crate) ignored: Vec<String>,
    pub calls: Vec<Called>,
    /// The delay that the hook asked for.
    pub(crate) resync_after: Option<Duration>,
    /// Parts of the writes that the API server would drop, or refuse them for.
    pub faults: Vec<String>,
    /// The server would write what comes before it, and try again later.
    pub error: Option<ReconcileError>,
}

/// One object that a reconcile changes.
#[derive(Debug)]
pub struct Step {
    pub op: &'static str,
    pub effect: Effect,
}
