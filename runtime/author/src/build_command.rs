//! Command that builds a hook, by what lies in its folder.

use std::path::{Path, PathBuf};

pub(crate) const CARGO: &str = "cargo build --target wasm32-wasip1 --release";
pub(crate) const CARGO_COMPONENT: &str = "cargo build --target wasm32-wasip2 --release";
pub(crate) const GO: &str = "env GOOS=wasip1 GOARCH=wasm go build -o hook.wasm .";
pub(crate) const MAKE: &str = "make";

/// The command for the first of these folders that says which it is.
pub(crate) fn build_command(folders: &[PathBuf]) -> &'static str {
    let by_file = [("Cargo.toml", CARGO), ("go.mod", GO), ("Makefile", MAKE)];
    let in_folder = |folder: &PathBuf| {
        by_file.iter().find(|(file, _)| folder.join(file).is_file()).map(|(_, command)| *command)
    };
    folders.iter().find_map(in_folder).unwrap_or(CARGO)
}

/// The command that makes the module of this file.
pub fn build_command_of(module: &Path) -> &'static str {
    if module.components().any(|part| part.as_os_str() == "wasm32-wasip2") {
        return CARGO_COMPONENT;
    }
    build_command(&[module.parent().unwrap_or(Path::new("")).to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_folder_say_how_its_hook_is_built() {
        let folder = tempfile::tempdir().unwrap();
        let of = || build_command_of(&folder.path().join("hook.wasm"));
        assert_eq!(of(), CARGO);
        for (file, command) in [("Makefile", MAKE), ("go.mod", GO), ("Cargo.toml", CARGO)] {
            std::fs::write(folder.path().join(file), "").unwrap();
            assert_eq!(of(), command, "{file}");
        }
        assert_eq!(build_command_of(Path::new("target/wasm32-wasip2/release/x.wasm")), CARGO_COMPONENT);
    }
}
