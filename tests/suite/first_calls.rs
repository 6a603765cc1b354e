//! Time from a server's start to the first call of a hook in Python, and which parts of it are Python's.

use std::fs;
use std::time::{Duration, Instant};

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, config_map};
use anyhow::{Result, ensure};
use serde_json::json;

use crate::scripts::until_loaded;

const SCRIPT: &str = r#"
def sync(parent, children):
    print("asked about", parent["metadata"]["name"])
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": parent["metadata"]["name"]}}
    return {"status": {"children": len(children["ConfigMap.v1"])}, "children": [child]}
"#;

/// Lines of the server's log on the way to the first call, in their order.
const MARKS: [&str; 4] = ["serving", "module loaded", "script loaded", "asked about"];

const INTERVAL: Duration = Duration::from_millis(1);
const MAX_WAIT: Duration = Duration::from_mins(5);

/// Its machine may be busy, so that the bounds, which the harness widens, only find what has become slower by far. The page
/// of examples has what a quiet machine takes.
pub(crate) async fn a_hook_in_python_is_called_soon_after_the_server_starts(
    test: &mut Fixture,
) -> Result<()> {
    test.define_kind().await?;
    let maps = test.config_maps();
    test.make(&maps, config_map("hook", json!({}), json!({ "sync.py": SCRIPT }))).await?;
    test.serve()?;
    let hook = Hook::script("python", test.name(), "hook", "sync.py");
    let controller = test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook);
    test.host(controller).await?;
    until_loaded(test, test.name()).await?;
    test.create(test.parent("a")).await?;
    maps.until("a", "made", |_| true).await?;
    test.server().stop().await?;

    let before = fs::metadata(test.server().log())?.len();
    let start = Instant::now();
    test.server().start()?;
    let [serving, runner, script, called] = seen(test, before, start).await?;
    test.at_most("from the server's start to the end of Python's first call", called, "ms", 2000.0)?;
    test.at_most("of it: until the server serves", serving, "ms", 1000.0)?;
    test.at_most(
        "of it: controllers, ConfigMaps and the interpreter's code",
        runner - serving,
        "ms",
        1000.0,
    )?;
    test.at_most("of it: Python makes bytecode of the script", script - runner, "ms", 1000.0)?;
    test.at_most("of it: caches of parents and children, and the call", called - script, "ms", 1000.0)?;
    println!(
        "first call of a hook in Python: {called:.0} ms after the server's start (serving {serving:.0}, interpreter {runner:.0}, script {script:.0})",
    );
    Ok(())
}

/// Milliseconds until each mark is in the log behind its first `before` bytes.
async fn seen(test: &mut Fixture, before: u64, start: Instant) -> Result<[f64; 4]> {
    let mut seen = [None; 4];
    loop {
        let log = fs::read(test.server().log())?;
        let log =
            String::from_utf8_lossy(log.get(usize::try_from(before)?..).unwrap_or_default()).into_owned();
        for (mark, at) in MARKS.iter().zip(&mut seen) {
            if log.contains(mark) {
                at.get_or_insert_with(|| start.elapsed().as_secs_f64() * 1e3);
            }
        }
        if let [Some(serving), Some(runner), Some(script), Some(called)] = seen {
            return Ok([serving, runner, script, called]);
        }
        ensure!(start.elapsed() < MAX_WAIT, "not all of {MARKS:?} are in the log: {log}");
        tokio::time::sleep(INTERVAL).await;
    }
}
