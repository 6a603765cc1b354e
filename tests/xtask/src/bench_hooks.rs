//! The tutorial's hook in Go and in C, for `cargo xtask bench guests`: modules beside those of the other guests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use binaries::paths;

use crate::children;
use crate::guests;
use crate::runners::javascript;

/// Where Debian's wasi-libc has its libraries.
const LIBRARIES: &str = "/usr/lib/wasm32-wasi";

/// The reader of JSON that `metahook new --lang c` gives.
const READER: &str = "runtime/author/src/scaffold/templates/c";

/// Builds `hello_go.wasm`, and `hello_c.wasm` where the tools for C are here.
pub(crate) fn build() -> Result<()> {
    let (sources, modules) = (paths::workspace().join("tests/bench/hooks"), guests::folder()?);
    guests::build_go(&sources.join("go"), &modules.join("hello_go.wasm"))?;
    let module = modules.join("hello_c.wasm");
    match javascript::missing() {
        None => build_c(&sources.join("c/hello.c"), &module),
        Some(why) => {
            eprintln!("no hook in C: {why}");
            // One of an earlier build would be measured.
            if module.is_file() {
                fs::remove_file(&module)?;
            }
            Ok(())
        }
    }
}

/// Compiles with Debian's clang, and links with Rust's linker: Debian's is one more package.
fn build_c(source: &Path, module: &Path) -> Result<()> {
    let object = module.with_extension("o");
    let version = javascript::version().context("clang is gone")?;
    let mut compile = Command::new(format!("clang{version}"));
    compile
        .args(["--target=wasm32-wasi", "--sysroot=/usr", "-isystem", javascript::HEADERS])
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-c"])
        .arg("-I")
        .arg(paths::workspace().join(READER))
        .arg(source)
        .arg("-o")
        .arg(&object);
    call(&mut compile)?;
    let mut link = Command::new(linker()?);
    link.args(["-flavor", "wasm", "--strip-all"])
        .arg(Path::new(LIBRARIES).join("crt1.o"))
        .arg(&object)
        .args(["-L", LIBRARIES, "-lc", "-o"])
        .arg(module);
    call(&mut link)
}

/// The linker that comes with Rust's targets of WebAssembly.
fn linker() -> Result<PathBuf> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir"]).current_dir(paths::workspace());
    let output = rustc.output().context("cannot run rustc")?;
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    Ok(folder.parent().context("rustc has no folder of libraries")?.join("bin/rust-lld"))
}

fn call(command: &mut Command) -> Result<()> {
    let status = children::wait(command)?;
    ensure!(status.success(), "{} failed ({status})", command.get_program().display());
    Ok(())
}
