//! Folders as files with objects are given by: the files in one that may hold objects, in the order of their names.

use std::io;
use std::path::{Path, PathBuf};

/// Files of one folder.
const MAX_FILES: usize = 1000;

/// The ends of the names of files with objects.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("{} cannot be read", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: it has no files that end in .yaml, .yml or .json", path.display())]
    NoFiles { path: PathBuf },
    #[error("{}: it has more than {MAX_FILES} files with objects: name fewer", path.display())]
    ManyFiles { path: PathBuf },
}

/// A file, or the files of a folder; not those of folders in it.
pub fn files(path: &Path) -> Result<Vec<PathBuf>, FolderError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let failed = |source| FolderError::Read { path: path.to_owned(), source };
    let mut all = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        let is_meant = file.extension().is_some_and(|end| ENDINGS.iter().any(|it| end == *it));
        if is_meant && file.is_file() {
            all.push(file);
        }
        if all.len() > MAX_FILES {
            return Err(FolderError::ManyFiles { path: path.to_owned() });
        }
    }
    if all.is_empty() {
        return Err(FolderError::NoFiles { path: path.to_owned() });
    }
    all.sort();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_folder_are_taken_in_order_and_up_to_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        assert!(matches!(files(folder.path()), Err(FolderError::NoFiles { .. })));
        std::fs::create_dir(path("d.yaml")).unwrap();
        for name in ["c.json", "b.yml", "a.yaml", "README.md"] {
            std::fs::write(path(name), "").unwrap();
        }
        assert_eq!(files(folder.path()).unwrap(), [path("a.yaml"), path("b.yml"), path("c.json")]);
        assert_eq!(files(&path("README.md")).unwrap(), [path("README.md")]);
        for number in 3..MAX_FILES {
            std::fs::write(path(&format!("{number}.json")), "").unwrap();
        }
        assert_eq!(files(folder.path()).unwrap().len(), MAX_FILES);
        std::fs::write(path("one-more.json"), "").unwrap();
        assert!(matches!(files(folder.path()), Err(FolderError::ManyFiles { .. })));
    }
}
