//! Selection of related objects: the rules of a reconcile to the objects that they find, in slices between which other tasks
//! run, and within a budget.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use metahook_core::object::Object;
use metahook_core::object::selector::Selector;
use metahook_core::reconcile::config::HookConfig;
use metahook_core::reconcile::ports::Customized;
use metahook_core::related::Related;
use metahook_core::related::rule::{Asker, Finds, RelatedRule};
use metahook_core::related::selection::Selection;

use crate::controller::heavy_work::{HeavyWorkLimiter, Turn};
use crate::controller::related::{RelatedError, RelatedObjects, Wait};
use crate::store::Store;

/// Objects, or rules, that are looked at before other tasks get their turn.
const SLICE: usize = 256;

/// A rule with its place in the answer.
pub(super) type Placed = (usize, RelatedRule);

/// Steps, and bytes of an answer, from which on a reconcile waits for its turn.
const HEAVY_STEPS: usize = 10_000;
const HEAVY_ANSWER: usize = 64 << 10;

/// Work of one reconcile on its rules. A step is a rule, or an object that is looked at or found.
pub(super) struct Work {
    steps: usize,
    /// Steps since other tasks ran.
    slice: usize,
    max: usize,
    limiter: HeavyWorkLimiter,
    turn: Option<Turn>,
}

/// The stores of a reconcile's rules.
pub(super) struct RuleStores {
    /// One for each rule, in their order.
    objects: Vec<Arc<Store>>,
    /// `Some`: a rule selects namespaces, the first at this place.
    namespaces: Option<(usize, Arc<Store>)>,
}

impl Work {
    pub(super) fn new(max: usize, limiter: &HeavyWorkLimiter) -> Self {
        Self { steps: 0, slice: 0, max, limiter: limiter.clone(), turn: None }
    }

    /// Before an answer of so many bytes is read.
    pub(super) async fn read(&mut self, answer: usize) {
        if answer >= HEAVY_ANSWER {
            self.take_turn().await;
        }
    }

    async fn take_turn(&mut self) {
        if self.turn.is_none() {
            self.turn = self.limiter.take().await;
        }
    }

    /// Before the reconcile waits for something else.
    pub(super) fn end_turn(&mut self) {
        self.turn = None;
    }

    /// Charges steps for the rule at a place.
    pub(super) async fn charge(&mut self, at: usize, steps: usize) -> Result<(), RelatedError> {
        self.steps += steps;
        self.slice += steps;
        if self.steps > self.max {
            return Err(RelatedError::Work { at, max: self.max });
        }
        if self.slice >= SLICE {
            self.slice = 0;
            if self.steps >= HEAVY_STEPS {
                self.take_turn().await;
            }
            match &mut self.turn {
                Some(turn) => turn.pause().await,
                None => tokio::task::yield_now().await,
            }
        }
        Ok(())
    }
}

impl RelatedObjects {
    /// The rules of an answer, each for a kind that is served.
    pub(super) async fn rules(
        &self,
        hook: &HookConfig,
        parent: &Object,
        customized: &Customized,
        work: &mut Work,
    ) -> Result<Vec<Placed>, RelatedError> {
        let asker = Asker { version: hook.version, parent_namespace: &parent.key.namespace };
        let mut rules = Vec::with_capacity(customized.answer.rules.len());
        let mut resources = BTreeMap::new();
        for (at, asked) in &*customized.answer.rules {
            work.charge(*at, 1).await?;
            if !resources.contains_key(&asked.gvr) {
                let resource = self.discovery.resolve(&asked.gvr).await.map_err(|source| {
                    self.wait(parent, Wait::Served(asked.gvr.clone()));
                    RelatedError::Kind { at: *at, source }
                })?;
                resources.insert(&asked.gvr, resource);
            }
            if let Some(resource) = resources.get(&asked.gvr) {
                let rule = asked.rule(*at, resource, asker)?;
                let kinds = &self.data.config.related_kinds;
                kinds.allow(*at, &asked.gvr, rule.reach().map(|namespace| &**namespace))?;
                if kinds.shows_secrets(&asked.gvr) {
                    self.record_secrets();
                }
                rules.push((*at, rule));
            }
        }
        Ok(rules)
    }

    /// Opens the stores of rules.
    pub(super) async fn open_stores<'a>(
        self: &Arc<Self>,
        rules: impl Iterator<Item = &'a Placed>,
        work: &mut Work,
    ) -> Result<RuleStores, RelatedError> {
        let (mut objects, mut namespaces) = (Vec::new(), None);
        // With whether labels are asked for.
        let mut opened = BTreeMap::new();
        for (at, rule) in rules {
            let place = self.lock().index.place(rule);
            let (store, labelled) = match opened.entry(place) {
                Entry::Occupied(opened) => opened.into_mut(),
                Entry::Vacant(vacant) => {
                    let store = self.open(*at, vacant.key().clone())?;
                    vacant.insert((store, false))
                }
            };
            if rule.asks_for_labels() && !*labelled {
                *labelled = true;
                store.label();
            }
            objects.push(Arc::clone(store));
            if rule.namespace_selector().is_some() && namespaces.is_none() {
                namespaces = Some((*at, self.namespaces(*at).await?));
            }
            work.charge(*at, 1).await?;
        }
        Ok(RuleStores { objects, namespaces })
    }
}

impl RuleStores {
    /// The stores that have not been listed yet, each with the place of its first rule.
    pub(super) fn unlisted<'a>(
        &'a self,
        rules: impl Iterator<Item = &'a Placed>,
    ) -> impl Iterator<Item = (usize, &'a Arc<Store>)> {
        let stores = rules.zip(&self.objects).map(|((at, _), store)| (*at, store));
        let namespaces = self.namespaces.iter().map(|(at, store)| (*at, store));
        stores.chain(namespaces).filter(|(_, store)| !store.is_synced())
    }

    /// The objects that the rules of each state of a parent find.
    pub(super) async fn select(
        &self,
        states: &[Arc<Object>],
        rules: &[Vec<Placed>],
        work: &mut Work,
    ) -> Result<Vec<Related>, RelatedError> {
        let mut all = Vec::new();
        let mut stores = self.objects.iter();
        let mut namespaces = BTreeMap::<&Selector, Vec<Arc<str>>>::new();
        for (state, rules) in states.iter().zip(rules) {
            let mut related = Related::default();
            for ((at, rule), store) in rules.iter().zip(stores.by_ref()) {
                let within = match rule.namespace_selector().zip(self.namespaces.as_ref()) {
                    None => &[],
                    Some((selector, (_, store))) => {
                        if !namespaces.contains_key(selector) {
                            let found = objects(store, &Finds::matching(selector), &[], *at, work).await?;
                            let names = found.iter().map(|namespace| Arc::clone(&namespace.key.name));
                            namespaces.insert(selector, names.collect());
                        }
                        namespaces.get(selector).map_or(&[][..], Vec::as_slice)
                    }
                };
                let found = objects(store, &rule.finds, within, *at, work).await?;
                work.charge(*at, found.len()).await?;
                related.add(&state.key.namespace, *at, rule, found);
            }
            all.push(related);
        }
        Ok(all)
    }
}

/// The objects of a store that something finds. The store is locked for a slice at a time.
async fn objects(
    store: &Store,
    finds: &Finds,
    namespaces: &[Arc<str>],
    at: usize,
    work: &mut Work,
) -> Result<Vec<Arc<Object>>, RelatedError> {
    let mut selection = Selection::new(finds, namespaces);
    loop {
        let steps = store.view(|cache| selection.step(cache, SLICE));
        work.charge(at, steps).await?;
        if steps < SLICE {
            return Ok(selection.found);
        }
    }
}
