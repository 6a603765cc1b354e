//! Cases of an author's tests: folders with what goes in and what is to come out, run one after the other.
//!
//! A folder with `request.yaml` is a case about calls; the answer is compared with `response.yaml`, and that to
//! `request.2.yaml` with `response.2.yaml`; `call.yaml` and `call.2.yaml` have what a call is given beside its request. A folder
//! with `parent.yaml` is a case about reconciles; what they write is compared with `plan.yaml`. JSON will do everywhere.

pub(crate) mod call_input;
pub mod report;
pub mod run;

use std::io;
use std::path::{Path, PathBuf};

/// Cases of one run, and folders below each other.
pub(crate) const MAX_CASES: usize = 10_000;
const MAX_DEPTH: usize = 16;

/// Ways to spell the end of a file's name.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// Files that make a folder a case, without their endings: one about calls, one about reconciles.
const CASE_FILES: [&str; 2] = ["request", "parent"];

/// Files that all cases of a folder share, where no flag names others.
pub(crate) const CONTROLLER: &str = "controller.yaml";
pub(crate) const DEFINITIONS: &str = "crd.yaml";

/// A folder with a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// Relative to the folder of all cases.
    pub name: String,
    pub folder: PathBuf,
    pub(crate) kind: CaseKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CaseKind {
    Calls,
    Reconciles,
}

#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("{}: the folder of cases cannot be read", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} holds no case: a case is a folder with request.yaml or parent.yaml", path.display())]
    None { path: PathBuf },
    #[error("{} holds more than {MAX_CASES} cases: name a folder with fewer", path.display())]
    TooMany { path: PathBuf },
    #[error("{} has both a request and a parent: make it two cases", path.display())]
    Both { path: PathBuf },
}

/// A file of a case by its name without the ending.
pub(crate) fn file(folder: &Path, name: &str) -> Option<PathBuf> {
    ENDINGS.iter().map(|ending| folder.join(format!("{name}.{ending}"))).find(|path| path.is_file())
}

/// Whether a file of this name makes its folder a case.
pub(crate) fn is_case_file(name: &str) -> bool {
    let (stem, ending) = name.rsplit_once('.').unwrap_or_default();
    CASE_FILES.contains(&stem) && ENDINGS.contains(&ending)
}

/// The folder that a folder of cases lies in.
pub fn beside(folder: &Path) -> PathBuf {
    match folder.parent() {
        // `.` and `..` are names of folders that lie elsewhere.
        Some(parent) if folder.file_name().is_some() && parent.as_os_str().is_empty() => ".".into(),
        Some(parent) if folder.file_name().is_some() => parent.to_owned(),
        _ => folder.join(".."),
    }
}

/// The folder with what all cases of a folder share: the one that it lies in, or itself where the controller is there alone. A folder
/// that is itself a case has its own controller.
pub fn home(folder: &Path) -> PathBuf {
    let is_case = CASE_FILES.iter().any(|name| file(folder, name).is_some());
    let outside = beside(folder);
    let is_inside = !is_case && !outside.join(CONTROLLER).is_file() && folder.join(CONTROLLER).is_file();
    if is_inside { folder.to_owned() } else { outside }
}

/// The files that all cases of a folder share.
pub fn shared_files(folder: &Path) -> Vec<PathBuf> {
    let home = home(folder);
    let files = [CONTROLLER, DEFINITIONS].map(|name| home.join(name));
    files.into_iter().filter(|path| path.is_file()).collect()
}

/// All cases below a folder, in the order of their names. Links are not followed.
pub fn find(root: &Path) -> Result<Vec<Case>, FindError> {
    let mut found = Vec::new();
    look(root, root, 0, &mut found)?;
    found.sort_by(|one, next| one.name.cmp(&next.name));
    if found.is_empty() {
        return Err(FindError::None { path: root.to_owned() });
    }
    Ok(found)
}

fn look(root: &Path, folder: &Path, depth: usize, found: &mut Vec<Case>) -> Result<(), FindError> {
    let failed = |source| FindError::Read { path: folder.to_owned(), source };
    let [calls, reconciles] = CASE_FILES.map(|name| file(folder, name));
    let kind = match (calls, reconciles) {
        (Some(_), Some(_)) => return Err(FindError::Both { path: folder.to_owned() }),
        (Some(_), None) => Some(CaseKind::Calls),
        (None, Some(_)) => Some(CaseKind::Reconciles),
        (None, None) => None,
    };
    if let Some(kind) = kind {
        let name = folder.strip_prefix(root).unwrap_or(folder).display().to_string();
        let name = if name.is_empty() { ".".to_owned() } else { name };
        found.push(Case { name, folder: folder.to_owned(), kind });
        if found.len() > MAX_CASES {
            return Err(FindError::TooMany { path: root.to_owned() });
        }
    }
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_dir() && depth < MAX_DEPTH {
            look(root, &entry.path(), depth + 1, found)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_beside_a_folder_go_before_those_in_it() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        let shared = || shared_files(&path("tests"));
        std::fs::create_dir(path("tests")).unwrap();
        assert!(shared().is_empty());
        for name in [CONTROLLER, DEFINITIONS] {
            std::fs::write(path("tests").join(name), "").unwrap();
        }
        assert_eq!(shared(), [path("tests/controller.yaml"), path("tests/crd.yaml")]);
        std::fs::write(path(CONTROLLER), "").unwrap();
        assert_eq!(shared(), [path(CONTROLLER)], "the recorded ones are of another controller");
        std::fs::rename(path(CONTROLLER), path(DEFINITIONS)).unwrap();
        assert_eq!(shared().first(), Some(&path("tests/controller.yaml")));
        std::fs::remove_file(path(DEFINITIONS)).unwrap();
        std::fs::write(path("tests/parent.yaml"), "").unwrap();
        assert!(shared().is_empty(), "the case reads its own controller");
        for (folder, outside) in [("tests", "."), ("a/tests", "a"), ("..", "../.."), (".", "./..")] {
            assert_eq!(beside(Path::new(folder)), Path::new(outside), "{folder}");
        }
    }

    #[test]
    fn folders_with_a_request_or_a_parent_are_cases() {
        let root = tempfile::tempdir().unwrap();
        let with = |path: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "{}").unwrap();
        };
        let names =
            || find(root.path()).map(|all| all.iter().map(|one| one.name.clone()).collect::<Vec<_>>());
        assert!(names().unwrap_err().to_string().contains("holds no case"));
        with("b/request.yaml");
        with("a/deep/parent.json");
        with("none/response.yaml");
        assert_eq!(names().unwrap(), ["a/deep", "b"]);
        assert_eq!(find(root.path()).unwrap()[0].kind, CaseKind::Reconciles);
        with("b/parent.yml");
        assert!(names().unwrap_err().to_string().ends_with("make it two cases"));
    }
}
