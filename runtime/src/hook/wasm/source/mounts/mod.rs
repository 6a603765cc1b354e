//! Mounts of a hook: ConfigMaps and Secrets that are followed, each version of their content held in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use metahook_core::api::mount::{MountKind, MountRef, is_file_name};
use metahook_core::api::reason::ConditionReason;
use metahook_core::api::units::print_bytes;
use metahook_core::hash::{Fingerprint, Fingerprinter};
use metahook_core::object::id::{Key, ObjectId};
use metahook_core::{counted, shorten};
use serde_json::value::RawValue;
use tokio::sync::watch;

use crate::cluster::api_client::ApiClient;
use crate::cluster::named_objects::{
    Follower, ObjectWatches, Reference, ReferenceKind, ReferenceState, any_changed,
};
use crate::cluster::objects::RequestError;
use crate::hook::wasm::run::{Files, MountedFiles, MountedFolder};

/// Bytes of all files that one hook sees.
const MAX_BYTES: usize = 4 << 20;

/// Files that one hook sees.
const MAX_FILES: usize = 4000;

/// Bytes that a file counts for beside its name and content, so that empty files are bounded too.
const FILE_OVERHEAD: usize = 128;

/// The memory that the files of all mounts share.
pub(crate) struct MountMemory {
    max: u64,
    used: watch::Sender<u64>,
}

/// A part of the memory, given back when dropped.
struct Reservation {
    memory: Arc<MountMemory>,
    bytes: u64,
}

/// The mounts as the calls of one reconcile see them: the content of one moment.
pub(crate) struct Mounts {
    pub(crate) folders: Vec<MountedFolder>,
    /// Digest of all paths, names of files and contents. Never shown: it would tell something of a Secret.
    pub(super) digest: Fingerprint,
    /// Counted against the bound on all mounts until the last call that sees them ends.
    _versions: Vec<Arc<Version>>,
}

/// The mounts of one hook, kept up to date.
pub(super) struct MountSet {
    memory: Arc<MountMemory>,
    freed: watch::Receiver<u64>,
    /// A version was refused for want of memory.
    waits_for_memory: bool,
    mounts: Vec<Mount>,
}

struct Mount {
    spec: MountRef,
    object: Follower,
    /// The last good version.
    good: Option<Arc<Version>>,
}

/// The content of one object at one time.
struct Version {
    digest: Fingerprint,
    files: MountedFiles,
    _memory: Reservation,
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
        "the mounts have {bytes} bytes in {}, and a hook may see {} in {MAX_FILES}: mount less, or keep less in the objects",
        counted(*files, "file", "files"),
        print_bytes(MAX_BYTES as u64)
    )]
    TooLarge { bytes: usize, files: usize },
    #[error(
        "the {name}, which is mounted at {path}, takes {bytes} bytes of memory, and the mounts of all hooks may take {} (--mount-memory-max), with older versions until the last call that sees them ends: raise the flag, or mount less",
        print_bytes(*max)
    )]
    Memory { name: Reference, path: String, bytes: u64, max: u64 },
}

impl MountError {
    /// The reason of the condition `ModulesLoaded`.
    pub(super) fn reason(&self) -> ConditionReason {
        match self {
            Self::Missing { .. } => ConditionReason::MountNotFound,
            Self::Unreadable { .. } => ConditionReason::MountUnreadable,
            Self::Key { .. } => ConditionReason::MountInvalid,
            Self::TooLarge { .. } => ConditionReason::MountsTooLarge,
            Self::Memory { .. } => ConditionReason::MountMemoryExceeded,
        }
    }
}

impl MountMemory {
    pub(crate) fn new(max: u64) -> Self {
        Self { max, used: watch::Sender::new(0) }
    }

    fn reserve(self: &Arc<Self>, bytes: u64) -> Option<Reservation> {
        let mut fits = false;
        self.used.send_if_modified(|used| {
            let sum = used.saturating_add(bytes);
            fits = sum <= self.max;
            if fits {
                *used = sum;
            }
            false // Only memory that is given back is worth another try.
        });
        fits.then(|| Reservation { memory: Arc::clone(self), bytes })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.used.send_modify(|used| *used = used.saturating_sub(self.bytes));
    }
}

impl Mounts {
    /// Folders that lie in files: no object is followed, and no memory is counted.
    pub(super) fn of_folders(folders: Vec<MountedFolder>) -> Self {
        let mut all = Fingerprinter::default();
        for MountedFolder { path, files } in &folders {
            all.add(path.as_bytes());
            all.add(digest(files).as_bytes());
        }
        Self { folders, digest: all.finish(), _versions: Vec::new() }
    }
}

impl MountSet {
    pub(super) fn follow(specs: &[MountRef], objects: &ObjectWatches, memory: Arc<MountMemory>) -> Self {
        let mount = |spec: &MountRef| {
            let object = objects.follow(spec.reader.as_ref(), &name(spec));
            Mount { spec: spec.clone(), object, good: None }
        };
        Self::new(specs.iter().map(mount).collect(), memory)
    }

    fn new(mounts: Vec<Mount>, memory: Arc<MountMemory>) -> Self {
        let freed = memory.used.subscribe();
        Self { memory, freed, waits_for_memory: false, mounts }
    }

    /// Waits until [`MountSet::update`] may have another result.
    pub(super) async fn changed(&mut self) {
        let objects = any_changed(self.mounts.iter_mut().map(|mount| &mut mount.object));
        tokio::select! {
            () = objects => {}
            // The sender lives as long as this set.
            _ = self.freed.changed(), if self.waits_for_memory => {}
        }
    }

    /// Takes new versions in. Returns the content for calls, once each mount has some, and the first problem.
    pub(super) fn update(&mut self) -> (Option<Mounts>, Option<MountError>) {
        let mut problem = None;
        let mut found = Vec::new();
        for mount in &mut self.mounts {
            let files = mount.files().unwrap_or_else(|error| {
                problem.get_or_insert(error);
                None
            });
            found.push(files);
        }
        let taken_in = self.check_size(&found).and_then(|()| self.take_in(found));
        (self.content(), problem.or(taken_in.err()))
    }

    /// Checks new content, and the last good where there is none, against the bounds of one hook.
    fn check_size(&self, found: &[Option<Files>]) -> Result<(), MountError> {
        let mut bytes = 0;
        let mut files = 0;
        for (mount, found) in self.mounts.iter().zip(found) {
            let good = mount.good.as_ref().map(|good| &*good.files);
            for content in found.as_ref().or(good).into_iter().flat_map(Files::values) {
                bytes += content.len();
                files += 1;
            }
        }
        if bytes > MAX_BYTES || files > MAX_FILES {
            return Err(MountError::TooLarge { bytes, files });
        }
        Ok(())
    }

    fn take_in(&mut self, found: Vec<Option<Files>>) -> Result<(), MountError> {
        // Seen before the first try, so that memory given back after it is not missed.
        self.freed.mark_unchanged();
        let mut refused = None;
        for (mount, files) in self.mounts.iter_mut().zip(found) {
            if let Some(files) = files
                && let Err(error) = mount.take_in(files, &self.memory)
            {
                refused.get_or_insert(error);
            }
        }
        self.waits_for_memory = refused.is_some();
        refused.map_or(Ok(()), Err)
    }

    fn content(&self) -> Option<Mounts> {
        let mut folders = Vec::new();
        let mut versions = Vec::new();
        let mut all = Fingerprinter::default();
        for Mount { spec, good, .. } in &self.mounts {
            let version = good.as_ref()?;
            all.add(spec.path.as_bytes());
            all.add(version.digest.as_bytes());
            folders.push(MountedFolder { path: spec.path.clone(), files: version.files.clone() });
            versions.push(Arc::clone(version));
        }
        Some(Mounts { folders, digest: all.finish(), _versions: versions })
    }
}

impl Mount {
    /// `Ok(None)`: nothing is known yet.
    fn files(&mut self) -> Result<Option<Files>, MountError> {
        let (name, path) = (name(&self.spec), self.spec.path.clone());
        let object = match self.object.now() {
            ReferenceState::NotYet => return Ok(None),
            ReferenceState::Missing => return Err(MountError::Missing { name, path }),
            ReferenceState::Unreadable(message) => {
                return Err(MountError::Unreadable { name, path, message });
            }
            ReferenceState::TakenAway(message) => {
                self.good = None;
                return Err(MountError::Unreadable { name, path, message });
            }
            ReferenceState::There(object) => object,
        };
        let Some(files) = files(self.spec.kind, object.json()) else {
            // The parser's own message might quote a value.
            let message = "its data or binaryData is not a map of strings".into();
            return Err(MountError::Unreadable { name, path, message });
        };
        match files.keys().find(|key| !is_file_name(key)) {
            Some(key) => Err(MountError::Key { name, path, key: shorten(key, 100) }),
            None => Ok(Some(files)),
        }
    }

    fn take_in(&mut self, files: Files, memory: &Arc<MountMemory>) -> Result<(), MountError> {
        let digest = digest(&files);
        if self.good.as_ref().is_some_and(|good| good.digest == digest) {
            return Ok(());
        }
        let bytes = memory_of(&files);
        let Some(reservation) = memory.reserve(bytes) else {
            let (name, path) = (name(&self.spec), self.spec.path.clone());
            return Err(MountError::Memory { name, path, bytes, max: memory.max });
        };
        let files = MountedFiles::from(files);
        self.good = Some(Arc::new(Version { digest, files, _memory: reservation }));
        Ok(())
    }
}

fn name(spec: &MountRef) -> Reference {
    let kind = match spec.kind {
        MountKind::ConfigMap => ReferenceKind::ConfigMap,
        MountKind::Secret => ReferenceKind::Secret,
    };
    Reference { kind, namespace: spec.namespace.clone(), name: spec.name.clone() }
}

/// The files of a mount as they are now; `None` where the object is not there.
pub async fn mounted_files(api: &ApiClient, mount: &MountRef) -> Result<Option<Files>, RequestError> {
    let Reference { kind, namespace, name } = name(mount);
    let id = ObjectId { resource: kind.resource().into(), key: Key::new(&namespace, &name) };
    let object: Option<Box<RawValue>> = api.read_as(&id).await?;
    Ok(object.and_then(|object| files(mount.kind, object.get())))
}

/// A file for each key.
fn files(kind: MountKind, json: &str) -> Option<Files> {
    let bytes = |data: Option<BTreeMap<String, ByteString>>| {
        data.unwrap_or_default().into_iter().map(|(key, bytes)| (key, Bytes::from(bytes.0)))
    };
    match kind {
        MountKind::ConfigMap => {
            let map: ConfigMap = serde_json::from_str(json).ok()?;
            let text = map.data.unwrap_or_default().into_iter();
            Some(text.map(|(key, text)| (key, Bytes::from(text))).chain(bytes(map.binary_data)).collect())
        }
        MountKind::Secret => {
            let secret: Secret = serde_json::from_str(json).ok()?;
            Some(bytes(secret.data).collect())
        }
    }
}

fn memory_of(files: &Files) -> u64 {
    files.iter().map(|(name, content)| (FILE_OVERHEAD + name.len() + content.len()) as u64).sum()
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
mod tests;
