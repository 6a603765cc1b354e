//! Which parents a change of an object concerns, found from the object and not by asking every parent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cache::label_index::SelectorIndex;
use crate::cache::{ObjectChange, change_or_remove, remove_from};
use crate::object::Object;
use crate::object::id::{Key, Resource};
use crate::object::selector::Selector;
use crate::related::rule::{Finds, Place, RelatedRule};
use crate::related::scopes;

/// The rules of a controller's parents.
///
/// # Guarantees
/// An event finds exactly the parents that have a rule which finds the object as it was or as it is. It looks at the
/// rules that name the object, and at each different selector once.
#[derive(Debug, Default)]
pub struct RelatedIndex {
    parents: BTreeMap<Key, Vec<RelatedRule>>,
    kinds: BTreeMap<Arc<Resource>, Kind>,
    /// So many rules look there.
    places: BTreeMap<scopes::Place, usize>,
    narrow: bool,
}

type Parents = BTreeSet<Key>;

/// Whom the objects of one kind concern.
#[derive(Debug, Default)]
struct Kind {
    /// By name and by namespace, where the rule gives one.
    names: BTreeMap<Arc<str>, BTreeMap<Option<Arc<str>>, Parents>>,
    anywhere: SelectorIndex,
    within: BTreeMap<Arc<str>, SelectorIndex>,
    /// By the selector of namespaces.
    selected: BTreeMap<Selector, SelectorIndex>,
}

impl RelatedIndex {
    /// `narrow`: a rule that may find objects of one namespace alone looks nowhere else.
    pub fn new(narrow: bool) -> Self {
        Self { narrow, ..Self::default() }
    }

    /// Where a rule's objects are looked for.
    pub fn place(&self, rule: &RelatedRule) -> scopes::Place {
        (Arc::clone(&rule.resource), rule.reach().filter(|_| self.narrow).cloned())
    }

    /// Whether there is a rule that looks there.
    pub fn look_at(&self, place: &scopes::Place) -> bool {
        self.places.contains_key(place)
    }

    /// Whether there is a rule that selects namespaces.
    pub fn select_namespaces(&self) -> bool {
        self.kinds.values().any(|kind| !kind.selected.is_empty())
    }

    /// What a parent asks for from now on, in place of what it asked for before.
    pub fn set(&mut self, parent: &Key, rules: Vec<RelatedRule>) {
        if self.parents.get(parent).map_or(&[][..], Vec::as_slice) == rules {
            return;
        }
        self.remove(parent);
        for rule in &rules {
            self.kinds.entry(Arc::clone(&rule.resource)).or_default().add(parent, &rule.finds);
            *self.places.entry(self.place(rule)).or_default() += 1;
        }
        self.parents.insert(parent.clone(), rules);
    }

    /// The parent is gone, or no longer this controller's.
    pub fn remove(&mut self, parent: &Key) {
        for rule in self.parents.remove(parent).unwrap_or_default() {
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
        let mut found = BTreeSet::new();
        let Some(kind) = self.kinds.get(resource) else {
            return found;
        };
        for object in sides(touched) {
            let Key { namespace: place, name } = &object.key;
            if let Some(places) = kind.names.get(name) {
                let here = [places.get(&None), places.get(&Some(Arc::clone(place)))];
                found.extend(here.into_iter().flatten().flatten().cloned());
            }
            let mut selectors: Vec<_> =
                std::iter::once(&kind.anywhere).chain(kind.within.get(place)).collect();
            if !kind.selected.is_empty()
                && let Some(namespace) = namespace(place)
            {
                let here = kind.selected.iter().filter(|(selector, _)| selector.matches(&namespace.labels));
                selectors.extend(here.map(|(_, all)| all));
            }
            found.extend(selectors.iter().flat_map(|all| all.matching(&object.labels)).cloned());
        }
        found
    }

    /// A namespace changed: whoever selects namespaces and selected it before but not now, or the other way round.
    pub fn on_namespace(&self, touched: &ObjectChange) -> BTreeSet<Key> {
        let selected = |selector: &Selector, side: &Option<Arc<Object>>| {
            side.as_ref().is_some_and(|namespace| selector.matches(&namespace.labels))
        };
        let all = self.kinds.values().flat_map(|kind| &kind.selected);
        let flipped = all.filter(|(selector, _)| {
            selected(selector, &touched.before) != selected(selector, &touched.after)
        });
        flipped.flat_map(|(_, parents)| parents.all()).cloned().collect()
    }
}

/// The object as it was and as it is, where that makes a difference to selectors.
fn sides(touched: &ObjectChange) -> impl Iterator<Item = &Arc<Object>> {
    let after = touched.after.as_ref();
    let before = touched.before.as_ref();
    let before = before.filter(|before| after.is_none_or(|after| before.labels != after.labels));
    after.into_iter().chain(before)
}

impl Kind {
    fn add(&mut self, parent: &Key, finds: &Finds) {
        match finds {
            Finds::Names { namespace, names } => {
                for name in names {
                    let places = self.names.entry(Arc::clone(name)).or_default();
                    places.entry(namespace.clone()).or_default().insert(parent.clone());
                }
            }
            Finds::Labels { place, labels } => match place {
                Place::Anywhere => &mut self.anywhere,
                Place::Namespace(namespace) => self.within.entry(Arc::clone(namespace)).or_default(),
                Place::Namespaces(selector) => self.selected.entry(selector.clone()).or_default(),
            }
            .insert(labels, parent),
        }
    }

    fn take_out(&mut self, parent: &Key, finds: &Finds) {
        match finds {
            Finds::Names { namespace, names } => {
                for name in names {
                    change_or_remove(&mut self.names, name, |places| {
                        change_or_remove(places, namespace, |parents| remove_from(parents, parent))
                    });
                }
            }
            Finds::Labels { place: Place::Anywhere, labels } => {
                self.anywhere.remove(labels, parent);
            }
            Finds::Labels { place: Place::Namespace(namespace), labels } => {
                change_or_remove(&mut self.within, namespace, |all| all.remove(labels, parent));
            }
            Finds::Labels { place: Place::Namespaces(selector), labels } => {
                change_or_remove(&mut self.selected, selector, |all| all.remove(labels, parent));
            }
        }
    }

    fn is_empty(&self) -> bool {
        let maps = self.names.is_empty() && self.within.is_empty() && self.selected.is_empty();
        maps && self.anywhere.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cache::{Cache, CacheEvent};
    use crate::object::testing::{a, resource};
    use crate::related::rule::namespaces;

    fn selector(text: &str) -> Selector {
        Selector::parse(text).unwrap()
    }

    fn by_name(namespace: Option<&str>, names: &[&str]) -> RelatedRule {
        let names = names.iter().map(|name| Arc::from(*name)).collect();
        RelatedRule {
            resource: resource("v1", "Pod"),
            finds: Finds::Names { namespace: namespace.map(Arc::from), names },
        }
    }

    fn by_label(place: Place, labels: &str) -> RelatedRule {
        RelatedRule {
            resource: resource("v1", "Pod"),
            finds: Finds::Labels { place, labels: selector(labels) },
        }
    }

    fn pod(key: &str, labels: &str) -> Arc<Object> {
        let pod = a("v1", "Pod", key);
        let labels = labels.split(',').filter_map(|label| label.split_once('='));
        labels.fold(pod, |pod, (key, value)| pod.label(key, value)).object()
    }

    fn woken(all: &RelatedIndex, before: Option<Arc<Object>>, after: Option<Arc<Object>>) -> Vec<String> {
        let touched = ObjectChange { before, after };
        let found = all.on_object(&resource("v1", "Pod"), &touched, |_| None);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_label_taken_off_wakes_who_saw_the_object_and_who_sees_it_now() {
        let mut all = RelatedIndex::default();
        all.set(&Key::new("n", "has"), vec![by_label(Place::Anywhere, "app=x")]);
        all.set(&Key::new("n", "has-not"), vec![by_label(Place::Anywhere, "!app")]);
        all.set(&Key::new("n", "by-name"), vec![by_name(None, &["a"])]);
        all.set(&Key::new("n", "other"), vec![by_label(Place::Namespace("m".into()), "")]);
        let (with, without) = (|| Some(pod("n/a", "app=x")), || Some(pod("n/a", "")));
        assert_eq!(woken(&all, with(), without()), ["n/by-name", "n/has", "n/has-not"]);
        assert_eq!(woken(&all, with(), with()), ["n/by-name", "n/has"]);
        assert_eq!(woken(&all, without(), None), ["n/by-name", "n/has-not"]);
        assert_eq!(woken(&all, None, Some(pod("m/z", "app=y"))), ["n/other"]);
    }

    #[test]
    fn new_rules_take_the_place_of_the_old_ones() {
        let (mut all, key) = (RelatedIndex::default(), Key::new("n", "p"));
        all.set(&key, vec![by_name(None, &["a", "b"])]);
        all.set(&key, vec![by_name(None, &["b"])]);
        assert!(woken(&all, None, Some(pod("n/a", ""))).is_empty());
        assert_eq!(woken(&all, None, Some(pod("n/b", ""))), ["n/p"]);
        all.set(&key, Vec::new());
        assert!(all.kinds.is_empty(), "nothing is left behind");
    }

    #[test]
    fn a_place_is_looked_at_as_long_as_a_rule_may_find_something_there() {
        let pods = |namespace: Option<&str>| (resource("v1", "Pod"), namespace.map(Arc::from));
        let here = || by_label(Place::Namespace("n".into()), "app=x");
        let (one, two) = (Key::new("n", "one"), Key::new("n", "two"));
        for (narrow, place, elsewhere) in
            [(true, pods(Some("n")), pods(None)), (false, pods(None), pods(Some("n")))]
        {
            let mut all = RelatedIndex::new(narrow);
            all.set(&one, vec![here(), by_name(Some("n"), &["a"]), here()]);
            all.set(&two, vec![here()]);
            assert_eq!(all.place(&here()), place);
            assert!(all.look_at(&place) && !all.look_at(&elsewhere));
            all.remove(&one);
            assert!(all.look_at(&place));
            all.set(&two, vec![by_label(Place::Namespaces(selector("a=b")), "")]);
            assert!(all.look_at(&pods(None)) && !all.look_at(&pods(Some("n"))) && all.select_namespaces());
            all.remove(&two);
            assert!(all.places.is_empty() && !all.select_namespaces(), "nothing is left behind");
        }
    }

    #[test]
    fn a_namespace_wakes_who_selected_it_or_selects_it_now() {
        let mut all = RelatedIndex::default();
        let rule = |selector_of| by_label(Place::Namespaces(selector(selector_of)), "app=x");
        all.set(&Key::new("n", "x"), vec![rule("team=x")]);
        all.set(&Key::new("n", "y"), vec![rule("team=y")]);
        all.set(&Key::new("n", "any"), vec![rule("")]);
        let team = |team: &str| Some(a("v1", "Namespace", "m").label("team", team).object());
        let woken = |before, after| -> Vec<String> {
            all.on_namespace(&ObjectChange { before, after }).iter().map(ToString::to_string).collect()
        };
        assert_eq!(woken(team("x"), team("y")), ["n/x", "n/y"]);
        assert_eq!(woken(team("x"), team("z")), ["n/x"]);
        assert!(woken(team("z"), team("w")).is_empty());
        assert_eq!(woken(None, team("y")), ["n/any", "n/y"]);
    }

    #[test]
    fn an_event_costs_no_more_because_others_name_other_objects() {
        let mut all = RelatedIndex::default();
        let parents = 20_000;
        for number in 0..parents {
            let name = format!("p{number}");
            let mine = by_label(Place::Anywhere, &format!("for={name}"));
            all.set(&Key::new("n", &name), vec![by_name(Some("n"), &[&name]), mine]);
        }
        // Asking every parent would take 400 million steps, and minutes.
        for number in 0..parents {
            let name = format!("p{number}");
            assert_eq!(woken(&all, None, Some(pod("n/x", &format!("for={name}")))), [format!("n/{name}")]);
        }
    }

    fn any_selector() -> impl Strategy<Value = Selector> {
        prop::sample::select(vec!["", "a=1", "a=2", "a=1,b", "a in (1,2)", "!a", "a!=1,b=1", "b"])
            .prop_map(selector)
    }

    fn any_rule() -> impl Strategy<Value = RelatedRule> {
        let namespace = || prop::sample::select(vec!["", "n", "m"]).prop_map(Arc::<str>::from);
        let names =
            prop::collection::btree_set(prop::sample::select(vec!["a", "b", "c"]).prop_map(Arc::from), 1..3);
        let place = prop_oneof![
            Just(Place::Anywhere),
            namespace().prop_map(Place::Namespace),
            any_selector().prop_map(Place::Namespaces),
        ];
        let finds = prop_oneof![
            (prop::option::of(namespace()), names)
                .prop_map(|(namespace, names)| Finds::Names { namespace, names }),
            (place, any_selector()).prop_map(|(place, labels)| Finds::Labels { place, labels }),
        ];
        let kind = prop::sample::select(vec!["Pod", "Secret"]).prop_map(|kind| resource("v1", kind));
        (kind, finds).prop_map(|(resource, finds)| RelatedRule { resource, finds })
    }

    #[derive(Debug, Clone)]
    enum Step {
        Rules(u8, Option<Vec<RelatedRule>>),
        Object(&'static str, &'static str, &'static str, Option<&'static str>),
        Namespace(&'static str, Option<&'static str>),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let labels =
            || prop::option::weighted(0.8, prop::sample::select(vec!["", "a=1", "a=2", "b=1", "a=1,b=1"]));
        prop_oneof![
            (0..4_u8, prop::option::of(prop::collection::vec(any_rule(), 0..4)))
                .prop_map(|(parent, rules)| Step::Rules(parent, rules)),
            (
                prop::sample::select(vec!["Pod", "Secret"]),
                prop::sample::select(vec!["n", "m", "o"]),
                prop::sample::select(vec!["a", "b", "d"]),
                labels()
            )
                .prop_map(|(kind, namespace, name, labels)| Step::Object(kind, namespace, name, labels)),
            (prop::sample::select(vec!["n", "m"]), labels())
                .prop_map(|(name, labels)| Step::Namespace(name, labels)),
        ]
    }

    /// The interests and what they are about, and the rules once more to ask them one by one.
    #[derive(Default)]
    struct World {
        all: RelatedIndex,
        rules: BTreeMap<Key, Vec<RelatedRule>>,
        kinds: BTreeMap<Arc<Resource>, Cache>,
        namespaces: Cache,
        versions: u64,
    }

    impl World {
        fn event(&mut self, kind: &str, key: &str, labels: Option<&str>) -> CacheEvent {
            self.versions += 1;
            let labels_of = labels.unwrap_or_default().split(',').filter_map(|label| label.split_once('='));
            let object = labels_of.fold(a("v1", kind, key), |object, (key, value)| object.label(key, value));
            let object = (*object.version(&self.versions.to_string()).object()).clone();
            if labels.is_some() { CacheEvent::Applied(object) } else { CacheEvent::Deleted(object) }
        }

        /// What a parent sees, as its pass would select it.
        fn seen(&self, parent: &Key) -> BTreeSet<(Arc<Resource>, Key)> {
            let mut seen = BTreeSet::new();
            for rule in self.rules.get(parent).into_iter().flatten() {
                let within = rule.namespace_selector().map(|selector| namespaces(selector, &self.namespaces));
                let Some(index) = self.kinds.get(&rule.resource) else { continue };
                let found = rule.select(index, &within.unwrap_or_default());
                seen.extend(found.iter().map(|object| (Arc::clone(&rule.resource), object.key.clone())));
            }
            seen
        }
    }

    proptest! {
        /// Whatever the parents' rules are and were: an event finds whoever has a rule that matches, and nobody else;
        /// and whoever sees something else after an event is found.
        #[test]
        fn an_event_finds_exactly_the_parents_whose_rules_match(steps in prop::collection::vec(any_step(), 0..40)) {
            let mut world = World::default();
            for step in steps {
                let before: BTreeMap<_, _> = world.rules.keys().map(|key| (key.clone(), world.seen(key))).collect();
                let found = match step {
                    Step::Rules(parent, rules) => {
                        let key = Key::new("n", &parent.to_string());
                        if let Some(rules) = rules {
                            world.all.set(&key, rules.clone());
                            world.rules.insert(key, rules);
                        } else {
                            world.all.remove(&key);
                            world.rules.remove(&key);
                        }
                        prop_assert_eq!(world.all.kinds.is_empty(), world.rules.values().all(Vec::is_empty));
                        let places = world.rules.values().flatten().map(|rule| world.all.place(rule));
                        let places: BTreeSet<_> = places.collect();
                        prop_assert_eq!(world.all.places.keys().cloned().collect::<BTreeSet<_>>(), places);
                        continue;
                    }
                    Step::Object(kind, namespace, name, labels) => {
                        let event = world.event(kind, &format!("{namespace}/{name}"), labels);
                        let resource = resource("v1", kind);
                        let Some(touched) = world.kinds.entry(Arc::clone(&resource)).or_default().apply(event).pop() else { continue };
                        let namespace = |name: &str| world.namespaces.get(&Key::new("", name)).cloned();
                        let found = world.all.on_object(&resource, &touched, namespace);
                        let matches = |rule: &RelatedRule| {
                            let sides = [&touched.before, &touched.after];
                            rule.resource == resource && sides.into_iter().flatten().any(|object| rule.matches(object, namespace(&object.key.namespace).as_deref()))
                        };
                        let asked = world.rules.iter().filter(|(_, rules)| rules.iter().any(matches));
                        prop_assert_eq!(&found, &asked.map(|(key, _)| key.clone()).collect());
                        found
                    }
                    Step::Namespace(name, labels) => {
                        let event = world.event("Namespace", name, labels);
                        let Some(touched) = world.namespaces.apply(event).pop() else { continue };
                        world.all.on_namespace(&touched)
                    }
                };
                for (parent, before) in before {
                    prop_assert!(found.contains(&parent) || before == world.seen(&parent), "{parent} sees a change unawares");
                }
            }
        }
    }
}
