//! Mounts as a hook sees them: files to read, and nothing of the server.

use bytes::Bytes;
use metahook_server::hook::wasm::run::{Call, Called, Files, MountedFiles, MountedFolder};

use crate::{call, limits, run_as};

/// Error numbers of WASI.
const BADF: u32 = 8;
const INVAL: u32 = 28;
const ISDIR: u32 = 31;
const MFILE: u32 = 33;
const TOO_LONG: u32 = 37;
const NOENT: u32 = 44;
const NOTDIR: u32 = 54;
const PERM: u32 = 63;
const ROFS: u32 = 69;

fn files(files: &[(&str, &str)]) -> MountedFiles {
    let file = |(name, text): &(&str, &str)| ((*name).to_owned(), Bytes::copy_from_slice(text.as_bytes()));
    files.iter().map(file).collect::<Files>().into()
}

fn greeting() -> MountedFiles {
    files(&[("name", "World"), ("greeting", "Hello, mount!")])
}

/// Runs a module that sees the files in `/etc/greeting`, under the number 3.
async fn run(body: &str, files: &MountedFiles) -> Called {
    let mounts = [MountedFolder { path: "/etc/greeting".to_owned(), files: files.clone() }];
    run_as(body, Call { mounts: &mounts, ..call("{}", limits()) }).await
}

/// Runs these calls, each with the error that it must have.
async fn must(checks: &[(String, u32)], files: &MountedFiles) {
    let lines = checks.iter().map(|(call, errno)| format!("(call $must (i32.const {errno}) (call {call}))"));
    let called = run(&format!("(func $main {})", lines.collect::<String>()), files).await;
    let calls: Vec<_> = checks.iter().map(|(call, _)| call).collect();
    assert_eq!(called.answer, Ok(Vec::new()), "one of {calls:#?}");
}

/// A path in the module's memory: its text, and the arguments that name it.
fn path(path: &str) -> (String, String) {
    let text = format!("(data (i32.const 1024) \"{path}\")");
    (text, format!("(i32.const 1024) (i32.const {})", path.len()))
}

fn text(called: &Called) -> String {
    String::from_utf8_lossy(called.answer.as_ref().unwrap()).into_owned()
}

#[tokio::test]
async fn a_mount_has_its_name_and_its_files_can_be_read() {
    let (data, name) = path("greeting");
    let body = format!(
        "{data} (func $main
           (call $must (i32.const 0) (call $prestat (i32.const 3) (i32.const 64)))
           (call $must (i32.const 0) (i32.load (i32.const 64)))
           (call $must (i32.const 0) (call $prestat_name (i32.const 3) (i32.const 128) (i32.load (i32.const 68))))
           (call $dump (i32.const 128) (i32.load (i32.const 68)))
           (call $must (i32.const {BADF}) (call $prestat (i32.const 4) (i32.const 64)))
           (call $must (i32.const 0) (call $open (i32.const 3) {name}))
           (call $must (i32.const 4) (i32.load (i32.const 12)))
           (i32.store (i32.const 64) (i32.const 256))
           (i32.store (i32.const 68) (i32.const 6))
           (i32.store (i32.const 72) (i32.const 300))
           (i32.store (i32.const 76) (i32.const 100))
           (call $must (i32.const 0) (call $read (i32.const 4) (i32.const 64) (i32.const 2) (i32.const 80)))
           (call $must (i32.const 13) (i32.load (i32.const 80)))
           (call $dump (i32.const 256) (i32.const 6))
           (call $dump (i32.const 300) (i32.const 7))
           (call $must (i32.const 0) (call $read (i32.const 4) (i32.const 64) (i32.const 1) (i32.const 80)))
           (call $must (i32.const 0) (i32.load (i32.const 80)))
           (call $must (i32.const 0) (call $pread (i32.const 4) (i32.const 64) (i32.const 1) (i64.const 7) (i32.const 80)))
           (call $must (i32.const 6) (i32.load (i32.const 80)))
           (call $dump (i32.const 256) (i32.const 6))
           (call $must (i32.const 0) (call $seek (i32.const 4) (i64.const -1) (i32.const 2) (i32.const 80)))
           (call $must (i32.const 12) (i32.load (i32.const 80)))
           (call $must (i32.const 0) (call $read (i32.const 4) (i32.const 64) (i32.const 1) (i32.const 80)))
           (call $dump (i32.const 256) (i32.load (i32.const 80)))
           (call $must (i32.const 0) (call $close (i32.const 4)))
           (call $must (i32.const {BADF}) (call $read (i32.const 4) (i32.const 64) (i32.const 1) (i32.const 80))))"
    );
    let called = run(&body, &greeting()).await;
    assert_eq!(text(&called), "/etc/greetingHello, mount!mount!!");
    assert!(called.pure);
}

/// Reads the folder with a buffer of this size again and again; prints the buffer each time.
fn lists(buffer: u32) -> String {
    format!(
        "(func $main (local $cookie i64)
           (loop $again
             (call $must (i32.const 0)
               (call $readdir (i32.const 3) (i32.const 1024) (i32.const {buffer}) (local.get $cookie) (i32.const 64)))
             (call $dump (i32.const 1024) (i32.load (i32.const 64)))
             (local.set $cookie (i64.load (i32.const 1024)))
             (br_if $again (i32.eq (i32.load (i32.const 64)) (i32.const {buffer})))))"
    )
}

/// The entries in a buffer: name, inode, kind. What was cut is left out.
fn entries(mut bytes: &[u8]) -> Vec<(String, u64, u8)> {
    let mut entries = Vec::new();
    while let Some((header, rest)) = bytes.split_at_checked(24) {
        let number = |from: usize| u64::from_le_bytes(header[from..from + 8].try_into().unwrap());
        let length = usize::try_from(number(16) & 0xffff_ffff).unwrap();
        let Some((name, rest)) = rest.split_at_checked(length) else { break };
        entries.push((String::from_utf8(name.to_vec()).unwrap(), number(8), header[20]));
        bytes = rest;
    }
    entries
}

#[tokio::test]
async fn a_mount_is_listed_in_the_order_of_its_names() {
    let files = files(&[("b", ""), ("c", ""), ("a", ""), ("B", "")]);
    let whole = entries(run(&lists(4096), &files).await.answer.unwrap().as_slice());
    let names: Vec<_> = whole.iter().map(|(name, _, kind)| (name.as_str(), *kind)).collect();
    assert_eq!(names, [(".", 3), ("..", 3), ("B", 4), ("a", 4), ("b", 4), ("c", 4)]);

    let pieces = run(&lists(30), &files).await.answer.unwrap();
    let pieces: Vec<_> = pieces.chunks(30).flat_map(entries).collect();
    assert_eq!(pieces, whole, "a buffer with room for one entry gives one after the other");
}

#[tokio::test]
async fn a_folder_is_read_from_its_beginning() {
    let files = files(&[("a", ""), ("b", "")]);
    let body = "(func $main
        (call $must (i32.const 0)
          (call $readdir (i32.const 3) (i32.const 1024) (i32.const -1) (i64.const 2) (i32.const 64)))
        (call $must (i32.const 0) (i32.load (i32.const 64))))";
    let called = run(body, &files).await;
    assert_eq!(called.answer, Ok(Vec::new()), "a listing that was not begun has no more entries");
}

/// Prints the stat of the mount, of `greeting` by its path, and of `greeting` when it is open.
fn stats() -> String {
    let (data, name) = path("greeting");
    format!(
        "{data} (func $main
           (call $must (i32.const 0) (call $filestat (i32.const 3) (i32.const 64)))
           (call $dump (i32.const 64) (i32.const 64))
           (call $must (i32.const 0) (call $path_stat (i32.const 3) (i32.const 1) {name} (i32.const 64)))
           (call $dump (i32.const 64) (i32.const 64))
           (call $must (i32.const 0) (call $open (i32.const 3) {name}))
           (call $must (i32.const 0) (call $filestat (i32.const 4) (i32.const 64)))
           (call $dump (i32.const 64) (i32.const 64)))"
    )
}

#[tokio::test]
async fn the_stat_of_a_file_depends_on_its_path_and_content_alone() {
    let one = greeting();
    let other = files(&[("another", ""), ("greeting", "Hello, mount!")]);
    let told = run(&stats(), &one).await.answer.unwrap();
    assert_eq!(told, run(&stats(), &other).await.answer.unwrap());
    let numbers: Vec<u64> =
        told.chunks_exact(8).map(|number| u64::from_le_bytes(number.try_into().unwrap())).collect();
    let (mount, by_path, open) = (&numbers[0..8], &numbers[8..16], &numbers[16..24]);
    // Device, inode, kind, links, size, times of reading, writing, changing.
    assert_eq!(mount, [0, mount[1], 3, 1, 0, 0, 0, 0]);
    assert_eq!(by_path, [0, by_path[1], 4, 1, 13, 0, 0, 0]);
    assert_eq!(open, by_path);
    let listed = entries(run(&lists(4096), &one).await.answer.unwrap().as_slice());
    assert_eq!(listed[0], (".".to_owned(), mount[1], 3));
    assert_eq!(listed[2], ("greeting".to_owned(), by_path[1], 4));
    assert!(mount[1] != by_path[1] && mount[1] != 0 && by_path[1] != 0);
}

#[tokio::test]
async fn no_path_leads_out_of_a_mount() {
    let files = greeting();
    let long = "x".repeat(256);
    let below_long = format!("{long}/below");
    for (text, errno) in [
        ("..", PERM),
        ("../", PERM),
        ("./../name", PERM),
        ("/etc/passwd", PERM),
        ("/", PERM),
        ("missing/../..", NOENT),
        ("missing/../name", NOENT),
        ("./name/../../etc/passwd", NOTDIR),
        ("name/..", NOTDIR),
        ("name/.", NOTDIR),
        ("missing", NOENT),
        ("", NOENT),
        ("name/below", NOTDIR),
        ("name/", NOTDIR),
        ("missing/below", NOENT),
        (long.get(1..).unwrap(), NOENT),
        (&long, TOO_LONG),
        (&below_long, TOO_LONG),
        (".", 0),
        ("./.", 0),
        ("./name", 0),
    ] {
        let (data, at) = path(text);
        let body = format!(
            "{data} (func $main
               (call $must (i32.const {errno}) (call $open (i32.const 3) {at}))
               (call $must (i32.const {errno}) (call $path_stat (i32.const 3) (i32.const 1) {at} (i32.const 64))))"
        );
        assert_eq!(run(&body, &files).await.answer, Ok(Vec::new()), "{text}");
    }
    let long = [("$open (i32.const 3) (i32.const 0) (i32.const 1000000000)".to_owned(), TOO_LONG)];
    must(&long, &files).await;
}

#[tokio::test]
async fn nothing_in_a_mount_can_be_changed() {
    let (name, other) = ("(i32.const 1024) (i32.const 4)", "(i32.const 1030) (i32.const 3)");
    let open = |path: &str, flags: u32, rights: u64| {
        format!(
            "$path_open (i32.const 3) (i32.const 1) {path} (i32.const {flags}) (i64.const {rights}) (i64.const {rights})
             (i32.const 0) (i32.const 12)"
        )
    };
    let checks = [
        (open(name, 0, 64), ROFS),
        (open(name, 0, 66), ROFS),
        (open(name, 8, 2), ROFS),
        (open(name, 1, 2), ROFS),
        (open(other, 1, 64), ROFS),
        (open(other, 5, 66), ROFS),
        (format!("$make (i32.const 3) {other}"), ROFS),
        (format!("$unlink (i32.const 3) {name}"), ROFS),
        (format!("$remove (i32.const 3) {name}"), ROFS),
        (format!("$rename (i32.const 3) {name} (i32.const 3) {other}"), ROFS),
        (format!("$link (i32.const 3) (i32.const 0) {name} (i32.const 3) {other}"), ROFS),
        (format!("$symlink {name} (i32.const 3) {other}"), ROFS),
        (format!("$readlink (i32.const 3) {name} (i32.const 64) (i32.const 64) (i32.const 8)"), INVAL),
        (open(name, 0, 2), 0),
        ("$set_size (i32.const 4) (i64.const 0)".to_owned(), ROFS),
        ("$write (i32.const 4) (i32.const 64) (i32.const 0) (i32.const 8)".to_owned(), BADF),
        ("$write (i32.const 3) (i32.const 64) (i32.const 0) (i32.const 8)".to_owned(), BADF),
        ("$read (i32.const 3) (i32.const 64) (i32.const 0) (i32.const 8)".to_owned(), ISDIR),
    ];
    let (calls, data) = (checks, "(data (i32.const 1024) \"name  new\")");
    let lines = calls.iter().map(|(call, errno)| format!("(call $must (i32.const {errno}) (call {call}))"));
    let body = format!("{data} (func $main {})", lines.collect::<String>());
    assert_eq!(run(&body, &greeting()).await.answer, Ok(Vec::new()), "{calls:#?}");
}

#[tokio::test]
async fn without_a_mount_there_is_nothing_to_open_and_there_are_never_sockets() {
    let (data, at) = path("/etc/passwd");
    let body = format!(
        "{data} (func $main
           (call $must (i32.const {BADF}) (call $open (i32.const 3) {at}))
           (call $must (i32.const {NOTDIR}) (call $open (i32.const 0) {at}))
           (call $must (i32.const {BADF}) (call $unlink (i32.const 3) {at}))
           (call $must (i32.const 57) (call $accept (i32.const 0) (i32.const 0) (i32.const 64)))
           (call $must (i32.const 57) (call $shutdown (i32.const 1) (i32.const 0)))
           (call $must (i32.const {BADF}) (call $accept (i32.const 3) (i32.const 0) (i32.const 64))))"
    );
    assert_eq!(run_as(&body, call("{}", limits())).await.answer, Ok(Vec::new()));
}

/// Opens `name` until that fails.
fn opens_until(errno: u32) -> String {
    let (data, at) = path("name");
    format!(
        "{data} (func $main (local $errno i32)
           (loop $again
             (local.set $errno (call $open (i32.const 3) {at}))
             (br_if $again (i32.eqz (local.get $errno))))
           (call $must (i32.const {errno}) (local.get $errno))
           (call $must (i32.const 1003) (i32.load (i32.const 12)))
           (call $must (i32.const 0) (call $close (i32.const 500)))
           (call $must (i32.const 0) (call $open (i32.const 3) {at}))
           (call $must (i32.const 500) (i32.load (i32.const 12)))
           (call $must (i32.const 0) (call $renumber (i32.const 500) (i32.const 0)))
           (call $must (i32.const {BADF}) (call $close (i32.const 500)))
           (call $must (i32.const 0) (call $close (i32.const 0))))"
    )
}

#[tokio::test]
async fn a_thousand_files_may_be_open_at_once() {
    let called = run(&opens_until(MFILE), &greeting()).await;
    assert_eq!(called.answer, Ok(Vec::new()));
}

#[tokio::test]
async fn open_files_may_have_so_much_together_and_no_more() {
    let file = |name: &str, len: usize| (name.to_owned(), Bytes::from(vec![0; len]));
    let files = Files::from([file("half", 16 << 20), file("more", (16 << 20) + 1)]).into();
    let (data, _) = path("halfmore");
    let (half, more) = ("(i32.const 1024) (i32.const 4)", "(i32.const 1028) (i32.const 4)");
    let twice = format!(
        "{data} (func $main
           (call $must (i32.const 0) (call $open (i32.const 3) {half}))
           (call $must (i32.const 0) (call $open (i32.const 3) {half}))
           (call $must (i32.const 0) (call $close (i32.const 4)))
           (call $must (i32.const 0) (call $open (i32.const 3) {half})))"
    );
    assert_eq!(run(&twice, &files).await.answer, Ok(Vec::new()));
    let over = format!(
        "{data} (func $main
           (call $must (i32.const 0) (call $open (i32.const 3) {half}))
           (drop (call $open (i32.const 3) {more})))"
    );
    assert_eq!(
        run(&over, &files).await.answer.unwrap_err().to_string(),
        "the hook was stopped in open: it has files open with more than 32 MiB together: close what has been read"
    );
}

/// Reads the folder from an entry on, again and again.
fn lists_for_ever(open: &str, fd: &str, from: u32) -> String {
    let (data, here) = path(".");
    let open = open.replace("HERE", &here);
    format!(
        "{data} (func $main
           (call $must (i32.const 0) (call $readdir (i32.const 3) (i32.const 2048) (i32.const 60000) (i64.const 0) (i32.const 64)))
           (loop $again
             {open}
             (call $must (i32.const 0)
               (call $readdir {fd} (i32.const 2048) (i32.const 60000) (i64.const {from}) (i32.const 64)))
             (br $again)))"
    )
}

fn many_long_names() -> MountedFiles {
    (0..200).map(|number| (format!("{number:0>200}"), Bytes::new())).collect::<Files>().into()
}

#[tokio::test]
async fn the_listings_of_open_folders_have_a_bound() {
    let opens = lists_for_ever(
        "(call $must (i32.const 0) (call $open (i32.const 3) HERE))",
        "(i32.load (i32.const 12))",
        0,
    );
    assert_eq!(
        run(&opens, &many_long_names()).await.answer.unwrap_err().to_string(),
        "the hook was stopped in main: it has files open with more than 32 MiB together: close what has been read"
    );
}

#[tokio::test]
async fn reading_a_folder_costs_by_entry_wherever_it_begins() {
    let called = run(&lists_for_ever("", "(i32.const 3)", 1), &many_long_names()).await;
    let error = called.answer.unwrap_err().to_string();
    assert!(error.starts_with("the hook used up its 1000000000 instructions"), "{error}");
}
