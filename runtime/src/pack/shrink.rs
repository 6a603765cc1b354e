//! A module made smaller by `wasm-opt`, where that is installed.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

/// `-g` keeps the names of functions: traps are told by them.
const ARGUMENTS: [&str; 2] = ["-Os", "-g"];

/// Why a module is as the compiler left it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShrinkError {
    #[error("it is not installed (it is part of binaryen)")]
    NotInstalled,
    #[error("it cannot be run: {0}")]
    Io(#[from] io::Error),
    #[error("it failed: {0}")]
    Failed(String),
}

pub(super) fn shrink(program: &Path, module: &[u8]) -> Result<Vec<u8>, ShrinkError> {
    let folder = tempfile::tempdir()?;
    let (from, to) = (folder.path().join("in.wasm"), folder.path().join("out.wasm"));
    fs::write(&from, module)?;
    let ran = Command::new(program).args(ARGUMENTS).arg(&from).arg("-o").arg(&to).output();
    let output = ran.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ShrinkError::NotInstalled,
        _ => error.into(),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        return Err(ShrinkError::Failed(format!("{}: {last}", output.status)));
    }
    Ok(fs::read(to)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn tool(script: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("wasm-opt");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        (folder, path)
    }

    #[test]
    fn the_tool_gets_a_file_and_names_stay() {
        let (_folder, path) = tool(r#"test "$1 $2 $4" = "-Os -g -o" && tr a b < "$3" > "$5""#);
        assert_eq!(shrink(&path, b"banana").unwrap(), b"bbnbnb");
    }

    #[test]
    fn a_tool_that_is_not_there_or_fails_is_no_mystery() {
        let missing = shrink(Path::new("no-such-wasm-opt"), b"").unwrap_err();
        assert_eq!(missing.to_string(), "it is not installed (it is part of binaryen)");
        let (_folder, path) = tool("echo 'unknown section' >&2; exit 3");
        assert_eq!(shrink(&path, b"").unwrap_err().to_string(), "it failed: exit status: 3: unknown section");
    }
}
