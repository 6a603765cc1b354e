//! Properties that hold for any bytes: targets of libFuzzer.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "targets: a property that does not hold ends the program"
)]

mod answers;
pub mod guest;
mod last_applied;
mod modules;
mod sdk_json;
mod selectors;
mod wasi;

/// One target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name on the command line, and that of its folder in `seeds`.
    pub name: &'static str,
    /// Panics if these bytes violate its property.
    pub check: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 7] = [
    Target { name: "answers", check: answers::check },
    Target { name: "last_applied", check: last_applied::check },
    Target { name: "outline", check: modules::outline },
    Target { name: "sdk_json", check: sdk_json::check },
    Target { name: "selectors", check: selectors::check },
    Target { name: "unpack", check: modules::unpack },
    Target { name: "wasi", check: wasi::check },
];

/// The target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_target_holds_for_its_seeds() {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
        for target in TARGETS {
            let folder = seeds.join(target.name);
            let files = fs::read_dir(&folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
            let mut count = 0;
            for file in files {
                (target.check)(&fs::read(file.unwrap().path()).unwrap());
                count += 1;
            }
            assert!(count > 0, "{} has no seeds", target.name);
            (target.check)(b"");
        }
    }
}
