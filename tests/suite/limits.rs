//! Each limit of a hook and each bound of the server, obeyed and violated, and what a user reads then.

use std::collections::BTreeSet;
use std::io::Write;

use acceptance::api::CONFIG_MAP;
use acceptance::expected_messages;
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, config_map, text, uid};
use acceptance::webhook::{Answer, Webhook};
use anyhow::{Result, ensure};
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};

use crate::pages::symptoms;
use crate::table::{Row, answer, come};
use crate::wasm::{self, PAGE, Wat};

const KI: usize = 1 << 10;
const MI: usize = 1 << 20;

/// A long text is printed in pieces of this many bytes.
const PIECE: usize = 16 * KI;

/// A hook that does nothing more than answer.
fn good(row: &str) -> Wat {
    Wat::default().prints(answer(row).to_string())
}

/// A hook that answers as a good one does, with spaces behind, so many bytes in all.
fn long(row: &str, bytes: usize) -> Result<Vec<u8>> {
    let answer = answer(row).to_string();
    let rest = bytes - answer.len();
    let spaces = |bytes| " ".repeat(bytes);
    let hook = Wat::default().prints(&answer).prints_times(u32::try_from(rest / PIECE)?, spaces(PIECE));
    hook.prints(spaces(rest % PIECE)).wasm()
}

pub(crate) async fn each_limit_of_a_hook_holds_at_its_bound_and_says_so_above(
    test: &mut Fixture,
) -> Result<()> {
    let pages = 64 * MI / PAGE;
    let grown = expected_messages::memory_then_trap("65600Ki", "64Mi", "main");
    let start = expected_messages::memory("80Mi", "64Mi");
    let rounds = |row, rounds| good(row).does_times(rounds, "").wasm(); // of 5 instructions each
    let budget = 600_000;
    let instructions = expected_messages::instructions(budget, "main");
    let loops = Wat::default().does_again_and_again("").wasm()?;
    let forever = 100_000_000_000_u64;
    let rows = [
        Row::converges("memory", good("memory").grows_by(pages - 1).wasm()?),
        Row::fails("memory-over", Wat::default().grows_by(pages).wasm()?, &grown),
        Row::fails("memory-start-over", Wat::default().pages(80 * MI / PAGE).wasm()?, &start),
        Row::converges("instructions", rounds("instructions", 119_000)?).limited("instructions", budget),
        Row::fails("instructions-over", rounds("instructions-over", 121_000)?, &instructions)
            .limited("instructions", budget),
        Row::converges("timeout", good("timeout").wasm()?),
        Row::fails("timeout-over", loops, &expected_messages::timeout("0.2s"))
            .limited("timeout", "200ms")
            .limited("instructions", forever),
        Row::converges("output", long("output", 4 * MI)?),
        Row::fails("output-over", long("output-over", 4 * MI + 1)?, &expected_messages::output("4Mi")),
        Row::converges("ceiling", long("ceiling", 32 * MI)?).limited("output", "32Mi"),
        Row::fails("ceiling-over", long("ceiling-over", 32 * MI + 1)?, &expected_messages::output("32Mi"))
            .limited("output", "32Mi"),
    ];
    come(test, &rows).await?;
    // The parents have the names of their rows.
    symptoms::is_shown(test, "used up its", &symptoms::parent(test, "instructions-over")).await?;
    symptoms::is_shown(test, "of memory and may have", &symptoms::parent(test, "memory-over")).await?;
    symptoms::is_shown(test, "did not end within", &symptoms::parent(test, "timeout-over")).await
}

/// etcd refuses the first status, the API server's connection to it the second.
pub(crate) async fn an_object_that_is_too_large_for_etcd_is_told_by_its_largest_part(
    test: &mut Fixture,
) -> Result<()> {
    let report = |size: usize| {
        Wat::default()
            .prints("{\"children\":[],\"status\":{\"report\":\"")
            .prints_times(u32::try_from(size / PIECE)?, "x".repeat(PIECE))
            .prints("\"}}")
            .wasm()
    };
    test.define_kind().await?;
    test.store("hook", &report(1600 * KI)?).await?;
    test.serve()?;
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(test.hook("hook"))).await?;
    test.create(test.parent("p")).await?;
    for size in [1600, 2048] {
        test.store("hook", &report(size * KI)?).await?;
        let part = format!("of which status.report has {}Ki, and etcd takes 1.5Mi of an object", size + 1);
        let says = |event: &Value| text(event, "/message").contains(&part);
        test.until_event("p", "SyncError", says).await?;
    }
    symptoms::is_shown(test, "it is too large:", &symptoms::parent(test, "p")).await?;
    Ok(())
}

pub(crate) async fn what_a_hook_logs_within_its_limit_is_in_the_servers_log_and_the_rest_is_counted(
    test: &mut Fixture,
) -> Result<()> {
    let logs = |row, text: &str| good(row).warns(text).wasm();
    let line = "x".repeat(64 * KI - 1);
    let lines = |count| (0..count).map(|line| format!("line {line:03}")).collect::<Vec<_>>();
    let rows = [
        Row::converges("log", logs("log", &format!("{line}\n"))?),
        Row::converges("log-over", logs("log-over", &format!("{line}\n\n"))?),
        Row::converges("lines", logs("lines", &lines(100).join("\n"))?),
        Row::converges("lines-over", logs("lines-over", &lines(101).join("\n"))?),
        Row::converges(
            "lines-beyond",
            logs("lines-beyond", &format!("{line}\n{}", lines(150).join("\n\n")))?,
        ),
        Row::converges("levels", logs("levels", r#"{"level":"warn","message":"loud"}"#)?),
    ];
    come(test, &rows).await?;
    let hundred = lines(100);
    for (row, lines, cut) in [
        (&rows[0], std::slice::from_ref(&line), None),
        (&rows[1], std::slice::from_ref(&line), Some(expected_messages::log(0, 1))),
        (&rows[2], &hundred, None),
        (&rows[3], &hundred, Some(expected_messages::log(1, 0))),
        (&rows[4], std::slice::from_ref(&line), Some(expected_messages::log(150, 150 * 8 + 149 * 2))),
    ] {
        let wanted = lines.iter().cloned().chain(cut).collect::<BTreeSet<String>>();
        let logged = logged(test, row)?;
        ensure!(logged == wanted, "the row {}: the log has {logged:?}", row.name);
    }
    let log = std::fs::read_to_string(test.server().log())?;
    let mut records = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let loud = records.find(|record| record["target"] == "hook" && record["message"] == "loud");
    ensure!(loud.as_ref().is_some_and(|record| record["level"] == "WARN"), "{loud:?}");
    Ok(())
}

/// Lines that the hook of a row logged; reconciles repeat them.
fn logged(test: &mut Fixture, row: &Row) -> Result<BTreeSet<String>> {
    let log = std::fs::read_to_string(test.server().log())?;
    let records = log.lines().filter_map(|line| serde_json::from_str(line).ok());
    let its = |record: &Value| {
        record["target"] == "hook" && record["spans"][0]["controller"] == row.controller(test)
    };
    Ok(records.filter(its).map(|record| text(&record, "/message").to_owned()).collect())
}

pub(crate) async fn each_bound_of_the_server_holds_and_says_so_above(test: &mut Fixture) -> Result<()> {
    // A hook may have more memory than one reconcile of a server without a limit.
    test.server().flag("--memory-budget=1Gi");
    let table = |row, elements: usize| good(row).with(&format!("(table {elements} funcref)"));
    let grows = |row, elements: usize| {
        let grow = format!("(table.grow (ref.null func) (i32.const {elements}))");
        table(row, 1).does(&format!("(if (i32.eq {grow} (i32.const -1)) (then unreachable))")).wasm()
    };
    let random = |row, bytes: usize| {
        good(row).does(&format!("(drop (call $random (i32.const 1024) (i32.const {bytes})))")).wasm()
    };
    let waits = |count: u32| {
        let poll =
            format!("(call $poll (i32.const 65536) (i32.const 327680) (i32.const {count}) (i32.const 64))");
        Wat::default().pages(8).finds(&[("error", &poll)]).wasm()
    };
    let table_over = table("table-over", 50_001).wasm()?;
    let memory = |row, pages| good(row).pages(pages).wasm();
    let too_much = expected_messages::first_memory("513Mi");
    let rows = [
        Row::converges("memory", memory("memory", 512 * MI / PAGE)?).limited("memory", "512Mi"),
        Row::is_refused("memory-over", memory("memory-over", 513 * MI / PAGE)?, &too_much),
        Row::converges("table", table("table", 50_000).wasm()?),
        Row::is_refused("table-over", table_over, &expected_messages::table(50_001)),
        Row::converges("grown", grows("grown", 49_999)?),
        Row::fails(
            "grown-over",
            grows("grown-over", 50_000)?,
            &expected_messages::table_then_trap(50_001, "main"),
        ),
        Row::converges("random", random("random", 16 * KI)?),
        Row::fails(
            "random-over",
            random("random-over", 16 * KI + 1)?,
            &expected_messages::random("main", 16 * KI + 1),
        ),
        Row::answers("waits", waits(4096)?, json!({ "error": "00" })),
        Row::answers("waits-over", waits(4097)?, json!({ "error": "28" })),
    ];
    come(test, &rows).await
}

pub(crate) async fn a_module_is_as_large_as_the_flags_say_and_not_larger(test: &mut Fixture) -> Result<()> {
    for flag in ["--module-size-max=8Ki", "--module-packed-max=4Ki", "--module-functions-max=100"] {
        test.server().flag(flag);
    }
    // `good` has three functions.
    let functions = |row, more: usize| good(row).with(&"(func)".repeat(more)).wasm();
    let rows = [
        Row::converges("functions", functions("functions", 97)?),
        Row::is_refused(
            "functions-over",
            functions("functions-over", 98)?,
            &expected_messages::functions(101, 100),
        ),
        Row::converges("size", padded("size", 8 * KI)?),
        Row::is_refused("size-over", padded("size-over", 8 * KI + 1)?, &expected_messages::size("8Ki")),
        Row::converges("packed", packed("packed", 4 * KI)?),
        Row::is_refused(
            "packed-over",
            packed("packed-over", 4 * KI + 1)?,
            &expected_messages::packed("gzip", 4 * KI + 1, "4Ki"),
        ),
    ];
    come(test, &rows).await
}

/// A good hook of so many bytes: a custom section fills it up.
fn padded(row: &str, bytes: usize) -> Result<Vec<u8>> {
    let mut hook = good(row).wasm()?;
    let size = bytes - hook.len() - 3; // without the section's number and the two bytes of its size
    let leb = u16::try_from(size & 0x7f | 0x80 | (size >> 7) << 8)?;
    hook.push(0);
    hook.extend(leb.to_le_bytes());
    hook.resize(bytes, 0); // its name has no bytes
    Ok(hook)
}

/// A good hook that has so many bytes when it is compressed: what it lacks is the name of the file.
fn packed(row: &str, bytes: usize) -> Result<Vec<u8>> {
    let compressed = |name: usize| -> Result<Vec<u8>> {
        let mut gzip = GzBuilder::new().filename(vec![b'x'; name]).write(Vec::new(), Compression::default());
        gzip.write_all(&good(row).wasm()?)?;
        Ok(gzip.finish()?)
    };
    compressed(1 + bytes - compressed(1)?.len())
}

pub(crate) async fn a_module_that_is_not_compiled_in_time_is_refused(test: &mut Fixture) -> Result<()> {
    test.server().flag("--module-compile-timeout=1ms");
    // The kernel counts whole seconds of the processor: this takes several.
    let late = wasm::slow_to_compile(0)?;
    let rows = [Row::is_refused("late", late, &expected_messages::compile_time("0.001s"))];
    come(test, &rows).await
}

pub(crate) async fn a_module_that_takes_too_much_memory_to_compile_is_refused(
    test: &mut Fixture,
) -> Result<()> {
    test.server().flag("--module-compile-memory=64Mi");
    let large = good("large")
        .with(&"(func (param i32) (drop (i32.add (local.get 0) (i32.const 1))))".repeat(30_000))
        .wasm()?;
    let rows = [Row::is_refused("large", large, &expected_messages::compile_memory("64Mi"))];
    come(test, &rows).await
}

pub(crate) async fn a_hook_may_see_4_mib_of_files_and_have_32_mib_open(test: &mut Fixture) -> Result<()> {
    for (name, bytes) in [("one", MI), ("two", MI), ("three", MI), ("four", MI), ("five", 1)] {
        let file = config_map(name, json!({}), json!({ "text": "x".repeat(bytes) }));
        test.make(&test.config_maps(), file).await?;
    }
    let four = |row: Row| ["one", "two", "three", "four"].into_iter().fold(row, Row::mounting);
    let over = Row::mounts_too_much(
        "files-over",
        good("files-over").wasm()?,
        &expected_messages::mounts((4 << 20) + 1, 5),
    );
    let rows = [
        four(Row::converges("files", good("files").wasm()?)),
        four(over).mounting("five"),
        Row::converges("open", opens("open", 32)?).mounting("one"),
        Row::fails("open-over", opens("open-over", 33)?, &expected_messages::open_files("main"))
            .mounting("one"),
    ];
    come(test, &rows).await
}

/// A good hook that opens the one file of its mount so many times.
fn opens(row: &str, times: u32) -> Result<Vec<u8>> {
    let mut hook = Wat::default();
    let file = hook.put(b"text");
    let open = format!(
        "(if (call $open (i32.const 3) (i32.const 1) (i32.const {file}) (i32.const 4) (i32.const 0)
               (i64.const 2) (i64.const 2) (i32.const 0) (i32.const 64)) (then unreachable))"
    );
    hook.does_times(times, &open).prints(answer(row).to_string()).wasm()
}

pub(crate) async fn an_answer_may_have_as_many_children_as_the_flag_says(test: &mut Fixture) -> Result<()> {
    test.server().flag("--max-children=1");
    let two = format!(r#"{{"children":[{0},{0}]}}"#, answer("children")["children"][0]);
    let rows = [
        Row::converges("children", good("children").wasm()?),
        Row::fails("children-over", Wat::default().prints(two).wasm()?, &expected_messages::children(2, 1)),
    ];
    come(test, &rows).await
}

/// At the bound the answer is carried out; above it nothing is, and what there is stays.
pub(crate) async fn a_webhook_may_answer_with_as_many_bytes_as_the_flag_says(
    test: &mut Fixture,
) -> Result<()> {
    const LONGEST: usize = 64 * KI;
    let answers = |bytes: usize, is: &str| {
        let answer = json!({ "children": [config_map("child", json!({}), json!({ "is": is }))] }).to_string();
        let spaces = " ".repeat(bytes - answer.len());
        Answer::text(answer + &spaces)
    };
    let hook = Webhook::answering(answers(LONGEST, "at the bound")).await?;
    test.define_kind().await?;
    test.server().flag("--max-webhook-answer=64Ki");
    test.serve()?;
    let sync = Hook::webhook(&hook.url("/sync"));
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(sync)).await?;
    test.create(test.parent("a")).await?;
    let child = test.config_maps();
    child.until("child", "made at the bound", |child| child["data"]["is"] == "at the bound").await?;

    hook.answer(answers(LONGEST + 1, "above it"));
    test.parents().merge("a", &json!({ "spec": { "who": "touched" } })).await?;
    let why = format!(
        "Sync error: sync hook: the webhook at {} answered with more than 64Ki (--max-webhook-answer): make it answer with less, or raise the flag",
        hook.address()
    );
    test.until_event("a", "SyncError", |event| event["message"] == why).await?;
    ensure!(child.get("child").await?["data"]["is"] == "at the bound", "a refused answer was carried out");

    hook.answer(answers(LONGEST, "at the bound again"));
    child.until("child", "changed again", |child| child["data"]["is"] == "at the bound again").await?;
    Ok(())
}

/// A parent whose 33 children have a million bytes each, and then one child more, which is left out.
pub(crate) async fn a_request_may_have_32_mib(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let parent = test.create(test.parent("a")).await?;
    let owner = json!([{
        "apiVersion": test.kind().api_version(), "kind": test.kind().kind,
        "name": "a", "uid": uid(&parent), "controller": true, "blockOwnerDeletion": true,
    }]);
    let child = |number: u32| {
        let labels = json!({ "controller-uid": uid(&parent) });
        let mut child =
            config_map(&format!("child-{number}"), labels, json!({ "is": "x".repeat(1_000_000) }));
        child["metadata"]["ownerReferences"] = owner.clone();
        child
    };
    let kept: Vec<Value> =
        (0..33).map(|number| config_map(&format!("child-{number}"), json!({}), json!({}))).collect();
    for number in 0..33 {
        test.config_maps().create(child(number)).await?;
    }
    let hook = reads(33_000_000).prints(json!({ "children": kept, "status": { "is": "read" } }).to_string());
    test.store("hook", &hook.wasm()?).await?;
    test.serve()?;
    let hook = test.hook("hook");
    test.host(test.controller().making(&CONFIG_MAP, "OnDelete").synced_by(hook)).await?;
    test.parents().until("a", "its request read", |parent| parent["status"]["is"] == "read").await?;

    test.config_maps().create(child(33)).await?;
    let told = |event: &Value| {
        let message = text(event, "/message");
        message.contains("in a request of 33554432 bytes: ConfigMap ") && message.contains("/child-33.")
    };
    test.until_event("a", "ChildrenLeftOut", told).await?;
    ensure!(test.config_maps().find("child-33").await?.is_some(), "a child that no hook was shown is gone");
    Ok(())
}

/// Reads its request, and traps if that is shorter.
fn reads(bytes: usize) -> Wat {
    Wat::default().pages(40 * MI / PAGE).does(&format!(
        "(i32.store (i32.const 64) (i32.const {at})) (i32.store (i32.const 68) (i32.const {room}))
         (loop $again
           (if (call $read (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 72)) (then unreachable))
           (local.set $i (i32.add (local.get $i) (i32.load (i32.const 72))))
           (br_if $again (i32.load (i32.const 72))))
         (if (i32.lt_u (local.get $i) (i32.const {bytes})) (then unreachable))",
        at = MI,
        room = 32 * MI,
    ))
}
