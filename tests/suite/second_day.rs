//! The second day of somebody who wrote a hook: a bad version is out, the server restarts, a version is put back, an object is
//! paused, and the server is gone. On a control plane of its own, as whether a server is there is asked of all of a cluster.

use std::time::Duration;

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, condition, config_map, has_condition, text};
use acceptance::server::Server;
use acceptance::wait::until;
use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};

use crate::modules::digest;
use crate::pages::symptoms;
use crate::scripts::until_loaded;

const SCRIPT: &str = r#"
def sync(parent, children):
    name = parent["metadata"]["name"]
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"is": "WORD"}}
    return {"status": {}, "children": [child]}

def finalize(request):
    return {"status": {}, "children": [], "finalized": True}
"#;

/// What the first day ended with.
const BAD: &str = "def sync(parent, children)\n    return {}\n";

/// It loads, and each call of it fails.
const FAILING: &str = "def sync(parent, children):\n    raise ValueError('on purpose')\n";

/// The field manager that writes the hook.
const MANAGER: &str = "second-day";

/// Leases of a server that was stopped have no holder; of one that was killed they run out.
const MAX_GONE: Duration = Duration::from_mins(3);

fn script(word: &str) -> String {
    SCRIPT.replace("WORD", word)
}

/// The program's own commands, as a person types them.
async fn types(day: &mut Fixture, line: &str) -> Result<String> {
    let kubeconfig = day.plane().kubeconfig().display().to_string();
    let words: Vec<_> = line.split(' ').chain(["--kubeconfig", &kubeconfig]).map(str::to_owned).collect();
    Ok(day.server().run(&words).await?.0)
}

async fn stores(day: &Fixture, script: &str) -> Result<()> {
    let script = json!({ "data": { "sync.py": script } });
    day.config_maps().merge_as(MANAGER, "hook", &script).await.map(drop)
}

async fn until_child(day: &Fixture, name: &str, word: &str) -> Result<()> {
    let is = |child: &Value| child["data"]["is"] == word;
    day.config_maps().until(name, &format!("made by the version {word}"), is).await.map(drop)
}

async fn until_status(day: &mut Fixture, word: &str) -> Result<()> {
    let kubeconfig = day.plane().kubeconfig().display().to_string();
    let name = day.name().to_owned();
    let server: &Server = day.server();
    until(&format!("`metahook status` says {word}"), MAX_GONE, async || {
        let (said, _) = server.run(&["status", "--kubeconfig", &kubeconfig]).await?;
        let line = said.lines().find(|line| line.contains(&name)).unwrap_or_default();
        Ok(if line.contains(word) { Ok(()) } else { Err(said) })
    })
    .await
}

pub(crate) async fn the_second_day_of_a_hook(test: &mut Fixture) -> Result<()> {
    let mut day = Fixture::on_its_own_plane(test.name()).await?;
    let lived = live(&mut day).await;
    day.end(lived).await
}

async fn live(day: &mut Fixture) -> Result<()> {
    day.define_kind().await?;
    let map = config_map("hook", json!({}), json!({ "sync.py": script("one") }));
    day.make(&day.config_maps(), map).await?;
    let cache = day.plane().scratch().join("cache").display().to_string();
    day.server().flag(&format!("--module-cache-dir={cache}"));
    day.serve()?;
    let hook = || Hook::script("python", day.name(), "hook", "sync.py");
    let controller = day.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook()).finalized_by(hook());
    day.host(controller).await?;
    until_loaded(day, day.name()).await?;
    day.create(day.parent("a")).await?;
    until_child(day, "a", "one").await?;

    a_bad_version_outlives_no_restart(day).await?;
    a_version_is_put_back(day).await?;
    a_failing_version_is_seen_to_fail(day).await?;
    a_pause_holds_a_deletion(day).await?;
    a_server_that_is_gone_is_seen_to_be(day).await
}

async fn a_bad_version_outlives_no_restart(day: &mut Fixture) -> Result<()> {
    stores(day, BAD).await?;
    let goes_on = |cc: &Value| has_condition(cc, "Ready", "True", "LastGoodInUse");
    day.until_controller("a bad version is out", goes_on).await?;
    day.server().kill().await?;
    let name = day.name().to_owned();
    // What the server before wrote counts no more.
    day.controllers().merge_status(&name, &json!({ "status": { "conditions": [] } })).await?;
    day.server().start()?;
    let cc = day.until_controller("the last good version goes on after the restart", goes_on).await?;
    let says = condition(&cc, "Ready").map_or("", |ready| text(ready, "/message"));
    ensure!(says.contains("SyntaxError") && says.contains("which was accepted at 20"), "{says}");
    day.create(day.parent("b")).await?;
    until_child(day, "b", "one").await
}

async fn a_version_is_put_back(day: &mut Fixture) -> Result<()> {
    stores(day, &script("two")).await?;
    until_child(day, "a", "two").await?;
    let name = day.name().to_owned();
    let second = digest(script("two").as_bytes());
    let runs = |cc: &Value| text(cc, "/status/hooks/sync/digest").ends_with(&second);
    day.until_controller("the status names what runs", runs).await?;
    // The first calls of a version have its figures written.
    let known = |cc: &Value| cc["status"]["hooks"]["sync"]["instructionsP50"].is_u64();
    day.until_controller("the status has figures of what runs", known).await?;
    let (said, lines) = history(day).await?;
    ensure!(lines.len() == 2 && lines[0].is_running && lines[0].digest.ends_with(&second), "{said}");
    ensure!(lines[0].failing == "0" && is_number(&lines[0].instructions), "{said}");
    ensure!(lines[0].by == MANAGER && lines[1].by != MANAGER, "{said}");
    ensure!(lines[1].failing == "0" && is_number(&lines[1].instructions), "{said}");
    let said = types(day, &format!("rollback {name}")).await?;
    let first = digest(script("one").as_bytes());
    ensure!(said.contains(&format!("back to sha256:{first}")), "{said}");
    until_child(day, "a", "one").await?;
    until_child(day, "b", "one").await
}

/// A version that loads and fails its parents; the one before it is put back.
async fn a_failing_version_is_seen_to_fail(day: &mut Fixture) -> Result<()> {
    stores(day, FAILING).await?;
    day.until_controller("its parents fail", |cc| cc["status"]["failing"] == 2).await?;
    let (said, lines) = history(day).await?;
    let failing = digest(FAILING.as_bytes());
    ensure!(lines[0].is_running && lines[0].digest.ends_with(&failing) && lines[0].failing == "2", "{said}");
    let name = day.name().to_owned();
    let first = digest(script("one").as_bytes());
    types(day, &format!("rollback {name} --to {first}")).await?;
    let runs =
        |cc: &Value| text(cc, "/status/hooks/sync/digest").ends_with(&first) && cc["status"]["failing"] == 0;
    day.until_controller("the first version runs", runs).await?;
    let (said, lines) = history(day).await?;
    let Some(line) = lines.iter().find(|line| line.digest.ends_with(&failing)) else { bail!("{said}") };
    ensure!(!line.is_running && line.by == MANAGER && line.failing == "2", "{said}");
    ensure!(is_number(&line.instructions), "{said}");
    ensure!(lines[0].is_running && lines[0].failing == "0" && is_number(&lines[0].instructions), "{said}");
    Ok(())
}

/// A line of `metahook history`.
struct Line {
    by: String,
    failing: String,
    instructions: String,
    is_running: bool,
    digest: String,
}

/// What `metahook history` prints, and its lines.
async fn history(day: &mut Fixture) -> Result<(String, Vec<Line>)> {
    let name = day.name().to_owned();
    let said = types(day, &format!("history {name}")).await?;
    let line = |line: &str| {
        // Two hooks have one source: the first column has two words.
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        let word = |nth: usize| words.get(nth).cloned().unwrap_or_default();
        let digest = words.last().cloned().unwrap_or_default();
        let is_running = line.contains("running");
        Line { by: word(3), failing: word(5), instructions: word(6), is_running, digest }
    };
    let lines = said.lines().skip(1).map(line).collect();
    Ok((said, lines))
}

fn is_number(word: &str) -> bool {
    word.parse::<u64>().is_ok_and(|number| number > 0)
}

async fn a_pause_holds_a_deletion(day: &mut Fixture) -> Result<()> {
    let (kind, of) = (format!("greetings.{}", day.kind().group), format!("{}/a", day.name()));
    types(day, &format!("pause {kind} {of}")).await?;
    day.until_controller("one is paused", |cc| cc["status"]["paused"] == 1).await?;
    let parents = day.parents();
    parents.delete("a").await?;
    let waits = |event: &Value| text(event, "/message").contains("is being deleted, and waits");
    day.until_event("a", "Paused", waits).await?;
    ensure!(day.config_maps().find("a").await?.is_some(), "its child is gone");
    types(day, &format!("resume {kind} {of}")).await?;
    parents.until_gone("a").await
}

async fn a_server_that_is_gone_is_seen_to_be(day: &mut Fixture) -> Result<()> {
    until_status(day, "Running").await?;
    day.server().stop().await?;
    // As if it had been stopped long ago.
    let name = day.name().to_owned();
    let long_ago = json!({ "status": { "lastSeen": "2020-01-01T00:00:00Z" } });
    day.controllers().merge_status(&name, &long_ago).await?;
    until_status(day, "NoServer").await?;
    symptoms::is_shown(day, "NoServer", &symptoms::controller(&name)).await?;
    day.server().start()?;
    until_status(day, "Running").await
}
