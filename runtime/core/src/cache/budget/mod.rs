//! Budget of all caches together: which store gives way where they exceed it, and when it is listed again.
//!
//! - The largest store gives way. One whose list is not complete counts twice what it holds, since more is to come: so a large
//!   store that is new gives way before a smaller one that controllers work with.
//! - What a store held when it gave way is its estimate. It is listed again after a delay that doubles, or as soon as its estimate
//!   fits beside the others. Until that list is complete the store counts at least as much as its estimate, and gives way first.
//! - A store without which the server does nothing never gives way, and its bytes count.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::api::units::print_bytes;

/// The delay before a store that gave way is listed again; it doubles each time.
pub const MIN_RETRY_DELAY: Duration = Duration::from_secs(5);

/// A store that stays below the budget for this long after a complete list begins with the shortest delay again.
pub const MAX_RETRY_DELAY: Duration = Duration::from_mins(10);

/// One store of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoreId(u64);

/// The bytes of all stores. `P`: what a store holds; two stores may hold the same.
///
/// # Guarantees
/// Where the stores that hold something exceed the budget, some of them have been named to give way, unless each must stay.
/// A place that gave way is not listed again at once.
#[derive(Debug)]
pub struct CacheAccounts<P> {
    budget: Option<u64>,
    next: u64,
    stores: BTreeMap<StoreId, Store<P>>,
    gave_way: BTreeMap<P, GaveWay>,
    /// Bytes of the stores that stay.
    held: u64,
    /// Bytes of the stores that gave way and still hold them.
    leaving: u64,
}

#[derive(Debug)]
struct Store<P> {
    place: P,
    bytes: u64,
    /// The store never gives way.
    must_stay: bool,
    /// Everything there is has been listed.
    is_listed: bool,
    is_leaving: bool,
}

/// Record of a place whose store gave way.
#[derive(Debug)]
struct GaveWay {
    times: u32,
    at: Duration,
    /// Bytes that the store held.
    bytes: u64,
    estimate: u64,
    /// When a list was complete since.
    listed: Option<Duration>,
}

/// The objects of one place take more memory than there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge {
    /// Bytes that the store held when it gave way.
    pub bytes: u64,
    pub budget: u64,
}

/// The bytes of all stores, and their budget where there is one.
#[derive(Debug, Default)]
pub struct CacheFigures {
    /// Bytes by kind: group, version and kind.
    pub held: BTreeMap<String, u64>,
    pub budget: Option<u64>,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [bytes, budget] = [self.bytes.next_multiple_of(1 << 20), self.budget].map(print_bytes);
        write!(
            f,
            "{bytes} of its objects were in memory when all caches exceeded {budget} (--cache-budget): delete objects that nobody needs, or raise the flag and the server's memory limit; the server lists them again after ever longer pauses"
        )
    }
}

impl<P: Ord + Clone> CacheAccounts<P> {
    /// `budget`: `None` is any number of bytes.
    pub fn new(budget: Option<u64>) -> Self {
        Self { budget, next: 0, stores: BTreeMap::new(), gave_way: BTreeMap::new(), held: 0, leaving: 0 }
    }

    pub fn budget(&self) -> Option<u64> {
        self.budget
    }

    /// The bytes of all stores, by what they hold.
    pub fn all(&self) -> impl Iterator<Item = (&P, u64)> {
        self.stores.values().map(|store| (&store.place, store.bytes))
    }

    /// A store that holds nothing yet.
    pub fn open(&mut self, place: P, must_stay: bool, now: Duration) -> StoreId {
        self.forget(now);
        let id = StoreId(self.next);
        self.next += 1;
        self.stores.insert(id, Store { place, bytes: 0, must_stay, is_listed: false, is_leaving: false });
        id
    }

    /// The store is gone with all that it held.
    pub fn close(&mut self, id: StoreId, now: Duration) {
        if let Some(store) = self.stores.remove(&id) {
            let sum = if store.is_leaving { &mut self.leaving } else { &mut self.held };
            *sum = sum.saturating_sub(store.bytes);
        }
        self.forget(now);
    }

    /// The store, which gave way, has dropped what it held, and is to be listed again some time.
    pub fn emptied(&mut self, id: StoreId) {
        let Some(store) = self.stores.get_mut(&id) else { return };
        let sum = if store.is_leaving { &mut self.leaving } else { &mut self.held };
        *sum = sum.saturating_sub(store.bytes);
        (store.bytes, store.is_listed, store.is_leaving) = (0, false, false);
    }

    /// The store holds so many bytes now. Gives back the stores that are to give way.
    pub fn change(&mut self, id: StoreId, bytes: u64, now: Duration) -> Vec<StoreId> {
        let Some(store) = self.stores.get_mut(&id) else { return Vec::new() };
        let sum = if store.is_leaving { &mut self.leaving } else { &mut self.held };
        *sum = sum.saturating_sub(store.bytes).saturating_add(bytes);
        store.bytes = bytes;
        let mut leave = Vec::new();
        while self.budget.is_some_and(|budget| self.held > budget)
            && let Some(largest) = self.largest()
        {
            self.leave(largest, now);
            leave.push(largest);
        }
        leave
    }

    /// The store's list is complete.
    pub fn listed(&mut self, id: StoreId, now: Duration) {
        let Some(store) = self.stores.get_mut(&id).filter(|store| !store.is_leaving) else { return };
        store.is_listed = true;
        if let Some(gave_way) = self.gave_way.get_mut(&store.place) {
            gave_way.listed.get_or_insert(now);
        }
    }

    /// Whether the store is to give way.
    pub fn is_leaving(&self, id: StoreId) -> bool {
        self.stores.get(&id).is_some_and(|store| store.is_leaving)
    }

    /// Whether the store may be listed now.
    pub fn may_list(&self, id: StoreId, now: Duration) -> bool {
        let Some(gave_way) = self.stores.get(&id).and_then(|store| self.gave_way.get(&store.place)) else {
            return true;
        };
        let since = now.saturating_sub(gave_way.at);
        let fits = || {
            let others = self.held.saturating_add(self.leaving);
            self.budget.is_none_or(|budget| others.saturating_add(gave_way.estimate) <= budget)
        };
        gave_way.listed.is_some() || since >= gave_way.delay() || (since >= MIN_RETRY_DELAY && fits())
    }

    /// Why the store gives way, or cannot be filled: its place gave way and no list has been complete since.
    pub fn too_large(&self, id: StoreId) -> Option<TooLarge> {
        let store = self.stores.get(&id)?;
        let gave_way = self.gave_way.get(&store.place)?;
        let too_large = TooLarge { bytes: gave_way.bytes, budget: self.budget? };
        (store.is_leaving || gave_way.listed.is_none()).then_some(too_large)
    }

    /// The store that gives way next.
    fn largest(&self) -> Option<StoreId> {
        let may_leave =
            |(_, store): &(&StoreId, &Store<P>)| !store.must_stay && !store.is_leaving && store.bytes > 0;
        let all = self.stores.iter().filter(may_leave);
        // Of two the later one.
        all.max_by_key(|(id, store)| (self.estimate(store), **id)).map(|(id, _)| *id)
    }

    /// Estimate of the bytes that the store will hold.
    fn estimate(&self, store: &Store<P>) -> u64 {
        if store.is_listed {
            return store.bytes;
        }
        let before = self.gave_way.get(&store.place).filter(|gave_way| gave_way.listed.is_none());
        store.bytes.saturating_mul(2).max(before.map_or(0, |gave_way| gave_way.estimate))
    }

    fn leave(&mut self, id: StoreId, now: Duration) {
        let Some(store) = self.stores.get(&id) else { return };
        let (estimate, bytes, place) = (self.estimate(store), store.bytes, store.place.clone());
        let before = self.gave_way.get(&place).filter(|before| !before.is_over(now));
        let times = before.map_or(0, |before| before.times).saturating_add(1);
        self.gave_way.insert(place, GaveWay { times, at: now, bytes, estimate, listed: None });
        self.held = self.held.saturating_sub(bytes);
        self.leaving = self.leaving.saturating_add(bytes);
        if let Some(store) = self.stores.get_mut(&id) {
            store.is_leaving = true;
        }
    }

    /// Places that gave way long ago begin anew.
    fn forget(&mut self, now: Duration) {
        let stores = &self.stores;
        self.gave_way.retain(|place, gave_way| {
            let is_in_use = || stores.values().any(|store| store.place == *place);
            let is_old = now.saturating_sub(gave_way.at) >= MAX_RETRY_DELAY * 2;
            !gave_way.is_over(now) && (!is_old || is_in_use())
        });
    }
}

impl GaveWay {
    fn delay(&self) -> Duration {
        let doubled = 1_u32.checked_shl(self.times.saturating_sub(1)).unwrap_or(u32::MAX);
        MIN_RETRY_DELAY.saturating_mul(doubled).min(MAX_RETRY_DELAY)
    }

    /// Whether the store has stayed below the budget for long since it was listed.
    fn is_over(&self, now: Duration) -> bool {
        self.listed.is_some_and(|listed| now.saturating_sub(listed) >= MAX_RETRY_DELAY)
    }
}
