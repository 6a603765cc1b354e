//! Formats in the `CustomResourceDefinition`s of manifests/crds: kubectl shows a warning for each that the API server does not know.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;

#[test]
fn the_api_server_knows_all_formats() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/crds");
    let (mut files, mut formats) = (0, 0);
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        files += 1;
        for line in fs::read_to_string(&path).unwrap().lines() {
            let Some(format) = line.trim().strip_prefix("format: ") else { continue };
            formats += 1;
            let is_known =
                ["int32", "int64", "float", "double", "date-time"].contains(&format.trim_matches('"'));
            assert!(is_known, "{}: {line}", path.display());
        }
    }
    assert!(files == 3 && formats > 10, "{files} files with {formats} formats");
}
