//! Clocks and random numbers of a hook, so made that the same request takes the same course.
//!
//! Time is virtual. Random numbers come from one key of the installation and the parent that the hook is called for.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng as _, SeedableRng as _};
use metahook_core::object::Object;
use sha2::{Digest as _, Sha256};

use super::memory::{Errno, Failure};
use crate::cluster::installation_key::SeedKey;

/// Nanoseconds that pass at each reading, which are also the clocks' resolution: more than none, since Go refuses a clock
/// at 0 and a program that waits in a loop has to end; few, so that a program that measures itself finds itself quick.
pub(super) const RESOLUTION: u64 = 1000;

/// The last time of the clocks: Go's time is an `i64`.
const MAX_TIME: u64 = i64::MAX as u64;

/// Nanoseconds.
type Nanos = u64;

/// The clocks of one call.
#[derive(Debug)]
pub(crate) struct Clock {
    /// The server's time when the call began.
    start: SystemTime,
    /// The time since then, as the hook sees it.
    passed: Nanos,
    /// The hook has seen the server's time.
    pub(crate) realtime_read: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClockKind {
    Realtime,
    /// Time since the call began. CPU time of process and thread are the same: nothing else takes time.
    Monotonic,
}

/// The end of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    After(Nanos),
    At(Nanos),
}

impl ClockKind {
    pub(super) fn of(number: u32) -> Result<Self, Errno> {
        match number {
            0 => Ok(Self::Realtime),
            1..=3 => Ok(Self::Monotonic),
            _ => Err(Errno::Inval),
        }
    }
}

impl Clock {
    pub(crate) fn new(start: SystemTime) -> Self {
        Self { start, passed: 0, realtime_read: false }
    }

    pub(super) fn read(&mut self, kind: ClockKind) -> Nanos {
        self.pass(RESOLUTION);
        match kind {
            ClockKind::Monotonic => self.passed,
            ClockKind::Realtime => self.realtime(),
        }
    }

    /// A wait is over at once: only the hook's clocks go on.
    pub(super) fn wait(&mut self, kind: ClockKind, until: Until) {
        let duration = match (until, kind) {
            (Until::After(duration), _) => duration,
            (Until::At(instant), ClockKind::Monotonic) => instant.saturating_sub(self.passed),
            (Until::At(instant), ClockKind::Realtime) => instant.saturating_sub(self.realtime()),
        };
        self.pass(duration);
    }

    fn pass(&mut self, duration: Nanos) {
        self.passed = self.passed.saturating_add(duration).min(MAX_TIME);
    }

    fn realtime(&mut self) -> Nanos {
        self.realtime_read = true;
        let start = self.start.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        u64::try_from(start).unwrap_or(MAX_TIME).saturating_add(self.passed)
    }
}

/// Random bytes of one call into the host, which gives way to no other call while they are made.
pub(super) const MAX_BYTES: u32 = 16 << 10;

/// The seed of one call: the same seed gives the same numbers.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Seed(pub [u8; 32]);

/// The seeds of an installation: the same at every call of a controller for a parent, others for each parent and each
/// controller, and none that can be guessed.
pub(crate) struct Seeds {
    key: SeedKey,
    #[cfg(debug_assertions)]
    calls: Option<std::sync::atomic::AtomicU64>,
}

/// The random numbers of one call, begun when the hook first asks for some.
pub(super) struct Random {
    seed: Seed,
    stream: Option<ChaCha20Rng>,
}

/// The seed is secret: it gives a hook's random numbers away.
impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

impl Seeds {
    pub(crate) fn new(key: SeedKey) -> Self {
        Self {
            key,
            #[cfg(debug_assertions)]
            calls: None,
        }
    }

    /// Other seeds at each call, which tests need for a hook that gives two answers to one request. No release has it.
    #[cfg(debug_assertions)]
    pub(crate) fn other_for_each_call(self) -> Self {
        Self { calls: Some(std::sync::atomic::AtomicU64::default()), ..self }
    }

    /// A controller that is made anew under its name gets the same seeds, since children may be named by them.
    pub(crate) fn of(&self, controller: &Object, parent: &Object) -> Seed {
        let mut hash = Sha256::new().chain_update(self.key);
        for word in [&*controller.gvk.kind, &*controller.key.name, parent.uid.as_str()] {
            // No word has a 0.
            hash.update(word);
            hash.update([0]);
        }
        #[cfg(debug_assertions)]
        if let Some(calls) = &self.calls {
            let call = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            return Seed(hash.chain_update(call.to_le_bytes()).finalize().into());
        }
        Seed(hash.finalize().into())
    }
}

/// The key is secret.
impl fmt::Debug for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seeds").finish_non_exhaustive()
    }
}

impl Random {
    pub(super) fn new(seed: Seed) -> Self {
        Self { seed, stream: None }
    }

    /// Before the memory is looked at: a hook learns of its limit also where it has no room for so many.
    pub(super) fn check(len: u32) -> Result<(), Failure> {
        if len > MAX_BYTES {
            return Err(Failure::trap(format!(
                "it wanted {len} random bytes at once and may have {MAX_BYTES}: ask for less, more often"
            )));
        }
        Ok(())
    }

    pub(super) fn fill(&mut self, bytes: &mut [u8]) {
        self.stream.get_or_insert_with(|| ChaCha20Rng::from_seed(self.seed.0)).fill_bytes(bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn clock() -> Clock {
        Clock::new(UNIX_EPOCH + Duration::from_secs(1_000_000))
    }

    #[test]
    fn the_monotonic_clock_starts_with_the_call_and_ticks_per_read() {
        let mut clock = clock();
        let read: Vec<_> = (0..3).map(|_| clock.read(ClockKind::Monotonic)).collect();
        assert_eq!(read, [1000, 2000, 3000]);
        assert!(!clock.realtime_read);
    }

    #[test]
    fn the_realtime_clock_starts_at_the_call_s_time() {
        let mut clock = clock();
        clock.wait(ClockKind::Realtime, Until::After(5_000_000_000));
        assert!(!clock.realtime_read, "a wait for a duration does not show the time");
        assert_eq!(clock.read(ClockKind::Realtime), 1_000_005_000_001_000);
        assert!(clock.realtime_read);
    }

    #[test]
    fn waiting_for_a_time_of_day_reads_the_realtime_clock() {
        let mut clock = clock();
        clock.wait(ClockKind::Realtime, Until::At(1_000_007_000_000_000));
        assert!(clock.realtime_read);
        assert_eq!(clock.read(ClockKind::Monotonic), 7_000_001_000);
    }

    #[test]
    fn a_time_in_the_past_takes_no_waiting() {
        let mut clock = clock();
        clock.wait(ClockKind::Monotonic, Until::At(0));
        clock.wait(ClockKind::Realtime, Until::At(1));
        assert_eq!(clock.read(ClockKind::Monotonic), 1000);
    }

    #[test]
    fn time_ends_before_it_is_negative_in_go() {
        let mut clock = clock();
        clock.wait(ClockKind::Monotonic, Until::After(u64::MAX));
        clock.wait(ClockKind::Monotonic, Until::After(u64::MAX));
        assert_eq!(clock.read(ClockKind::Monotonic), i64::MAX as u64);
        assert!(clock.read(ClockKind::Realtime) > i64::MAX as u64);
    }

    fn numbers(seed: u8, pieces: &[usize]) -> Vec<u8> {
        let mut random = Random::new(Seed([seed; 32]));
        let mut bytes = vec![0; pieces.iter().sum()];
        let mut rest = bytes.as_mut_slice();
        for len in pieces {
            let (piece, after) = rest.split_at_mut(*len);
            random.fill(piece);
            rest = after;
        }
        bytes
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        assert_eq!(numbers(1, &[300]), numbers(1, &[300]));
        assert_ne!(numbers(1, &[300]), numbers(2, &[300]));
    }

    #[test]
    fn numbers_do_not_come_twice() {
        let bytes = numbers(1, &[32, 32]);
        assert_ne!(bytes[..32], bytes[32..]);
    }

    /// A version of the cipher that counts otherwise would change what every hook sees.
    #[test]
    fn the_numbers_are_those_of_chacha20() {
        let first = numbers(0, &[8]);
        assert_eq!(first, [0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90]);
    }

    fn object(kind: &str, name: &str, uid: &str) -> Object {
        let json = format!(
            r#"{{"apiVersion":"e/v1","kind":"{kind}","metadata":{{"name":"{name}","uid":"{uid}","resourceVersion":"1"}}}}"#
        );
        Object::parse(&json, None).unwrap()
    }

    #[test]
    fn seeds_differ_by_installation_controller_and_parent_and_not_by_call() {
        let (seeds, others) = (Seeds::new([1; 32]), Seeds::new([2; 32]));
        let of = |seeds: &Seeds, kind, name, uid, parent| {
            seeds.of(&object(kind, name, uid), &object("P", "p", parent)).0
        };
        let one = of(&seeds, "C", "c", "1", "a");
        assert_eq!(one, of(&seeds, "C", "c", "2", "a"), "a controller that was made anew");
        for other in [
            of(&others, "C", "c", "1", "a"),
            of(&seeds, "C", "c", "1", "b"),
            of(&seeds, "C", "d", "1", "a"),
            of(&seeds, "D", "c", "1", "a"),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn in_tests_each_call_may_have_another_seed() {
        let seeds = Seeds::new([1; 32]).other_for_each_call();
        let (controller, parent) = (object("C", "c", "1"), object("P", "p", "a"));
        assert_ne!(seeds.of(&controller, &parent), seeds.of(&controller, &parent));
    }
}
