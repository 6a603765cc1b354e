//! Order of writes: the operations of a plan that run together, and their number at once.

use std::sync::Arc;

use crate::children::Op;
use crate::object::id::Resource;

/// Operations of a plan in stages: within one, the order does not matter; each waits for the one before. Deletions are
/// the first, and then each kind is one, in the plan's order.
pub fn stages(ops: &[Op]) -> impl Iterator<Item = &[Op]> {
    ops.chunk_by(|one, next| kind(one) == kind(next))
}

/// `None`: deletions, whatever of.
fn kind(op: &Op) -> Option<&Arc<Resource>> {
    if matches!(op, Op::Delete { .. }) { None } else { Some(&op.id().resource) }
}

/// How many of one parent's children are written at once. After a failure the next ones are tried one, two, four, ... at
/// a time, so that a quota that is used up or an API server in trouble is not hit by hundreds of requests in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteConcurrency(usize);

impl WriteConcurrency {
    /// As many as one client may well have under way.
    const MAX_CONCURRENCY: usize = 16;

    /// The first of a pass over a parent that failed so often in a row.
    pub fn after(failures: u32) -> Self {
        Self(if failures == 0 { Self::MAX_CONCURRENCY } else { 1 })
    }

    /// Those that are next and those that are left.
    pub fn split<'a>(&self, ops: &'a [Op]) -> (&'a [Op], &'a [Op]) {
        ops.split_at(self.0.min(ops.len()))
    }

    /// What came of the last ones.
    pub fn went(&mut self, all_well: bool) {
        self.0 = if all_well { (self.0 * 2).min(Self::MAX_CONCURRENCY) } else { 1 };
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::id::{Key, ObjectId, Uid};
    use crate::object::testing::resource;

    fn id(kind: &str, name: &str) -> ObjectId {
        ObjectId { resource: resource("v1", kind), key: Key::new("n", name) }
    }

    fn create(kind: &str, name: &str) -> Op {
        Op::Create { id: id(kind, name), body: json!({}) }
    }

    fn delete(kind: &str, name: &str) -> Op {
        Op::Delete { id: id(kind, name), uid: Uid::new("u") }
    }

    #[test]
    fn deletions_of_all_kinds_come_together_and_then_kind_by_kind() {
        let ops = [
            delete("ConfigMap", "a"),
            delete("Pod", "b"),
            create("ConfigMap", "c"),
            Op::Recreate { id: id("ConfigMap", "d"), uid: Uid::new("u"), body: json!({}), manager: None },
            create("Pod", "e"),
        ];
        let names: Vec<Vec<_>> =
            stages(&ops).map(|stage| stage.iter().map(|op| &*op.id().key.name).collect()).collect();
        assert_eq!(names, [vec!["a", "b"], vec!["c", "d"], vec!["e"]]);
        assert_eq!(stages(&[]).count(), 0);
    }

    #[test]
    fn after_a_failure_few_are_tried_and_then_more_and_more() {
        let ops: Vec<Op> = (0..40).map(|number| create("Pod", &number.to_string())).collect();
        let mut width = WriteConcurrency::after(0);
        assert_eq!(width.split(&ops).0.len(), 16);
        width.went(true);
        assert_eq!(width, WriteConcurrency::after(0), "never more");
        width.went(false);
        assert_eq!(width, WriteConcurrency::after(3));
        let mut tried = Vec::new();
        let mut left = &ops[..];
        while !left.is_empty() {
            let (now, later) = width.split(left);
            tried.push(now.len());
            width.went(true);
            left = later;
        }
        assert_eq!(tried, [1, 2, 4, 8, 16, 9]);
    }
}
