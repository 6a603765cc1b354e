//! Wasm hooks that do one thing each, good or bad, written as text.

use std::io::{Read, Write};

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;

/// The exit code of `exits`.
pub(crate) const EXIT_CODE: u8 = 3;

pub(crate) const PAGE: usize = 64 << 10;

/// Where data begins; what lies before is for host calls to read and write.
const DATA: usize = 1024;

/// Functions that hooks call.
const IMPORTS: &str = r#"
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_get" (func $prestat (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_filestat_get" (func $stat (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_readlink" (func $readlink (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_link"
    (func $link (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_rename" (func $rename (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_symlink" (func $symlink (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_unlink_file" (func $unlink (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_create_directory" (func $mkdir (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_accept" (func $accept (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_recv" (func $recv (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_send" (func $send (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_shutdown" (func $shutdown (param i32 i32) (result i32)))
"#;

const FUNCTIONS: &str = r"
  ;; Prints `len` bytes from `at` on, all of them; the 12 bytes from 0 on are its own.
  (func $print (param $fd i32) (param $at i32) (param $len i32)
    (loop $again
      (i32.store (i32.const 0) (local.get $at))
      (i32.store (i32.const 4) (local.get $len))
      (if (call $write (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8)) (then unreachable))
      (local.set $at (i32.add (local.get $at) (i32.load (i32.const 8))))
      (local.set $len (i32.sub (local.get $len) (i32.load (i32.const 8))))
      (br_if $again (local.get $len))))
  ;; Writes a number below 100 as two digits.
  (func $two (param $at i32) (param $number i32)
    (if (i32.ge_u (local.get $number) (i32.const 100)) (then unreachable))
    (i32.store8 (local.get $at) (i32.add (i32.const 48) (i32.div_u (local.get $number) (i32.const 10))))
    (i32.store8 offset=1 (local.get $at)
      (i32.add (i32.const 48) (i32.rem_u (local.get $number) (i32.const 10)))))
";

/// A hook to be, put together by chained words: what it does, in this order.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Wat {
    pages: usize,
    data: Vec<u8>,
    fields: String,
    main: String,
}

impl Wat {
    /// Begins with at least so much memory.
    pub(crate) fn pages(mut self, pages: usize) -> Self {
        self.pages = pages;
        self
    }

    /// Has this function, table or global.
    pub(crate) fn with(mut self, field: &str) -> Self {
        self.fields += field;
        self
    }

    /// Runs these instructions.
    pub(crate) fn does(mut self, instructions: &str) -> Self {
        self.main += instructions;
        self
    }

    /// Runs these instructions for ever.
    pub(crate) fn does_again_and_again(self, instructions: &str) -> Self {
        self.does(&format!("(loop $again {instructions} (br $again))"))
    }

    /// Runs these instructions so many times, at 5 instructions more a time.
    pub(crate) fn does_times(self, times: u32, instructions: &str) -> Self {
        self.does(&format!(
            "(local.set $i (i32.const {times}))
             (loop $again {instructions}
               (br_if $again (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))"
        ))
    }

    /// Grows its memory, and traps where that is refused, as programs do.
    pub(crate) fn grows_by(self, pages: usize) -> Self {
        self.does(&format!(
            "(if (i32.eq (memory.grow (i32.const {pages})) (i32.const -1)) (then unreachable))"
        ))
    }

    pub(crate) fn prints(self, text: impl AsRef<[u8]>) -> Self {
        self.prints_times(1, text)
    }

    pub(crate) fn prints_times(self, times: u32, text: impl AsRef<[u8]>) -> Self {
        self.writes(1, times, text.as_ref())
    }

    /// Prints on stderr.
    pub(crate) fn warns(self, text: impl AsRef<[u8]>) -> Self {
        self.writes(2, 1, text.as_ref())
    }

    fn writes(mut self, fd: u8, times: u32, text: &[u8]) -> Self {
        if text.is_empty() || times == 0 {
            return self;
        }
        let at = self.put(text);
        self.does_times(
            times,
            &format!("(call $print (i32.const {fd}) (i32.const {at}) (i32.const {}))", text.len()),
        )
    }

    /// Answers with a status that says what each of these instructions gave, as two digits.
    pub(crate) fn finds(mut self, all: &[(&str, &str)]) -> Self {
        let places: Vec<String> = all.iter().map(|(name, _)| format!(r#""{name}":"--""#)).collect();
        let text = format!(r#"{{"children":[],"status":{{{}}}}}"#, places.join(","));
        let start = self.put(text.as_bytes());
        let marks = text.match_indices("--").map(|(at, _)| start + at).collect::<Vec<_>>();
        for ((_, instructions), at) in all.iter().zip(marks) {
            self = self.does(&format!("(call $two (i32.const {at}) {instructions})"));
        }
        self.does(&format!("(call $print (i32.const 1) (i32.const {start}) (i32.const {}))", text.len()))
    }

    /// Puts something into the memory, at this address.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> usize {
        let at = DATA + self.data.len();
        self.data.extend_from_slice(bytes);
        at
    }

    pub(crate) fn wasm(self) -> Result<Vec<u8>> {
        let Self { pages, data, fields, main } = self;
        let pages = pages.max((DATA + data.len()).div_ceil(PAGE));
        let data = data.iter().fold(String::new(), |text, byte| text + &format!("\\{byte:02x}"));
        command(&format!(
            r#"{IMPORTS} (memory (export "memory") {pages}) (data (i32.const {DATA}) "{data}") {FUNCTIONS} {fields}
               (func $main (export "_start") (local $i i32) {main})"#
        ))
    }
}

/// A module of these fields alone.
pub(crate) fn command(fields: &str) -> Result<Vec<u8>> {
    Ok(wat::parse_str(format!("(module {fields})"))?)
}

/// A component of a module that imports all of [`IMPORTS`] and does nothing, with wasmtime's adapter for preview 1 (Apache-2.0 with
/// the LLVM exception): what `wasm-tools component new --adapt wasi_snapshot_preview1.command.wasm` makes of it.
const ADAPTED: &[u8] = include_bytes!("preview1.wasm.gz");

/// A command of preview 1 as a component of preview 2: [`ADAPTED`] with this command in place of its first module.
pub(crate) fn component_of(module: &[u8]) -> Result<Vec<u8>> {
    const HEADER: usize = 8;
    const MODULE: u8 = 1;
    let mut adapted = Vec::new();
    GzDecoder::new(ADAPTED).read_to_end(&mut adapted)?;
    let mut at = HEADER;
    while let Some((id, rest)) = adapted.get(at..).and_then(<[u8]>::split_first) {
        let (len, size) = from_leb(rest)?;
        let end = at + 1 + size + len;
        if *id == MODULE {
            let section = [&[MODULE][..], &leb(module.len())?, module].concat();
            adapted.splice(at..end, section);
            return Ok(adapted);
        }
        at = end;
    }
    bail!("no module in the component")
}

/// Answers every request with this.
pub(crate) fn answers(response: &Value) -> Result<Vec<u8>> {
    prints(&response.to_string())
}

/// Prints a text and ends well.
pub(crate) fn prints(text: &str) -> Result<Vec<u8>> {
    Wat::default().prints(text).wasm()
}

/// Asks what time it is, and answers with no children all the same.
pub(crate) fn asks_for_the_time() -> Result<Vec<u8>> {
    let answer = r#"{\"children\":[]}"#;
    command(&format!(
        r#"(import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
           (import "wasi_snapshot_preview1" "clock_time_get" (func $time (param i32 i64 i32) (result i32)))
           (memory (export "memory") 1)
           (data (i32.const 0) "\10\00\00\00\0f\00\00\00")
           (data (i32.const 16) "{answer}")
           (func (export "_start")
             (drop (call $time (i32.const 0) (i64.const 0) (i32.const 64)))
             (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))"#
    ))
}

/// Text that [`answers_with_letters`] replaces by letters which change with the random numbers that a hook gets.
pub(crate) const LETTERS: &str = "####";

/// Answers with this, and random letters in it.
pub(crate) fn answers_with_letters(answer: &Value) -> Result<Vec<u8>> {
    letters(answer, "random_get\" (func $get (param i32 i32)", "(i32.const 1024) (i32.const 4)")
}

/// Answers with this, and letters in it that are others at each time.
pub(crate) fn answers_with_the_time(answer: &Value) -> Result<Vec<u8>> {
    letters(
        answer,
        "clock_time_get\" (func $get (param i32 i64 i32)",
        "(i32.const 0) (i64.const 1) (i32.const 1024)",
    )
}

/// `get` puts bytes at 1024, which become the letters.
fn letters(answer: &Value, get: &str, arguments: &str) -> Result<Vec<u8>> {
    let text = answer.to_string();
    let (place, length) = (16 + text.find(LETTERS).context("no place for letters")?, text.len());
    let answer = text.replace('"', "\\\"");
    command(&format!(
        r#"(import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
           (import "wasi_snapshot_preview1" "{get} (result i32)))
           (memory (export "memory") 1)
           (data (i32.const 0) "\10\00\00\00\{length:02x}\00\00\00")
           (data (i32.const 16) "{answer}")
           (func (export "_start")
             (drop (call $get {arguments}))
             ;; Letters, whatever the bytes are.
             (i32.store (i32.const {place}) (i32.or (i32.const 0x61616161)
               (i32.and (i32.load (i32.const 1024)) (i32.const 0x0f0f0f0f))))
             (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))"#
    ))
}

pub(crate) fn traps() -> Result<Vec<u8>> {
    Wat::default().does("unreachable").wasm()
}

pub(crate) fn loops() -> Result<Vec<u8>> {
    Wat::default().does_again_and_again("").wasm()
}

pub(crate) fn exits() -> Result<Vec<u8>> {
    Wat::default().does(&format!("(call $exit (i32.const {EXIT_CODE}))")).wasm()
}

/// A module, compressed, whose functions take seconds of the processor to compile; each number makes another one.
pub(crate) fn slow_to_compile(number: u8) -> Result<Vec<u8>> {
    let functions = 20_000;
    let add = [0x41, number & 0x3f, 0x6a]; // i32.const, i32.add
    let code = [&[0, 0x41, 0][..], &add.repeat(400), &[0x1a, 0x0b]].concat();
    let body = [leb(code.len())?, code].concat();
    let count = leb(functions)?;
    let section =
        |id: u8, content: Vec<u8>| Ok::<_, anyhow::Error>([vec![id], leb(content.len())?, content].concat());
    let module = [
        b"\0asm\x01\0\0\0".to_vec(),
        section(1, vec![1, 0x60, 0, 0])?,
        section(3, [count.clone(), vec![0; functions]].concat())?,
        section(7, [&[1, 6][..], b"_start", &[0, 0]].concat())?,
        section(10, [count, body.repeat(functions)].concat())?,
    ];
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&module.concat())?;
    Ok(gzip.finish()?)
}

/// A module, compressed to a thousandth, that has so much data, and answers with a status; each number makes another one.
pub(crate) fn packed(size: usize, number: u8) -> Result<Vec<u8>> {
    /// Behind the two numbers that say where the answer lies, and how long it is.
    const ANSWER: usize = 16;
    const DATA: u8 = 11;
    let answer = r#"{"children":[],"status":{"is":"large"}}"#;
    let code = command(&format!(
        r#"(import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
           (memory (export "memory") {})
           (func (export "_start")
             (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))"#,
        size.div_ceil(PAGE)
    ))?;
    let mut data = vec![number | 0x80; size];
    let place = [ANSWER, answer.len()].map(|number| u32::try_from(number).map(u32::to_le_bytes));
    for (nth, bytes) in place.into_iter().enumerate() {
        data[nth * 4..][..4].copy_from_slice(&bytes?);
    }
    data[ANSWER..][..answer.len()].copy_from_slice(answer.as_bytes());
    // One segment, at a constant place.
    let segment = [&[1, 0, 0x41, 0, 0x0b][..], &leb(size)?, &data].concat();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    for piece in [&code[..], &[DATA], &leb(segment.len())?, &segment] {
        gzip.write_all(piece)?;
    }
    Ok(gzip.finish()?)
}

/// A number that WebAssembly wrote, and its bytes.
fn from_leb(bytes: &[u8]) -> Result<(usize, usize)> {
    let size = 1 + bytes.iter().position(|byte| byte & 0x80 == 0).context("a number without an end")?;
    let number = bytes.iter().take(size).rev().fold(0, |number, byte| number << 7 | usize::from(byte & 0x7f));
    Ok((number, size))
}

/// A number as WebAssembly writes it.
fn leb(mut number: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(u8::try_from(number & 0x7f | 0x80)?);
        number >>= 7;
    }
    bytes.push(u8::try_from(number)?);
    Ok(bytes)
}
