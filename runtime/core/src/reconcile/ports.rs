//! Ports of a reconcile: what its sequence needs of the world around it.
//!
//! The server answers them from its caches, its hooks and the API server; the commands of authors and the laws of this crate
//! answer them from memory. A port that waits gives a future; all others answer at once.
//!
//! # Flow
//! The sequence reads with [`Observe`], asks hooks with [`CallHooks`], and writes with [`CarryOut`]. [`Remember`] keeps what the
//! next reconcile of the parent needs, [`Record`] takes the facts that people and metrics are shown, and [`Charge`] bounds the
//! memory on the way.
//!
//! # Guarantees
//! The sequence takes the hooks once in a reconcile, charges memory before it uses it, records the number of deletions before
//! the first of them, and makes no write of a plan before the whole plan is made.
//!
//! # Assumptions
//! The reads of a world may be older than the API server, and are never older than a write that this world has answered. A
//! write that fails has changed nothing, or says so in its error. One parent is reconciled by one reconcile at a time.
//!
//! # Errors
//! An error of a port ends the reconcile, or the part that needs its answer, and says whether and when the parent is tried again
//! ([`PortError`], [`WriteError`]).

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::api::hook::HookName;
use crate::api::reason::EventReason;
use crate::api::selection::FinalizerChange;
use crate::children::Op;
use crate::children::claims::ClaimedObject;
use crate::children::deletion_brake::DeletionBrake;
use crate::children::deletion_reason::DeletionReason;
use crate::children::differing::Differing;
use crate::children::plan::DryRunResult;
use crate::children::write_history::{Drift, WriteHistory};
use crate::decorator::Decoration;
use crate::decorator::conflicts::Resolution;
use crate::hash::Fingerprint;
use crate::hook::Usage;
use crate::object::cached::CachedObject;
use crate::object::id::{Gvk, Key, ObjectId, Resource, Uid};
use crate::object::selector::Selector;
use crate::object::{ChildMap, Object};
use crate::reconcile::config::ControllerConfig;
use crate::reconcile::input::ReconcileInput;
use crate::reconcile::outcome::StatusLeft;
use crate::reconcile::plan::ReconcilePlan;
pub use crate::reconcile::port_error::{PortError, WriteError, WriteErrorCause};
use crate::related::{Answer, Related};
use crate::settled::{CacheRevision, SettledParents};

/// All ports of a reconcile.
pub trait World: Observe + CallHooks + CarryOut + Remember + Record + Charge {}

impl<W: Observe + CallHooks + CarryOut + Remember + Record + Charge> World for W {}

/// Reads of what is known of the cluster. None of them waits but `read_child` and `may_show`, which may ask the API server.
pub trait Observe: Sync {
    fn config(&self) -> &ControllerConfig;

    fn parent_id(&self, parent: &Object) -> ObjectId;

    /// The parent of this name as it is now.
    fn parent_now(&self, key: &Key) -> Option<Arc<Object>>;

    /// The objects of a kind that a parent could claim, without those of other controllers.
    fn candidates(
        &self,
        parent: &Object,
        resource: &Resource,
        selector: Option<&Selector>,
    ) -> Vec<CachedObject>;

    /// The child as it is now.
    fn child_now(&self, id: &ObjectId) -> Option<Arc<Object>>;

    /// Reads a child that is known by its metadata alone. From then on it is known whole, or to be gone.
    ///
    /// # Errors
    /// It was not read.
    fn read_child(&self, _child: &ClaimedObject) -> impl Future<Output = Result<(), WriteError>> + Send {
        std::future::ready(Ok(()))
    }

    /// A number for all that a reconcile of the parent would read. Where nothing counts changes, any number will do.
    fn cache_revision(&self, parent: &Object, hooks: Fingerprint) -> CacheRevision;

    /// The decorations that older decorators want for the parent; `None` for parents of CompositeControllers.
    fn older_decorators(&self, _parent: &Object) -> Option<Fingerprint> {
        None
    }

    /// The number that is the same for equal inputs.
    fn fingerprint(&self, input: &ReconcileInput) -> Fingerprint {
        input.fingerprint()
    }

    /// The time since the world began.
    fn now(&self) -> Duration;

    /// Whether hooks may be shown the parent and its children.
    fn may_show(&self, _parent: &Object) -> impl Future<Output = Result<(), PortError>> + Send {
        std::future::ready(Ok(()))
    }
}

/// Calls of hooks.
pub trait CallHooks: Sync {
    /// All hooks in their present versions. A reconcile takes them once, so that it never mixes versions.
    type Hooks: Send + Sync;

    /// # Errors
    /// A hook cannot be called, so none is.
    fn hooks(&self) -> Result<Self::Hooks, PortError>;

    /// The versions of all hooks as one number.
    fn version(&self, hooks: &Self::Hooks) -> Fingerprint;

    /// # Errors
    /// The hook gave no answer.
    fn call(
        &self,
        hooks: &Self::Hooks,
        hook: HookName,
        asked: ParentView<'_>,
        request: Vec<u8>,
    ) -> impl Future<Output = Result<HookAnswer, PortError>> + Send;

    /// The related objects of each state of a parent, the present one first; calls the customize hook where it has to.
    ///
    /// # Errors
    /// The customize hook failed, or what it asks for cannot be found.
    fn related(
        &self,
        hooks: &Self::Hooks,
        states: &[Arc<Object>],
        query: RelatedQuery,
    ) -> impl Future<Output = Result<FoundObjects, PortError>> + Send;

    /// The hook's answer about the present state was carried into a plan; for its shadow.
    fn answered(&self, _input: ReconcileInput, _children: ChildMap, _answer: Vec<u8>) {}
}

/// Writes, and the reads that decide about them.
pub trait CarryOut: Sync {
    /// `reason`: why a child is deleted.
    ///
    /// # Errors
    /// The operation was not carried out.
    fn write(
        &self,
        op: &Op,
        reason: Option<&DeletionReason>,
    ) -> impl Future<Output = Result<WriteAnswer, WriteError>> + Send;

    /// Result of a write that the API server only tries.
    ///
    /// # Errors
    /// Nothing is known of it yet.
    fn dry_run(&self, write: &Op) -> impl Future<Output = Result<DryRunResult, WriteError>> + Send;

    /// Tries whether the object that an operation deletes could be made again; other operations need no try. `version`: that
    /// of the hooks, where they have changed.
    ///
    /// # Errors
    /// The object could not be made again, or the API server did not say.
    fn try_making(
        &self,
        op: &Op,
        version: Option<&str>,
    ) -> impl Future<Output = Result<(), WriteError>> + Send;

    /// Carries a claim out on an object as it is now ([`ClaimedObject::carry_out`]); `None` where it is gone.
    ///
    /// # Errors
    /// It was not changed.
    fn claim(
        &self,
        claimed: &ClaimedObject,
        parent: &Object,
    ) -> impl Future<Output = Result<Option<Arc<Object>>, WriteError>> + Send;

    /// Changes the finalizers of a parent; gives back the parent, `None` where it is gone.
    ///
    /// # Errors
    /// They were not changed.
    fn change_finalizers(
        &self,
        parent: &Object,
        change: FinalizerChange<'_>,
    ) -> impl Future<Output = Result<Option<Arc<Object>>, WriteError>> + Send;

    /// Whether the API server has the parent, and it is not being deleted.
    ///
    /// # Errors
    /// The API server did not say.
    fn is_there(&self, parent: &Object) -> impl Future<Output = Result<bool, WriteError>> + Send;

    /// Deletes a related object; false where it is gone already, or replaced by another one.
    ///
    /// # Errors
    /// It was not deleted.
    fn delete_related(&self, op: &Op) -> impl Future<Output = Result<bool, WriteError>> + Send;

    /// The resource of a kind that the controller does not declare.
    ///
    /// # Errors
    /// The kind is not served, or the API server did not say.
    fn resolve_kind(&self, kind: &Gvk) -> impl Future<Output = Result<Arc<Resource>, PortError>> + Send;

    /// Runs some writes; gives back their results in order.
    fn join<F>(&self, writes: Vec<F>) -> impl Future<Output = Vec<F::Output>> + Send
    where
        F: Future + Send,
        F::Output: Send,
    {
        async move {
            let mut results = Vec::with_capacity(writes.len());
            for write in writes {
                results.push(write.await);
            }
            results
        }
    }
}

/// Memory that lasts from reconcile to reconcile.
pub trait Remember: Sync {
    fn settled<T>(&self, act: impl FnOnce(&mut SettledParents) -> T) -> T;

    fn write_history(&self, parent: &Key) -> Arc<WriteHistory>;

    fn change_history<T>(&self, parent: &Key, change: impl FnOnce(&mut WriteHistory) -> T) -> T;

    /// Drift of a child was corrected.
    fn drift_corrected(&self, parent: &Key, drift: &Drift);

    /// The deletion brake of the controller, and the time by its clock.
    fn brake<T>(&self, act: impl FnOnce(&mut DeletionBrake, Duration) -> T) -> T;

    /// Waits until the number of deletions is where a crash does not reach it.
    ///
    /// # Errors
    /// It is not there.
    fn record_deletions(&self) -> impl Future<Output = Result<(), PortError>> + Send {
        std::future::ready(Ok(()))
    }

    /// The part of a decoration that may be written beside other decorators; `None`: all of it.
    fn resolve_decoration(&self, _parent: &Object, _decoration: &Decoration) -> Option<Resolution> {
        None
    }
}

/// Records the facts of reconciles.
pub trait Record: Sync {
    fn record(&self, parent: &Object, fact: Fact<'_>);
}

/// Memory, and turns of heavy work. By default there is as much as anybody wants.
pub trait Charge: Sync {
    /// # Errors
    /// There is no room. The reconcile ends before the first write of its plan.
    fn charge(&self, _bytes: usize) -> Result<(), PortError> {
        Ok(())
    }

    /// # Errors
    /// An earlier charge found no room, also one of another part of the reconcile.
    fn check_room(&self) -> Result<(), PortError> {
        Ok(())
    }

    fn refund(&self, _bytes: usize) {}

    /// From here on the reconcile needs no more memory.
    fn shrink(&self) {}

    /// Does work of this size, which may have to wait for its turn.
    fn heavy<T: Send>(
        &self,
        _bytes: usize,
        work: impl FnOnce() -> T + Send,
    ) -> impl Future<Output = T> + Send {
        async move { work() }
    }
}

/// A decision of a reconcile, with what it is made from.
#[derive(Debug)]
pub enum Fact<'a> {
    /// All that is to be warned of for this reason; nothing where an earlier warning has ended.
    Warnings(EventReason, Vec<String>),
    /// Something that happened now.
    Event(EventReason, String),
    /// Children are left as they are although the answer has changed.
    Differing(Option<&'a Differing>),
    /// The plan is made, and nothing of it is carried out.
    Planned { input: &'a ReconcileInput, plan: &'a ReconcilePlan, customized: &'a [Customized] },
    /// The plan deletes these children, and the deletion brake holds all of it. Those that it does not count are left out. `version`: that of the hooks.
    Held { deletions: &'a [(&'a ObjectId, &'a Uid)], version: Fingerprint },
    /// The status that the hook wants is not written.
    StatusLeft(StatusLeft),
    /// A hook gave two answers to one request. The first time only.
    TwoAnswers(HookName),
}

/// State of a parent that a hook is asked about.
#[derive(Debug, Clone, Copy)]
pub enum ParentView<'a> {
    /// A parent as it is.
    Present(&'a Object),
    /// A parent as it was at an older revision. The tag of an answer may stand for the parent's version, which is the same: no
    /// earlier answer counts.
    Older(&'a Object),
}

/// A hook's answer.
#[derive(Debug)]
pub struct HookAnswer {
    pub bytes: Vec<u8>,
    /// Whether the request alone brought it about; `None` where that is not known, as of webhooks.
    pub pure: Option<bool>,
    /// `None`: of a webhook, or not measured.
    pub usage: Option<Usage>,
}

/// Purpose of a look-up of related objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelatedQuery {
    /// The hook that is shown the objects.
    pub hook: HookName,
    /// The customize hook is not called where its answer to an earlier reconcile is cached.
    pub cached: bool,
}

/// An answer of the customize hook about one parent, of this reconcile or an earlier one.
#[derive(Debug)]
pub struct Customized {
    pub answer: Answer,
    /// Whether the answer depends on the request alone; `None`: unknown.
    pub pure: Option<bool>,
    /// It was given to an earlier reconcile, and the hook was not called.
    pub is_earlier: bool,
    pub usage: Option<Usage>,
}

/// The related objects of each state of a parent, and the answers of the customize hook about each.
#[derive(Debug, Default)]
pub struct FoundObjects {
    pub related: Vec<Related>,
    pub customized: Vec<Customized>,
}

/// An operation that was carried out.
#[derive(Debug)]
pub struct WriteAnswer {
    /// False where the API server kept the object as it was, as it does with unknown fields.
    pub changed: bool,
    /// The object as the API server answered; `None` where it is gone.
    pub object: Option<Arc<Object>>,
    /// Warnings of the API server.
    pub warnings: Vec<String>,
}

impl<'a> ParentView<'a> {
    /// `present`: the parent as it is, which may be the state itself.
    pub fn of(state: &'a Object, present: &Object) -> Self {
        if std::ptr::eq(state, present) { Self::Present(state) } else { Self::Older(state) }
    }

    pub fn parent(self) -> &'a Object {
        match self {
            Self::Present(parent) | Self::Older(parent) => parent,
        }
    }
}
