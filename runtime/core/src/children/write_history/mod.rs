//! History of the server's own writes to the children of one parent: what the API server made of each.
//!
//! Where the API server's answer differs from what was sent (other spellings, defaults, dropped fields), the differences are
//! remembered for that child, and only others are drift. So nothing has to be known about any kind, and nothing is written
//! twice in vain. An answer is read when its child first differs; most never do, and until then it is the cache's own copy.
//! See <https://github.com/metacontroller/metacontroller/issues/281>.
//! See <https://github.com/metacontroller/metacontroller/issues/443>.
//!
//! In the first generation of an object, everything but its metadata is what the API server made of it. Where dry runs are
//! refused, an object is recreated only if the answer to a write of it was seen since the start. All of it is lost with a
//! restart: then a child costs at most one write that changes nothing, or one dry run.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::children::desired::Desired;
use crate::hash::Fingerprint;
use crate::json::difference::Difference;
use crate::object::id::{ObjectId, Uid};
use crate::object::{ChildMap, Object, Version};

/// Past writes: a plan is made from these besides what is observed and wanted.
#[derive(Debug, Clone, Copy)]
pub struct PastWrites<'a> {
    pub history: &'a WriteHistory,
    /// Since the server's start.
    pub now: Duration,
}

#[derive(Debug, Clone, Default)]
pub struct WriteHistory {
    known: BTreeMap<ObjectId, ObjectHistory>,
    /// Objects of which the API server's answer to a write was seen: whatever else differs in them came later.
    answered: BTreeSet<Uid>,
}

#[derive(Debug, Clone, Default)]
struct ObjectHistory {
    uid: Uid,
    /// Fingerprint of the body that server-side apply sent last and the API server accepted.
    applied: Option<Fingerprint>,
    /// Differences that the API server's answer to an own write had already: another write would not end them.
    /// See <https://github.com/metacontroller/metacontroller/issues/566>.
    server_defaults: BTreeSet<Fingerprint>,
    /// The unread answer that shows them. The cache holds the same `Arc`, so that it takes no memory.
    unread: Option<Arc<Object>>,
    /// Version that the API server answered, and hash of what was wanted: as long as both stay, there is nothing to
    /// compare.
    settled: Option<(Version, u64)>,
    flapping: Option<Flapping>,
}

impl ObjectHistory {
    fn nothing(uid: &Uid) -> Self {
        Self { uid: uid.clone(), ..Self::default() }
    }
}

impl PastWrites<'_> {
    /// How long drift is left alone; `None` where it is corrected at once.
    pub(super) fn wait(&self, id: &ObjectId, drift: &[Difference]) -> Option<Duration> {
        self.history.known.get(id)?.flapping.as_ref()?.wait(drift, self.now)
    }
}

/// Drift of a child when it was corrected.
#[derive(Debug, Clone, PartialEq)]
pub struct Drift {
    pub id: ObjectId,
    pub uid: Uid,
    /// Never empty.
    pub values: Vec<Difference>,
}

impl WriteHistory {
    pub fn is_empty(&self) -> bool {
        self.known.is_empty() && self.answered.is_empty()
    }

    /// A write of a child was answered, or a dry run after which it is left as it is. `settled`: the desired state, where
    /// nothing of it is left to be written.
    pub(super) fn record_response(
        &mut self,
        id: &ObjectId,
        answer: &Object,
        applied: Option<Fingerprint>,
        server_defaults: &[Difference],
        settled: Option<u64>,
    ) {
        let known = self.known(id, &answer.uid);
        known.applied = applied;
        known.server_defaults = server_defaults.iter().map(Difference::fingerprint).collect();
        known.unread = None;
        known.settled = settled.map(|settled| (answer.version.clone(), settled));
        let known_to_differ = known.applied.is_some() || !known.server_defaults.is_empty();
        if !known_to_differ && known.settled.is_none() && known.flapping.is_none() {
            self.known.remove(id);
        }
    }

    /// A write left nothing to do; what the API server made of what was `wanted` is read off its answer when it matters.
    pub(super) fn record_write(&mut self, id: &ObjectId, wanted: u64, answer: &Arc<Object>) {
        let known = self.known(id, &answer.uid);
        let settled = Some((answer.version.clone(), wanted));
        let unread = Some(Arc::clone(answer));
        *known = ObjectHistory {
            unread,
            settled,
            flapping: known.flapping.take(),
            ..ObjectHistory::nothing(&answer.uid)
        };
    }

    /// Unread answers about children that have changed since.
    pub(super) fn stale_responses(
        &self,
        observed: &ChildMap,
    ) -> impl Iterator<Item = (&ObjectId, &Arc<Object>)> {
        self.known.iter().filter_map(|(id, known)| {
            let answer = known.unread.as_ref()?;
            let now = observed.get(&id.resource, &id.key);
            now.is_none_or(|now| !Arc::ptr_eq(now, answer)).then_some((id, answer))
        })
    }

    /// Notes what was read late; the answers go.
    pub fn resolve_pending(&mut self, outcomes: Vec<(ObjectId, BTreeSet<Fingerprint>)>) {
        for (id, server_defaults) in outcomes {
            if let Some(known) = self.known.get_mut(&id) {
                (known.unread, known.server_defaults) = (None, server_defaults);
            }
        }
    }

    /// Whether a child is unchanged since a write of the same left nothing to do.
    pub(super) fn is_settled(&self, id: &ObjectId, object: &Object, wanted: impl FnOnce() -> u64) -> bool {
        let settled = self.of(id, object).and_then(|known| known.settled.as_ref());
        settled.is_some_and(|(version, print)| *version == object.version && *print == wanted())
    }

    /// The answer to a write of this object was seen.
    pub(super) fn answered(&mut self, uid: &Uid) {
        self.answered.insert(uid.clone());
    }

    /// Whether the answer to a write of an object was seen: an unknown difference in it must have come after that
    /// write.
    pub fn has_answer(&self, object: &Object) -> bool {
        self.answered.contains(&object.uid)
    }

    /// Drift was corrected at `now`. Whatever object has the name since: making it anew is one way to correct it.
    pub fn drift_corrected(&mut self, drift: &Drift, now: Duration) {
        let known = self.known.entry(drift.id.clone()).or_insert_with(|| ObjectHistory::nothing(&drift.uid));
        known.flapping.get_or_insert_default().drift_corrected(&drift.values, now);
    }

    /// Whether flapping drift has not been reported since it was corrected last.
    pub fn mark_reported(&mut self, flapping: &Drift) -> bool {
        self.known
            .get_mut(&flapping.id)
            .and_then(|known| known.flapping.as_mut())
            .is_some_and(Flapping::mark_reported)
    }

    /// Forgets children that are neither there nor wanted.
    pub fn keep(&mut self, observed: &ChildMap, desired: &Desired) {
        if !self.answered.is_empty() {
            let there: BTreeSet<_> = observed.objects().map(|(_, object)| &object.uid).collect();
            self.answered.retain(|uid| there.contains(uid));
        }
        self.known.retain(|id, _| {
            observed.get(&id.resource, &id.key).is_some()
                || desired.get(&id.resource).is_some_and(|group| group.contains_key(&id.key))
        });
    }

    /// Values that keep coming back at `now`, each with its child.
    pub fn flapping(&self, now: Duration) -> impl Iterator<Item = (&ObjectId, BTreeSet<&str>)> {
        let noticed = self
            .known
            .iter()
            .filter_map(move |(id, known)| Some((id, known.flapping.as_ref()?.noticed(now))));
        noticed.filter(|(_, places)| !places.is_empty())
    }

    /// Whether any value keeps coming back at `now`.
    pub fn is_flapping(&self, now: Duration) -> bool {
        self.flapping(now).next().is_some()
    }

    pub(super) fn has_applied(&self, id: &ObjectId, object: &Object, what: Fingerprint) -> bool {
        self.of(id, object).is_some_and(|known| known.applied == Some(what))
    }

    /// Something else than this is known to have been applied.
    pub(super) fn has_applied_other(&self, id: &ObjectId, object: &Object, what: Fingerprint) -> bool {
        self.of(id, object).and_then(|known| known.applied).is_some_and(|applied| applied != what)
    }

    /// Differences that a write would end; `read` takes an unread answer.
    pub(super) fn unexplained_drift(
        &self,
        id: &ObjectId,
        object: &Object,
        mut all: Vec<Difference>,
        read: impl FnOnce(&Object) -> BTreeSet<Fingerprint>,
    ) -> Vec<Difference> {
        if let Some(known) = self.of(id, object).filter(|_| !all.is_empty()) {
            let late = known.unread.as_deref().map(read);
            let server_defaults = late.as_ref().unwrap_or(&known.server_defaults);
            all.retain(|difference| !server_defaults.contains(&difference.fingerprint()));
        }
        all
    }

    fn of(&self, id: &ObjectId, object: &Object) -> Option<&ObjectHistory> {
        self.known.get(id).filter(|known| known.uid == object.uid)
    }

    /// A child that is made anew keeps its flapping values.
    fn known(&mut self, id: &ObjectId, uid: &Uid) -> &mut ObjectHistory {
        let known = self.known.entry(id.clone()).or_insert_with(|| ObjectHistory::nothing(uid));
        if known.uid != *uid {
            *known = ObjectHistory { flapping: known.flapping.take(), ..ObjectHistory::nothing(uid) };
        }
        known
    }
}

/// Corrections of one value without delay.
const MAX_UNDELAYED: u32 = 5;
const MIN_DELAY: Duration = Duration::from_secs(5);
const MAX_DELAY: Duration = Duration::from_mins(5);
/// A value that changes later than this is not flapping.
const RESET_INTERVAL: Duration = Duration::from_mins(15);
/// A client that still changes a value is noticed when the next correction is due. Where none comes until so much later, the
/// value has stayed as it should. Reconciles of a settled parent are not waited for: there are none.
const QUIET_TIME: Duration = Duration::from_mins(1);

/// Places of one child whose changes are counted. A client that makes up items of a list would have a new place each time.
const MAX_PLACES: usize = 100;

/// Stands for the places beyond them, which are counted as one.
const FURTHER_PLACES: &str = "(further places)";

/// The values of one child that another client keeps changing, by path. Times are since the server's start.
/// See <https://github.com/crossplane/crossplane/issues/6751>.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flapping {
    places: BTreeMap<String, ChangeCount>,
    reported: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ChangeCount {
    times: u32,
    last: Duration,
}

impl Flapping {
    /// `drift` was corrected at `now`.
    pub fn drift_corrected(&mut self, drift: &[Difference], now: Duration) {
        self.places.retain(|_, place| now.saturating_sub(place.last) < RESET_INTERVAL);
        let mut changed = BTreeSet::new();
        for Difference { path, .. } in drift {
            let is_counted = self.places.contains_key(path) || self.places.len() < MAX_PLACES;
            let path = if is_counted { path } else { FURTHER_PLACES };
            // Many places that are counted as one change once.
            if !changed.insert(path) {
                continue;
            }
            let nothing = ChangeCount { times: 0, last: Duration::ZERO };
            let place = self.places.entry(path.to_owned()).or_insert(nothing);
            *place = ChangeCount { times: place.times.saturating_add(1), last: now };
        }
        self.reported = false;
    }

    /// How long `drift` is left alone from `now` on; `None` where it is corrected at once, as it is whole as soon as one
    /// place of it is due.
    pub fn wait(&self, drift: &[Difference], now: Duration) -> Option<Duration> {
        let left = |difference: &Difference| {
            let place = self.places.get(&difference.path).or_else(|| self.places.get(FURTHER_PLACES))?;
            let due = place.last + place.delay()?;
            (now < due).then(|| due.saturating_sub(now))
        };
        drift.iter().map(left).min()?
    }

    /// The places that are worth a word at `now`.
    pub fn noticed(&self, now: Duration) -> BTreeSet<&str> {
        let is_noticed = |place: &ChangeCount| {
            place.delay().is_some_and(|delay| now.saturating_sub(place.last) < delay + QUIET_TIME)
        };
        let noticed = self.places.iter().filter(|(_, place)| is_noticed(place));
        noticed.map(|(path, _)| path.as_str()).collect()
    }

    /// `true` the first time since the last correction.
    pub(super) fn mark_reported(&mut self) -> bool {
        !std::mem::replace(&mut self.reported, true)
    }
}

impl ChangeCount {
    fn delay(&self) -> Option<Duration> {
        let doublings = self.times.checked_sub(MAX_UNDELAYED)?.min(16);
        Some((MIN_DELAY * 2_u32.pow(doublings)).min(MAX_DELAY))
    }
}
