//! Tests of the index of related rules.

use proptest::prelude::*;

use super::*;
use crate::cache::{Cache, CacheEvent};
use crate::object::cached::CachedObject;
use crate::object::testing::{a, resource};
use crate::related::rule::Names;
use crate::related::selection::{namespaces, select};

fn selector(text: &str) -> Selector {
    Selector::parse(text).unwrap()
}

fn by_name(namespace: Option<&str>, names: &[&str]) -> RelatedRule {
    let names = names.iter().map(|name| Arc::from(*name)).collect::<Names>();
    RelatedRule {
        resource: resource("v1", "Pod"),
        finds: Finds::Names { namespace: namespace.map(Arc::from), names },
    }
}

fn by_label(place: RuleScope, labels: &str) -> RelatedRule {
    RelatedRule { resource: resource("v1", "Pod"), finds: Finds::Labels { place, labels: selector(labels) } }
}

fn pod(key: &str, labels: &str) -> Arc<Object> {
    let pod = a("v1", "Pod", key);
    let labels = labels.split(',').filter_map(|label| label.split_once('='));
    labels.fold(pod, |pod, (key, value)| pod.label(key, value)).object()
}

fn woken(all: &RelatedIndex, before: Option<Arc<Object>>, after: Option<Arc<Object>>) -> Vec<String> {
    let [before, after] = [before, after].map(|side| side.map(Into::into));
    let touched = ObjectChange { before, after };
    let found = all.on_object(&resource("v1", "Pod"), &touched, |_| None);
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn a_label_taken_off_wakes_who_saw_the_object_and_who_sees_it_now() {
    let mut all = RelatedIndex::default();
    all.set(&Key::new("n", "has"), vec![by_label(RuleScope::Anywhere, "app=x")]).unwrap();
    all.set(&Key::new("n", "has-not"), vec![by_label(RuleScope::Anywhere, "!app")]).unwrap();
    all.set(&Key::new("n", "by-name"), vec![by_name(None, &["a"])]).unwrap();
    all.set(&Key::new("n", "other"), vec![by_label(RuleScope::Namespace("m".into()), "")]).unwrap();
    let (with, without) = (|| Some(pod("n/a", "app=x")), || Some(pod("n/a", "")));
    assert_eq!(woken(&all, with(), without()), ["n/by-name", "n/has", "n/has-not"]);
    assert_eq!(woken(&all, with(), with()), ["n/by-name", "n/has"]);
    assert_eq!(woken(&all, without(), None), ["n/by-name", "n/has-not"]);
    assert_eq!(woken(&all, None, Some(pod("m/z", "app=y"))), ["n/other"]);
}

#[test]
fn new_rules_take_the_place_of_the_old_ones() {
    let (mut all, key) = (RelatedIndex::default(), Key::new("n", "p"));
    all.set(&key, vec![by_name(None, &["a", "b"])]).unwrap();
    all.set(&key, vec![by_name(None, &["b"])]).unwrap();
    assert!(woken(&all, None, Some(pod("n/a", ""))).is_empty());
    assert_eq!(woken(&all, None, Some(pod("n/b", ""))), ["n/p"]);
    all.set(&key, Vec::new()).unwrap();
    assert!(all.kinds.is_empty(), "nothing is left behind");
}

#[test]
fn a_scope_is_watched_while_a_rule_may_find_something_there() {
    let pods = |namespace: Option<&str>| (resource("v1", "Pod"), namespace.map(Arc::from));
    let here = || by_label(RuleScope::Namespace("n".into()), "app=x");
    let (one, two) = (Key::new("n", "one"), Key::new("n", "two"));
    for (narrow, place, elsewhere) in
        [(true, pods(Some("n")), pods(None)), (false, pods(None), pods(Some("n")))]
    {
        let mut all = RelatedIndex::new(narrow, usize::MAX);
        all.set(&one, vec![here(), by_name(Some("n"), &["a"]), here()]).unwrap();
        all.set(&two, vec![here()]).unwrap();
        assert_eq!(all.place(&here()), place);
        assert!(all.has_rules_for(&place) && !all.has_rules_for(&elsewhere));
        all.remove(&one);
        assert!(all.has_rules_for(&place));
        all.set(&two, vec![by_label(RuleScope::Namespaces(selector("a=b")), "")]).unwrap();
        assert!(
            all.has_rules_for(&pods(None)) && !all.has_rules_for(&pods(Some("n"))) && all.select_namespaces()
        );
        all.remove(&two);
        assert!(all.places.is_empty() && !all.select_namespaces(), "nothing is left behind");
    }
}

#[test]
fn rules_that_do_not_fit_beside_those_of_others_are_refused_and_fit_once_these_are_gone() {
    let names: Vec<_> = (0..100).map(|number| format!("name-{number}")).collect();
    let rule = by_name(None, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let memory = rule.memory();
    let mut all = RelatedIndex::new(false, 2 * memory);
    let [one, two, three] = ["one", "two", "three"].map(|name| Key::new("n", name));
    for parent in [&one, &two, &one] {
        all.set(parent, vec![rule.clone()]).unwrap();
    }
    let few = || vec![by_name(None, &["a"])];
    let refused = RuleMemoryError { memory: few()[0].memory(), others: 2 * memory, max: 2 * memory };
    assert_eq!(all.set(&three, few()), Err(refused));
    assert!(all.set(&one, vec![rule.clone(), rule.clone()]).is_err());
    assert_eq!(woken(&all, None, Some(pod("n/name-7", ""))), ["n/one", "n/two"], "what was there stays");
    all.remove(&one);
    assert_eq!(all.set(&three, few()), Ok(()));
    assert_eq!(woken(&all, None, Some(pod("n/name-7", ""))), ["n/two"]);
    all.remove(&two);
    all.remove(&three);
    assert_eq!(all.memory(), 0);
}

/// The parents that a changed namespace concerns, found in small slices.
fn on_namespace(all: &RelatedIndex, touched: &ObjectChange) -> BTreeSet<Key> {
    let change = PendingChange::<()>::of(touched, None).unwrap();
    let Some(mut matching) = all.matching_namespaces(&change) else { return BTreeSet::new() };
    let mut found = BTreeSet::new();
    loop {
        let is_last = matching.step(all, 2);
        for parent in std::mem::take(&mut matching.found) {
            assert!(found.insert(parent), "it is found a second time");
        }
        if is_last {
            return found;
        }
    }
}

#[test]
fn a_slice_of_a_namespaces_matching_is_bounded_whatever_the_rules_are() {
    let (mut same, mut different) = (RelatedIndex::default(), RelatedIndex::default());
    let rule = |team: &str| by_label(RuleScope::Namespaces(selector(team)), "app=x");
    for number in 0..10_000 {
        same.set(&Key::new("n", &format!("p{number}")), vec![rule("team=x")]).unwrap();
    }
    let many = (0..10_000).map(|number| rule(&format!("team=x{number}"))).collect();
    different.set(&Key::new("n", "p"), many).unwrap();
    let team = |team: &str| Some(a("v1", "Namespace", "m").label("team", team).object().into());
    let touched = ObjectChange { before: team("x"), after: team("y") };
    let change = PendingChange::<()>::of(&touched, None).unwrap();
    for (all, concerned) in [(same, 10_000), (different, 0)] {
        let mut matching = all.matching_namespaces(&change).unwrap();
        let (mut slices, mut found) = (1, 0);
        while !matching.step(&all, 100) {
            assert!(matching.found.len() <= 100, "{} in one slice", matching.found.len());
            found += std::mem::take(&mut matching.found).len();
            slices += 1;
        }
        assert_eq!(found + matching.found.len(), concerned);
        assert!(slices >= 100, "{slices} slices");
    }
}

#[test]
fn parents_that_change_between_two_slices_hide_no_other() {
    let mut all = RelatedIndex::default();
    let rule = || vec![by_label(RuleScope::Namespaces(selector("team=x")), "app=x")];
    let keys: Vec<_> = (0..6).map(|number| Key::new("n", &format!("p{number}"))).collect();
    for key in &keys {
        all.set(key, rule()).unwrap();
    }
    let team = |team: &str| Some(a("v1", "Namespace", "m").label("team", team).object().into());
    let touched = ObjectChange { before: team("y"), after: team("x") };
    let mut matching = all.matching_namespaces(&PendingChange::<()>::of(&touched, None).unwrap()).unwrap();
    assert!(!matching.step(&all, 4));
    // The one that is next, and one that has been looked at.
    let next = keys.iter().find(|key| !matching.found.contains(*key)).unwrap();
    all.remove(next);
    all.remove(&keys[0]);
    while !matching.step(&all, 4) {}
    assert_eq!(matching.found, keys.iter().filter(|key| *key != next).cloned().collect());
}

#[test]
fn a_namespace_wakes_who_selected_it_or_selects_it_now() {
    let mut all = RelatedIndex::default();
    let rule = |selector_of| by_label(RuleScope::Namespaces(selector(selector_of)), "app=x");
    all.set(&Key::new("n", "x"), vec![rule("team=x")]).unwrap();
    all.set(&Key::new("n", "y"), vec![rule("team=y")]).unwrap();
    all.set(&Key::new("n", "any"), vec![rule("")]).unwrap();
    let team = |team: &str| Some(a("v1", "Namespace", "m").label("team", team).cached());
    let woken = |before, after| -> Vec<String> {
        on_namespace(&all, &ObjectChange { before, after }).iter().map(ToString::to_string).collect()
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
        let mine = by_label(RuleScope::Anywhere, &format!("for={name}"));
        all.set(&Key::new("n", &name), vec![by_name(Some("n"), &[&name]), mine]).unwrap();
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
        Just(RuleScope::Anywhere),
        namespace().prop_map(RuleScope::Namespace),
        any_selector().prop_map(RuleScope::Namespaces),
    ];
    let finds = prop_oneof![
        (prop::option::of(namespace()), names)
            .prop_map(|(namespace, names)| Finds::Names { namespace, names: names.into_iter().collect() }),
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

    /// Objects that a parent sees, as its reconcile would select them.
    fn seen(&self, parent: &Key) -> BTreeSet<(Arc<Resource>, Key)> {
        let mut seen = BTreeSet::new();
        for rule in self.rules.get(parent).into_iter().flatten() {
            let within = rule.namespace_selector().map(|selector| namespaces(selector, &self.namespaces));
            let Some(index) = self.kinds.get(&rule.resource) else { continue };
            let found = select(&rule.finds, index, &within.unwrap_or_default());
            seen.extend(found.iter().map(|object| (Arc::clone(&rule.resource), object.key.clone())));
        }
        seen
    }
}

proptest! {
    /// An event finds exactly the parents with a matching rule, and all parents whose related objects it changes.
    #[test]
    fn an_event_finds_exactly_the_parents_whose_rules_match(steps in prop::collection::vec(any_step(), 0..40)) {
        let mut world = World::default();
        for step in steps {
            let before: BTreeMap<_, _> = world.rules.keys().map(|key| (key.clone(), world.seen(key))).collect();
            let found = match step {
                Step::Rules(parent, rules) => {
                    let key = Key::new("n", &parent.to_string());
                    if let Some(rules) = rules {
                        world.all.set(&key, rules.clone()).unwrap();
                        world.rules.insert(key, rules);
                    } else {
                        world.all.remove(&key);
                        world.rules.remove(&key);
                    }
                    let rules = world.rules.values().flatten();
                    prop_assert_eq!(world.all.memory(), rules.map(RelatedRule::memory).sum::<usize>());
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
                    let namespace = |name: &str| world.namespaces.get(&Key::new("", name)).and_then(CachedObject::whole).cloned();
                    let found = world.all.on_object(&resource, &touched, namespace);
                    let matches = |rule: &RelatedRule| {
                        let sides = [&touched.before, &touched.after];
                        rule.resource == resource && sides.into_iter().flatten().any(|object| rule.matches(object, namespace(&object.key.namespace).as_deref().map(|found| &**found)))
                    };
                    let asked = world.rules.iter().filter(|(_, rules)| rules.iter().any(matches));
                    prop_assert_eq!(&found, &asked.map(|(key, _)| key.clone()).collect());
                    found
                }
                Step::Namespace(name, labels) => {
                    let event = world.event("Namespace", name, labels);
                    let Some(touched) = world.namespaces.apply(event).pop() else { continue };
                    let found = on_namespace(&world.all, &touched);
                    let is_selected = |rule: &RelatedRule, side: &Option<CachedObject>| {
                        let selector = rule.namespace_selector();
                        selector.is_some_and(|all| side.as_ref().is_some_and(|object| all.matches(&object.labels)))
                    };
                    let changes = |rule: &RelatedRule| is_selected(rule, &touched.before) != is_selected(rule, &touched.after);
                    let asked = world.rules.iter().filter(|(_, rules)| rules.iter().any(changes));
                    prop_assert_eq!(&found, &asked.map(|(key, _)| key.clone()).collect());
                    found
                }
            };
            for (parent, before) in before {
                prop_assert!(found.contains(&parent) || before == world.seen(&parent), "{parent} sees a change unawares");
            }
        }
    }
}
