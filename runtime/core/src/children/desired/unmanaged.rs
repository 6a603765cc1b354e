//! Children of an answer that the server does not manage: what becomes of them, and of their observed copies.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::children::desired::DesiredError;
use crate::children::{Op, Plan, Skip};
use crate::object::id::{Gvk, Key};

/// Treatment of children that would be made and never seen again: of kinds that the spec does not declare, or out of
/// their parent's reach.
/// See <https://github.com/metacontroller/metacontroller/issues/238>.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnmanagedPolicy {
    Refused,
    Created,
}

/// A child that is created where it does not exist and then left alone.
#[derive(Debug, Clone, PartialEq)]
pub struct UnmanagedChild {
    pub gvk: Gvk,
    pub key: Key,
    pub body: Value,
    /// Why it is unmanaged.
    pub why: DesiredError,
}

/// Observed children that an answer means and does not name as the server knows them: in another version, or without the
/// namespace. They stay as they are.
///
/// # Guarantees
/// No deletion is planned of a child that the answer names in any version of its kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldChildren(BTreeSet<(Arc<str>, Arc<str>, Key)>);

impl HeldChildren {
    /// A key without a namespace stands for the objects of that name in all namespaces.
    pub(super) fn hold(&mut self, gvk: &Gvk, key: Key) {
        self.0.insert((Arc::clone(&gvk.group), Arc::clone(&gvk.kind), key));
    }

    fn has(&self, gvk: &Gvk, key: &Key) -> bool {
        let has = |key: Key| self.0.contains(&(Arc::clone(&gvk.group), Arc::clone(&gvk.kind), key));
        has(key.clone()) || has(Key::new("", &key.name))
    }

    /// Takes the deletions of these children out of a plan.
    pub(crate) fn restrict(&self, plan: &mut Plan) {
        if self.0.is_empty() {
            return;
        }
        let is_held = |op: &mut Op| {
            let id = op.id();
            matches!(op, Op::Delete { .. }) && self.has(&id.resource.gvk, &id.key)
        };
        let held = plan.ops.extract_if(.., is_held);
        plan.skips.extend(held.map(|op| (op.id().clone(), Skip::Held)));
    }
}
