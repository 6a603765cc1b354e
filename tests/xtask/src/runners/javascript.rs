//! The runner for JavaScript: `QuickJS` as a module of preview 1, kept as it is once it has started.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use binaries::paths;

use super::{Language, call, folder};
use crate::cargo::{self, cargo, output};
use crate::{guests, static_server};

const TARGET: &str = "wasm32-wasip1";

/// Where Debian's wasi-libc has its headers.
pub(crate) const HEADERS: &str = "/usr/include/wasm32-wasi";

/// Its code.
const LIBRARY: &str = "/usr/lib/wasm32-wasi/libc.a";

/// Versions of clang, the newest that was tried first.
const VERSIONS: [&str; 3] = ["-19", "-16", ""];

/// Why it cannot be built here: C for WASI is missing.
pub(crate) fn missing() -> Option<String> {
    let install = "(Debian: apt-get install clang-19 llvm-19 wasi-libc)";
    if version().is_none() {
        return Some(format!("clang and llvm-ar are missing {install}"));
    }
    (!Path::new(HEADERS).is_dir() || !Path::new(LIBRARY).is_file())
        .then(|| format!("the C library for WASI is missing {install}"))
}

/// The first version with a compiler and an archiver.
pub(crate) fn version() -> Option<&'static str> {
    let is_there = |program: &str| {
        let asked =
            Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    VERSIONS
        .into_iter()
        .find(|version| is_there(&format!("clang{version}")) && is_there(&format!("llvm-ar{version}")))
}

/// What it is compiled with, which another runner comes of: versions of Rust, of clang with its distribution's own, and the C library.
pub(super) fn compilers() -> Result<Vec<String>> {
    let version = version().context("clang is gone")?;
    let mut clang = Command::new(format!("clang{version}"));
    let mut rust = Command::new("rustc");
    let mut library = Command::new("sha256sum");
    let said = [
        clang.arg("--version"),
        rust.arg("--version").current_dir(folder(Language::JavaScript)),
        library.arg(LIBRARY),
    ];
    let first_line = |said: String| said.lines().next().unwrap_or_default().to_owned();
    said.into_iter().map(|command| output(command).map(first_line)).collect()
}

/// Builds `javascript.wasm` in a folder: half a minute, and the program that snapshots it.
pub(super) fn build(work: &Path) -> Result<()> {
    let source = folder(Language::JavaScript);
    let version = version().context("clang is gone")?;
    guests::need(TARGET)?;
    let target = work.join("target");
    // The runner of one commit is the same on each machine, and names no folder of one.
    let places = static_server::places(&target);
    let mapped = |flag: &str| -> Vec<String> {
        places.iter().map(|(path, name)| format!("{flag}={}={name}", path.display())).collect()
    };
    let flags = format!(
        "--sysroot=/usr -isystem {HEADERS} -include {} -DNDEBUG {}",
        source.join("before.h").display(),
        mapped("-ffile-prefix-map").join(" "),
    );
    let mut build = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build
        .current_dir(&source)
        .env("CC_wasm32_wasip1", format!("clang{version}"))
        .env("AR_wasm32_wasip1", format!("llvm-ar{version}"))
        .env("CFLAGS_wasm32_wasip1", flags)
        .env("CARGO_ENCODED_RUSTFLAGS", mapped("--remap-path-prefix").join("\x1f"))
        .env("RQUICKJS_SYS_NO_WASI_SDK", "1")
        .env("CARGO_TARGET_DIR", &target)
        .args(["build", "--release", "--locked", "--target", TARGET]);
    call(&mut build)?;
    // With the features that all of the workspace gives, so that what it depends on is compiled once.
    cargo::run(&mut cargo(&["build", "--workspace", "--bin", "snapshot"]))?;
    let mut snapshot = Command::new(paths::target()?.join("debug/snapshot"));
    snapshot.arg(target.join(TARGET).join("release/javascript.wasm")).arg(work.join("javascript.wasm"));
    call(&mut snapshot)
}
