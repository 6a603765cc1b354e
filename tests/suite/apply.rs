//! `metahook apply` and `metahook delete`: a folder as a scaffold has it, to a cluster and away again.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, config_map, definition};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::wasm;

/// Where Cargo leaves a module.
const MODULE: &str = "target/wasm32-wasip1/release/demo.wasm";

fn made_by(who: &str) -> Result<Vec<u8>> {
    let children = json!([config_map("child", json!({}), json!({ "by": who }))]);
    wasm::answers(&json!({ "children": children }))
}

/// Definition, controller and a parent, and the module of the finalize hook; that of the sync hook is not built yet.
fn folder(test: &Fixture) -> Result<PathBuf> {
    let folder = test.plane().scratch().join(test.name());
    std::fs::create_dir_all(folder.join("target/wasm32-wasip1/release"))?;
    let controller = test.controller().making(&CONFIG_MAP, "InPlace");
    let controller = controller.synced_by(test.hook("hook")).finalized_by(test.hook("goodbye"));
    std::fs::write(folder.join(GOODBYE), wasm::answers(&json!({ "children": [], "finalized": true }))?)?;
    let mut parent = test.parent("a").json();
    parent["metadata"]["namespace"] = json!(test.name());
    for (name, object) in
        [("a.json", parent), ("controller.json", controller.json()), ("crd.json", definition(test.kind()))]
    {
        std::fs::write(folder.join(name), object.to_string())?;
    }
    Ok(folder)
}

const TRAPS: &str = r#"(module (memory (export "memory") 1) (func (export "_start") unreachable))"#;

const GOODBYE: &str = "goodbye.wasm";

fn build(folder: &Path, who: &str) -> Result<()> {
    Ok(std::fs::write(folder.join(MODULE), made_by(who)?)?)
}

async fn metahook(test: &mut Fixture, command: &str, folder: &Path, flags: &[&str]) -> Result<String> {
    let (folder, kubeconfig) =
        (folder.display().to_string(), test.plane().kubeconfig().display().to_string());
    let mut line = vec![command, "-f", &folder, "--kubeconfig", &kubeconfig];
    let goodbye = format!("--module=goodbye={folder}/{GOODBYE}");
    if command == "apply" && Path::new(&folder).join(GOODBYE).is_file() {
        line.push(&goodbye);
    }
    line.extend(flags);
    Ok(test.server().run(&line).await?.0)
}

fn has_refused_module(controller: &Value) -> bool {
    let mut conditions = controller["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|one| one["type"] == "ModulesLoaded" && one["status"] == "False")
}

fn has_finalizer(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty())
}

pub(crate) async fn files_and_a_module_are_applied_until_ready_and_deleted_in_order(
    test: &mut Fixture,
) -> Result<()> {
    let folder = folder(test)?;
    let refused = metahook(test, "apply", &folder, &["--timeout=1s"]).await.err().context("no module")?;
    ensure!(format!("{refused:#}").contains("needs a module in the ConfigMap"), "{refused:#}");
    ensure!(test.controllers().find(test.name()).await?.is_none(), "something was written");
    build(&folder, "one")?;
    let refused = metahook(test, "apply", &folder, &["--timeout=1s"]).await.err().context("no server")?;
    ensure!(format!("{refused:#}").contains("no server has said anything about it"), "{refused:#}");

    test.serve()?;
    let said = metahook(test, "apply", &folder, &[]).await?;
    ensure!(said.contains(&format!("CompositeController {} is ready", test.name())), "{said}");
    test.config_maps().until("child", "made by one", |map| map["data"]["by"] == "one").await?;
    // A second time with the next build: it is called when the command ends.
    build(&folder, "two")?;
    let said = metahook(test, "apply", &folder, &[]).await?;
    let called = test.controllers().get(test.name()).await?["status"]["hooks"].clone();
    for hook in ["sync", "finalize"] {
        let digest = called[hook]["digest"].as_str().context("no digest")?;
        ensure!(said.contains(&format!("bytes, {digest}\n")), "{called:#}: {said}");
    }
    test.config_maps().until("child", "made by two", |map| map["data"]["by"] == "two").await?;

    // A module that no server takes.
    std::fs::write(folder.join(MODULE), wat::parse_str("(module)")?)?;
    metahook(test, "apply", &folder, &["--timeout=0"]).await?;
    test.controllers().until(test.name(), "with a refused module", has_refused_module).await?;
    let start = Instant::now();
    let refused = metahook(test, "apply", &folder, &["--timeout=5m"]).await.err().context("it is refused")?;
    ensure!(format!("{refused:#}").contains("waiting does not help: ModulesLoaded"), "{refused:#}");
    ensure!(start.elapsed() < Duration::from_mins(1), "it was waited for: {refused:#}");
    // One that fails for each parent.
    std::fs::write(folder.join(MODULE), wat::parse_str(TRAPS)?)?;
    let failed = metahook(test, "apply", &folder, &["--timeout=5m"]).await.err().context("it fails")?;
    ensure!(format!("{failed:#}").contains("runs, and its parents fail: 1 of 1"), "{failed:#}");
    build(&folder, "two")?;
    metahook(test, "apply", &folder, &[]).await?;

    // One that is not among the files stays, and can be deleted.
    test.create(test.parent("b")).await?;
    test.parents().until("b", "with a finalizer", has_finalizer).await?;
    let said = metahook(test, "delete", &folder, &[]).await?;
    ensure!(test.parents().find("a").await?.is_none(), "the parent is there: {said}");
    ensure!(test.controllers().find(test.name()).await?.is_none(), "the controller is there: {said}");
    ensure!(!has_finalizer(&test.parents().get("b").await?), "a finalizer is left: {said}");
    for module in ["hook", "goodbye"] {
        ensure!(test.config_maps().find(module).await?.is_none(), "the module {module} is there: {said}");
    }
    ensure!(said.contains("stays as it is: --crds deletes it"), "{said}");
    let said = metahook(test, "delete", &folder, &["--crds"]).await?;
    ensure!(said.contains("ConfigMap") && said.contains("is gone already"), "{said}");
    let said = metahook(test, "delete", &folder, &[]).await?;
    ensure!(said.lines().count() == 5 && said.lines().all(|line| line.contains("is gone already")), "{said}");
    // A kind that nobody defines: nothing is written before that is told.
    std::fs::remove_file(folder.join("crd.json"))?;
    let refused = metahook(test, "apply", &folder, &[]).await.err().context("no kind")?;
    ensure!(format!("{refused:#}").contains("the API server serves no kind"), "{refused:#}");
    ensure!(test.config_maps().find("hook").await?.is_none(), "something was written");
    Ok(())
}

/// In a folder with its controller, `metahook apply` finds it by its name.
pub(crate) async fn a_script_is_applied_with_its_controller_up_to_its_bound(
    test: &mut Fixture,
) -> Result<()> {
    test.define_kind().await?;
    let folder = test.plane().scratch().join(test.name());
    std::fs::create_dir_all(&folder)?;
    let hook = Hook::script("javascript", test.name(), "hook", "sync.js");
    let controller = test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook);
    std::fs::write(folder.join("controller.json"), controller.json().to_string())?;
    let refused = metahook(test, "apply", &folder, &[]).await.err().context("no script")?;
    ensure!(format!("{refused:#}").contains("put the file sync.js beside the files"), "{refused:#}");
    let script = |size: usize| {
        let code = "export const sync = (request) => ({ children: [{ apiVersion: 'v1', kind: 'ConfigMap', \
                    metadata: { name: 'child' }, data: { by: 'script' } }] });\n//";
        format!("{code}{}", "\n".repeat(size - code.len()))
    };
    let most = 1 << 20;
    std::fs::write(folder.join("sync.js"), script(most + 1))?;
    let refused = metahook(test, "apply", &folder, &[]).await.err().context("a large script")?;
    ensure!(
        format!("{refused:#}").contains("the script has 1048577 bytes, and a ConfigMap holds 1048576"),
        "{refused:#}"
    );
    ensure!(test.config_maps().find("hook").await?.is_none(), "something was written");
    std::fs::write(folder.join("sync.js"), script(most))?;
    test.serve()?;
    test.create(test.parent("a")).await?;
    let said = metahook(test, "apply", &folder, &[]).await?;
    ensure!(said.contains("script of 1048576 bytes, sha256:"), "{said}");
    test.config_maps().until("child", "made", |map| map["data"]["by"] == "script").await?;
    let said = metahook(test, "delete", &folder, &[]).await?;
    ensure!(test.config_maps().find("hook").await?.is_none(), "the script is there: {said}");
    Ok(())
}

/// `metahook apply` exits with 1 where a parent among its files fails, and prints which other parents fail.
pub(crate) async fn a_parent_of_the_files_that_fails_is_an_error_of_apply(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let folder = test.plane().scratch().join(test.name());
    std::fs::create_dir_all(&folder)?;
    let hook = Hook::script("javascript", test.name(), "hook", "sync.js");
    let controller = test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook);
    let parent = |name: &str| {
        let mut parent = test.parent(name).json();
        parent["metadata"]["namespace"] = json!(test.name());
        parent
    };
    let files =
        [("controller.json", controller.json()), ("a.json", parent("a")), ("bad.json", parent("bad"))];
    for (name, object) in files {
        std::fs::write(folder.join(name), object.to_string())?;
    }
    let script = "export function sync(request) {\n  if (request.parent.metadata.name === 'bad') throw new Error('no size');\n  \
                  return { children: [] };\n}\n";
    std::fs::write(folder.join("sync.js"), script)?;
    test.serve()?;
    let failed = metahook(test, "apply", &folder, &[]).await.err().context("its own parent fails")?;
    let failed = format!("{failed:#}");
    let name = test.name().to_owned();
    let why = format!("1 of 2 parents fails; see their Events. The first is {name}/bad (");
    ensure!(failed.contains(&format!("is ready, and parents among these files fail: {why}")), "{failed}");
    ensure!(failed.contains("no size"), "{failed}");
    std::fs::remove_file(folder.join("bad.json"))?;
    let said = metahook(test, "apply", &folder, &[]).await?;
    ensure!(said.contains(&format!("CompositeController {name} is ready, and {why}")), "{said}");
    Ok(())
}
