//! The commands of authors, as their users call them: the program, files in a folder, no cluster.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test: a broken fixture ends it"
)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

mod apply;
mod check;
mod cluster;
mod dev;
mod interrupt;
mod json_schema;
mod new;
mod pack;
mod render;
mod replay;
mod run;
mod schema;
mod shell;
mod test;
mod webhook;

/// A folder with the files of one test.
struct Folder(tempfile::TempDir);

/// Output of a command, and its exit code.
#[derive(Debug)]
struct Ended {
    code: i32,
    out: String,
    say: String,
}

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn with(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        self
    }

    /// A module of a body with `$main`, which may print and read.
    fn module(self, name: &str, body: &str) -> Self {
        self.with(name, module(body))
    }

    /// A module that prints this and nothing else.
    fn answers(self, name: &str, answer: &str) -> Self {
        self.module(name, &prints(1, answer))
    }

    fn metahook(&self, arguments: &[&str]) -> Ended {
        self.metahook_with(arguments, "")
    }

    fn metahook_with(&self, arguments: &[&str], stdin: &str) -> Ended {
        metahook(self.0.path(), arguments, stdin)
    }
}

impl Ended {
    /// With this code, and this on stderr.
    #[track_caller]
    fn is(&self, code: i32, says: &str) {
        assert!(self.code == code && self.say.contains(says), "not {code} and {says:?}: {self:#?}");
    }
}

fn metahook(folder: &Path, arguments: &[&str], stdin: &str) -> Ended {
    let mut child = Command::new(env!("CARGO_BIN_EXE_metahook"))
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that reads nothing may have ended.
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap_or_default();
    let output = child.wait_with_output().unwrap();
    Ended {
        code: output.status.code().expect("it was not killed"),
        out: String::from_utf8(output.stdout).unwrap(),
        say: String::from_utf8(output.stderr).unwrap(),
    }
}

const IMPORTS: &str = r#"
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $time (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  ;; Prints `len` bytes from 1024 on, to stdout (1) or stderr (2).
  (func $print (param $fd i32) (param $len i32)
    (i32.store (i32.const 0) (i32.const 1024))
    (i32.store (i32.const 4) (local.get $len))
    (drop (call $write (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8))))
"#;

fn module(body: &str) -> Vec<u8> {
    wat::parse_str(format!("(module {IMPORTS} {body} (export \"_start\" (func $main)))")).unwrap()
}

/// Prints a text to stdout (1) or stderr (2).
fn prints(fd: u8, text: &str) -> String {
    let bytes: Vec<_> = text.bytes().map(|byte| format!("\\{byte:02x}")).collect();
    format!(
        "(data (i32.const 1024) \"{}\") (func $main (call $print (i32.const {fd}) (i32.const {})))",
        bytes.concat(),
        text.len()
    )
}
