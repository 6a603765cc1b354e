//! Shadows of hooks: where what follows from a shadow's answer differs from what follows from the hook's own.

pub mod counts;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::children::Skip;
use crate::children::write_history::PastWrites;
use crate::json::difference::differences;
use crate::object::ChildMap;
use crate::object::id::{Key, ObjectId, Resource};
use crate::reconcile::config::ControllerConfig;
use crate::reconcile::input::ReconcileInput;
use crate::reconcile::plan::{AnswerError, Answers, ReconcilePlan};
use crate::related::rule::RequestedRule;
use crate::shorten;

/// Places in which two answers differ that are kept of them.
const MAX_PLACES: usize = 20;

/// Bytes of a place: names that the cluster's users chose are part of it.
const MAX_PLACE: usize = 200;

/// One request, and the two answers to it.
#[derive(Debug, Clone, Copy)]
pub struct Compared<'a> {
    pub input: &'a ReconcileInput,
    pub children: &'a ChildMap,
    pub past: PastWrites<'a>,
    /// The hook's, and the configuration that it was planned with.
    pub hook: (&'a ControllerConfig, &'a [u8]),
    pub shadow: (&'a ControllerConfig, &'a [u8]),
}

impl Compared<'_> {
    /// The places where the plans differ; empty where the shadow could take the hook's place. `has_room`: asked for the memory
    /// of what has to be read.
    ///
    /// # Errors
    /// Nothing follows from the shadow's answer, or from the hook's.
    pub fn places(&self, has_room: &dyn Fn(usize) -> bool) -> Result<Vec<String>, AnswerError> {
        let plan = |(config, latest): (&ControllerConfig, &[u8])| {
            let answers = Answers { latest, older: &[] };
            config.plan(self.input, self.children, answers, self.past, has_room)
        };
        Ok(places(&plan(self.hook)?, &plan(self.shadow)?))
    }
}

/// A list of places without names of single objects, so that those of many parents are alike.
#[derive(Default)]
struct Places(BTreeSet<String>);

impl Places {
    fn add(&mut self, place: &str) {
        if self.0.len() < MAX_PLACES {
            self.0.insert(shorten(place, MAX_PLACE));
        }
    }

    /// `of`: stands before each path, with its separator where a path follows.
    fn compare(&mut self, of: (&str, &str), hook: &Value, shadow: &Value) {
        for difference in differences(shadow, hook, None) {
            let (name, separator) = if difference.path.is_empty() { (of.0, "") } else { of };
            self.add(&format!("{name}{separator}{}", difference.path));
        }
    }
}

fn places(hook: &ReconcilePlan, shadow: &ReconcilePlan) -> Vec<String> {
    let mut places = Places::default();
    let (unchanged, still) = (unchanged(hook), unchanged(shadow));
    let all: BTreeSet<_> = ids(hook).chain(ids(shadow)).collect();
    for (resource, key) in all {
        let kind = resource.gvk.group_key();
        let child =
            |plan: &ReconcilePlan| plan.desired.get(resource).and_then(|group| group.get(key)).cloned();
        match (child(hook), child(shadow)) {
            // What both leave as it is they want alike, however they spell it.
            (Some(_), Some(_))
                if unchanged.contains(&(resource, key)) && still.contains(&(resource, key)) => {}
            (Some(hook), Some(shadow)) => places.compare((&kind, ": "), &hook, &shadow),
            (Some(_), None) => places.add(&format!("{kind}: missing")),
            (None, _) => places.add(&format!("{kind}: added")),
        }
    }
    let (one, other) = (&hook.decoration, &shadow.decoration);
    let status = |status: &Option<Map<String, Value>>| status.clone().map_or(Value::Null, Value::Object);
    places.compare(("status", "."), &status(&one.status), &status(&other.status));
    for (name, hook, shadow) in
        [("labels", &one.labels, &other.labels), ("annotations", &one.annotations, &other.annotations)]
    {
        for key in hook.keys().chain(shadow.keys()).collect::<BTreeSet<_>>() {
            if hook.get(key) != shadow.get(key) {
                places.add(&format!("{name}[{key}]"));
            }
        }
    }
    let deleted = |plan: &ReconcilePlan| {
        plan.deletions.iter().map(|op| op.id().clone()).collect::<BTreeSet<ObjectId>>()
    };
    let unmanaged = |plan: &ReconcilePlan| {
        plan.unwritten.unmanaged.iter().map(|child| format!("{child:?}")).collect::<BTreeSet<_>>()
    };
    for (name, differs) in [
        ("resyncAfterSeconds", hook.resync_after != shadow.resync_after),
        ("finalized", hook.finalized != shadow.finalized),
        ("deleteRelated", deleted(hook) != deleted(shadow)),
        ("children of kinds that the spec does not declare", unmanaged(hook) != unmanaged(shadow)),
        (
            "a child that cannot be written",
            hook.unwritten.failed.is_empty() != shadow.unwritten.failed.is_empty(),
        ),
    ] {
        if differs {
            places.add(name);
        }
    }
    places.0.into_iter().collect()
}

/// The places where two answers of customize hooks differ.
pub fn rule_places(hook: &[(usize, RequestedRule)], shadow: &[(usize, RequestedRule)]) -> Vec<String> {
    let rules = |answer: &[(usize, RequestedRule)]| {
        answer.iter().map(|(_, rule)| rule.clone()).collect::<BTreeSet<_>>()
    };
    let (hook, shadow) = (rules(hook), rules(shadow));
    let mut places = Places::default();
    for (rule, what) in hook
        .difference(&shadow)
        .map(|rule| (rule, "missing"))
        .chain(shadow.difference(&hook).map(|rule| (rule, "added")))
    {
        places.add(&format!("relatedResources of {}: {what}", rule.gvr));
    }
    places.0.into_iter().collect()
}

fn ids(plan: &ReconcilePlan) -> impl Iterator<Item = (&Resource, &Key)> {
    plan.desired.iter().flat_map(|(resource, group)| group.keys().map(move |key| (&**resource, key)))
}

fn unchanged(plan: &ReconcilePlan) -> BTreeSet<(&Resource, &Key)> {
    let skips = plan.children.skips.iter().filter(|(_, skip)| *skip == Skip::Unchanged);
    skips.map(|(id, _)| (&*id.resource, &id.key)).collect()
}

#[cfg(test)]
mod tests;
