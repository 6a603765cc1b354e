//! Source of the SDK, as scaffolds get it until it is on a registry.

/// The files of `guest-sdk/src` by name; a test compares them with the folder.
pub(super) const SOURCES: &[(&str, &str)] = &[
    ("borrow.rs", include_str!("../../../../guest-sdk/src/borrow.rs")),
    ("customize.rs", include_str!("../../../../guest-sdk/src/customize.rs")),
    ("decode.rs", include_str!("../../../../guest-sdk/src/decode.rs")),
    ("decorate.rs", include_str!("../../../../guest-sdk/src/decorate.rs")),
    ("json.rs", include_str!("../../../../guest-sdk/src/json.rs")),
    ("lib.rs", include_str!("../../../../guest-sdk/src/lib.rs")),
    ("object.rs", include_str!("../../../../guest-sdk/src/object.rs")),
    ("place.rs", include_str!("../../../../guest-sdk/src/place.rs")),
    ("request.rs", include_str!("../../../../guest-sdk/src/request.rs")),
    ("response.rs", include_str!("../../../../guest-sdk/src/response.rs")),
    ("testing.rs", include_str!("../../../../guest-sdk/src/testing.rs")),
];

/// Its manifest, without the workspace that it has here.
pub(super) const MANIFEST: &str = concat!(
    "[package]\nname = \"metahook-sdk\"\nversion = \"",
    env!("CARGO_PKG_VERSION"),
    "\"\nedition = \"2024\"\n\n[dependencies]\nserde = { version = \"1\", features = [\"derive\"] }\nserde_json = \"1\"\n"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_of_the_sdk_is_left_out() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../guest-sdk/src");
        let there = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut there: Vec<_> = there.map(|name| name.into_string().unwrap()).collect();
        there.sort();
        assert_eq!(SOURCES.iter().map(|(name, _)| *name).collect::<Vec<_>>(), there);
    }
}
