//! The server in small as the ports of a reconcile. Nothing in it waits.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use metahook_core::api::hook::HookName;
use metahook_core::api::selection::FinalizerChange;
use metahook_core::children::Op;
use metahook_core::children::claims::ClaimedObject;
use metahook_core::children::deletion_brake::DeletionBrake;
use metahook_core::children::deletion_reason::DeletionReason;
use metahook_core::children::plan::DryRunResult;
use metahook_core::children::write_history::{Drift, WriteHistory};
use metahook_core::hash::Fingerprint;
use metahook_core::object::Object;
use metahook_core::object::cached::CachedObject;
use metahook_core::object::id::{Gvk, Key, ObjectId, Resource};
use metahook_core::object::selector::Selector;
use metahook_core::reconcile::config::ControllerConfig;
use metahook_core::reconcile::input::ReconcileInput;
use metahook_core::reconcile::outcome::Retry;
use metahook_core::reconcile::ports::{
    CallHooks, CarryOut, Charge, Fact, FoundObjects, HookAnswer, Observe, ParentView, PortError, Record,
    RelatedQuery, Remember, WriteAnswer, WriteError, WriteErrorCause,
};
use metahook_core::related::Related;
use metahook_core::related::selection::Selection;
use metahook_core::settled::{CacheRevision, SettledParents};

use crate::model::{Conflict, object};
use crate::server::{Saving, Server};

/// The world of one reconcile.
pub(crate) struct ModelWorld<'a> {
    config: ControllerConfig,
    server: Mutex<&'a mut Server>,
}

/// The result of a future that waits for nothing.
pub(crate) fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("nothing in the model waits"),
    }
}

/// The parent that an object is or belongs to: names of children begin with that of their parent.
fn parent_of(id: &ObjectId) -> Key {
    Key::new("n", id.key.name.split('-').next().unwrap_or_default())
}

impl<'a> ModelWorld<'a> {
    pub(crate) fn new(server: &'a mut Server) -> Self {
        Self { config: server.config.clone(), server: Mutex::new(server) }
    }

    fn server(&self) -> MutexGuard<'_, &'a mut Server> {
        self.server.lock().unwrap()
    }

    fn write_for(&self, op: &Op, parent: &Key) -> Result<Option<Arc<Object>>, WriteError> {
        self.server().write(op, parent).map_err(|Conflict| {
            let (cause, retry) = match op {
                Op::Create { .. } => (WriteErrorCause::Taken, Retry::WithEvent),
                _ => (WriteErrorCause::Other, Retry::Silent),
            };
            WriteError { id: op.id().clone(), cause, retry, source: "conflict".into() }
        })
    }
}

impl Observe for ModelWorld<'_> {
    fn config(&self) -> &ControllerConfig {
        &self.config
    }

    fn parent_id(&self, parent: &Object) -> ObjectId {
        ObjectId { resource: Arc::clone(&self.server().parent_kind), key: parent.key.clone() }
    }

    fn parent_now(&self, key: &Key) -> Option<Arc<Object>> {
        self.server().parents.get(key).and_then(CachedObject::whole).cloned()
    }

    fn candidates(
        &self,
        parent: &Object,
        resource: &Resource,
        selector: Option<&Selector>,
    ) -> Vec<CachedObject> {
        let server = self.server();
        let cache = if *resource == *server.revision_kind { &server.revisions } else { &server.children };
        cache.candidates(&parent.uid, "n", selector)
    }

    fn child_now(&self, id: &ObjectId) -> Option<Arc<Object>> {
        self.server().children.get(&id.key).and_then(CachedObject::whole).cloned()
    }

    async fn read_child(&self, child: &ClaimedObject) -> Result<(), WriteError> {
        let id = child.id();
        self.server().read(&id, &parent_of(&id));
        Ok(())
    }

    fn cache_revision(&self, parent: &Object, hooks: Fingerprint) -> CacheRevision {
        CacheRevision::of(parent, hooks, None, self.server().children.changes_for(&parent.uid))
    }

    fn fingerprint(&self, input: &ReconcileInput) -> Fingerprint {
        match self.server().saving {
            Saving::Forgetful => Fingerprint::of(input.parent.version.as_str().as_bytes()),
            Saving::Nothing | Saving::Settling | Saving::Checking => input.fingerprint(),
        }
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

impl CallHooks for ModelWorld<'_> {
    type Hooks = Fingerprint;

    fn hooks(&self) -> Result<Self::Hooks, PortError> {
        Ok(Fingerprint::of(&[self.server().module]))
    }

    fn version(&self, hooks: &Self::Hooks) -> Fingerprint {
        *hooks
    }

    async fn call(
        &self,
        _: &Self::Hooks,
        _: HookName,
        _: ParentView<'_>,
        request: Vec<u8>,
    ) -> Result<HookAnswer, PortError> {
        Ok(HookAnswer { bytes: self.server().call(&request), pure: Some(true), usage: None })
    }

    async fn related(
        &self,
        _: &Self::Hooks,
        states: &[Arc<Object>],
        _: RelatedQuery,
    ) -> Result<FoundObjects, PortError> {
        let mut server = self.server();
        let (mut all, mut related) = (Vec::new(), Vec::new());
        for state in states {
            let rules = server.asks_for(state);
            let mut found = Related::default();
            for (at, rule) in rules.iter().enumerate() {
                let mut selection = Selection::new(&rule.finds, &[]);
                selection.step(&server.settings, usize::MAX);
                found.add(&state.key.namespace, at, rule, selection.found);
            }
            all.extend(rules);
            related.push(found);
        }
        server.related_index.set(&states[0].key, all).unwrap();
        Ok(FoundObjects { related, customized: Vec::new() })
    }
}

impl CarryOut for ModelWorld<'_> {
    async fn write(&self, op: &Op, _: Option<&DeletionReason>) -> Result<WriteAnswer, WriteError> {
        let object = self.write_for(op, &parent_of(op.id()))?;
        Ok(WriteAnswer { changed: true, object, warnings: Vec::new() })
    }

    /// The model keeps what it is given.
    async fn dry_run(&self, write: &Op) -> Result<DryRunResult, WriteError> {
        let Op::Replace { body, .. } = write else { unreachable!("dynamic apply") };
        Ok(DryRunResult::Becomes(Box::new(object(body))))
    }

    async fn try_making(&self, _: &Op, _: Option<&str>) -> Result<(), WriteError> {
        Ok(())
    }

    async fn claim(
        &self,
        claimed: &ClaimedObject,
        parent: &Object,
    ) -> Result<Option<Arc<Object>>, WriteError> {
        let id = claimed.id();
        let now = self.server().cluster.get(&id).filter(|now| now.uid == claimed.object.uid);
        let Some(mut body) = now.map(|now| now.value().unwrap()) else { return Ok(None) };
        claimed.carry_out(&mut body, parent);
        Ok(self.write(&Op::Replace { id, body }, None).await?.object)
    }

    async fn change_finalizers(
        &self,
        _: &Object,
        _: FinalizerChange<'_>,
    ) -> Result<Option<Arc<Object>>, WriteError> {
        unreachable!("these controllers have no finalizers")
    }

    async fn is_there(&self, parent: &Object) -> Result<bool, WriteError> {
        let id = self.parent_id(parent);
        let now = self.server().cluster.get(&id);
        Ok(now.is_some_and(|now| now.uid == parent.uid))
    }

    async fn delete_related(&self, _: &Op) -> Result<bool, WriteError> {
        unreachable!("this hook deletes no related objects")
    }

    async fn resolve_kind(&self, _: &Gvk) -> Result<Arc<Resource>, PortError> {
        unreachable!("this hook declares all its kinds")
    }
}

impl Remember for ModelWorld<'_> {
    fn settled<T>(&self, act: impl FnOnce(&mut SettledParents) -> T) -> T {
        act(&mut self.server().settled)
    }

    fn write_history(&self, parent: &Key) -> Arc<WriteHistory> {
        self.server().write_histories.get(parent).cloned().unwrap_or_default()
    }

    fn change_history<T>(&self, parent: &Key, change: impl FnOnce(&mut WriteHistory) -> T) -> T {
        change(Arc::make_mut(self.server().write_histories.entry(parent.clone()).or_default()))
    }

    fn drift_corrected(&self, _: &Key, _: &Drift) {
        // No time passes in the model, so that each drift would be one of many at once.
    }

    fn brake<T>(&self, act: impl FnOnce(&mut DeletionBrake, Duration) -> T) -> T {
        act(&mut self.server().brake, Duration::ZERO)
    }
}

impl Record for ModelWorld<'_> {
    fn record(&self, _: &Object, _: Fact<'_>) {}
}

impl Charge for ModelWorld<'_> {}
