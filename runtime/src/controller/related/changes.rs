//! Changes of related objects, as parents for the queue.
//!
//! Rules about the name or a label of an object are found at once. All other rules, which may be hundreds of thousands,
//! are matched in slices and in turns of their own, so that probes, reconciles and other controllers go on; so are the
//! rules that select namespaces with a namespace whose labels change.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use metahook_core::object::Object;
use metahook_core::object::id::{Key, ObjectId, Resource};
use metahook_core::pacing::lanes::Cause;
use metahook_core::reconcile::trigger::ReconcileCause;
use metahook_core::related::pending::{NextChange, PendingChange};
use metahook_core::related::related_index::{Matching, NamespaceMatching};

use crate::controller::ChangeOrigin;
use crate::controller::heavy_work::Turn;
use crate::controller::related::{RelatedObjects, State};
use crate::store::Writer;
use crate::store::change_queue::ChangeQueue;

/// Requirements of selectors that are looked at under the lock.
const SLICE: usize = 256;

/// Slices of one turn. A matching of fewer needs none: few controllers have so many rules.
const TURN: usize = 16;

/// Finds the parents of each change at once, and leaves the rest to [`match_all`].
pub(super) async fn follow(
    related: Weak<RelatedObjects>,
    resource: Arc<Resource>,
    changes: Arc<ChangeQueue>,
) {
    let rest = Arc::new(ChangeQueue::default());
    tokio::join!(
        async {
            loop {
                let next = changes.next().await;
                let Some(related) = related.upgrade() else { return };
                related.observe(&resource, next, &rest);
                tokio::task::yield_now().await;
            }
        },
        match_all(&related, &resource, &rest),
    );
}

async fn match_all(related: &Weak<RelatedObjects>, resource: &Arc<Resource>, changes: &ChangeQueue) {
    loop {
        let next = changes.next().await;
        let Some(related) = related.upgrade() else { return };
        match next {
            NextChange::OfAnything => related.add_all(resource),
            NextChange::Of(change) => related.match_rest(resource, &change).await,
        }
    }
}

impl RelatedObjects {
    fn observe(&self, resource: &Arc<Resource>, next: NextChange<Writer>, rest: &ChangeQueue) {
        let NextChange::Of(change) = next else { return self.add_all(resource) };
        let (keys, is_done) = {
            let state = self.lock();
            let keys = state.index.led_to(resource, &change);
            let is_done = state.index.matching(resource, &change).is_none()
                && state.matching_namespaces(resource, &change).is_none();
            (keys, is_done)
        };
        self.add_concerned(resource, keys, &change);
        if !is_done {
            rest.push(change);
        }
    }

    async fn match_rest(&self, resource: &Arc<Resource>, change: &PendingChange<Writer>) {
        let namespaces = self.lock().matching_namespaces(resource, change);
        if let Some(mut matching) = namespaces {
            let step = || {
                let is_done = matching.step(&self.lock().index, SLICE);
                self.add_concerned(resource, std::mem::take(&mut matching.found), change);
                is_done
            };
            self.match_in_turns(step).await;
        }
        let rest = self.lock().index.matching(resource, change);
        if let Some(mut matching) = rest {
            self.match_in_turns(|| self.lock().step(&mut matching)).await;
            self.add_concerned(resource, matching.found, change);
        }
    }

    /// Steps until one says that it is the last.
    async fn match_in_turns(&self, mut step: impl FnMut() -> bool) {
        let mut turn: Option<Turn> = None;
        loop {
            for _ in 0..TURN {
                if step() {
                    return;
                }
                match &mut turn {
                    Some(turn) => turn.pause().await,
                    None => tokio::task::yield_now().await,
                }
            }
            // Others had theirs in between.
            drop(turn.take());
            turn = self.heavy_work.take_for_matching().await;
        }
    }

    fn add_concerned(&self, resource: &Arc<Resource>, keys: BTreeSet<Key>, change: &PendingChange<Writer>) {
        let how = if change.ended { "came or went" } else { "changed" };
        // It names no fields: the object before the change is no longer held here.
        self.data.note_cause(&keys, || {
            let object = ObjectId { resource: Arc::clone(resource), key: change.key.clone() };
            let text = format!("{} {} {how}", resource.gvk.kind, object.key);
            ReconcileCause { related: Some(Arc::new(object)), ..text.into() }
        });
        let origin = ChangeOrigin { by: change.by.as_ref(), ended: change.ended };
        self.data.add_concerned(&self.queue, keys, origin, Cause::Related);
    }

    /// Changes were too many to be remembered.
    fn add_all(&self, resource: &Arc<Resource>) {
        let (about_it, selecting) = {
            let state = self.lock();
            let selecting =
                if state.are_namespaces(resource) { state.index.selecting_parents() } else { Vec::new() };
            (state.index.parents_of(resource), selecting)
        };
        for parent in about_it.into_iter().chain(selecting).collect::<BTreeSet<_>>() {
            self.queue.add(parent, Cause::Related);
        }
    }
}

impl State {
    /// Whether rules select objects by this kind.
    fn are_namespaces(&self, resource: &Resource) -> bool {
        self.namespaces.as_ref().is_some_and(|store| *store.resource == *resource)
    }

    fn matching_namespaces(
        &self,
        resource: &Resource,
        change: &PendingChange<Writer>,
    ) -> Option<NamespaceMatching> {
        self.index.matching_namespaces(change).filter(|_| self.are_namespaces(resource))
    }

    fn step(&self, matching: &mut Matching) -> bool {
        let namespace =
            |name: &str| -> Option<Arc<Object>> { self.namespaces.as_ref()?.get(&Key::new("", name)) };
        matching.step(&self.index, namespace, SLICE)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Response;
    use metahook_core::cache::ObjectChange;
    use metahook_core::object::selector::Selector;
    use metahook_core::related::rule::{Finds, RelatedRule, RuleScope};

    use super::*;
    use crate::cluster::fake;
    use crate::controller::reconcile::testing;

    fn change(name: &str, label: &str) -> PendingChange<Writer> {
        let json = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"namespace":"n","name":"{name}","labels":{{"a":"{label}"}}}}}}"#
        );
        let object = Arc::new(Object::parse(&json, None).unwrap());
        PendingChange::of(&ObjectChange { before: None, after: Some(object.into()) }, None).unwrap()
    }

    /// The parents that the changes trigger, each with a selector of labels.
    async fn triggered(rules: Vec<(&str, Vec<String>)>, changes: Vec<PendingChange<Writer>>) -> Vec<String> {
        let related =
            testing::related(fake::answering(|_| Response::builder().status(404).body(String::new()).ok()));
        let resource = testing::resource("v1", "ConfigMap");
        for (parent, selectors) in rules {
            let rule = |selector: &String| {
                let labels = Selector::parse(selector).unwrap();
                let finds = Finds::Labels { place: RuleScope::Anywhere, labels };
                RelatedRule { resource: Arc::clone(&resource), finds }
            };
            let rules = selectors.iter().map(rule).collect();
            related.lock().index.set(&Key::new("n", parent), rules).unwrap();
        }
        let queue = Arc::new(ChangeQueue::default());
        for change in changes {
            queue.push(change);
        }
        let task = tokio::spawn(follow(Arc::downgrade(&related), resource, queue));
        let mut found = BTreeSet::new();
        while let Ok(Some((key, _))) =
            tokio::time::timeout(Duration::from_mins(1), related.queue.next()).await
        {
            found.insert(key.name.to_string());
        }
        task.abort();
        found.into_iter().collect()
    }

    #[tokio::test(start_paused = true)]
    async fn rules_that_no_label_leads_to_are_matched_too_however_many_there_are() {
        let many =
            |last: &str| (0..3 * SLICE * TURN).map(|n| format!("a!=x,a!=y{n}")).chain([last.to_owned()]);
        let none = (0..SLICE).map(|n| format!("a!=x,!b{n},c")).collect();
        let rules = vec![
            ("led-to", vec!["a=x".to_owned()]),
            ("last", many("a!=z").collect()),
            ("excluded", many("!a").collect()),
            ("none", none),
        ];
        assert_eq!(triggered(rules.clone(), vec![change("o", "x")]).await, ["last", "led-to"]);
        assert_eq!(triggered(rules, vec![change("o", "z")]).await, ["excluded", "last"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_namespace_is_matched_in_slices_with_the_rules_that_select_it() {
        let related =
            testing::related(fake::answering(|_| Response::builder().status(404).body(String::new()).ok()));
        let [things, namespaces] = ["ConfigMap", "Namespace"].map(|kind| testing::resource("v1", kind));
        related.lock().namespaces = Some(related.stores.open(&namespaces));
        let parents = 2 * SLICE * TURN;
        let half = u64::try_from(parents / 2).unwrap();
        for number in 0..parents {
            let selected = Selector::parse(if number % 2 == 0 { "a=x" } else { "a=y" }).unwrap();
            let finds = Finds::Labels { place: RuleScope::Namespaces(selected), labels: Selector::default() };
            let rule = RelatedRule { resource: Arc::clone(&things), finds };
            related.lock().index.set(&Key::new("n", &format!("p{number}")), vec![rule]).unwrap();
        }
        let queue = Arc::new(ChangeQueue::default());
        queue.push(change("o", "x"));
        let task = tokio::spawn(follow(Arc::downgrade(&related), namespaces, queue));
        // The first parents are in the queue before the last rule is matched.
        while related.queue.figures().depth == 0 {
            tokio::task::yield_now().await;
        }
        assert!(related.queue.figures().depth < half / 2, "all at once");
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(related.queue.figures().depth, half);
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn after_more_changes_than_are_remembered_all_parents_with_rules_about_the_kind_are_told() {
        let rules = vec![("one", vec!["a=x".to_owned()]), ("other", vec!["a=y,a!=z".to_owned()])];
        let changes = (0..20_000).map(|n| change(&format!("o{n}"), "q")).collect();
        assert_eq!(triggered(rules.clone(), changes).await, ["one", "other"]);
        assert!(triggered(rules, vec![change("o", "q")]).await.is_empty());
    }
}
