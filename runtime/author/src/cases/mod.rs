//! Cases of an author's tests: folders with what goes in and what is to come out, run one after the other.
//!
//! A folder with `request.yaml` is a case about calls; the answer is compared with `response.yaml`, and that to
//! `request.2.yaml` with `response.2.yaml`. A folder with `parent.yaml` is a case about reconciles; what they write is
//! compared with `plan.yaml`. JSON will do everywhere.

pub mod report;
pub mod run;

use std::io;
use std::path::{Path, PathBuf};

/// Cases of one run, and folders below each other.
const MAX_CASES: usize = 10_000;
const MAX_DEPTH: usize = 16;

/// Ways to spell the end of a file's name.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

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
    let kind = match (file(folder, "request"), file(folder, "parent")) {
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
