//! Index of related rules: the parents that the change of an object concerns, and the scopes of stores that rules need.

mod matching;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::cache::label_index::SelectorIndex;
use crate::cache::{ObjectChange, change_or_remove};
use crate::object::Object;
use crate::object::id::{Key, Resource};
use crate::object::selector::Selector;
use crate::related::pending::PendingChange;
use crate::related::rule::{Finds, RelatedRule, RuleScope};
pub use matching::{Matching, NamespaceMatching};

/// The rules of a controller's parents.
///
/// # Guarantees
/// An event finds exactly the parents that have a rule which finds the object as it was or as it is. It looks at the
/// rules that name the object, and at each different selector once: at those that a label leads to at once, at the others in
/// slices ([`Matching`]). The event of a namespace looks at the rules that select namespaces, in slices, too
/// ([`NamespaceMatching`]).
/// See <https://github.com/metacontroller/metacontroller/issues/731>.
/// See <https://github.com/metacontroller/metacontroller/issues/883>.
#[derive(Debug)]
pub struct RelatedIndex {
    parents: BTreeMap<Key, Registered>,
    /// The parents with a rule that selects namespaces.
    selecting: BTreeSet<Key>,
    kinds: BTreeMap<Arc<Resource>, KindIndex>,
    /// The number of rules for a scope.
    places: BTreeMap<StoreScope, usize>,
    narrow: bool,
    /// Bytes of all rules, and the bound on them.
    memory: usize,
    max_memory: usize,
}

/// The rules of one parent, and the bytes that they take.
#[derive(Debug, Default)]
struct Registered {
    rules: Vec<RelatedRule>,
    memory: usize,
}

/// The rules of a parent do not fit beside those of the controller's other parents.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the hook's answer: remembering relatedResources takes {memory} bytes, the rules of other parents take {others}, and {max} are allowed for all parents (--customize-memory-max): ask by labels instead of names, or raise the flag"
)]
pub struct RuleMemoryError {
    pub memory: usize,
    pub others: usize,
    pub max: usize,
}

/// The parents that objects of one kind concern.
#[derive(Debug, Default)]
struct KindIndex {
    /// Each name, with the namespace where the rule gives one.
    names: BTreeSet<(Arc<str>, Option<Arc<str>>, Key)>,
    anywhere: SelectorIndex,
    within: BTreeMap<Arc<str>, SelectorIndex>,
    /// Rules by their selector of namespaces.
    selected: BTreeMap<Selector, SelectorIndex>,
}

impl RelatedIndex {
    /// `narrow`: a rule that may find objects of one namespace alone looks nowhere else. `max_memory`: bytes that the rules
    /// of all parents may take.
    pub fn new(narrow: bool, max_memory: usize) -> Self {
        let (parents, selecting, kinds, places) = Default::default();
        Self { parents, selecting, kinds, places, narrow, memory: 0, max_memory }
    }

    /// Bytes that the rules of all parents take.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Where a rule's objects are looked for.
    pub fn place(&self, rule: &RelatedRule) -> StoreScope {
        (Arc::clone(&rule.resource), rule.reach().filter(|_| self.narrow).cloned())
    }

    /// Whether a rule needs the scope.
    pub fn has_rules_for(&self, place: &StoreScope) -> bool {
        self.places.contains_key(place)
    }

    /// The parents with a rule about a kind.
    pub fn parents_of(&self, resource: &Resource) -> Vec<Key> {
        let asks = |registered: &Registered| registered.rules.iter().any(|rule| *rule.resource == *resource);
        self.parents.iter().filter(|(_, its)| asks(its)).map(|(parent, _)| parent.clone()).collect()
    }

    /// The parents with a rule that selects namespaces.
    pub fn selecting_parents(&self) -> Vec<Key> {
        self.selecting.iter().cloned().collect()
    }

    /// Whether there is a rule that selects namespaces.
    pub fn select_namespaces(&self) -> bool {
        !self.selecting.is_empty()
    }

    /// Sets the rules of a parent, in place of those from before.
    ///
    /// # Errors
    /// The rules do not fit; those from before stay.
    pub fn set(&mut self, parent: &Key, rules: Vec<RelatedRule>) -> Result<(), RuleMemoryError> {
        let before = self.parents.get(parent);
        if before.map_or(&[][..], |before| &before.rules) == rules {
            return Ok(());
        }
        let others = self.memory - before.map_or(0, |before| before.memory);
        let memory = rules.iter().map(RelatedRule::memory).sum();
        if others + memory > self.max_memory {
            return Err(RuleMemoryError { memory, others, max: self.max_memory });
        }
        self.remove(parent);
        for rule in &rules {
            self.kinds.entry(Arc::clone(&rule.resource)).or_default().add(parent, &rule.finds);
            *self.places.entry(self.place(rule)).or_default() += 1;
        }
        if rules.iter().any(|rule| rule.namespace_selector().is_some()) {
            self.selecting.insert(parent.clone());
        }
        self.memory += memory;
        self.parents.insert(parent.clone(), Registered { rules, memory });
        Ok(())
    }

    /// The parent is gone, or no longer this controller's.
    pub fn remove(&mut self, parent: &Key) {
        let Registered { rules, memory } = self.parents.remove(parent).unwrap_or_default();
        self.memory -= memory;
        self.selecting.remove(parent);
        for rule in rules {
            let place = self.place(&rule);
            change_or_remove(&mut self.places, &place, |rules| {
                *rules = rules.saturating_sub(1);
                *rules == 0
            });
            if let Some(kind) = self.kinds.get_mut(&rule.resource) {
                kind.take_out(parent, &rule.finds);
                if kind.is_empty() {
                    self.kinds.remove(&rule.resource);
                }
            }
        }
    }

    /// An object of this kind changed. `namespace` finds namespaces as they are now.
    pub fn on_object(
        &self,
        resource: &Arc<Resource>,
        touched: &ObjectChange,
        namespace: impl Fn(&str) -> Option<Arc<Object>>,
    ) -> BTreeSet<Key> {
        let Some(change) = PendingChange::<()>::of(touched, None) else { return BTreeSet::new() };
        let mut found = self.led_to(resource, &change);
        if let Some(mut matching) = self.matching(resource, &change) {
            // Small slices, so that tests go through many of them.
            while !matching.step(self, &namespace, 3) {}
            found.append(&mut matching.found);
        }
        found
    }

    /// The parents with rules that the name of a changed object leads to, or one of its labels.
    pub fn led_to<W: Clone + PartialEq>(
        &self,
        resource: &Arc<Resource>,
        change: &PendingChange<W>,
    ) -> BTreeSet<Key> {
        let mut found = BTreeSet::new();
        let Some(kind) = self.kinds.get(resource) else { return found };
        let place = &change.key.namespace;
        if !kind.names.is_empty() {
            let named = [None, Some(place)].into_iter().flat_map(|place| kind.named(&change.key.name, place));
            found.extend(named);
        }
        for labels in change.labels() {
            let selectors = std::iter::once(&kind.anywhere).chain(kind.within.get(place));
            found.extend(selectors.flat_map(|all| all.pinned(labels)).cloned());
        }
        found
    }

    /// The matching with all other rules; `None`: there are none.
    pub fn matching<W: Clone + PartialEq>(
        &self,
        resource: &Arc<Resource>,
        change: &PendingChange<W>,
    ) -> Option<Matching> {
        let kind = self.kinds.get(resource)?;
        let within = kind.within.get(&change.key.namespace);
        let is_needed = kind.anywhere.has_others()
            || within.is_some_and(SelectorIndex::has_others)
            || !kind.selected.is_empty();
        is_needed.then(|| Matching::new(resource, &change.key, change.labels()))
    }

    /// The matching of a changed namespace with the rules that select namespaces; `None`: it concerns no parent.
    pub fn matching_namespaces<W>(&self, change: &PendingChange<W>) -> Option<NamespaceMatching> {
        let is_needed = change.sides.len() > 1 && self.select_namespaces();
        is_needed.then(|| NamespaceMatching::new(&change.sides))
    }
}

impl Default for RelatedIndex {
    fn default() -> Self {
        Self::new(false, usize::MAX)
    }
}

impl KindIndex {
    /// The parents whose rules name the object in this namespace, or in none.
    fn named(&self, name: &Arc<str>, namespace: Option<&Arc<str>>) -> impl Iterator<Item = Key> {
        let (name, namespace) = (Arc::clone(name), namespace.cloned());
        let first = (Arc::clone(&name), namespace.clone(), Key::new("", ""));
        let here =
            self.names.range(first..).take_while(move |(one, its, _)| *one == name && *its == namespace);
        here.map(|(.., parent)| parent.clone())
    }

    fn add(&mut self, parent: &Key, finds: &Finds) {
        match finds {
            Finds::Names { namespace, names } => {
                let entry = |name| (Arc::clone(name), namespace.clone(), parent.clone());
                self.names.extend(names.iter().map(entry));
            }
            Finds::Labels { place, labels } => match place {
                RuleScope::Anywhere => &mut self.anywhere,
                RuleScope::Namespace(namespace) => self.within.entry(Arc::clone(namespace)).or_default(),
                RuleScope::Namespaces(selector) => self.selected.entry(selector.clone()).or_default(),
            }
            .insert(labels, parent),
        }
    }

    fn take_out(&mut self, parent: &Key, finds: &Finds) {
        match finds {
            Finds::Names { namespace, names } => {
                for name in names.iter() {
                    self.names.remove(&(Arc::clone(name), namespace.clone(), parent.clone()));
                }
            }
            Finds::Labels { place: RuleScope::Anywhere, labels } => {
                self.anywhere.remove(labels, parent);
            }
            Finds::Labels { place: RuleScope::Namespace(namespace), labels } => {
                change_or_remove(&mut self.within, namespace, |all| all.remove(labels, parent));
            }
            Finds::Labels { place: RuleScope::Namespaces(selector), labels } => {
                change_or_remove(&mut self.selected, selector, |all| all.remove(labels, parent));
            }
        }
    }

    fn is_empty(&self) -> bool {
        let maps = self.names.is_empty() && self.within.is_empty() && self.selected.is_empty();
        maps && self.anywhere.is_empty()
    }
}

/// A resource, in one namespace or in all.
pub type StoreScope = (Arc<Resource>, Option<Arc<str>>);

/// Rules come back, and opening a scope costs a list: an unused one stays open for this time.
pub const CLOSE_DELAY: Duration = Duration::from_mins(1);

/// Open stores, by scope. Times are counted from the controller's start.
#[derive(Debug)]
pub struct StoreScopes<T>(BTreeMap<StoreScope, OpenScope<T>>);

#[derive(Debug)]
struct OpenScope<T> {
    what: T,
    /// Since when no rule has used it, as of the last check.
    unused: Option<Duration>,
}

impl<T> Default for StoreScopes<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> StoreScopes<T> {
    /// The store of a scope, marked as used.
    pub fn get(&mut self, place: &StoreScope) -> Option<&T> {
        let open = self.0.get_mut(place)?;
        open.unused = None;
        Some(&open.what)
    }

    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.0.values().map(|open| &open.what)
    }

    pub fn open(&mut self, place: StoreScope, what: T) {
        self.0.insert(place, OpenScope { what, unused: None });
    }

    /// Takes out some, used or not.
    #[must_use]
    pub fn take(&mut self, which: impl Fn(&T) -> bool) -> Vec<T> {
        self.0.extract_if(.., |_, open| which(&open.what)).map(|(_, open)| open.what).collect()
    }

    /// Takes out what has not been used for a while.
    #[must_use]
    pub fn close(&mut self, is_used: impl Fn(&StoreScope) -> bool, now: Duration) -> BTreeMap<StoreScope, T> {
        for (place, open) in &mut self.0 {
            open.unused = if is_used(place) { None } else { open.unused.or(Some(now)) };
        }
        let over =
            |open: &OpenScope<T>| open.unused.is_some_and(|since| now.saturating_sub(since) >= CLOSE_DELAY);
        let closed = self.0.extract_if(.., |_, open| over(open));
        closed.map(|(place, open)| (place, open.what)).collect()
    }
}

#[cfg(test)]
mod scope_tests {
    use super::*;
    use crate::object::testing::resource;

    fn place(namespace: &str) -> StoreScope {
        (resource("v1", "Pod"), Some(namespace.into()))
    }

    fn opened() -> StoreScopes<&'static str> {
        let mut all = StoreScopes::default();
        for namespace in ["m", "n"] {
            all.open(place(namespace), namespace);
        }
        all
    }

    #[test]
    fn a_place_that_no_rule_is_about_is_closed_after_a_while() {
        let (mut all, start) = (opened(), Duration::from_hours(1));
        let mut close = |now| all.close(|used| *used == place("n"), now).into_values().collect::<Vec<_>>();
        assert!(close(start).is_empty());
        assert!(close(start + CLOSE_DELAY / 2).is_empty());
        assert_eq!(close(start + CLOSE_DELAY), ["m"]);
        assert!(close(start + CLOSE_DELAY * 100).is_empty(), "the other one is used");
        assert_eq!(all.get(&place("m")), None);
        assert_eq!(all.get(&place("n")), Some(&"n"));
    }

    #[test]
    fn a_place_is_taken_out_though_it_is_used() {
        let mut all = opened();
        assert_eq!(all.take(|what| *what == "m"), ["m"]);
        assert_eq!(all.get(&place("m")), None);
        assert_eq!(all.get(&place("n")), Some(&"n"));
    }

    #[test]
    fn a_place_that_is_asked_for_again_stays_open() {
        let (mut all, start) = (opened(), Duration::from_hours(1));
        assert!(all.close(|_| false, start).is_empty());
        assert_eq!(all.get(&place("m")), Some(&"m"), "a pass is about to use it");
        assert_eq!(all.close(|_| false, start + CLOSE_DELAY).into_values().collect::<Vec<_>>(), ["n"]);
        assert!(all.close(|_| true, start + CLOSE_DELAY).is_empty());
        assert!(all.close(|_| false, start + CLOSE_DELAY * 2).is_empty());
    }
}
