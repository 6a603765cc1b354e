//! Answers of webhooks that are kept under their `ETag`: what a request may say it has, what becomes of the answer, what is dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::api::endpoint::EtagPolicy;
use crate::api::hook::HookName;
use crate::object::id::{Key, Resource, Uid};

/// Answers of one controller that are kept at once.
pub const MAX_ANSWERS: usize = 10_000;

/// Bytes that the kept answers of one controller take.
pub const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Bytes of a tag.
pub const MAX_TAG: usize = 1024;

/// Bytes of an answer beside its body, its tag and its names.
const OVERHEAD: usize = 256;

/// Parent and hook that an answer is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AnswerKey {
    group: Arc<str>,
    resource: Arc<str>,
    parent: Key,
    hook: HookName,
}

/// An answer and the tag that it came with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptAnswer {
    /// The tag as it came.
    pub tag: Box<[u8]>,
    pub body: Box<[u8]>,
}

/// The body that an exchange ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerSource<'a> {
    /// The answer's own, which is kept under this tag, where it has one.
    Own(Option<&'a [u8]>),
    /// The one that the request said it has.
    Kept(&'a Arc<KeptAnswer>),
    /// None: the status says that there is no answer.
    Refused,
}

/// The body that an answer with this status and tag stands for. `sent`: the answer whose tag the request had.
/// See <https://github.com/metacontroller/metacontroller/pull/649>.
/// See <https://github.com/metacontroller/metacontroller/issues/850>.
pub fn source<'a>(status: u16, tag: Option<&'a [u8]>, sent: Option<&'a Arc<KeptAnswer>>) -> AnswerSource<'a> {
    match (status, sent) {
        (200, _) => AnswerSource::Own(tag.filter(|tag| is_sendable(tag))),
        (304 | 412, Some(kept)) => AnswerSource::Kept(kept),
        _ => AnswerSource::Refused,
    }
}

/// A request may have it in a header.
fn is_sendable(tag: &[u8]) -> bool {
    let fits = !tag.is_empty() && tag.len() <= MAX_TAG;
    fits && tag.iter().all(|byte| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f))
}

impl AnswerKey {
    pub fn new(parents: &Resource, parent: &Key, hook: HookName) -> Self {
        let (group, resource) = (Arc::clone(&parents.gvk.group), Arc::clone(&parents.plural));
        Self { group, resource, parent: parent.clone(), hook }
    }
}

/// The kept answers of one controller, within bounds: beyond them the oldest are dropped, whose next answers come whole.
#[derive(Debug)]
pub struct AnswerCache {
    entries: BTreeMap<AnswerKey, Entry>,
    /// Keys by the number that each got when it was kept.
    by_age: BTreeMap<u64, AnswerKey>,
    next: u64,
    bytes: usize,
    max_bytes: usize,
    cleaned: Duration,
}

#[derive(Debug)]
struct Entry {
    /// The parent's uid: another parent with its name is another one.
    uid: Uid,
    answer: Arc<KeptAnswer>,
    age: u64,
    expires: Option<Duration>,
}

impl Default for AnswerCache {
    fn default() -> Self {
        Self::new(MAX_ANSWER_BYTES)
    }
}

impl AnswerCache {
    pub fn new(max_bytes: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            by_age: BTreeMap::new(),
            next: 0,
            bytes: 0,
            max_bytes,
            cleaned: Duration::ZERO,
        }
    }

    /// The answer whose tag a request is to have.
    pub fn find(&mut self, key: &AnswerKey, uid: &Uid, now: Duration) -> Option<Arc<KeptAnswer>> {
        let entry = self.entries.get(key)?;
        if entry.uid != *uid || entry.is_expired(now) {
            self.remove(key);
            return None;
        }
        Some(Arc::clone(&entry.answer))
    }

    /// Keeps an answer in the place of the one before. One that is larger than all the room is not kept, nor the one before.
    pub fn keep(&mut self, key: AnswerKey, uid: Uid, answer: KeptAnswer, policy: EtagPolicy, now: Duration) {
        self.clean(policy, now);
        self.remove(&key);
        let size = size(&key, &answer);
        if size > self.max_bytes {
            return;
        }
        let age = self.next;
        self.next += 1;
        self.bytes += size;
        self.by_age.insert(age, key.clone());
        let expires = match policy {
            EtagPolicy::Forever => None,
            EtagPolicy::Expiring { lifetime, .. } => Some(now.saturating_add(lifetime)),
        };
        self.entries.insert(key, Entry { uid, answer: Arc::new(answer), age, expires });
        while self.bytes > self.max_bytes || self.entries.len() > MAX_ANSWERS {
            let Some((_, oldest)) = self.by_age.pop_first() else { return };
            self.remove(&oldest);
        }
    }

    /// To be called where the parent is gone, or no longer the controller's.
    pub fn forget(&mut self, parents: &Resource, parent: &Key) {
        for hook in [HookName::Sync, HookName::Finalize, HookName::Customize] {
            self.remove(&AnswerKey::new(parents, parent, hook));
        }
    }

    fn clean(&mut self, policy: EtagPolicy, now: Duration) {
        match policy {
            EtagPolicy::Expiring { cleanup, .. } if now >= self.cleaned.saturating_add(cleanup) => {}
            EtagPolicy::Expiring { .. } | EtagPolicy::Forever => return,
        }
        self.cleaned = now;
        let expired = self.entries.iter().filter(|(_, entry)| entry.is_expired(now));
        for key in expired.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.remove(&key);
        }
    }

    fn remove(&mut self, key: &AnswerKey) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= size(key, &entry.answer);
            self.by_age.remove(&entry.age);
        }
    }
}

impl Entry {
    fn is_expired(&self, now: Duration) -> bool {
        self.expires.is_some_and(|end| end <= now)
    }
}

fn size(key: &AnswerKey, answer: &KeptAnswer) -> usize {
    OVERHEAD + 2 * key.parent.len() + answer.tag.len() + answer.body.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::testing::resource;

    fn key(name: &str, hook: HookName) -> AnswerKey {
        AnswerKey::new(&resource("e/v1", "P"), &Key::new("n", name), hook)
    }

    fn answer(body: &str) -> KeptAnswer {
        KeptAnswer { tag: b"t".as_slice().into(), body: body.as_bytes().into() }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn found(cache: &mut AnswerCache, name: &str, uid: &str, now: u64) -> Option<String> {
        let found = cache.find(&key(name, HookName::Sync), &Uid::new(uid), seconds(now))?;
        Some(String::from_utf8(found.body.to_vec()).unwrap())
    }

    fn keep(cache: &mut AnswerCache, name: &str, body: &str) {
        cache.keep(key(name, HookName::Sync), Uid::new("u"), answer(body), EtagPolicy::Forever, seconds(0));
    }

    #[test]
    fn a_status_without_a_body_stands_for_the_answer_that_was_sent() {
        let kept = Arc::new(answer("kept"));
        let sent = Some(&kept);
        for (status, tag, sent, expected) in [
            (200, None, None, AnswerSource::Own(None)),
            (200, Some(b"\"a\"".as_slice()), None, AnswerSource::Own(Some(b"\"a\""))),
            (200, Some(b"W/\"a\""), sent, AnswerSource::Own(Some(b"W/\"a\""))),
            (200, None, sent, AnswerSource::Own(None)),
            (304, None, sent, AnswerSource::Kept(&kept)),
            (304, Some(b"other"), sent, AnswerSource::Kept(&kept)),
            (412, None, sent, AnswerSource::Kept(&kept)),
            (304, Some(b"a"), None, AnswerSource::Refused),
            (412, None, None, AnswerSource::Refused),
            (204, Some(b"a"), sent, AnswerSource::Refused),
            (500, Some(b"a"), sent, AnswerSource::Refused),
        ] {
            assert_eq!(source(status, tag, sent), expected, "{status} {tag:?}");
        }
    }

    #[test]
    fn a_tag_that_no_header_may_have_is_not_kept() {
        let longest = [b'x'; MAX_TAG];
        let long = [b'x'; MAX_TAG + 1];
        for (tag, is_kept) in [
            (longest.as_slice(), true),
            (&long, false),
            (b"", false),
            (b"no quotes, \t and \xfc", true),
            (b"a\r\nauthorization: b", false),
            (b"\0", false),
            (b"\x7f", false),
        ] {
            assert_eq!(source(200, Some(tag), None), AnswerSource::Own(is_kept.then_some(tag)), "{tag:?}");
        }
    }

    #[test]
    fn an_answer_is_of_its_parent_and_its_hook_alone() {
        let mut cache = AnswerCache::default();
        keep(&mut cache, "a", "1");
        assert_eq!(found(&mut cache, "a", "u", 1 << 40).as_deref(), Some("1"));
        assert_eq!(found(&mut cache, "b", "u", 0), None);
        let uid = Uid::new("u");
        assert_eq!(cache.find(&key("a", HookName::Finalize), &uid, seconds(0)), None);
        for (api_version, kind) in [("f/v1", "P"), ("e/v1", "Q")] {
            let other = AnswerKey::new(&resource(api_version, kind), &Key::new("n", "a"), HookName::Sync);
            assert_eq!(cache.find(&other, &uid, seconds(0)), None);
        }
        // The same kind in another version.
        let same = AnswerKey::new(&resource("e/v2", "P"), &Key::new("n", "a"), HookName::Sync);
        assert!(cache.find(&same, &uid, seconds(0)).is_some());
        assert_eq!(found(&mut cache, "a", "another", 0), None, "it was made anew under its name");
        assert_eq!((cache.entries.len(), cache.by_age.len(), cache.bytes), (0, 0, 0));
    }

    #[test]
    fn a_new_answer_takes_the_place_of_the_old_one() {
        let mut cache = AnswerCache::default();
        keep(&mut cache, "a", "first and long");
        keep(&mut cache, "a", "2");
        assert_eq!(found(&mut cache, "a", "u", 0).as_deref(), Some("2"));
        let only = size(&key("a", HookName::Sync), &answer("2"));
        assert_eq!((cache.entries.len(), cache.by_age.len(), cache.bytes), (1, 1, only));
    }

    #[test]
    fn beyond_the_bytes_the_oldest_goes() {
        let each = size(&key("a", HookName::Sync), &answer("1234"));
        let mut cache = AnswerCache::new(3 * each);
        for name in ["a", "b", "c"] {
            keep(&mut cache, name, "1234");
        }
        assert_eq!(cache.entries.len(), 3);
        keep(&mut cache, "a", "4321");
        keep(&mut cache, "d", "1234");
        let kept = ["a", "b", "c", "d"].map(|name| found(&mut cache, name, "u", 0).is_some());
        assert_eq!(kept, [true, false, true, true]);
        assert_eq!(cache.bytes, 3 * each);
    }

    #[test]
    fn beyond_the_number_the_oldest_goes() {
        let mut cache = AnswerCache::default();
        for nth in 0..=MAX_ANSWERS {
            assert_eq!(cache.entries.len(), nth);
            keep(&mut cache, &nth.to_string(), "");
        }
        assert_eq!((cache.entries.len(), cache.by_age.len()), (MAX_ANSWERS, MAX_ANSWERS));
        assert_eq!(found(&mut cache, "0", "u", 0), None);
        assert!(found(&mut cache, "1", "u", 0).is_some());
    }

    #[test]
    fn an_answer_larger_than_all_the_room_is_not_kept() {
        let room = size(&key("a", HookName::Sync), &answer("1234"));
        let mut cache = AnswerCache::new(room);
        keep(&mut cache, "a", "1234");
        assert!(found(&mut cache, "a", "u", 0).is_some());
        keep(&mut cache, "b", "1");
        keep(&mut cache, "b", "12345");
        // The older answer would never be asked for with the tag of the newer one.
        assert_eq!((found(&mut cache, "b", "u", 0), cache.bytes), (None, 0));
    }

    #[test]
    fn answers_expire_and_are_cleaned_up() {
        let policy = EtagPolicy::Expiring { lifetime: seconds(10), cleanup: seconds(30) };
        let mut cache = AnswerCache::default();
        let keep = |cache: &mut AnswerCache, name: &str, now| {
            cache.keep(key(name, HookName::Sync), Uid::new("u"), answer(""), policy, seconds(now));
        };
        keep(&mut cache, "a", 0);
        keep(&mut cache, "b", 1);
        assert!(found(&mut cache, "a", "u", 9).is_some());
        assert_eq!(found(&mut cache, "a", "u", 10), None);
        keep(&mut cache, "c", 29);
        assert_eq!(cache.entries.len(), 2, "the expired one is still there");
        keep(&mut cache, "d", 30);
        assert_eq!(cache.entries.len(), 2);
        assert!(found(&mut cache, "c", "u", 30).is_some() && found(&mut cache, "d", "u", 30).is_some());
    }

    #[test]
    fn a_parent_that_goes_frees_what_was_kept_for_it() {
        let mut cache = AnswerCache::default();
        for hook in [HookName::Sync, HookName::Finalize, HookName::Customize] {
            cache.keep(key("a", hook), Uid::new("u"), answer("x"), EtagPolicy::Forever, seconds(0));
        }
        keep(&mut cache, "b", "x");
        cache.forget(&resource("e/v1", "P"), &Key::new("n", "a"));
        assert_eq!((cache.entries.len(), cache.by_age.len()), (1, 1));
        cache.forget(&resource("e/v1", "P"), &Key::new("n", "b"));
        assert_eq!(cache.bytes, 0);
    }
}
