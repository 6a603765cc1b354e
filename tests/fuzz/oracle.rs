//! Our WASI against wasmtime's: random calls that only read give the same, but for the differences that are listed here.

#![allow(clippy::panic, clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use bytes::Bytes;
use fuzz::guest::{self, Guest as Ours, Guests};
use metahook_core::api::policy::LimitBounds;
use metahook_server::hook::wasm::run::{Call, Files, MountedFolder, Reservation, Seed};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use wasmtime::{Engine, Instance, Linker, Module, Store, Val, ValType};
use wasmtime_wasi::p1::{self, WasiP1Ctx};
use wasmtime_wasi::{FsPerms, WasiCtxBuilder};

/// A function, a path if it is about one, our error, wasmtime's error, and why they differ; 0 is success.
const DIFFERENCES: [(&str, Option<&str>, i32, i32, &str); 13] = [
    ("fd_read", None, 31, 8, "a folder: isdir, as on Linux"),
    ("fd_pread", None, 31, 8, "a folder: isdir, as on Linux"),
    ("fd_seek", None, 31, 8, "a folder: isdir, as for reading"),
    ("fd_tell", None, 31, 8, "a folder: isdir, as for reading"),
    ("fd_pread", None, 70, 8, "stdout or stderr: spipe, as on Linux"),
    ("fd_prestat_dir_name", None, 8, 54, "it was not open at the start: badf, as for fd_prestat_get"),
    ("fd_readdir", None, 54, 8, "a file or a pipe: notdir, as on Linux"),
    ("path_open", None, 54, 8, "below a file or a pipe: notdir, as on Linux"),
    ("path_filestat_get", None, 54, 8, "below a file or a pipe: notdir, as on Linux"),
    ("path_filestat_get", Some("a/"), 54, 0, "a file is no folder: notdir, as on Linux and for path_open"),
    ("path_filestat_get", Some("a/."), 54, 0, "a file is no folder: notdir, as on Linux and for path_open"),
    ("path_open", Some("a\0b"), 25, 28, "no path has a 0: ilseq, as for bytes that are no UTF-8"),
    ("path_filestat_get", Some("a\0b"), 25, 28, "no path has a 0: ilseq, as for bytes that are no UTF-8"),
];

/// Sequences of calls.
const CASES: u32 = 10_000;

const MOUNT: &str = "/etc/mount";
const FILES: [(&str, usize); 3] = [("a", 0), ("b.txt", 11), ("large", 9000)];

/// Where the list of one piece, the piece and other results lie.
const PIECE_AT: u64 = 0x2800;
const BUFFER_AT: u64 = 0x3000;
const RESULT_AT: u64 = 0x8000;

/// A guest of one of the two.
trait Guest {
    fn call(&mut self, name: &str, arguments: &[u64]) -> i32;
    fn memory(&mut self) -> &mut [u8];
}

impl Guest for Ours {
    fn call(&mut self, name: &str, arguments: &[u64]) -> i32 {
        Self::call(self, name, arguments).unwrap()
    }

    fn memory(&mut self) -> &mut [u8] {
        Self::memory(self)
    }
}

struct Theirs {
    store: Store<WasiP1Ctx>,
    instance: Instance,
}

impl Theirs {
    fn start(linker: &Linker<WasiP1Ctx>, module: &Module, folder: &Path) -> Self {
        let mut context = WasiCtxBuilder::new();
        context.preopened_dir(folder, MOUNT, FsPerms::ReadOnly).unwrap();
        let mut store = Store::new(linker.engine(), context.build_p1());
        let instance = linker.instantiate(&mut store, module).unwrap();
        Self { store, instance }
    }
}

impl Guest for Theirs {
    fn call(&mut self, name: &str, arguments: &[u64]) -> i32 {
        let function = self.instance.get_func(&mut self.store, name).unwrap();
        let types = function.ty(&self.store);
        let value = |(ty, bits): (ValType, &u64)| match ty {
            ValType::I64 => Val::I64(bits.cast_signed()),
            _ => Val::I32(u32::try_from(*bits).unwrap().cast_signed()),
        };
        let arguments: Vec<Val> = types.params().zip(arguments).map(value).collect();
        let mut results = [Val::I32(0)];
        function.call(&mut self.store, &arguments, &mut results).unwrap();
        results[0].unwrap_i32()
    }

    fn memory(&mut self) -> &mut [u8] {
        self.instance.get_memory(&mut self.store, "memory").unwrap().data_mut(&mut self.store)
    }
}

/// A call that only reads.
#[derive(Debug, Clone)]
enum Step {
    Open { fd: u64, path: usize, folder: bool },
    Stat { fd: u64, path: usize },
    Read { fd: u64, len: u32 },
    ReadAt { fd: u64, len: u32, position: u64 },
    Seek { fd: u64, distance: i64, from: u64 },
    Tell { fd: u64 },
    StatOpen { fd: u64 },
    List { fd: u64 },
    Given { fd: u64 },
    GivenName { fd: u64, len: u64 },
    Close { fd: u64 },
    Renumber { from: u64, to: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let fd = || prop_oneof![3 => Just(3_u64), 4 => 0..8_u64];
    let path = || 0..guest::PATHS.len();
    let len = || prop_oneof![1..40_u32, Just(4000_u32)];
    let step = prop_oneof![
        6 => (fd(), path(), any::<bool>()).prop_map(|(fd, path, folder)| Step::Open { fd, path, folder }),
        3 => (fd(), path()).prop_map(|(fd, path)| Step::Stat { fd, path }),
        3 => (fd(), len()).prop_map(|(fd, len)| Step::Read { fd, len }),
        2 => (fd(), len(), 0..10_000_u64).prop_map(|(fd, len, position)| Step::ReadAt { fd, len, position }),
        2 => (fd(), -20..10_000_i64, 0..3_u64).prop_map(|(fd, distance, from)| Step::Seek { fd, distance, from }),
        1 => fd().prop_map(|fd| Step::Tell { fd }),
        1 => fd().prop_map(|fd| Step::StatOpen { fd }),
        1 => fd().prop_map(|fd| Step::List { fd }),
        1 => fd().prop_map(|fd| Step::Given { fd }),
        1 => (fd(), 0..20_u64).prop_map(|(fd, len)| Step::GivenName { fd, len }),
        1 => (0..8_u64).prop_map(|fd| Step::Close { fd }),
        1 => (0..8_u64, 0..8_u64).prop_map(|(from, to)| Step::Renumber { from, to }),
    ];
    prop::collection::vec(step, 1..20)
}

/// The function, its error, and its results, as far as both must agree on them.
fn take(guest: &mut impl Guest, step: &Step) -> (&'static str, i32, Vec<u8>) {
    let (name, arguments) = match *step {
        Step::Open { fd, path, folder } => {
            let (at, len) = guest::path(path);
            let flags = if folder { 2 } else { 0 };
            ("path_open", vec![fd, 0, at, len, flags, 2, 0, 0, RESULT_AT])
        }
        Step::Stat { fd, path } => {
            let (at, len) = guest::path(path);
            ("path_filestat_get", vec![fd, 0, at, len, RESULT_AT])
        }
        Step::Read { fd, len } => {
            piece(guest, len);
            ("fd_read", vec![fd, PIECE_AT, 1, RESULT_AT])
        }
        Step::ReadAt { fd, len, position } => {
            piece(guest, len);
            ("fd_pread", vec![fd, PIECE_AT, 1, position, RESULT_AT])
        }
        Step::Seek { fd, distance, from } => ("fd_seek", vec![fd, distance.cast_unsigned(), from, RESULT_AT]),
        Step::Tell { fd } => ("fd_tell", vec![fd, RESULT_AT]),
        Step::StatOpen { fd } => ("fd_filestat_get", vec![fd, RESULT_AT]),
        Step::List { fd } => ("fd_readdir", vec![fd, BUFFER_AT, 4096, 0, RESULT_AT]),
        Step::Given { fd } => ("fd_prestat_get", vec![fd, RESULT_AT]),
        Step::GivenName { fd, len } => ("fd_prestat_dir_name", vec![fd, BUFFER_AT, len]),
        Step::Close { fd } => ("fd_close", vec![fd]),
        Step::Renumber { from, to } => ("fd_renumber", vec![from, to]),
    };
    let errno = guest.call(name, &arguments);
    let results = if errno == 0 { results(guest.memory(), step) } else { Vec::new() };
    (name, errno, results)
}

fn piece(guest: &mut impl Guest, len: u32) {
    let list = [u32::try_from(BUFFER_AT).unwrap().to_le_bytes(), len.to_le_bytes()].concat();
    let at = usize::try_from(PIECE_AT).unwrap();
    guest.memory()[at..at + 8].copy_from_slice(&list);
}

fn results(memory: &[u8], step: &Step) -> Vec<u8> {
    let [buffer, result] = [BUFFER_AT, RESULT_AT].map(|at| &memory[usize::try_from(at).unwrap()..]);
    let number = || usize::try_from(u32::from_le_bytes(result[..4].try_into().unwrap())).unwrap();
    match step {
        Step::Open { .. } => result[..4].to_vec(),
        // Of folders the sizes differ; devices, inodes, links and times are not the hook's to know.
        Step::Stat { .. } | Step::StatOpen { .. } if result[16] == 4 => {
            [&result[16..17], &result[32..40]].concat()
        }
        Step::Stat { .. } | Step::StatOpen { .. } => result[16..17].to_vec(),
        Step::Read { .. } | Step::ReadAt { .. } => buffer[..number()].to_vec(),
        Step::Seek { .. } | Step::Tell { .. } => result[..8].to_vec(),
        // Wasmtime leaves the bytes between the kind and the length as they were.
        Step::Given { .. } => [&result[..1], &result[4..8]].concat(),
        Step::List { .. } => entries(&buffer[..number()]),
        Step::GivenName { .. } => buffer[..MOUNT.len()].to_vec(),
        Step::Close { .. } | Step::Renumber { .. } => Vec::new(),
    }
}

/// Names and kinds, in order.
fn entries(mut listed: &[u8]) -> Vec<u8> {
    let mut entries = BTreeSet::new();
    while let Some((header, rest)) = listed.split_at_checked(24) {
        let length = usize::try_from(u32::from_le_bytes(header[16..20].try_into().unwrap())).unwrap();
        let (name, rest) = rest.split_at(length);
        entries.insert([name, &header[20..21]].concat());
        listed = rest;
    }
    entries.into_iter().flatten().collect()
}

#[test]
fn calls_that_only_read_give_what_they_give_in_wasmtime() {
    let module = wat::parse_str(guest::module()).unwrap();
    let ours = Guests::new(&module).unwrap();
    let engine = Engine::default();
    let module = Module::new(&engine, module).unwrap();
    let mut linker = Linker::new(&engine);
    p1::add_to_linker_sync(&mut linker, |context: &mut WasiP1Ctx| context).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut files = Files::new();
    for (name, size) in FILES {
        let content: Vec<u8> = (0..=u8::MAX).cycle().take(size).collect();
        fs::write(folder.path().join(name), &content).unwrap();
        files.insert(name.to_owned(), Bytes::from(content));
    }
    let mounts = [MountedFolder { path: MOUNT.to_owned(), files: files.into() }];
    let call = Call {
        controller: "c",
        hook: "sync",
        is_of_shadow: false,
        request: Bytes::new(),
        now: SystemTime::UNIX_EPOCH,
        limits: LimitBounds::default().default,
        seed: Seed::default(),
        mounts: &mounts,
        memory: Reservation::default(),
    };

    let found = RefCell::new(BTreeMap::new());
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let ran = TestRunner::new(config).run(&steps(), |steps| {
        let mut ours = ours.start(call.clone()).unwrap();
        let mut theirs = Theirs::start(&linker, &module, folder.path());
        guest::lay_out(ours.memory());
        guest::lay_out(theirs.memory());
        for step in &steps {
            let (name, our_errno, our_results) = take(&mut ours, step);
            let (_, their_errno, their_results) = take(&mut theirs, step);
            if our_errno != their_errno {
                let path = match step {
                    Step::Open { path, .. } | Step::Stat { path, .. } => Some(guest::PATHS[*path]),
                    _ => None,
                };
                found.borrow_mut().insert((name, path, our_errno, their_errno), step.clone());
            }
            if matches!(step, Step::Open { .. }) && our_results != their_results {
                break; // We take the lowest free descriptor, as POSIX wants it; wasmtime takes another one.
            }
            prop_assert!(
                our_errno != their_errno || our_results == their_results,
                "{step:?}: {our_results:?} {their_results:?}"
            );
            if (our_errno == 0) != (their_errno == 0) {
                break; // From here on their descriptors differ.
            }
        }
        Ok(())
    });
    ran.unwrap();
    let mut found = found.into_inner();
    for (name, path, ours, theirs, why) in DIFFERENCES {
        let before = found.len();
        found.retain(|(its_name, its_path, our, their), _| {
            (*its_name, *our, *their) != (name, ours, theirs) || path.is_some() && path != *its_path
        });
        assert!(found.len() < before, "no case shows that {name} {path:?} differs: {why}");
    }
    assert!(found.is_empty(), "differences that are not listed: {found:#?}");
}
