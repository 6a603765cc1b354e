//! `metahook record --reconciles` and `metahook replay`: what the server did is done again, bit for bit, without a cluster; also as cases
//! of `metahook test`.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicU32, Ordering};

use acceptance::api::{CONFIG_MAP, SECRET, SERVICE_ACCOUNT};
use acceptance::fixture::Fixture;
use acceptance::free_port::free_address;
use acceptance::objects::{Hook, config_map};
use acceptance::paths;
use acceptance::process::Process;
use acceptance::wait::{PATIENCE, until};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::explain::token_flag;
use crate::scripts::until_loaded;
use crate::secrecy::base64;

/// A value that no file may have.
const HIDDEN: &str = "a-value-of-a-secret";

/// It follows the time and makes random numbers; for one parent it makes a Secret.
const SCRIPT: &str = r#"
export function sync({ parent }) {
  const children = [{
    apiVersion: "v1", kind: "ConfigMap", metadata: { name: parent.metadata.name },
    data: { random: String(Math.random()), now: String(Date.now()), spec: JSON.stringify(parent.spec) },
  }];
  if (parent.metadata.name === "secretive") {
    children[0].data.copy = `VALUE ${Date.now()}`;
    children.push({ apiVersion: "v1", kind: "Secret", metadata: { name: "made" }, stringData: { key: "VALUE" } });
  }
  return { status: { word: "first" }, children };
}
"#;

fn line_of_parent(test: &Fixture, server: SocketAddr, parent: &str, file: &Path) -> Vec<String> {
    let kubeconfig = test.plane().kubeconfig().display().to_string();
    let (server, file) = (server.to_string(), file.display().to_string());
    let words = ["record", test.name(), parent, "--count=3", "-n", test.name(), "-o", &file];
    let words = words.into_iter().chain(["--server", &server, "--kubeconfig", &kubeconfig]);
    words.map(str::to_owned).collect()
}

/// Records three reconciles of a parent, whose spec changes until they are there.
async fn record(
    test: &mut Fixture,
    server: SocketAddr,
    (parent, name): (&str, &str),
    more: &[&str],
) -> Result<Vec<Value>> {
    let file = test.plane().scratch().join(format!("{}-{name}", test.name()));
    let mut line = line_of_parent(test, server, parent, &file);
    line.extend(more.iter().map(|&word| word.to_owned()));
    let log = test.plane().logs().join(format!("{}-{name}.log", test.name()));
    let mut recording = Process::start("metahook record", &paths::server()?, &line, &log)?;
    let (number, parents) = (AtomicU32::new(0), test.parents());
    until("three reconciles are recorded", PATIENCE, async || {
        if fs::read_to_string(&file).unwrap_or_default().contains("{\"end\":") {
            return Ok(Ok(()));
        }
        let number = number.fetch_add(1, Ordering::Relaxed);
        parents.merge(parent, &json!({ "spec": { "changes": number } })).await?;
        Ok(Err(recording.tail(5)))
    })
    .await?;
    let ended = recording.wait(PATIENCE).await?;
    ensure!(ended.success(), "{ended}: {}", recording.tail(20));
    ensure!(fs::metadata(&file)?.permissions().mode() & 0o777 == 0o600, "others may read it");
    let lines = fs::read_to_string(&file)?;
    lines.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

async fn replay(test: &mut Fixture, name: &str, more: &[&str]) -> Result<(Option<i32>, String)> {
    let file = test.plane().scratch().join(format!("{}-{name}", test.name())).display().to_string();
    run(test, &[&["replay", &file], more].concat()).await
}

/// Runs a command that calls scripts: its exit code, and all that it prints.
async fn run(test: &mut Fixture, line: &[&str]) -> Result<(Option<i32>, String)> {
    let runners = paths::runners()?.display().to_string();
    let line = [line, &["--runners", &runners]].concat();
    let Output { status, stdout, stderr } = test.server().output(&line).await?;
    let read = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((status.code(), read(stdout) + &read(stderr)))
}

/// A server with a controller of the script and these parents, each with its child.
async fn host(test: &mut Fixture, script: &str, parents: &[&str]) -> Result<SocketAddr> {
    test.define_kind().await?;
    let map = config_map("hook", json!({}), json!({ "hook.js": script }));
    test.make(&test.config_maps(), map).await?;
    let server = free_address()?;
    test.server().flag(&format!("--inspection-address={server}"));
    test.serve()?;
    let hook = Hook::script("javascript", test.name(), "hook", "hook.js");
    let controller = test.controller().making(&CONFIG_MAP, "InPlace").making(&SECRET, "InPlace");
    test.host(controller.synced_by(hook)).await?;
    let name = test.name().to_owned();
    until_loaded(test, &name).await?;
    for &parent in parents {
        test.create(test.parent(parent)).await?;
        test.config_maps().until(parent, "made", |_| true).await?;
    }
    Ok(server)
}

pub(crate) async fn reconciles_are_recorded_and_replayed(test: &mut Fixture) -> Result<()> {
    let script = SCRIPT.replace("VALUE", HIDDEN);
    let server = host(test, &script, &["open", "secretive"]).await?;
    let name = test.name().to_owned();
    let lines = record(test, server, ("open", "open"), &[]).await?;
    let calls: Vec<_> = lines.iter().filter(|line| line["call"].is_object()).collect();
    let count = |field: &str| lines.iter().filter(|line| line[field].is_object()).count();
    ensure!(!calls.is_empty() && count("reconcile") == 3, "{lines:?}");
    let steps = lines.iter().filter_map(|line| line["reconcile"]["steps"].as_array()).flatten();
    let called = steps.filter(|step| step["step"] == "called").count();
    // The recording may begin between a call and the end of its reconcile.
    ensure!(calls.len() + 1 >= called, "{called} calls were traced: {lines:?}");
    ensure!(
        calls.iter().all(|line| line["call"]["parent"]["name"] == "open"),
        "another parent's call: {calls:?}"
    );
    ensure!(
        [count("recording"), count("hook"), count("definition"), count("end")] == [1, 1, 1, 1],
        "{lines:?}"
    );
    let numbers = |call: &Value| call["call"]["answer"].as_str().map(str::to_owned);
    ensure!(numbers(calls[0]).is_some_and(|answer| answer.contains("random")), "{calls:?}");
    let (code, said) = replay(test, "open", &[]).await?;
    let same = format!(": {} same, 0 different; +0 % instructions", calls.len());
    ensure!(code == Some(0) && said.contains(&same), "it is not the same, bit for bit: {said}");

    let other = test.plane().scratch().join(format!("{name}-other.js"));
    fs::write(&other, script.replace("first", "second"))?;
    let (code, said) = replay(test, "open", &["--module", &other.display().to_string()]).await?;
    let differs = [
        "# sync hook, ",
        ": another answer\n",
        "-   word: first\n+   word: second\n",
        "# the server would write:\n",
        "0 same",
    ];
    ensure!(code == Some(1) && differs.iter().all(|one| said.contains(one)), "{said}");

    // A Secret's value leaves the server where it is asked for alone.
    let printed = |lines: &[Value]| lines.iter().map(Value::to_string).collect::<String>();
    let without_hook = |lines: Vec<Value>| -> Vec<Value> {
        lines.into_iter().filter(|line| !line["hook"].is_object()).collect()
    };
    let lines = without_hook(record(test, server, ("secretive", "hidden"), &[]).await?);
    let all = printed(&lines);
    ensure!(!all.contains(HIDDEN) && !all.contains(&base64(HIDDEN)), "{all}");
    ensure!(all.contains("\"replaced\":true") && !all.contains("\"seed\""), "{all}");
    let (_, said) = replay(test, "hidden", &[]).await?;
    ensure!(said.contains("--with-secrets keeps them"), "{said}");
    let lines = without_hook(record(test, server, ("secretive", "whole"), &["--with-secrets"]).await?);
    ensure!(printed(&lines).contains(HIDDEN), "{lines:?}");
    let (code, said) = replay(test, "whole", &[]).await?;
    ensure!(code == Some(0), "{said}");

    refuses(test, server).await
}

/// The hook follows the time and makes random numbers: its cases pass only with those of the recording.
pub(crate) async fn a_recording_becomes_cases_of_a_test(test: &mut Fixture) -> Result<()> {
    let script = SCRIPT.replace("VALUE", HIDDEN);
    let server = host(test, &script, &["open", "secretive"]).await?;
    let lines = record(test, server, ("open", "open"), &[]).await?;
    let calls = lines.iter().filter(|line| line["call"].is_object()).count();
    let project = test.plane().scratch().join(format!("{}-project", test.name()));
    fs::create_dir_all(&project)?;
    let folder = project.join("cases");
    let shown = folder.display().to_string();
    let (code, said) = replay(test, "open", &["--as-case", &shown]).await?;
    let wrote =
        format!("{calls} case{}, controller.yaml, crd.yaml, hook.js\n", if calls == 1 { "" } else { "s" });
    ensure!(code == Some(0) && said.contains(&wrote), "{said}");
    // A project beside the folder has a module of its own, which is no matter of the cases.
    let built = project.join("target/wasm32-wasip1/release");
    fs::create_dir_all(&built)?;
    fs::write(built.join("another.wasm"), "no module")?;
    let (code, said) = run(test, &["test", &shown]).await?;
    ensure!(code == Some(0) && said.contains(&format!("{calls} passed, 0 failed")), "{said}");
    let named = format!("ok   {}/open/20", test.name());
    ensure!(
        said.matches(&named).count() == calls,
        "they are not named after the parent and the time: {said}"
    );
    let other = test.plane().scratch().join(format!("{}-other.js", test.name())).display().to_string();
    fs::write(&other, script.replace("first", "second"))?;
    let (code, said) = run(test, &["test", &shown, "--module", &other]).await?;
    let differs = said.contains("-   word: first\n") && said.contains("+   word: second\n");
    ensure!(
        code == Some(1) && differs && said.contains(&format!("{calls} of {calls} cases failed")),
        "{said}"
    );
    let (code, said) = replay(test, "open", &["--as-case", &shown]).await?;
    ensure!(code == Some(2) && said.contains("it is there already"), "{said}");

    record(test, server, ("secretive", "hidden"), &[]).await?;
    let hidden = test.plane().scratch().join(format!("{}-hidden-cases", test.name()));
    let (code, said) = replay(test, "hidden", &["--as-case", &hidden.display().to_string()]).await?;
    ensure!(code == Some(0) && said.contains("values of Secrets are replaced in "), "{said}");
    let parents = hidden.join(test.name()).join("secretive");
    for case in fs::read_dir(&parents)? {
        for file in fs::read_dir(case?.path())? {
            let held = fs::read_to_string(file?.path())?;
            ensure!(!held.contains(HIDDEN) && !held.contains(&base64(HIDDEN)), "{held}");
        }
    }
    Ok(())
}

/// Users without the right, a file that is there, recordings that are none.
async fn refuses(test: &mut Fixture, server: SocketAddr) -> Result<()> {
    let name = test.name().to_owned();
    test.make(&test.within(&SERVICE_ACCOUNT), json!({ "metadata": { "name": "viewer" } })).await?;
    let kubectl = test.plane().kubectl();
    let account = format!("--serviceaccount={name}:viewer");
    let role = format!("{name}-viewer");
    kubectl.run(&["create", "clusterrolebinding", &role, "--clusterrole=view", &account]).await?;
    let reads = ["--verb=get,list", "--resource=compositecontrollers.metacontroller.k8s.io"];
    kubectl.run(&["create", "clusterrole", &role, reads[0], reads[1]]).await?;
    let bound = format!("--clusterrole={role}");
    let more = format!("{role}-controllers");
    kubectl.run(&["create", "clusterrolebinding", &more, &bound, &account]).await?;
    let scratch = test.plane().scratch().to_owned();
    let flag = token_flag(test, "viewer").await?;
    let file = scratch.join(format!("{name}-refused"));
    let line_of = |more: &[&str]| {
        let mut line = line_of_parent(test, server, "open", &file);
        line.extend(more.iter().map(|&word| word.to_owned()));
        line
    };
    let (refused, again) = (line_of(&[&flag]), line_of(&[]));
    let refused = test.server().run(&refused).await.err().context("it is recorded without the right")?;
    let says = format!("User \"system:serviceaccount:{name}:viewer\" cannot update compositecontrollers");
    ensure!(format!("{refused:#}").contains(&says), "{refused:#}");
    ensure!(!file.exists(), "a file is left where nothing was recorded");
    fs::write(&file, "mine")?;
    let exists = test.server().run(&again).await.err().context("a file is written over")?;
    ensure!(format!("{exists:#}").contains("it is there already"), "{exists:#}");
    ensure!(fs::read_to_string(&file)? == "mine", "it is written over");
    let nobody = line_of_parent(test, server, "nobody", &scratch.join(format!("{name}-nobody")));
    let nobody = test.server().run(&nobody).await.err().context("a parent that does not exist")?;
    ensure!(format!("{nobody:#}").contains("the controller has no parent \"nobody\""), "{nobody:#}");
    for role in [&role, &more] {
        kubectl.run(&["delete", "clusterrolebinding", role]).await?;
    }
    kubectl.run(&["delete", "clusterrole", &role]).await?;

    let whole = fs::read_to_string(scratch.join(format!("{name}-open")))?;
    // As `kill -9` leaves it: the hooks are in the file before their calls.
    let first_call = whole.find("\n{\"call\"").context("no call is recorded")? + 1;
    let next =
        whole.get(first_call..).and_then(|rest| rest.find('\n')).context("nothing follows the call")?;
    let cut = whole.get(..first_call + next + 10).context("nothing follows the call")?;
    fs::write(scratch.join(format!("{name}-cut")), cut)?;
    let (code, said) = replay(test, "cut", &[]).await?;
    ensure!(code == Some(0) && said.contains("the recording is cut off"), "{code:?} {said}");
    fs::write(scratch.join(format!("{name}-other")), whole.replacen("\"format\":1", "\"format\":9", 1))?;
    let (code, said) = replay(test, "other", &[]).await?;
    ensure!(
        code == Some(2) && said.contains("in the format 9, and this program reads the format 1"),
        "{said}"
    );
    Ok(())
}
