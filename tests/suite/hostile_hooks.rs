//! Hooks that attack: each is stopped with a word, and the tutorial's controller goes on meanwhile in the same process.

use std::io::Write;
use std::time::Instant;

use acceptance::api::POD;
use acceptance::expected_messages;
use acceptance::fixture::{Fixture, guest};
use acceptance::objects::config_map;
use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use crate::attacks::measure::memory_at_most;
use crate::table::{Row, host};
use crate::wasm::{self, Wat, command};

/// Hooks that run at once, on every machine.
pub(crate) const AT_ONCE: &str = "--hook-concurrency=4";

/// MiB that the server may ever have had: an idle one has 40 MiB, and what remains is less than four hooks may have by
/// their limits (64Mi of memory and 4Mi of output each).
pub(crate) const MEMORY: f64 = 300.0;

/// MiB that the server may ever have had where an answer of 32 MiB is read, compared and sent, beside some that would
/// like to be more.
pub(crate) const MEMORY_FOR_LARGE_ANSWERS: f64 = 500.0;

/// Seconds in which a neighbour's parent converges, on a busy machine, too.
const BESIDE: f64 = 60.0;

/// Hosts the rows beside the tutorial's controller, which has to serve a parent that comes while a row is at it.
pub(crate) async fn do_no_harm(test: &mut Fixture, rows: &[Row], memory: f64) -> Result<()> {
    test.define_kind().await?;
    test.store("good", &guest("hello")?).await?;
    test.server().flag(AT_ONCE);
    test.serve()?;
    let good = test.controller().of_parents_with("row", "good").making(&POD, "Recreate");
    test.host(good.synced_by(test.hook("good"))).await?;
    converges(test, "good").await?;
    let pid = test.server().pid()?;
    host(test, rows).await?;
    for row in rows {
        beside(test, row).await?;
    }
    ensure!(test.server().pid()? == pid, "the server is another process");
    let log = std::fs::read_to_string(test.server().log())?;
    ensure!(!log.contains("panicked"), "something panicked");
    memory_at_most(test, "the server's memory", memory)
}

/// The row comes as it should both before and after a parent of the tutorial's controller got its Pod.
async fn beside(test: &mut Fixture, row: &Row) -> Result<()> {
    row.comes(test).await?;
    let start = Instant::now();
    converges(test, &format!("beside-{}", row.name))
        .await
        .with_context(|| format!("beside the row {}", row.name))?;
    let took = start.elapsed().as_secs_f64();
    test.at_most(&format!("{}: a neighbour's parent converged", row.name), took, "s", BESIDE)?;
    row.comes_again(test).await
}

pub(crate) async fn converges(test: &mut Fixture, parent: &str) -> Result<()> {
    test.create(test.parent(parent).labelled("row", "good")).await?;
    test.parents().until(parent, "its Pod counted", |parent| parent["status"]["pods"] == 1).await?;
    Ok(())
}

pub(crate) async fn hooks_that_run_wild_do_no_harm(test: &mut Fixture) -> Result<()> {
    do_no_harm(test, &wild()?, MEMORY).await
}

pub(crate) fn wild() -> Result<Vec<Row>> {
    let budget = 100_000_000;
    let page = "(if (i32.eq (memory.grow (i32.const 1)) (i32.const -1)) (then unreachable))
        (memory.fill (i32.shl (i32.sub (memory.size) (i32.const 1)) (i32.const 16)) (i32.const 1) (i32.const 65536))";
    let memory_bomb = Wat::default().does_again_and_again(page).wasm()?;
    let memory = expected_messages::memory_then_trap("65600Ki", "64Mi", "main");
    let recursion = Wat::default().with("(func $deep (call $deep))").does("(call $deep)").wasm()?;
    let flood = "(call $print (i32.const 1) (i32.const 0) (i32.const 60000))";
    let stdout_flood = Wat::default().does_again_and_again(flood).wasm()?;
    let exits = |last: &str| Wat::default().warns(last).does("(call $exit (i32.const 3))").wasm();
    let last_words = format!("{}; last stderr output: no more", expected_messages::exit(3));
    Ok(vec![
        Row::fails("endless-loop", wasm::loops()?, &expected_messages::instructions(budget, "main"))
            .limited("instructions", budget),
        Row::fails("memory-bomb", memory_bomb, &memory),
        Row::fails("recursion", recursion, &expected_messages::trap("deep", expected_messages::TOO_DEEP)),
        Row::fails("stdout-flood", stdout_flood, &expected_messages::output("4Mi")),
        Row::fails("trap", wasm::traps()?, &expected_messages::trap("main", expected_messages::UNREACHABLE)),
        Row::fails("exit", exits("")?, &expected_messages::exit(3)),
        Row::fails("last-words", exits("this is it\nno more\n")?, &last_words),
    ])
}

pub(crate) async fn hooks_that_keep_the_host_busy_do_no_harm(test: &mut Fixture) -> Result<()> {
    do_no_harm(test, &busy_host()?, MEMORY).await
}

/// The host does work for these hooks that costs no instruction of theirs but is counted as some.
pub(crate) fn busy_host() -> Result<Vec<Row>> {
    let budget = 1_000_000;
    let spent = expected_messages::instructions(budget, "main");
    let again = |instructions: &str| Wat::default().pages(2).does_again_and_again(instructions);
    let element =
        "(if (i32.eq (table.grow (ref.null func) (i32.const 1000)) (i32.const -1)) (then unreachable))";
    let table_bomb = again(element).with("(table 1 funcref)").wasm()?;
    let flood = again("(call $print (i32.const 2) (i32.const 0) (i32.const 60000))").wasm()?;
    let random = |bytes: i32| format!("(drop (call $random (i32.const 1024) (i32.const {bytes})))");
    // An hour of the monotonic clock.
    let sleep =
        "(i32.store (i32.const 80) (i32.const 1)) (i64.store (i32.const 88) (i64.const 3600000000000))
        (if (call $poll (i32.const 64) (i32.const 128) (i32.const 1) (i32.const 200)) (then unreachable))";
    let accept = "(drop (call $accept (i32.const 0) (i32.const 0) (i32.const 64)))";
    Ok(vec![
        Row::fails("table-bomb", table_bomb, &expected_messages::table_then_trap(50_001, "main")),
        Row::fails("stderr-flood", flood, &expected_messages::instructions(budget, "print"))
            .limited("instructions", budget),
        Row::fails("random-flood", again(&random(16384)).wasm()?, &spent).limited("instructions", budget),
        Row::fails(
            "huge-random",
            again(&random(i32::MAX)).wasm()?,
            &expected_messages::random("main", 2_147_483_647),
        ),
        Row::fails("sleeping-loop", again(sleep).wasm()?, &spent).limited("instructions", budget),
        Row::fails("socket-flood", again(accept).wasm()?, &spent).limited("instructions", budget),
        Row::answers("pieces", pieces(400_000, 4_000_000).wasm()?, json!({ "error": "00" })),
        Row::answers("empty-pieces", pieces(499_000, 0).wasm()?, json!({ "error": "00" })),
        Row::answers("pieces-without-end", pieces(u32::MAX, 1).wasm()?, json!({ "error": "00" })),
        Row::answers("piece-without-end", pieces(1, u32::MAX).wasm()?, json!({ "error": "21" })),
    ])
}

/// Writes so many pieces to stderr in one call, each so many bytes from address 0 on, and finds the error.
fn pieces(count: u32, bytes: u32) -> Wat {
    let list = format!(
        "(local.set $i (i32.const 65536))
         (loop $again
           (i32.store offset=4 (local.get $i) (i32.const {bytes}))
           (br_if $again
             (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 8))) (i32.const 4000000))))"
    );
    let write = format!("(call $write (i32.const 2) (i32.const 65536) (i32.const {count}) (i32.const 64))");
    Wat::default().pages(64).does(&list).finds(&[("error", &write)])
}

pub(crate) async fn answers_that_are_none_do_no_harm(test: &mut Fixture) -> Result<()> {
    do_no_harm(test, &no_answers()?, MEMORY).await
}

pub(crate) fn no_answers() -> Result<Vec<Row>> {
    let prints = |text: &str| Wat::default().prints(text).wasm();
    let broken = |name, text: &str, why| {
        Ok::<_, anyhow::Error>(Row::fails(name, prints(text)?, &expected_messages::no_json(why)))
    };
    let no_text = b"{\"children\":[],\"status\":{\"is\":\"\xff\xfe\"}}";
    let no_text_why = expected_messages::no_json("invalid unicode code point at line 1 column 32");
    let twice = r#"{"children":[{}],"status":{"is":1},"children":[],"status":{"is":2}}"#;
    Ok(vec![
        Row::fails("nothing", prints("")?, expected_messages::NOTHING),
        Row::fails("spaces", prints(" \n")?, expected_messages::NOTHING),
        broken("half", r#"{"children":[{"apiVersion":"v1","ki"#, expected_messages::HALF)?,
        broken("two", r#"{"children":[]}{"children":[]}"#, expected_messages::TWO)?,
        broken("deep", &"[".repeat(10_000), expected_messages::DEEP)?,
        broken("huge-number", r#"{"status":{"n":1e999}}"#, "number out of range at line 1 column 20")?,
        broken(
            "surrogate",
            r#"{"status":{"is":"\ud800"}}"#,
            "unexpected end of hex escape at line 1 column 24",
        )?,
        Row::fails("no-text", Wat::default().prints(no_text).wasm()?, &no_text_why),
        Row::answers("twice", prints(twice)?, json!({ "is": 2 })),
    ])
}

pub(crate) async fn answers_that_are_too_large_do_no_harm(test: &mut Fixture) -> Result<()> {
    let rows = large_answers(test)?;
    do_no_harm(test, &rows, MEMORY_FOR_LARGE_ANSWERS).await
}

pub(crate) fn large_answers(test: &Fixture) -> Result<Vec<Row>> {
    let many = |start: &str, times: u32, piece: &str, end: &str| {
        Wat::default().prints(start).prints_times(times / 10_000, piece.repeat(10_000)).prints(end).wasm()
    };
    let million = expected_messages::children(1_000_001, 10_000);
    let status_why = expected_messages::too_large(3907, "status.is", 3907);
    let status_why = format!("status {} {}/status: {status_why}", test.kind().kind, test.name());
    let child_why = expected_messages::too_large(62_501, "data.is", 31_251);
    let child_why = format!("create ConfigMap {}/large: {child_why}", test.name());
    let status = many(r#"{"children":[],"status":{"is":""#, 4_000_000, "a", r#""}}"#)?;
    let large =
        r#"{"children":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large"},"data":{"is":""#;
    let child = many(large, 32_000_000, "a", r#""}}]}"#)?;
    let values = many(r#"{"children":[],"status":{"all":[0"#, 3_000_000, ",0", "]}}")?;
    Ok(vec![
        Row::fails("children", many(r#"{"children":[{}"#, 1_000_000, ",{}", "]}")?, &million),
        Row::fails("numbers", many(r#"{"children":[0"#, 1_000_000, ",0", "]}")?, &million),
        Row::fails("values", values, expected_messages::VALUES).limited("output", "32Mi"),
        Row::is_rejected("status", status, &status_why),
        Row::is_rejected("child", child, &child_why).limited("output", "32Mi"),
    ])
}

pub(crate) async fn what_is_no_hook_does_no_harm(test: &mut Fixture) -> Result<()> {
    let not_wasm = "this is not a WebAssembly module: its first bytes are 68 65 6c 6c 6f, not 00 61 73 6d";
    let start = r#"(func (export "_start"))"#;
    let with = |field: &str| command(&format!("{field} {start}"));
    let memory64 = expected_messages::feature("memory64", "memory64");
    let threads = expected_messages::feature("threads (shared memory, atomics)", "atomics");
    let functions = expected_messages::functions(60_000, 50_000);
    let rows = [
        Row::is_refused("text", b"hello".to_vec(), not_wasm),
        Row::is_refused("component", wat::parse_str("(component)")?, expected_messages::COMPONENT),
        Row::is_refused(
            "http",
            wat::parse_str(r#"(component (import "wasi:http/types@0.2.0" (instance)))"#)?,
            expected_messages::HTTP,
        ),
        Row::is_refused(
            "modules",
            wat::parse_str(format!("(component {})", "(core module)".repeat(129)))?,
            expected_messages::MANY_MODULES,
        ),
        Row::is_refused("library", command("(func)")?, expected_messages::NO_START),
        Row::is_refused("memory64", with("(memory i64 1)")?, &memory64),
        Row::is_refused("threads", with("(memory 1 1 shared)")?, &threads),
        Row::is_refused(
            "import",
            with(r#"(import "env" "launch" (func))"#)?,
            &expected_messages::imports("env.launch"),
        ),
        Row::is_refused("functions", with(&"(func)".repeat(59_999))?, &functions),
        Row::is_refused("zstd-bomb", zstd_bomb(WINDOW_OF_8_MIB), &expected_messages::size("64Mi")),
        Row::is_refused("zstd-window", zstd_bomb(WINDOW_OF_1_GIB), expected_messages::WINDOW),
        Row::is_refused("gzip-bomb", gzip_bomb()?, &expected_messages::size("64Mi")),
    ];
    do_no_harm(test, &rows, MEMORY).await
}

/// Exponent and mantissa as a zstd frame says them.
const WINDOW_OF_8_MIB: u8 = 13 << 3;
const WINDOW_OF_1_GIB: u8 = 20 << 3;

/// 32 KiB that become a GiB: a frame of 8,192 blocks that each repeat one byte.
fn zstd_bomb(window: u8) -> Vec<u8> {
    const REPEATS: u32 = 1 << 1;
    let block =
        |last: bool| [&(u32::from(last) | REPEATS | (128 << 10) << 3).to_le_bytes()[..3], &[0]].concat();
    let blocks = (1..=8192).flat_map(|number| block(number == 8192));
    [0x28, 0xb5, 0x2f, 0xfd, 0, window].into_iter().chain(blocks).collect()
}

/// 64 KiB that become more than 64 MiB.
fn gzip_bomb() -> Result<Vec<u8>> {
    let mut bomb = GzEncoder::new(Vec::new(), Compression::default());
    for _ in 0..=64 {
        bomb.write_all(&vec![0; 1 << 20])?;
    }
    Ok(bomb.finish()?)
}

pub(crate) async fn hooks_that_look_around_find_nothing(test: &mut Fixture) -> Result<()> {
    do_no_harm(test, &looks_around(&SOCKETS)?, MEMORY).await
}

/// Calls of sockets and what comes of them: 57, it is no socket.
const SOCKETS: [(&str, &str, &str); 4] = [
    ("accept", "(call $accept (i32.const 0) (i32.const 0) (i32.const 64))", "57"),
    (
        "receive",
        "(call $recv (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 0) (i32.const 72) (i32.const 76))",
        "57",
    ),
    ("send", "(call $send (i32.const 1) (i32.const 64) (i32.const 1) (i32.const 0) (i32.const 72))", "57"),
    ("shutdown", "(call $shutdown (i32.const 1) (i32.const 2))", "57"),
];

pub(crate) fn looks_around(sockets: &[(&str, &str, &str)]) -> Result<Vec<Row>> {
    let mut hook = Wat::default();
    let passwd = hook.put(b"/etc/passwd");
    let opens = format!(
        "(call $open (i32.const 3) (i32.const 0) (i32.const {passwd}) (i32.const 11) (i32.const 0)
           (i64.const 2) (i64.const 2) (i32.const 0) (i32.const 64))"
    );
    let mut looks = vec![
        ("environ", "(call $environ (i32.const 64) (i32.const 68))"),
        ("variables", "(i32.load (i32.const 64))"),
        ("mount", "(call $prestat (i32.const 3) (i32.const 64))"),
        ("passwd", &opens),
    ];
    // 08: there is no such descriptor.
    let mut found = json!({ "environ": "00", "variables": "00", "mount": "08", "passwd": "08" });
    for (name, call, error) in sockets {
        looks.push((*name, *call));
        found[*name] = json!(error);
    }
    Ok(vec![Row::answers("looks", hook.finds(&looks).wasm()?, found)])
}

pub(crate) async fn hooks_can_read_their_mounts_and_do_nothing_else_there(test: &mut Fixture) -> Result<()> {
    mounts(test).await?;
    do_no_harm(test, &reads_mounts()?, MEMORY).await
}

pub(crate) fn reads_mounts() -> Result<Vec<Row>> {
    let mut hook = Wat::default();
    let mut path =
        |text: &str| format!("(i32.const {}) (i32.const {})", hook.put(text.as_bytes()), text.len());
    let (own, up, root, made) = (path("text"), path("../../etc/passwd"), path("/etc/passwd"), path("made"));
    let link = path("text/../../passwd");
    // oflags: 1 creates, 8 truncates; rights: 2 reads, 64 writes
    let open = |path: &str, flags: u32, rights: u32| {
        format!(
            "(call $open (i32.const 3) (i32.const 1) {path} (i32.const {flags})
               (i64.const {rights}) (i64.const {rights}) (i32.const 0) (i32.const 64))"
        )
    };
    let looks = [
        ("read", open(&own, 0, 2)),
        ("up", open(&up, 0, 2)),
        ("through", open(&link, 0, 2)),
        ("root", open(&root, 0, 2)),
        ("stat", format!("(call $stat (i32.const 3) (i32.const 1) {up} (i32.const 64))")),
        ("create", open(&made, 1, 66)),
        ("write", open(&own, 0, 66)),
        ("truncate", open(&own, 8, 66)),
        ("mkdir", format!("(call $mkdir (i32.const 3) {made})")),
        ("unlink", format!("(call $unlink (i32.const 3) {own})")),
        ("rename", format!("(call $rename (i32.const 3) {own} (i32.const 3) {made})")),
        ("link", format!("(call $link (i32.const 3) (i32.const 0) {own} (i32.const 3) {made})")),
        ("symlink", format!("(call $symlink {root} (i32.const 3) {made})")),
        (
            "readlink",
            format!("(call $readlink (i32.const 3) {own} (i32.const 64) (i32.const 64) (i32.const 128))"),
        ),
        ("made", open(&made, 0, 2)),
    ];
    // 28: it is no link; 44: there is no such file; 54: a file is no folder; 63: not permitted; 69: the file system is for reading.
    let found = json!({
        "read": "00", "up": "63", "through": "54", "root": "63", "stat": "63",
        "create": "69", "write": "69", "truncate": "69", "mkdir": "69", "unlink": "69", "rename": "69", "link": "69",
        "symlink": "69", "readlink": "28", "made": "44",
    });
    let looks: Vec<(&str, &str)> = looks.iter().map(|(name, look)| (*name, look.as_str())).collect();
    Ok(vec![
        Row::answers("mounted-hook", hook.finds(&looks).wasm()?, found).mounting("mounted"),
        opens_again_and_again()?,
    ])
}

/// Makes the objects that the rows of [`reads_mounts`] mount.
pub(crate) async fn mounts(test: &mut Fixture) -> Result<()> {
    let mounted = config_map("mounted", json!({}), json!({ "text": "Hello!" }));
    test.make(&test.config_maps(), mounted).await.map(drop)
}

/// Opens the one file of its mount as often as it can, and says how many hundred times that was.
fn opens_again_and_again() -> Result<Row> {
    let mut hook = Wat::default();
    let text = hook.put(b"text");
    let open = format!(
        "(call $open (i32.const 3) (i32.const 1) (i32.const {text}) (i32.const 4) (i32.const 0)
           (i64.const 2) (i64.const 2) (i32.const 0) (i32.const 64))"
    );
    let count = format!(
        "(loop $again (local.set $i (i32.add (local.get $i) (i32.const 1))) (br_if $again (i32.eqz {open})))"
    );
    let looks = [("hundreds", "(i32.div_u (local.get $i) (i32.const 100))"), ("error", &open)];
    let found = json!({ "hundreds": "10", "error": "33" }); // 33: too many files are open
    Ok(Row::answers("opens", hook.does(&count).finds(&looks).wasm()?, found).mounting("mounted"))
}
