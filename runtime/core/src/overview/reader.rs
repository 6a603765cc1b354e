//! Which parents of a controller fail and why, what others wait for, and which ones take longest: read from the latest trace of
//! each.

use std::collections::BTreeMap;

use crate::object::id::ObjectId;
use crate::overview::{NamedParents, ParentGroup, SlowParent};
use crate::trace::{LeftChild, ReconcileTrace, TraceEnd, TracedStep};

/// Groups that are shown of each sort.
const MAX_GROUPS: usize = 20;

/// Groups with a message of their own. A parent with one more message is counted in the group of other reasons.
const MAX_DISTINCT: usize = 1000;

/// Parents that a group names.
pub const MAX_NAMED: usize = 10;

/// Parents that are shown as the slowest.
const MAX_SLOWEST: usize = 5;

/// Parents that fail, with the category.
pub type FailingParents = BTreeMap<ObjectId, &'static str>;

/// Groups by category and message.
#[derive(Default)]
struct Groups(BTreeMap<(String, String), ParentGroup>);

/// Reads the traces of a controller's parents, one by one: the latest of each parent.
#[derive(Default)]
pub struct ParentReader {
    failing: Groups,
    waiting: Groups,
    slowest: Vec<SlowParent>,
}

impl ParentReader {
    /// `failing`: the parents that fail, with the category. Those that are read are taken out.
    pub fn read(&mut self, parent: &ObjectId, trace: &ReconcileTrace, failing: &mut FailingParents) {
        if let Some(category) = failing.remove(parent) {
            // Those who may list the parents may not list all that is related to them.
            let message = trace.public_reason().unwrap_or_default();
            self.failing.add(parent, category, message, &trace.began);
        } else if let (TraceEnd::Again(_), Some(why)) = (&trace.end, trace.public_reason()) {
            self.waiting.add(parent, "", why, &trace.began);
        }
        for why in left(&trace.steps) {
            self.waiting.add(parent, "", &why, &trace.began);
        }
        let slow =
            SlowParent { parent: parent.to_string(), took_us: trace.took_us, began: trace.began.clone() };
        let place = self.slowest.partition_point(|other| other.took_us >= slow.took_us);
        self.slowest.insert(place, slow);
        self.slowest.truncate(MAX_SLOWEST);
    }

    /// `failing`: the parents that fail and have no trace.
    pub fn end(mut self, failing: &FailingParents) -> NamedParents {
        for (parent, category) in failing {
            self.failing.add(parent, category, "", "");
        }
        NamedParents {
            failing: self.failing.largest(),
            throttled: Vec::new(),
            waiting: self.waiting.largest(),
            slowest: self.slowest,
        }
    }
}

/// Why children were left though they are not as wanted: each reason once.
fn left(steps: &[TracedStep]) -> Vec<String> {
    let planned = steps.iter().rev().find_map(|step| match step {
        TracedStep::Planned { left, .. } => Some(left),
        _ => None,
    });
    let why = |child: &LeftChild| format!("a child of the kind {}: {}", child.object.kind, child.why);
    let mut whys: Vec<_> = planned.into_iter().flatten().map(why).collect();
    whys.sort_unstable();
    whys.dedup();
    whys
}

impl Groups {
    /// `began`: when the reconcile with the message began.
    fn add(&mut self, parent: &ObjectId, category: &str, message: &str, began: &str) {
        let alike = (category.to_owned(), without_name(message, parent));
        let is_one_of_many = self.0.len() >= MAX_DISTINCT && !self.0.contains_key(&alike);
        let alike = if is_one_of_many { (category.to_owned(), "\0".to_owned()) } else { alike };
        let group = self.0.entry(alike).or_insert_with_key(|(category, _)| ParentGroup {
            category: category.clone(),
            message: if is_one_of_many { "other reasons".to_owned() } else { message.to_owned() },
            ..ParentGroup::default()
        });
        group.count += 1;
        // In one format, and in UTC.
        if *began > *group.last {
            began.clone_into(&mut group.last);
        }
        if group.parents.len() < MAX_NAMED {
            group.parents.push(parent.to_string());
        }
    }

    fn largest(self) -> Vec<ParentGroup> {
        let mut all: Vec<_> = self.0.into_values().collect();
        all.sort_by_key(|group| std::cmp::Reverse(group.count));
        let others = all.split_off(all.len().min(MAX_GROUPS));
        all.extend(others.into_iter().reduce(|sum, other| ParentGroup {
            count: sum.count + other.count,
            category: String::new(),
            message: "other reasons".to_owned(),
            last: sum.last.clone().max(other.last),
            ..sum
        }));
        all
    }
}

/// A message as it would be of another parent: most name theirs.
fn without_name(message: &str, ObjectId { key, .. }: &ObjectId) -> String {
    // A name without a namespace may be a part of any word.
    let place = if key.namespace.is_empty() { format!("{:?}", &*key.name) } else { key.to_string() };
    message.replace(&place, "…").replace(&format!("\"{}\"", key.name), "\"…\"")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::object::id::{Gvk, Key, Resource};
    use crate::trace::TracedObject;

    fn id(name: &str) -> ObjectId {
        let gvk = Gvk::new("example.com/v1", "Greeting");
        let resource = Resource { gvk, plural: "greetings".into(), namespaced: true, has_status: true };
        ObjectId { resource: Arc::new(resource), key: Key::new("n", name) }
    }

    fn object(name: &str) -> TracedObject {
        let ObjectId { resource, key } = id(name);
        TracedObject::new(&resource, &key)
    }

    fn read(reader: &mut ParentReader, trace: &ReconcileTrace, failing: &mut FailingParents) {
        reader.read(&id(&trace.parent.name), trace, failing);
    }

    fn trace(parent: &str, took_us: u64, end: TraceEnd) -> ReconcileTrace {
        ReconcileTrace {
            controller: "CompositeController c".to_owned(),
            parent: object(parent),
            generation: 1,
            resource_version: "1".to_owned(),
            began: "2026-01-01T00:00:00.000Z".to_owned(),
            took_us,
            cause: "first reconcile".to_owned(),
            end,
            ..ReconcileTrace::default()
        }
    }

    fn failing(names: &[&str]) -> FailingParents {
        names.iter().map(|name| (id(name), "HookTrap")).collect()
    }

    #[test]
    fn parents_that_fail_are_grouped_by_their_message() {
        let mut fail = failing(&["a", "b", "c", "lost"]);
        let mut reader = ParentReader::default();
        for name in ["a", "b"] {
            let message = format!("create ConfigMap n/{name}: configmaps \"{name}\" is forbidden");
            read(&mut reader, &trace(name, 1, TraceEnd::Failed(message)), &mut fail);
        }
        read(&mut reader, &trace("c", 1, TraceEnd::Failed("unreachable".to_owned())), &mut fail);
        // It failed when it was reconciled last, and does no longer.
        read(&mut reader, &trace("d", 1, TraceEnd::Failed("unreachable".to_owned())), &mut fail);
        let found = reader.end(&fail).failing;
        let counts: Vec<_> = found.iter().map(|group| (group.count, group.parents.join(" "))).collect();
        let expected = [(2, "Greeting n/a Greeting n/b"), (1, "Greeting n/lost"), (1, "Greeting n/c")]
            .map(|(count, it)| (count, it.to_owned()));
        assert_eq!(counts, expected);
        assert_eq!(found[0].message, "create ConfigMap n/a: configmaps \"a\" is forbidden");
        assert_eq!((&*found[1].message, &*found[1].category), ("", "HookTrap"));
    }

    #[test]
    fn no_group_names_a_related_object() {
        let (mut reader, mut fail) = (ParentReader::default(), failing(&["a"]));
        for (name, end) in [("a", TraceEnd::Failed as fn(String) -> TraceEnd), ("b", TraceEnd::Again)] {
            let mut one = trace(name, 1, end("Secret n/token: no right".to_owned()));
            one.related_failure = vec![object("token").reach()];
            read(&mut reader, &one, &mut fail);
        }
        let NamedParents { failing, waiting, .. } = reader.end(&fail);
        let hidden = "the deletion of a related object failed";
        assert_eq!([&*failing[0].message, &*waiting[0].message], [hidden; 2]);
    }

    #[test]
    fn a_group_has_the_time_of_its_latest_reconcile() {
        let mut reader = ParentReader::default();
        let mut fail = failing(&["a", "b", "c", "lost"]);
        for (name, hour) in [("a", "09"), ("b", "11"), ("c", "10")] {
            let mut one = trace(name, 1, TraceEnd::Failed("unreachable".to_owned()));
            one.began = format!("2026-01-01T{hour}:00:00.000Z");
            read(&mut reader, &one, &mut fail);
        }
        let found = reader.end(&fail).failing;
        let last: Vec<_> = found.iter().map(|group| (group.count, &*group.last)).collect();
        assert_eq!(last, [(3, "2026-01-01T11:00:00.000Z"), (1, "")]);
    }

    #[test]
    fn what_waits_is_told_with_its_reason() {
        let mut reader = ParentReader::default();
        let held = LeftChild { object: object("child"), why: "it is being deleted".to_owned() };
        let planned = |left| TracedStep::Planned { writes: Vec::new(), left, unchanged: 0, left_out: 0 };
        let mut one = trace("a", 1, TraceEnd::Unchanged);
        one.steps = vec![planned(vec![held.clone(), held])];
        read(&mut reader, &one, &mut failing(&[]));
        read(
            &mut reader,
            &trace("b", 1, TraceEnd::Again("another client was faster".to_owned())),
            &mut failing(&[]),
        );
        // The plan that counts is the latest of a reconcile.
        one.parent = object("c");
        one.steps.push(planned(Vec::new()));
        read(&mut reader, &one, &mut failing(&[]));
        let found = reader.end(&failing(&[])).waiting;
        let said: Vec<_> = found.iter().map(|it| (it.count, &*it.message, it.parents.join(" "))).collect();
        let expected = [
            (1, "a child of the kind Greeting: it is being deleted", "Greeting n/a".to_owned()),
            (1, "another client was faster", "Greeting n/b".to_owned()),
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn the_slowest_come_first() {
        let mut reader = ParentReader::default();
        for took in [3, 9, 1, 7, 5, 8, 2] {
            read(&mut reader, &trace(&took.to_string(), took, TraceEnd::Unchanged), &mut failing(&[]));
        }
        let slowest: Vec<_> = reader.end(&failing(&[])).slowest.into_iter().map(|it| it.took_us).collect();
        assert_eq!(slowest, [9, 8, 7, 5, 3]);
    }

    #[test]
    fn groups_and_their_names_are_bounded() {
        let mut groups = Groups::default();
        for number in 0..MAX_DISTINCT + 500 {
            groups.add(&id(&number.to_string()), "HookTrap", &format!("error {number}"), "");
        }
        (0..50).for_each(|number| groups.add(&id(&format!("x{number}")), "HookTrap", "same", ""));
        assert_eq!(groups.0.len(), MAX_DISTINCT + 1);
        let found = groups.largest();
        assert_eq!(found.len(), MAX_GROUPS + 1);
        assert_eq!((found[0].count, found[0].parents.len()), (550, MAX_NAMED));
        assert_eq!(found.iter().map(|group| group.count).sum::<usize>(), MAX_DISTINCT + 550);
    }
}
