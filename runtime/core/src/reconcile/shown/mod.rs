//! Bounds on what a hook is shown: which children of a parent count where there are more of them than a request may show.
//!
//! A user who may create objects can put as many as they like among the children of a parent: by a label that its selector
//! matches, or by an owner reference with its uid. What is beyond the bounds is left out: the hook does not see it, and this
//! reconcile neither changes, deletes, adopts nor creates it.
//!
//! The children of a kind in a namespace are a group, and groups take turns, so that objects of one namespace never push out
//! those of another, and large ones of a kind not those of another kind. Within a group the server's own children come first,
//! then the oldest: an annotation can be forged, the time of a creation cannot.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use crate::children::claims::{Claim, ClaimedObject};
use crate::children::{Op, Plan, Skip};
use crate::counted;
use crate::hash::Fingerprinter;
use crate::object::Object;
use crate::object::cached::CachedObject;
use crate::object::id::{Key, ObjectId, Resource};

/// Bounds on what one request shows of a parent's children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservedBounds {
    pub children: usize,
    /// Bytes of a request to a webhook; one to a module has 32 MiB.
    pub webhook_request: usize,
}

impl Default for ObservedBounds {
    fn default() -> Self {
        Self { children: 50_000, webhook_request: 256 << 20 }
    }
}

/// Bounds of one hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShownBounds {
    pub children: usize,
    /// Bytes of a request.
    pub request: usize,
}

/// Bytes that an object gains when it is adopted, at most about so many.
const OWNER_REFERENCE: usize = 1024;

/// The children of a parent that are beyond the bounds.
#[derive(Debug, Default)]
pub struct LeftOut {
    objects: BTreeMap<ObjectId, CachedObject>,
    /// Kinds of which the server's own children in this namespace are among them, as far as annotations tell, and are not
    /// being deleted.
    held: BTreeSet<(Arc<Resource>, Arc<str>)>,
}

/// The size of claims, counted along with making them.
#[derive(Debug, Default)]
pub(crate) struct Size {
    count: usize,
    bytes: usize,
}

impl Size {
    pub(crate) fn add(&mut self, claimed: &ClaimedObject) {
        self.count += 1;
        self.bytes += bytes_of(claimed);
    }

    /// Takes what is beyond the bounds out of the claims. `rest`: the bytes of a request without the children; related
    /// objects and the parent never take more than half of it from them.
    ///
    /// # Guarantees
    /// Claims within the bounds stay as they are. Of `n` groups each keeps what takes no more than an `n`th of the bounds.
    /// No object of a group is kept that comes after one that is left out.
    pub(crate) fn limit(
        &self,
        claims: &mut Vec<ClaimedObject>,
        bounds: ShownBounds,
        rest: impl FnOnce() -> usize,
    ) -> LeftOut {
        let half = bounds.request / 2;
        if self.count <= bounds.children && self.bytes <= half {
            return LeftOut::default();
        }
        let room = bounds.request.saturating_sub(rest()).max(half);
        if self.count <= bounds.children && self.bytes <= room {
            return LeftOut::default();
        }
        choose(claims, bounds.children.max(1), room.max(1))
    }
}

/// Bytes that a request shows of a claimed object: the object under its name.
fn bytes_of(claimed: &ClaimedObject) -> usize {
    let shown = claimed.object.bytes() + claimed.object.key.len();
    match claimed.claim {
        Claim::Keep => shown,
        Claim::Renew | Claim::Adopt => shown + OWNER_REFERENCE,
        Claim::Release | Claim::Leave => 0,
    }
}

/// The order of a group's objects: those that come first are shown first. Objects that other clients keep from going, by
/// finalizers, come last of their sort.
fn order(claimed: &ClaimedObject) -> (bool, bool, u64, &Key) {
    let object = &claimed.object;
    (!object.is_written(), object.deleting, object.created, &object.key)
}

fn choose(claims: &mut Vec<ClaimedObject>, count: usize, bytes: usize) -> LeftOut {
    let mut groups: BTreeMap<(Arc<Resource>, Arc<str>), Vec<ClaimedObject>> = BTreeMap::new();
    let (mut released, mut kept, mut left) = (0, Vec::new(), LeftOut::default());
    for claimed in claims.drain(..) {
        if claimed.claim == Claim::Release {
            // They are no children any more; the rest of them has its turn in the next reconcile.
            released += 1;
            if released <= count {
                kept.push(claimed);
            }
            continue;
        }
        let group = (Arc::clone(&claimed.resource), Arc::clone(&claimed.object.key.namespace));
        groups.entry(group).or_default().push(claimed);
    }
    let mut groups: Vec<_> = groups
        .into_iter()
        .map(|(name, mut members)| {
            let by_order = |one: &ClaimedObject, other: &ClaimedObject| order(one).cmp(&order(other));
            if members.len() > count {
                // No more of them are shown anyway: a flood is not sorted.
                members.select_nth_unstable_by(count, by_order);
            }
            let shown = members.len().min(count);
            if let Some(first) = members.get_mut(..shown) {
                first.sort_unstable_by(by_order);
            }
            Group { name, members: members.into_iter().peekable(), count: 0, bytes: 0 }
        })
        .collect();
    let mut turns: BinaryHeap<_> =
        groups.iter_mut().enumerate().filter_map(|(nth, group)| group.turn(nth, count, bytes)).collect();
    let (mut all_count, mut all_bytes) = (0, 0);
    while let Some(Reverse((_, nth))) = turns.pop() {
        let Some(group) = groups.get_mut(nth) else { continue };
        let next = group.members.next_if(|next| all_count < count && bytes_of(next) <= bytes - all_bytes);
        // A group that has no room for its next object has ended.
        let Some(next) = next else { continue };
        all_count += 1;
        all_bytes += bytes_of(&next);
        group.count += 1;
        group.bytes += bytes_of(&next);
        kept.push(next);
        turns.extend(group.turn(nth, count, bytes));
    }
    for Group { name, members, .. } in groups {
        let mut is_held = false;
        for ClaimedObject { resource, object, claim } in members {
            // What somebody keeps from going, by a finalizer, must not hold its kind for ever.
            is_held |= claim.is_kept() && object.is_written() && !object.deleting;
            left.objects.insert(ObjectId { resource, key: object.key.clone() }, object);
        }
        if is_held {
            left.held.insert(name);
        }
    }
    *claims = kept;
    left
}

/// The objects of a kind in a namespace, and what those of them that are shown take.
struct Group {
    name: (Arc<Resource>, Arc<str>),
    members: std::iter::Peekable<std::vec::IntoIter<ClaimedObject>>,
    count: usize,
    bytes: usize,
}

impl Group {
    /// Its next turn comes the later the larger its share of the bounds is then.
    fn turn(&mut self, nth: usize, count: usize, bytes: usize) -> Option<Reverse<(u128, usize)>> {
        let next = self.members.peek()?;
        let share = |part: usize, whole: usize| ((part as u128) << 64) / whole as u128;
        let share = share(self.count + 1, count).max(share(self.bytes + bytes_of(next), bytes));
        Some(Reverse((share, nth)))
    }
}

/// Examples in a message.
const EXAMPLES: usize = 3;

impl LeftOut {
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Whether a write would make an object that is there already, or one more of a kind of which the hook does not see all
    /// that the server made: a hook that counts them would ask for ever more. Nor is an object deleted to be made anew
    /// where it could not be made.
    fn blocks(&self, op: &Op) -> bool {
        match op {
            Op::Create { id, .. } | Op::Apply { id, over: None, .. } | Op::Recreate { id, .. } => {
                self.objects.contains_key(id)
                    || self.held.contains(&(Arc::clone(&id.resource), Arc::clone(&id.key.namespace)))
            }
            Op::DryRun { write, otherwise } => self.blocks(write) || self.blocks(otherwise),
            Op::Replace { .. }
            | Op::Apply { over: Some(_), .. }
            | Op::HandOver { .. }
            | Op::Delete { .. }
            | Op::Status { .. } => false,
        }
    }

    /// Takes the operations out of a plan that would create what is there, or may be, and was not shown.
    pub(crate) fn restrict(&self, plan: &mut Plan) {
        if self.is_empty() {
            return;
        }
        let blocked = plan.ops.extract_if(.., |op| self.blocks(op));
        plan.skips.extend(blocked.map(|op| (op.id().clone(), Skip::LeftOut)));
    }

    /// Whether a finalized parent waits for the objects that are left out. What was made after its deletion had been
    /// asked for is left to the garbage collector: else whoever goes on making objects could keep the parent for ever.
    pub(crate) fn holds_up(&self, parent: &Object) -> bool {
        let asked = parent.deletion_asked();
        self.objects.values().any(|object| asked.is_none_or(|asked| object.created <= asked))
    }

    pub(crate) fn fingerprint(&self, all: &mut Fingerprinter) {
        for object in self.objects.values() {
            all.add(object.uid.as_str().as_bytes());
            all.add(&[u8::from(object.deleting), u8::from(object.is_written())]);
        }
    }

    /// The message of the Event about them.
    pub fn message(&self, bounds: ShownBounds) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        let named: Vec<_> = self.objects.keys().take(EXAMPLES).map(ToString::to_string).collect();
        let more = if self.objects.len() > EXAMPLES { ", …" } else { "" };
        let held = self.held.iter().next().map_or(String::new(), |(resource, namespace)| {
            let place = if namespace.is_empty() { String::new() } else { format!(" in namespace {namespace}") };
            format!(
                " The annotations of some say that a controller made them: as long as they are left out, no {}{place} is created, or made anew.",
                resource.gvk
            )
        });
        Some(format!(
            "The parent has {} more than a hook is shown, which is {} at most (--max-observed-children), in a request of {} bytes: {}{more}. They are left as they are, and the parent is finalized once none is left to delete.{held} Delete those that do not belong to the parent, or raise the flag",
            counted(self.objects.len(), "child", "children"),
            bounds.children,
            bounds.request,
            named.join(", "),
        ))
    }
}
