//! `metahook dev` beside a server: its own controller and one that the server has, with a module that is built again and again.

use std::path::{Path, PathBuf};
use std::time::Instant;

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::objects::{Composite, Hook, config_map, is_true};
use acceptance::paths;
use acceptance::process::{Process, Signal};
use acceptance::wait::{PATIENCE, until};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::wasm;

/// The label of a controller that a session has.
const LABEL: &str = "metahook.dev/dev";

/// A session, with the files that it is given.
struct Session {
    process: Process,
    module: PathBuf,
}

impl Session {
    /// Starts it with a controller, and a module whose child says who made it.
    fn start(test: &Fixture, controller: Composite, who: &str) -> Result<Self> {
        Self::start_with(test, controller, "hook.wasm", &made_by(who)?)
    }

    /// Starts it with a controller, and a hook in a file of this name, which the command is not told where it is a script.
    fn start_with(test: &Fixture, controller: Composite, name: &str, content: &[u8]) -> Result<Self> {
        let folder = test.plane().scratch().join(test.name());
        std::fs::create_dir_all(&folder)?;
        let (file, module) = (folder.join("controller.yaml"), folder.join(name));
        std::fs::write(&file, controller.json().to_string())?;
        std::fs::write(&module, content)?;
        let display = |path: &Path| path.display().to_string();
        let (file, path, kubeconfig) = (display(&file), display(&module), display(test.plane().kubeconfig()));
        let mut line = vec!["dev", "-f", &file, "--name=ann", "--kubeconfig", &kubeconfig];
        if module.extension().is_some_and(|ending| ending == "wasm") {
            line.extend(["--module", &path]);
        }
        let log = test.plane().logs().join(format!("{}-dev.log", test.name()));
        Ok(Self { process: Process::start("metahook dev", &paths::server()?, &line, &log)?, module })
    }

    /// As a linker writes it.
    fn build(&self, module: &[u8]) -> Result<()> {
        Ok(std::fs::write(&self.module, module)?)
    }

    fn lines(&self) -> String {
        std::fs::read_to_string(self.process.log()).unwrap_or_default()
    }

    async fn says(&self, what: &str) -> Result<()> {
        let says = async || Ok(if self.lines().contains(what) { Ok(()) } else { Err(self.process.tail(20)) });
        until(what, PATIENCE, says).await
    }

    /// Ends it as Ctrl-C does.
    async fn end(mut self) -> Result<String> {
        self.process.signal(Signal::Term);
        let status = self.process.wait(PATIENCE).await?;
        ensure!(status.success(), "{status}: {}", self.lines());
        Ok(self.lines())
    }
}

/// A module that is both hooks: it never finalizes.
fn made_by(who: &str) -> Result<Vec<u8>> {
    wasm::answers(&json!({ "children": [config_map("child", json!({}), json!({ "by": who }))] }))
}

async fn until_made_by(test: &Fixture, who: &str) -> Result<()> {
    test.config_maps()
        .until("child", &format!("made by {who}"), |map| map["data"]["by"] == who)
        .await
        .map(drop)
}

pub(crate) async fn a_session_has_its_controller_to_itself_and_leaves_nothing(
    test: &mut Fixture,
) -> Result<()> {
    test.define_kind().await?;
    test.serve()?;
    // Its server would host it, but for the label of the session; the ConfigMap is nowhere.
    let hook = test.hook("none");
    let controller =
        test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook.clone()).finalized_by(hook);
    let session = Session::start(test, controller, "one")?;
    test.controllers().until(test.name(), "applied", |cc| cc["metadata"]["labels"][LABEL] == "ann").await?;
    test.create(test.parent("a")).await?;
    until_made_by(test, "one").await?;
    test.until_controller("ready", |cc| is_true(cc, "Ready")).await?;
    session.says("Greeting ").await?;
    session.says("first reconcile: ").await?;
    session.says("create ConfigMap ").await?;
    let parent = test.parents().get("a").await?;
    ensure!(parent["metadata"]["finalizers"].as_array().is_some_and(|all| all.len() == 1), "{parent:#}");

    // A linker that has not written all yet, then a module that is none, then the next build.
    let (start, two) = (Instant::now(), made_by("two")?);
    session.build(&two[..two.len() / 2])?;
    session.build(&two)?;
    until_made_by(test, "two").await?;
    println!("  from the build to the cluster: {:.2} s", start.elapsed().as_secs_f64());
    session.says("module changed: ").await?;
    session.build(b"no module")?;
    session.says("The hook is not replaced: ").await?;
    session.build(&wasm::Wat::default().warns("its last words\n").does("unreachable").wasm()?)?;
    session.says("module changed: FAILED").await?;
    session.says("| its last words").await?;
    session.says("error: sync hook: ").await?;

    let said = session.end().await?;
    ensure!(said.contains("finalizer was taken off 1 object"), "{said}");
    ensure!(test.controllers().find(test.name()).await?.is_none(), "the controller is there");
    let parent = test.parents().get("a").await?;
    ensure!(parent["metadata"].get("finalizers").is_none(), "{parent:#}");
    ensure!(test.config_maps().find("child").await?.is_some(), "the child went without its parent");
    test.parents().delete("a").await?;
    test.parents().until_gone("a").await?;
    let log = std::fs::read_to_string(test.server().log())?;
    ensure!(!log.contains("synced") && !log.contains("written"), "the server worked, too: {log}");
    Ok(())
}

pub(crate) async fn a_session_follows_a_script_beside_its_controller(test: &mut Fixture) -> Result<()> {
    const SCRIPT: &str = r#"
def sync(parent, children):
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "child"}, "data": {"by": "WHO"}}
    return {"children": [child]}
"#;
    test.define_kind().await?;
    let controller = test.controller().making(&CONFIG_MAP, "InPlace").synced_by(Hook::script(
        "python",
        test.name(),
        "none",
        "sync.py",
    ));
    let script = |who: &str| SCRIPT.replace("WHO", who).into_bytes();
    let session = Session::start_with(test, controller, "sync.py", &script("one"))?;
    test.controllers().until(test.name(), "applied", |cc| cc["metadata"]["labels"][LABEL] == "ann").await?;
    test.create(test.parent("a")).await?;
    until_made_by(test, "one").await?;
    session.build(&script("two"))?;
    until_made_by(test, "two").await?;
    session.build(b"def sync(parent\n")?;
    session.says("The hook is not replaced: ").await?;
    session.says("sync.py:1: SyntaxError").await?;
    session.build(b"def sync(parent, children):\n    return children['Pod.v1']\n")?;
    session.says("sync.py:2: KeyError: 'Pod.v1'").await?;
    session.end().await?;
    ensure!(test.controllers().find(test.name()).await?.is_none(), "the controller is there");
    Ok(())
}

pub(crate) async fn a_controller_that_a_session_takes_over_is_given_back_as_it_was(
    test: &mut Fixture,
) -> Result<()> {
    test.define_kind().await?;
    test.store("hook", &made_by("server")?).await?;
    let controller = test.controller().making(&CONFIG_MAP, "InPlace").synced_by(test.hook("hook"));
    let before = test.host(controller.clone()).await?;
    test.serve()?;
    test.create(test.parent("a")).await?;
    until_made_by(test, "server").await?;
    // What the server logs of its reconciles: the other test looks for it in vain.
    test.server().until_log("its work", |log| log.contains("synced") && log.contains("written")).await?;

    let session = Session::start(test, controller.with("resyncPeriodSeconds", 77), "session")?;
    until_made_by(test, "session").await?;
    let now = test.controllers().get(test.name()).await?;
    ensure!(now["spec"]["resyncPeriodSeconds"] == 77 && now["metadata"]["labels"][LABEL] == "ann", "{now:#}");
    // The server has let go of it: nothing undoes what the session wrote.
    let reconciles = |log: &str| log.matches("synced").count();
    test.until_controller_event("Stopped", |_| true).await?;
    let count = reconciles(&std::fs::read_to_string(test.server().log())?);
    session.build(&made_by("session again")?)?;
    until_made_by(test, "session again").await?;
    let log = std::fs::read_to_string(test.server().log())?;
    ensure!(reconciles(&log) == count, "the server went on with it: {log}");

    session.end().await?;
    until_made_by(test, "server").await?;
    let after = test.controllers().get(test.name()).await?;
    ensure!(after["spec"] == before["spec"], "{after:#}");
    let labels = |cc: &Value| cc["metadata"]["labels"].clone();
    ensure!(labels(&after) == labels(&before) && after["metadata"].get("annotations").is_none(), "{after:#}");
    Ok(())
}
