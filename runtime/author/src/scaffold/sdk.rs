//! Source of the SDK, as scaffolds get it until it is on a registry.

/// The files of `guest-sdk/src` by name; a test compares them with the folder.
pub(super) const SOURCES: &[(&str, &str)] = &[
    ("alias.rs", include_str!("../../../../guest-sdk/src/alias.rs")),
    ("body.rs", include_str!("../../../../guest-sdk/src/body.rs")),
    ("borrow.rs", include_str!("../../../../guest-sdk/src/borrow.rs")),
    ("clock.rs", include_str!("../../../../guest-sdk/src/clock.rs")),
    ("condition.rs", include_str!("../../../../guest-sdk/src/condition.rs")),
    ("customize.rs", include_str!("../../../../guest-sdk/src/customize.rs")),
    ("decode.rs", include_str!("../../../../guest-sdk/src/decode.rs")),
    ("decorate.rs", include_str!("../../../../guest-sdk/src/decorate.rs")),
    ("doc_examples.rs", include_str!("../../../../guest-sdk/src/doc_examples.rs")),
    ("json.rs", include_str!("../../../../guest-sdk/src/json.rs")),
    ("keep.rs", include_str!("../../../../guest-sdk/src/keep.rs")),
    ("lib.rs", include_str!("../../../../guest-sdk/src/lib.rs")),
    ("log_lines.rs", include_str!("../../../../guest-sdk/src/log_lines.rs")),
    ("names.rs", include_str!("../../../../guest-sdk/src/names.rs")),
    ("object.rs", include_str!("../../../../guest-sdk/src/object.rs")),
    ("place.rs", include_str!("../../../../guest-sdk/src/place.rs")),
    ("request.rs", include_str!("../../../../guest-sdk/src/request.rs")),
    ("response.rs", include_str!("../../../../guest-sdk/src/response.rs")),
    ("testing/answer.rs", include_str!("../../../../guest-sdk/src/testing/answer.rs")),
    ("testing/fixpoint.rs", include_str!("../../../../guest-sdk/src/testing/fixpoint.rs")),
    ("testing/mod.rs", include_str!("../../../../guest-sdk/src/testing/mod.rs")),
];

/// The SDK's manifest, without the workspace that it has here.
pub(super) const MANIFEST: &str = concat!(
    "[package]\nname = \"metahook-sdk\"\nversion = \"",
    env!("CARGO_PKG_VERSION"),
    "\"\nedition = \"2024\"\n\n[dependencies]\nserde = { version = \"1\", features = [\"derive\"] }\nserde_json = \"1\"\nlog = { version = \"0.4\", optional = true }\n\n[features]\nlog = [\"dep:log\"]\n"
);

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn no_file_of_the_sdk_is_left_out() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../guest-sdk/src"));
        let (mut folders, mut there) = (vec![folder.to_owned()], Vec::new());
        while let Some(next) = folders.pop() {
            for entry in std::fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    folders.push(entry);
                } else {
                    there.push(entry.strip_prefix(folder).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        there.sort();
        assert_eq!(SOURCES.iter().map(|(name, _)| *name).collect::<Vec<_>>(), there);
    }
}
