//! Folder of a recording: new files alone are written.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use super::{LiveCase, RecordError};
use crate::yaml;

/// The folder of the cases of live parents.
const TESTS: &str = "tests";

pub(crate) struct Folder<'a> {
    pub(crate) root: &'a Path,
    /// Only its owner may read what is written.
    pub(crate) is_private: bool,
    pub(crate) wrote: &'a mut Vec<PathBuf>,
}

/// The folder of a case, where there is one already.
pub(super) fn case_folder(root: &Path, place: &[String]) -> Result<Option<PathBuf>, RecordError> {
    let folder = path_of(&root.join(TESTS), place)?;
    Ok(folder.symlink_metadata().is_ok().then_some(folder))
}

/// A path whose parts name one file or folder each.
pub(crate) fn path_of(root: &Path, place: &[String]) -> Result<PathBuf, RecordError> {
    let mut folder = root.to_owned();
    for part in place {
        let mut components = Path::new(part).components();
        let is_plain = matches!(components.next(), Some(Component::Normal(_))) && components.next().is_none();
        if !is_plain {
            return Err(RecordError::Name(part.clone()));
        }
        folder.push(part);
    }
    Ok(folder)
}

impl Folder<'_> {
    pub(super) fn write_case(&mut self, case: &LiveCase) -> Result<(), RecordError> {
        let folder = path_of(&self.root.join(TESTS), &case.place)?;
        let observed: Vec<_> = case.observed.iter().map(yaml::print).collect();
        self.write(folder.join("parent.yaml"), yaml::print(&case.parent).as_bytes())?;
        if observed.is_empty() {
            return Ok(());
        }
        self.write(folder.join("observed.yaml"), observed.join("---\n").as_bytes())
    }

    /// Writes a file beside the cases. One of this name that is there already stays: it is the author's own.
    pub(super) fn write_new(&mut self, name: &str, bytes: &[u8]) -> Result<(), RecordError> {
        let path = self.root.join(name);
        if path.is_file() {
            return Ok(());
        }
        self.write(path, bytes)
    }

    pub(crate) fn write(&mut self, path: PathBuf, bytes: &[u8]) -> Result<(), RecordError> {
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        let mode = if self.is_private { 0o600 } else { 0o644 };
        let open = || OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
        match folder.and_then(|()| open()).and_then(|mut file| file.write_all(bytes)) {
            Ok(()) => {
                self.wrote.push(path);
                Ok(())
            }
            Err(source) => Err(RecordError::Write { path, source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_is_overwritten_and_nothing_written_elsewhere() {
        let root = tempfile::tempdir().unwrap();
        let mut wrote = Vec::new();
        let mut folder = Folder { root: root.path(), is_private: true, wrote: &mut wrote };
        let case = |place: &[&str]| LiveCase {
            place: place.iter().map(|&part| part.to_owned()).collect(),
            parent: json!({ "kind": "P" }),
            observed: Vec::new(),
        };
        folder.write_case(&case(&["n", "a"])).unwrap();
        assert!(matches!(folder.write_case(&case(&["n", "a"])), Err(RecordError::Write { .. })));
        let there = case_folder(root.path(), &case(&["n", "a"]).place).unwrap();
        assert_eq!(there, Some(root.path().join("tests/n/a")));
        for outside in [&["..", "a"][..], &["n", "a/b"], &["/etc"], &["."]] {
            assert!(matches!(folder.write_case(&case(outside)), Err(RecordError::Name(_))), "{outside:?}");
        }
        fs::write(root.path().join("controller.yaml"), "own").unwrap();
        folder.write_new("controller.yaml", b"other").unwrap();
        assert_eq!(fs::read(root.path().join("controller.yaml")).unwrap(), b"own");
        std::os::unix::fs::symlink("/nowhere/at-all", root.path().join("hook.wasm")).unwrap();
        assert!(matches!(folder.write_new("hook.wasm", b"x"), Err(RecordError::Write { .. })));
        assert_eq!(wrote, [root.path().join("tests/n/a/parent.yaml")]);
    }
}
