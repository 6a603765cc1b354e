use metahook_core::object::Object;

use super::*;

/// Objects `a` and `b`, mounted at `/a` and `/b`.
struct World {
    memory: Arc<MountMemory>,
    objects: [watch::Sender<ReferenceState>; 2],
    set: MountSet,
}

/// Bytes that a file `key` with this text takes.
fn taken(text: &str) -> u64 {
    memory_of(&of(&[("key", text)]))
}

fn world() -> World {
    world_within(64 << 20)
}

fn world_within(max: u64) -> World {
    let memory = Arc::new(MountMemory::new(max));
    let objects = [(); 2].map(|()| watch::Sender::new(ReferenceState::NotYet));
    let set = follow(&memory, &objects);
    World { memory, objects, set }
}

fn follow(memory: &Arc<MountMemory>, objects: &[watch::Sender<ReferenceState>]) -> MountSet {
    let mounts = objects.iter().zip(["a", "b"]).map(|(known, name)| Mount {
        spec: MountRef {
            path: format!("/{name}"),
            kind: MountKind::ConfigMap,
            namespace: "n".to_owned(),
            name: name.to_owned(),
            reader: None,
        },
        object: Follower::fed_by(known),
        good: None,
    });
    MountSet::new(mounts.collect(), Arc::clone(memory))
}

impl World {
    fn set_all(&self, text: &str) {
        for object in &self.objects {
            object.send_replace(there(text));
        }
    }

    fn used(&self) -> u64 {
        *self.memory.used.borrow()
    }
}

fn there(text: &str) -> ReferenceState {
    with_file("key", text)
}

fn with_file(name: &str, text: &str) -> ReferenceState {
    let data = serde_json::json!({name: text});
    let json = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"x"}},"data":{data}}}"#);
    ReferenceState::There(Arc::new(Object::parse(&json, None).unwrap()))
}

fn read(mounts: &Mounts) -> Vec<&str> {
    mounts.folders.iter().map(|folder| std::str::from_utf8(&folder.files["key"]).unwrap()).collect()
}

#[tokio::test]
async fn a_hook_sees_all_its_mounts_or_waits() {
    let mut world = world();
    assert!(matches!(world.set.update(), (None, None)), "nothing is known yet");
    world.objects[0].send_replace(there("one"));
    world.objects[1].send_replace(ReferenceState::Missing);
    let (mounts, problem) = world.set.update();
    assert!(mounts.is_none());
    assert_eq!(
        problem.unwrap().to_string(),
        "there is no ConfigMap n/b, which is mounted at /b: create it, or take the mount out"
    );
    world.objects[1].send_replace(there("two"));
    let (mounts, problem) = world.set.update();
    assert_eq!((read(&mounts.unwrap()), problem), (vec!["one", "two"], None));
}

#[tokio::test]
async fn a_call_goes_on_seeing_what_it_began_with() {
    let mut world = world();
    world.set_all("old");
    let before = world.set.update().0.unwrap();
    world.objects[0].send_replace(there("newer"));
    let after = world.set.update().0.unwrap();
    assert_eq!((read(&before), read(&after)), (vec!["old", "old"], vec!["newer", "old"]));
    assert_ne!(before.digest, after.digest);
    assert!(
        std::ptr::eq(&raw const *before.folders[1].files, &raw const *after.folders[1].files),
        "an unchanged mount is shared"
    );
    assert_eq!(world.used(), 2 * taken("old") + taken("newer"));
    drop(before);
    assert_eq!(world.used(), taken("old") + taken("newer"), "freed with the last call");
    drop((after, world.set));
    assert_eq!(*world.memory.used.borrow(), 0);
}

#[tokio::test]
async fn a_missing_or_too_large_version_does_not_replace_a_good_one() {
    let mut world = world();
    world.set_all("good");
    let good = world.set.update().0.unwrap();
    world.objects[0].send_replace(ReferenceState::Missing);
    world.objects[1].send_replace(there(&"x".repeat(4 << 20)));
    let (mounts, problem) = world.set.update();
    assert_eq!(mounts.unwrap().digest, good.digest);
    assert!(matches!(problem, Some(MountError::Missing { .. })));
    world.objects[0].send_replace(there("good"));
    let (mounts, problem) = world.set.update();
    assert_eq!(mounts.unwrap().digest, good.digest);
    assert_eq!(
        problem.unwrap().to_string(),
        "the mounts have 4194308 bytes in 2 files, and a hook may see 4Mi in 4000: mount less, or keep less in the objects"
    );
    world.objects[0].send_replace(there(""));
    assert!(matches!(world.set.update(), (Some(_), None)), "exactly the bound is allowed");
}

/// The API server takes no such key; an older one may have.
#[tokio::test]
async fn a_key_that_is_no_file_name_is_refused_until_it_is_gone() {
    let mut world = world();
    world.set_all("good");
    world.objects[0].send_replace(with_file("..", "odd"));
    let (mounts, problem) = world.set.update();
    assert!(mounts.is_none());
    assert_eq!(problem.unwrap().reason(), ConditionReason::MountInvalid);
    world.objects[0].send_replace(there("good"));
    assert!(matches!(world.set.update(), (Some(_), None)));
}

#[tokio::test]
async fn mounts_take_as_much_memory_as_the_bound_and_no_more() {
    let mut world = world_within(2 * taken("12345"));
    world.set_all("12345");
    assert!(matches!(world.set.update(), (Some(_), None)));
    assert_eq!(world.used(), world.memory.max);

    let mut world = world_within(2 * taken("12345") - 1);
    world.set_all("12345");
    let (mounts, problem) = world.set.update();
    assert!(mounts.is_none());
    assert_eq!(world.used(), taken("12345"), "a refused version takes nothing");
    assert_eq!(
        problem.unwrap().to_string(),
        "the ConfigMap n/b, which is mounted at /b, takes 136 bytes of memory, and the mounts of all hooks may take 271 (--mount-memory-max), with older versions until the last call that sees them ends: raise the flag, or mount less"
    );
}

#[tokio::test]
async fn a_version_without_memory_waits_until_a_call_frees_some() {
    let mut world = world_within(3 * taken("old"));
    world.set_all("old");
    let in_call = world.set.update().0.unwrap();
    world.objects[0].send_replace(there("new"));
    assert_eq!(read(&world.set.update().0.unwrap()), ["new", "old"]);
    world.objects[1].send_replace(there("new"));
    let (mounts, problem) = world.set.update();
    assert_eq!(read(&mounts.unwrap()), ["new", "old"], "the last good version stays");
    assert!(matches!(problem, Some(MountError::Memory { .. })));

    let woken = |set: &mut MountSet| futures_util::FutureExt::now_or_never(set.changed()).is_some();
    assert!(!woken(&mut world.set));
    drop(in_call);
    assert!(woken(&mut world.set));
    let (mounts, problem) = world.set.update();
    assert_eq!((read(&mounts.unwrap()), problem), (vec!["new", "new"], None));
    assert!(!woken(&mut world.set), "nothing is missing any more");
}

#[tokio::test]
async fn the_mounts_of_several_hooks_share_the_memory() {
    let mut world = world_within(3 * taken("text"));
    world.set_all("text");
    assert!(matches!(world.set.update(), (Some(_), None)));
    let mut other = follow(&world.memory, &world.objects);
    assert!(matches!(other.update(), (None, Some(MountError::Memory { .. }))));
    drop(world.set);
    assert!(matches!(other.update(), (Some(_), None)));
}

fn of(files: &[(&str, &str)]) -> Files {
    files.iter().map(|(name, text)| ((*name).to_owned(), Bytes::copy_from_slice(text.as_bytes()))).collect()
}

#[test]
fn each_key_is_a_file() {
    let map = r#"{"data":{"a":"text","b":""},"binaryData":{"c":"AAE="}}"#;
    assert_eq!(files(MountKind::ConfigMap, map), Some(of(&[("a", "text"), ("b", ""), ("c", "\0\u{1}")])));
    let secret = r#"{"data":{"password":"c2VjcmV0"},"type":"Opaque"}"#;
    assert_eq!(files(MountKind::Secret, secret), Some(of(&[("password", "secret")])));
    assert_eq!(files(MountKind::Secret, "{}"), Some(Files::new()));
    assert_eq!(files(MountKind::Secret, r#"{"data":{"a":"not base64"}}"#), None);
}

#[test]
fn other_names_and_other_contents_have_other_digests() {
    let all = [
        of(&[]),
        of(&[("a", "")]),
        of(&[("a", "b")]),
        of(&[("ab", "")]),
        of(&[("a", ""), ("b", "")]),
        of(&[("a", "b"), ("c", "")]),
    ];
    let digests: std::collections::BTreeSet<_> = all.iter().map(digest).collect();
    assert_eq!(digests.len(), all.len());
    assert_eq!(digest(&of(&[("a", "b")])), digest(&of(&[("a", "b")])));
}

#[tokio::test]
async fn a_mount_that_the_account_may_no_longer_read_is_gone() {
    let mut world = world();
    world.set_all("text");
    assert!(world.set.update().0.is_some());
    world.objects[1].send_replace(ReferenceState::Unreadable("broken".into()));
    assert!(world.set.update().0.is_some(), "the last good one");
    world.objects[1].send_replace(ReferenceState::TakenAway("cannot".into()));
    let (mounts, problem) = world.set.update();
    assert!(mounts.is_none() && problem.unwrap().to_string().ends_with("cannot"));
    assert_eq!(world.used(), taken("text"), "and its memory is given back");
    world.objects[1].send_replace(there("text"));
    assert!(matches!(world.set.update(), (Some(_), None)));
}
