//! Wants of all controllers about one object, kept small: there is one list for each decorated object.

use std::sync::Arc;

use crate::decorator::conflicts::DecoratorId;
use crate::hash::Fingerprint;

/// Wants of the controllers of one object, by their age.
#[derive(Debug, Default)]
pub(super) struct ObjectWants(Box<[DecoratorWants]>);

/// Changes that one controller wants; none, too, if its reconciles got no answer.
#[derive(Debug)]
pub(super) struct DecoratorWants {
    pub(super) id: Arc<DecoratorId>,
    pub(super) wants: Wants,
    /// Something is left as it is until older controllers have reconciled the object.
    pub(super) waits: bool,
    /// The fields that it may not write.
    pub(super) withheld: Box<[Fingerprint]>,
    /// The controller is paused and has not reconciled the object since the server's start: its fields are not known.
    pub(super) paused: bool,
}

/// Fields and their wanted values, both as fingerprints, so that their size is fixed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Wants(Box<[(Fingerprint, Fingerprint)]>);

impl ObjectWants {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has(&self, id: &DecoratorId) -> bool {
        self.place(id).is_ok()
    }

    pub(super) fn get(&self, id: &DecoratorId) -> Option<&DecoratorWants> {
        self.place(id).ok().and_then(|at| self.0.get(at))
    }

    /// Returns what the same controller wanted before.
    pub(super) fn insert(&mut self, wants: DecoratorWants) -> Option<DecoratorWants> {
        let mut all = std::mem::take(&mut self.0).into_vec();
        let before = match all.binary_search_by(|one| one.id.cmp(&wants.id)) {
            Ok(at) => all.get_mut(at).map(|one| std::mem::replace(one, wants)),
            Err(at) => {
                all.reserve_exact(1);
                all.insert(at, wants);
                None
            }
        };
        self.0 = all.into_boxed_slice();
        before
    }

    pub(super) fn remove(&mut self, id: &DecoratorId) -> Option<DecoratorWants> {
        let at = self.place(id).ok()?;
        let mut all = std::mem::take(&mut self.0).into_vec();
        let removed = all.remove(at);
        self.0 = all.into_boxed_slice();
        Some(removed)
    }

    pub(super) fn older(&self, id: &DecoratorId) -> impl Iterator<Item = &DecoratorWants> {
        self.0.iter().take_while(move |one| *one.id < *id)
    }

    pub(super) fn younger(&self, id: &DecoratorId) -> impl Iterator<Item = &DecoratorWants> {
        self.0.iter().skip_while(move |one| *one.id <= *id)
    }

    fn place(&self, id: &DecoratorId) -> Result<usize, usize> {
        self.0.binary_search_by(|one| (*one.id).cmp(id))
    }
}

impl DecoratorWants {
    /// The controller got no answer of its hook; `paused`: it asked for none.
    pub(super) fn unknown(id: Arc<DecoratorId>, paused: bool) -> Self {
        Self { id, wants: Wants::default(), waits: false, withheld: Box::default(), paused }
    }

    /// The controller set the field, or found it set as it wants it.
    pub(super) fn has_set(&self, field: Fingerprint) -> bool {
        self.wants.get(field).is_some() && !self.withheld.contains(&field)
    }
}

impl Wants {
    pub(super) fn of(mut all: Vec<(Fingerprint, Fingerprint)>) -> Self {
        all.sort_unstable();
        Self(all.into_boxed_slice())
    }

    pub(super) fn get(&self, field: Fingerprint) -> Option<Fingerprint> {
        let at = self.0.binary_search_by_key(&field, |(field, _)| *field).ok()?;
        self.0.get(at).map(|(_, wanted)| *wanted)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Fingerprint, Fingerprint)> {
        self.0.iter().copied()
    }

    /// The fields of which the other has another value, or none.
    pub(super) fn without(&self, other: &Self) -> impl Iterator<Item = Fingerprint> {
        let differs = |(field, wanted): &(_, _)| other.get(*field) != Some(*wanted);
        self.iter().filter(differs).map(|(field, _)| field)
    }
}
