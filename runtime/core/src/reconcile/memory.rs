//! Memory of a reconcile, estimated at each step before it takes it: from the bytes that are read, and from the plan.

use crate::children::claims::{Claim, ClaimedObject};
use crate::children::{Op, WriteConcurrency};
use crate::decorator::Decoration;
use crate::json::size::{ValueSize, tree_size};
use crate::object::Object;
use crate::object::cached::CachedObject;
use crate::reconcile::plan::ReconcilePlan;
use crate::reconcile::rollout::RolloutState;
use crate::rollout::revisions::{MAX_REVISIONS_MEMORY, revision_size};

/// Copies of a text while it is written: two in a buffer that grows by doubling, one in the answer.
const TEXT_COPIES: usize = 3;

/// An object that is rewritten: before and after as trees, what is sent, and what is answered.
fn of_rewrite(object: &Object) -> usize {
    2 * tree_size(object.json().as_bytes()) + of_text(object)
}

fn of_text(object: &Object) -> usize {
    (TEXT_COPIES + 1) * object.json().len()
}

/// The parent: its finalizers are written by patches, so that only its text is copied.
pub fn of_parent(parent: &Object) -> usize {
    of_text(parent)
}

/// A decorated parent, which is rewritten.
pub fn of_decoration(plan: &ReconcilePlan, parent: &Object) -> usize {
    let Decoration { labels, annotations, status: _ } = &plan.decoration;
    if labels.is_empty() && annotations.is_empty() { 0 } else { of_rewrite(parent) }
}

/// An object that is read whole: the answer, its text, and what is held from then on.
pub fn of_read(object: &CachedObject) -> usize {
    TEXT_COPIES * object.bytes()
}

/// Claims that are carried out one after the other.
pub fn of_claims(claims: &[ClaimedObject]) -> usize {
    let written =
        claims.iter().filter(|one| matches!(one.claim, Claim::Renew | Claim::Adopt | Claim::Release));
    let of = |object: &CachedObject| match (object.whole(), object.cut_tree()) {
        (Some(object), _) => of_rewrite(object),
        (None, tree) => 2 * tree.unwrap_or_default() + (TEXT_COPIES + 1) * object.bytes(),
    };
    written.map(|one| of(&one.object)).max().unwrap_or_default()
}

/// The parent as a tree, and the content of its revisions, which is read up to a bound.
pub fn of_revisions(rollout: &RolloutState, parent: &Object) -> usize {
    let sizes = rollout.whole_revisions().map(|one| revision_size(one, parent));
    2 * tree_size(parent.json().as_bytes()) + sizes.sum::<usize>().min(MAX_REVISIONS_MEMORY)
}

/// The answers as trees and in the bodies of writes.
pub fn of_answers<'a>(answers: impl IntoIterator<Item = &'a [u8]>) -> usize {
    answers.into_iter().map(|answer| 2 * tree_size(answer) + answer.len()).sum()
}

impl ReconcilePlan {
    /// The plan itself, and the texts of the writes that are under way at once.
    pub fn memory(&self) -> usize {
        let (mut trees, mut texts, mut longest) = (0, 0, 0);
        let desired = self.desired.values().flat_map(|group| group.values());
        trees += desired.map(|child| ValueSize::of(child).tree).sum::<usize>();
        let mut written = |size: ValueSize, copies: usize| {
            trees += copies * size.tree;
            texts += size.text;
            longest = longest.max(size.text);
        };
        for op in self.rollout.revisions.iter().chain(&self.children.ops) {
            written(body_size(op), 1);
        }
        for child in &self.unwritten.unmanaged {
            written(ValueSize::of(&child.body), 2);
        }
        // The body of the request has a copy.
        if let Some(status) = &self.decoration.status {
            written(ValueSize::of_members(status), 2);
        }
        trees + TEXT_COPIES * texts.min(WriteConcurrency::MAX_CONCURRENCY * longest)
    }
}

fn body_size(op: &Op) -> ValueSize {
    match op {
        Op::Create { body, .. }
        | Op::Replace { body, .. }
        | Op::Apply { body, .. }
        | Op::Recreate { body, .. }
        | Op::Status { body, .. } => ValueSize::of(body),
        Op::DryRun { write, otherwise } => body_size(write).plus(body_size(otherwise)),
        Op::HandOver { .. } | Op::Delete { .. } => ValueSize::default(),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::{Value, json};

    use super::*;
    use crate::children::write_history::WriteHistory;
    use crate::object::testing::Build;
    use crate::reconcile::config::ControllerConfig;
    use crate::reconcile::plan::Answers;
    use crate::reconcile::testing::{child, config, input, kept, no_past, parent, parts};

    fn planned(answer: &Value, pods: Vec<Build>) -> (usize, usize) {
        let config = ControllerConfig { max_children: 100, ..config() };
        let text = answer.to_string();
        let pods: Vec<_> = pods.into_iter().map(Build::object).collect();
        let input = input(&config, parent(), parts(), &pods);
        let children = kept(&config, &input);
        let answers = Answers { latest: text.as_bytes(), older: &[] };
        let history = WriteHistory::default();
        let plan = config.plan(&input, &children, answers, no_past(&history), &|_| true).unwrap();
        (of_answers([text.as_bytes()]), plan.memory())
    }

    #[test]
    fn a_plan_without_writes_takes_its_trees() {
        let (before, after) = planned(&json!({"children": []}), vec![]);
        assert!(before > 0 && after < 200, "an empty status: {before}, {after}");
    }

    #[test]
    fn a_status_is_counted_with_the_text_that_is_sent() {
        let text = "x".repeat(1 << 20);
        let (before, after) = planned(&json!({"status": {"a": text}, "children": []}), vec![]);
        assert!(before >= 3 << 20, "twice a tree, once text: {before}");
        assert!(after >= 5 << 20, "twice a tree, three times text: {after}");
    }

    #[test]
    fn the_texts_of_writes_are_those_at_once() {
        let pod = |nth: usize| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": nth.to_string()}, "spec": {"a": "x".repeat(10_000)}});
        let of = |count| planned(&json!({"children": (0..count).map(pod).collect::<Vec<_>>()}), vec![]).1;
        let (few, many) = (of(16), of(64));
        assert!(many < 4 * few, "{few}, {many}");
        assert!(few > 16 * 5 * 10_000);
    }

    #[test]
    fn children_are_counted_before_they_are_read_and_only_those() {
        let many = json!(vec![json!({"": 0}); 10_000]);
        let asked = |answer: Value| {
            let (config, pod) = (config(), child("a").with("spec", json!({"a": many})).object());
            let input = input(&config, parent(), parts(), &[pod]);
            let (text, history, asked) = (answer.to_string(), WriteHistory::default(), Cell::new(0));
            let has_room = |more| {
                asked.set(more);
                more < 1000
            };
            let answers = Answers { latest: text.as_bytes(), older: &[] };
            let children = kept(&config, &input);
            let plan = config.plan(&input, &children, answers, no_past(&history), &has_room);
            (asked.get(), plan.map(|_| ()).map_err(|error| error.to_string()))
        };
        let wanted = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}});
        let (more, plan) = asked(json!({"children": [wanted]}));
        assert!(more > 10_000 * 600 && plan.is_err_and(|error| error.contains("no memory")), "{more}");
        assert_eq!(asked(json!({"children": []})), (0, Ok(())), "it is deleted unread");
        assert_eq!(of_claims(&[]), 0);
        let odd = parent().with("spec", json!({"a": many})).object();
        assert!(of_parent(&odd) < 10 * odd.json().len(), "it is patched");
    }
}
