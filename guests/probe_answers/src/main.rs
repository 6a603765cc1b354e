//! Knows a hook that writes an answer of so many bytes in the way that its settings name, asks for so many children, or echoes its
//! parent's spec.

use std::ffi::{CString, c_char, c_int};
use std::fs::File;
use std::io::{self, IoSlice, Write as _};
use std::os::fd::FromRawFd as _;

use serde_json::{Value, json};

/// Bytes of a piece at most.
const PIECE: usize = 600;

/// Pieces at a call.
const PIECES: usize = 1000;

#[expect(unsafe_code, reason = "a program in C writes by its C library")]
unsafe extern "C" {
    safe fn puts(text: *const c_char) -> c_int;
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let request: Value = serde_json::from_reader(io::stdin())?;
    let bytes = request.pointer("/settings/bytes").and_then(Value::as_u64).unwrap_or_default().try_into()?;
    match request.pointer("/settings/way").and_then(Value::as_str) {
        Some("pieces") => in_pieces(&answer(bytes))?,
        Some("bytes") => byte_by_byte(bytes)?,
        Some("stdio") => by_stdio(bytes)?,
        Some("children") => {
            let count = request.pointer("/settings/count").and_then(Value::as_u64).unwrap_or_default();
            stdout().write_all(children(&request, count).to_string().as_bytes())?;
        }
        Some("exit") => {
            stdout().write_all(answer(bytes).as_bytes())?;
            std::process::exit(0);
        }
        _ => {
            let spec = request.pointer("/parent/spec");
            let text = request.pointer("/parent/spec/id").map(Value::to_string);
            let answer = json!({ "children": [], "status": { "spec": spec, "text": text } });
            stdout().write_all(answer.to_string().as_bytes())?;
        }
    }
    Ok(())
}

/// So many ConfigMaps of the parent's name, with the text of its spec.
fn children(request: &Value, count: u64) -> Value {
    let name = request.pointer("/parent/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let who = request.pointer("/parent/spec/who");
    let child = |nth| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": format!("{name}-{nth}") },
            "data": { "who": who },
        })
    };
    json!({ "children": (0..count).map(child).collect::<Vec<_>>(), "status": { "pods": count } })
}

/// Without a buffer: each write is one of the host.
fn stdout() -> File {
    #[expect(unsafe_code, reason = "the library has no other way to stdout without a buffer")]
    unsafe {
        File::from_raw_fd(1)
    }
}

fn answer(bytes: usize) -> String {
    let mut letters = "abcdefghijklmnopqrstuvwxyz".repeat(bytes / 26 + 1);
    letters.truncate(bytes);
    json!({ "children": [], "status": { "text": letters } }).to_string()
}

/// A thousand pieces of different length at a call, empty ones among them.
fn in_pieces(answer: &str) -> io::Result<()> {
    let (mut rest, mut pieces, mut length) = (answer.as_bytes(), Vec::new(), 0);
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(length.min(rest.len()));
        pieces.push(IoSlice::new(piece));
        rest = behind;
        length = (length + 7) % PIECE;
        if length % 5 == 0 {
            pieces.push(IoSlice::new(&[]));
        }
    }
    let mut stdout = stdout();
    for mut left in pieces.chunks_mut(PIECES) {
        while !left.is_empty() {
            let written = stdout.write_vectored(left)?;
            IoSlice::advance_slices(&mut left, written);
        }
    }
    Ok(())
}

/// A call into the host for each byte of blank space.
fn byte_by_byte(bytes: usize) -> io::Result<()> {
    let mut stdout = stdout();
    stdout.write_all(b"{\"children\":[],\"status\":\n")?;
    for _ in 0..bytes {
        stdout.write_all(b"\n")?;
    }
    stdout.write_all(b"{\"text\":\"behind all of it\"}}\n")
}

/// Through the buffer of the C library, which is written when `main` returns.
fn by_stdio(bytes: usize) -> Result<(), Box<dyn std::error::Error>> {
    let lines = std::iter::repeat_n(" ".repeat(999), bytes / 1000);
    let text = r#"{"children":[],"status":{"text":"behind all of it"}}"#.to_owned();
    for line in lines.chain([text]) {
        let line = CString::new(line)?;
        if puts(line.as_ptr()) < 0 {
            return Err("the C library wrote nothing".into());
        }
    }
    Ok(())
}
