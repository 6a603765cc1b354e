//! Wants of all controllers about one object, kept small: there is one list for each decorated object.

use std::sync::Arc;

use crate::decorator::conflicts::DecoratorId;
use crate::hash::Fingerprint;

/// By age of the controllers.
#[derive(Debug, Default)]
pub(super) struct Said(Box<[Heard]>);

/// What one controller said; wants nothing, too, if its passes came to no answer.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) who: Arc<DecoratorId>,
    pub(super) wants: Wants,
    /// Something is left as it is until older controllers have looked at the object.
    pub(super) waits: bool,
}

/// Fields and their wanted values, both as fingerprints, so that their size is fixed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Wants(Box<[(Fingerprint, Fingerprint)]>);

impl Said {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has(&self, who: &DecoratorId) -> bool {
        self.place(who).is_ok()
    }

    /// Gives back what the same controller said before.
    pub(super) fn insert(&mut self, heard: Heard) -> Option<Heard> {
        let mut all = std::mem::take(&mut self.0).into_vec();
        let before = match all.binary_search_by(|one| one.who.cmp(&heard.who)) {
            Ok(at) => all.get_mut(at).map(|one| std::mem::replace(one, heard)),
            Err(at) => {
                all.reserve_exact(1);
                all.insert(at, heard);
                None
            }
        };
        self.0 = all.into_boxed_slice();
        before
    }

    pub(super) fn remove(&mut self, who: &DecoratorId) -> Option<Heard> {
        let at = self.place(who).ok()?;
        let mut all = std::mem::take(&mut self.0).into_vec();
        let removed = all.remove(at);
        self.0 = all.into_boxed_slice();
        Some(removed)
    }

    pub(super) fn older(&self, who: &DecoratorId) -> impl Iterator<Item = &Heard> {
        self.0.iter().take_while(move |one| *one.who < *who)
    }

    pub(super) fn younger(&self, who: &DecoratorId) -> impl Iterator<Item = &Heard> {
        self.0.iter().skip_while(move |one| *one.who <= *who)
    }

    fn place(&self, who: &DecoratorId) -> Result<usize, usize> {
        self.0.binary_search_by(|one| (*one.who).cmp(who))
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

    /// The fields of which the other says something else, or nothing.
    pub(super) fn without(&self, other: &Self) -> impl Iterator<Item = Fingerprint> {
        let differs = |(field, wanted): &(_, _)| other.get(*field) != Some(*wanted);
        self.iter().filter(differs).map(|(field, _)| field)
    }
}
