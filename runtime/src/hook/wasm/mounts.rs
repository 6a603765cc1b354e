//! What a hook finds in its mounts: objects that are followed, each version of their content in a folder of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;
use metahook_core::api::mount::{MountKind, MountRef, is_file_name};
use metahook_core::api::units::print_bytes;
use metahook_core::fingerprint::{Fingerprint, Fingerprinter};
use metahook_core::text::shorten;
use serde::Deserialize;

use crate::cluster::object_watch::{Follower, Kind, Known, ObjectWatches, Reference};
use crate::hook::wasm::folders::{Folder, Folders};
use crate::hook::wasm::run::Mounted;

/// Bytes of all files that one hook sees.
const MOST_BYTES: u64 = 4 << 20;

/// Files that one hook sees; an empty one is not free either.
const MOST_FILES: usize = 4000;

type Files = BTreeMap<String, Vec<u8>>;

/// What the calls of one pass find in their mounts: the content of one moment.
pub(crate) struct Mounts {
    mounted: Vec<Mounted>,
    digest: Fingerprint,
    _folders: Vec<Arc<Folder>>,
}

/// The mounts of one hook, kept up to date.
pub(super) struct MountSet {
    folders: Result<Arc<Folders>, Arc<str>>,
    mounts: Vec<Mount>,
}

struct Mount {
    what: MountRef,
    object: Follower,
    /// The last good content.
    good: Option<Content>,
}

#[derive(Clone)]
struct Content {
    digest: Fingerprint,
    size: usize,
    count: usize,
    folder: Arc<Folder>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MountError {
    #[error("there is no {name}, which is mounted at {path}: create it, or take the mount out")]
    Missing { name: Reference, path: String },
    #[error("the {name}, which is mounted at {path}, cannot be read: {message}")]
    Unreadable { name: Reference, path: String, message: Arc<str> },
    #[error("the {name}, which is mounted at {path}, has a key {key:?}, and no file can be called that")]
    Key { name: Reference, path: String, key: String },
    #[error(
        "the mounts have {bytes} bytes in {files} files, and a hook may see {} in {MOST_FILES}: mount less, or keep less in the objects",
        print_bytes(MOST_BYTES)
    )]
    TooLarge { bytes: usize, files: usize },
    #[error("{0}")]
    NoPlace(Arc<str>),
}

impl MountError {
    /// The reason of the condition `ModulesLoaded`.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "MountNotFound",
            Self::Unreadable { .. } => "MountUnreadable",
            Self::Key { .. } => "MountInvalid",
            Self::TooLarge { .. } => "MountsTooLarge",
            Self::NoPlace(_) => "MountsUnavailable",
        }
    }
}

impl Mounts {
    pub(crate) fn mounted(&self) -> &[Mounted] {
        &self.mounted
    }

    /// Of all paths, names of files and contents. Never shown: it would tell something of a Secret.
    pub(super) fn digest(&self) -> Fingerprint {
        self.digest
    }
}

impl MountSet {
    pub(super) fn follow(
        what: &[MountRef],
        objects: &ObjectWatches,
        folders: Result<Arc<Folders>, Arc<str>>,
    ) -> Self {
        let mount = |what: &MountRef| {
            let object = objects.follow(what.reader.as_ref(), &name(what));
            Mount { what: what.clone(), object, good: None }
        };
        Self { folders, mounts: what.iter().map(mount).collect() }
    }

    pub(super) fn objects(&mut self) -> impl Iterator<Item = &mut Follower> {
        self.mounts.iter_mut().map(|mount| &mut mount.object)
    }

    /// What is to be seen now, once there is something for each mount, and what is wrong with what should be seen.
    pub(super) async fn look(&mut self) -> (Option<Mounts>, Option<MountError>) {
        let mut problem = None;
        let mut found = Vec::new();
        for mount in &mut self.mounts {
            let files = mount.files().unwrap_or_else(|error| {
                problem.get_or_insert(error);
                None
            });
            found.push(files);
        }
        let taken_in = match self.check_size(&found) {
            Ok(()) => self.take_in(found).await,
            Err(error) => Err(error),
        };
        (self.now(), problem.or(taken_in.err()))
    }

    /// Against the bounds is what would be seen: new content, and the last good where there is none.
    fn check_size(&self, found: &[Option<Files>]) -> Result<(), MountError> {
        let sizes = self.mounts.iter().zip(found).map(|(mount, found)| match (found, &mount.good) {
            (Some(files), _) => (size(files), files.len()),
            (None, Some(good)) => (good.size, good.count),
            (None, None) => (0, 0),
        });
        let (bytes, files) = sizes.fold((0, 0), |(bytes, files), (b, f)| (bytes + b, files + f));
        if u64::try_from(bytes).is_ok_and(|bytes| bytes > MOST_BYTES) || files > MOST_FILES {
            return Err(MountError::TooLarge { bytes, files });
        }
        Ok(())
    }

    async fn take_in(&mut self, found: Vec<Option<Files>>) -> Result<(), MountError> {
        for (mount, files) in self.mounts.iter_mut().zip(found) {
            let Some(files) = files else { continue };
            let digest = digest(&files);
            if mount.good.as_ref().is_some_and(|good| good.digest == digest) {
                continue;
            }
            let folders = self.folders.clone().map_err(MountError::NoPlace)?;
            let (size, count) = (size(&files), files.len());
            let made = tokio::task::spawn_blocking(move || folders.make(&files)).await;
            let made =
                made.map_err(|panic| panic.to_string()).and_then(|made| made.map_err(|e| e.to_string()));
            let folder = made.map_err(|why| {
                MountError::NoPlace(format!("mounted files cannot be written: {why}").into())
            })?;
            mount.good = Some(Content { digest, size, count, folder: Arc::new(folder) });
        }
        Ok(())
    }

    fn now(&self) -> Option<Mounts> {
        let (mut mounted, mut folders, mut all) = (Vec::new(), Vec::new(), Fingerprinter::default());
        for Mount { what, good, .. } in &self.mounts {
            let content = good.as_ref()?;
            all.add(what.path.as_bytes());
            all.add(content.digest.as_bytes());
            mounted.push(Mounted { path: what.path.clone(), folder: content.folder.path() });
            folders.push(Arc::clone(&content.folder));
        }
        Some(Mounts { mounted, digest: all.finish(), _folders: folders })
    }
}

impl Mount {
    /// `Ok(None)`: nothing is known yet.
    fn files(&mut self) -> Result<Option<Files>, MountError> {
        let (name, path) = (name(&self.what), self.what.path.clone());
        let object = match self.object.now() {
            Known::NotYet => return Ok(None),
            Known::Missing => return Err(MountError::Missing { name, path }),
            Known::Unreadable(message) => return Err(MountError::Unreadable { name, path, message }),
            Known::There(object) => object,
        };
        let Some(files) = files(self.what.kind, object.json()) else {
            // What serde says might quote a value.
            return Err(MountError::Unreadable { name, path, message: "its data are no data".into() });
        };
        match files.keys().find(|key| !is_file_name(key)) {
            Some(key) => Err(MountError::Key { name, path, key: shorten(key, 100) }),
            None => Ok(Some(files)),
        }
    }
}

fn name(what: &MountRef) -> Reference {
    let kind = match what.kind {
        MountKind::ConfigMap => Kind::ConfigMap,
        MountKind::Secret => Kind::Secret,
    };
    Reference { kind, namespace: what.namespace.clone(), name: what.name.clone() }
}

/// A file for each key.
fn files(kind: MountKind, json: &str) -> Option<Files> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ConfigMap {
        data: Option<BTreeMap<String, String>>,
        binary_data: Option<BTreeMap<String, ByteString>>,
    }
    #[derive(Deserialize)]
    struct Secret {
        data: Option<BTreeMap<String, ByteString>>,
    }
    let bytes = |data: Option<BTreeMap<String, ByteString>>| {
        data.unwrap_or_default().into_iter().map(|(key, bytes)| (key, bytes.0))
    };
    match kind {
        MountKind::ConfigMap => {
            let map: ConfigMap = serde_json::from_str(json).ok()?;
            let text = map.data.unwrap_or_default().into_iter();
            Some(text.map(|(key, text)| (key, text.into_bytes())).chain(bytes(map.binary_data)).collect())
        }
        MountKind::Secret => {
            let secret: Secret = serde_json::from_str(json).ok()?;
            Some(bytes(secret.data).collect())
        }
    }
}

fn size(files: &Files) -> usize {
    files.values().map(Vec::len).sum()
}

fn digest(files: &Files) -> Fingerprint {
    let mut all = Fingerprinter::default();
    for (name, bytes) in files {
        all.add(name.as_bytes());
        all.add(bytes);
    }
    all.finish()
}

#[cfg(test)]
mod tests {
    use metahook_core::object::Object;
    use tokio::sync::watch;

    use super::*;

    /// Objects `a` and `b`, mounted at `/a` and `/b`.
    struct World {
        objects: [watch::Sender<Known>; 2],
        set: MountSet,
        base: tempfile::TempDir,
    }

    fn world() -> World {
        let base = tempfile::tempdir().unwrap();
        let folders = Ok(Arc::new(Folders::create(base.path(), "test").unwrap()));
        let objects = [(); 2].map(|()| watch::Sender::new(Known::NotYet));
        let mounts = objects.iter().zip(["a", "b"]).map(|(known, name)| Mount {
            what: MountRef {
                path: format!("/{name}"),
                kind: MountKind::ConfigMap,
                namespace: "n".to_owned(),
                name: name.to_owned(),
                reader: None,
            },
            object: Follower::fed_by(known),
            good: None,
        });
        let set = MountSet { folders, mounts: mounts.collect() };
        World { objects, set, base }
    }

    fn there(text: &str) -> Known {
        let data = serde_json::json!({"key": text});
        let json =
            format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"x"}},"data":{data}}}"#);
        Known::There(Arc::new(Object::parse(&json, None).unwrap()))
    }

    fn read(mounts: &Mounts) -> Vec<String> {
        let file = |mounted: &Mounted| std::fs::read_to_string(mounted.folder.join("key")).unwrap();
        mounts.mounted().iter().map(file).collect()
    }

    #[tokio::test]
    async fn a_hook_sees_all_its_mounts_or_waits() {
        let mut world = world();
        assert!(matches!(world.set.look().await, (None, None)), "nothing is known yet");
        world.objects[0].send_replace(there("one"));
        world.objects[1].send_replace(Known::Missing);
        let (mounts, problem) = world.set.look().await;
        assert!(mounts.is_none());
        assert_eq!(
            problem.unwrap().to_string(),
            "there is no ConfigMap n/b, which is mounted at /b: create it, or take the mount out"
        );
        world.objects[1].send_replace(there("two"));
        let (mounts, problem) = world.set.look().await;
        assert_eq!((read(&mounts.unwrap()), problem), (vec!["one".to_owned(), "two".to_owned()], None));
    }

    #[tokio::test]
    async fn a_call_goes_on_seeing_what_it_began_with() {
        let mut world = world();
        world.objects.iter().for_each(|object| drop(object.send_replace(there("old"))));
        let before = world.set.look().await.0.unwrap();
        world.objects[0].send_replace(there("new"));
        let after = world.set.look().await.0.unwrap();
        assert_eq!(
            (read(&before), read(&after)),
            (vec!["old".to_owned(); 2], vec!["new".to_owned(), "old".to_owned()])
        );
        assert_ne!(before.digest(), after.digest());
        assert_eq!(before.mounted()[1], after.mounted()[1], "what did not change is not made anew");
        let folder = before.mounted()[0].folder.clone();
        drop(before);
        assert!(!folder.exists(), "nobody needs it any more");
        drop((after, world.set));
        assert_eq!(std::fs::read_dir(world.base.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn what_is_lost_or_too_large_does_not_take_the_place_of_what_was_good() {
        let mut world = world();
        world.objects.iter().for_each(|object| drop(object.send_replace(there("good"))));
        let good = world.set.look().await.0.unwrap();
        world.objects[0].send_replace(Known::Missing);
        world.objects[1].send_replace(there(&"x".repeat(4 << 20)));
        let (mounts, problem) = world.set.look().await;
        assert_eq!(mounts.unwrap().digest(), good.digest());
        assert!(matches!(problem, Some(MountError::Missing { .. })));
        world.objects[0].send_replace(there("good"));
        let (mounts, problem) = world.set.look().await;
        assert_eq!(mounts.unwrap().digest(), good.digest());
        assert_eq!(
            problem.unwrap().to_string(),
            "the mounts have 4194308 bytes in 2 files, and a hook may see 4Mi in 4000: mount less, or keep less in the objects"
        );
        world.objects[0].send_replace(there(""));
        assert!(matches!(world.set.look().await, (Some(_), None)), "just as much as there may be");
    }

    #[tokio::test]
    async fn without_a_place_for_files_only_hooks_without_mounts_run() {
        let mut set = MountSet { folders: Err("no room".into()), mounts: Vec::new() };
        assert!(matches!(set.look().await, (Some(_), None)));
        let mut world = world();
        world.set.folders = Err("no room".into());
        world.objects.iter().for_each(|object| drop(object.send_replace(there("good"))));
        let (mounts, problem) = world.set.look().await;
        assert_eq!((mounts.is_none(), problem), (true, Some(MountError::NoPlace("no room".into()))));
    }

    fn of(files: &[(&str, &str)]) -> Files {
        files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
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
}
