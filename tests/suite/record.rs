//! `metahook record`: live parents become cases, with the objects that their hook is shown.

use std::path::Path;

use acceptance::api::{CONFIG_MAP, POD, SECRET};
use acceptance::fixture::{Fixture, guest};
use acceptance::objects::{Hook, config_map};
use acceptance::webhook::{Answer, Asked, Webhook};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::diff::{run, states};
use crate::secrecy::base64;
use crate::wasm;

/// A value that no file may have, and the end of it that has nothing to escape.
const HIDDEN: &str = "a<value&\"of-a-secret\n";
const END: &str = "of-a-secret";

pub(crate) async fn a_live_parent_becomes_a_case_of_a_test(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    test.store("hook", &guest("hello")?).await?;
    test.serve()?;
    test.host(test.controller().making(&POD, "Recreate").synced_by(test.hook("hook"))).await?;
    for name in ["a", "b"] {
        test.create(test.parent(name)).await?;
        test.parents().until(name, "a Pod", |parent| parent["status"]["pods"] == 1).await?;
    }
    let name = test.name().to_owned();
    let kind = test.kind().clone();
    let before = states(test, &[&kind, &POD]).await?;
    let folder = test.plane().scratch().join(format!("{name}-recorded"));
    let shown = folder.display().to_string();
    let words = ["record", "--controller", &name, "-o", &shown];
    let (code, out, say) = run(test, &words).await?;
    ensure!(code == Some(0) && say.contains("/tests --bless` writes what the hook wants"), "{out}{say}");
    let tests = folder.join("tests").display().to_string();
    test.server().run(&["test", &tests, "--bless"]).await?;
    let plan = std::fs::read_to_string(folder.join("tests").join(&name).join("a/plan.yaml"))?;
    ensure!(
        plan.contains("end: settled") && !plan.contains("change: "),
        "what is there is not wanted: {plan}"
    );
    let (passed, _) = test.server().run(&["test", &tests]).await?;
    ensure!(passed.contains("2 passed, 0 failed"), "{passed}");
    // What a new module would do to them, without the cluster.
    let empty = folder.join("empty.wasm");
    std::fs::write(&empty, wasm::answers(&json!({ "children": [] }))?)?;
    let refused = test.server().run(&["test", &tests, "--module", &empty.display().to_string()]).await;
    let refused = format!("{:#}", refused.err().context("the cases pass with another module")?);
    ensure!(refused.contains("2 of 2 cases failed"), "{refused}");

    let (code, _, say) = run(test, &words).await?;
    ensure!(code == Some(1) && say.contains("it is there already"), "{say}");
    ensure!(states(test, &[&kind, &POD]).await? == before, "something was written");
    Ok(())
}

/// The hook is shown a Secret, and copies its value into a ConfigMap.
pub(crate) async fn secrets_are_recorded_without_their_values(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let hook = Webhook::serve(|asked: &Asked| -> Answer {
        if asked.path == "/customize" {
            let rule = json!({ "apiVersion": "v1", "resource": "secrets", "names": ["s"] });
            return json!({ "relatedResources": [rule] }).into();
        }
        let copy =
            config_map("copy", json!({}), json!({ "url": format!("https://u:{}@host", HIDDEN.trim()) }));
        json!({ "status": {}, "children": [copy] }).into()
    });
    let hook = hook.await?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "stringData": { "key": HIDDEN },
    });
    test.make(&test.within(&SECRET), secret).await?;
    test.serve()?;
    let of = |path: &str| Hook::webhook(&hook.url(path));
    let controller = test.controller().making(&CONFIG_MAP, "InPlace").synced_by(of("/sync"));
    test.host(controller.customized_by(of("/customize"))).await?;
    test.create(test.parent("p")).await?;
    test.config_maps().until("copy", "made", |_| true).await?;
    let name = test.name().to_owned();
    for (folder, flags, has) in [("without", &[][..], false), ("with", &["--with-secrets"], true)] {
        let folder = test.plane().scratch().join(format!("{name}-{folder}"));
        let shown = folder.display().to_string();
        let words = [&["record", "--controller", &name, "-o", &shown][..], flags].concat();
        let (code, out, say) = run(test, &words).await?;
        ensure!(code == Some(0), "{out}{say}");
        let case = folder.join("tests").join(&name).join("p");
        let observed = std::fs::read_to_string(case.join("observed.yaml"))?;
        ensure!(observed.contains("kind: Secret") && observed.contains("name: copy"), "{observed}");
        ensure!(holds(&folder, END)? == has && holds(&folder, &base64(HIDDEN))? == has, "{observed}");
    }
    Ok(())
}

/// Whether any file of a folder has a text.
fn holds(folder: &Path, text: &str) -> Result<bool> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let found =
            if path.is_dir() { holds(&path, text)? } else { std::fs::read_to_string(&path)?.contains(text) };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A parent of a paused controller is recorded as one that is not, and one whose hook is not called is left out.
pub(crate) async fn parents_whose_hook_is_not_called_are_left_out(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    test.store("hook", &wasm::answers(&json!({ "children": [], "status": {} }))?).await?;
    test.serve()?;
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(test.hook("hook"))).await?;
    let name = test.name().to_owned();
    for parent in ["p", "q"] {
        test.create(test.parent(parent)).await?;
    }
    let annotation = json!({ "metadata": { "annotations": { "metahook.dev/paused": "true" } } });
    test.parents().merge("q", &annotation).await?;
    test.controllers().merge(&name, &json!({ "spec": { "paused": true } })).await?;
    let folder = test.plane().scratch().join(format!("{name}-recorded"));
    let shown = folder.display().to_string();
    let of = ["record", "--controller", &name, "-o", &shown];
    let (code, out, say) = run(test, &of).await?;
    ensure!(code == Some(0) && say.contains("/q: it is not recorded: "), "{out}{say}");
    let controller = std::fs::read_to_string(folder.join("controller.yaml"))?;
    ensure!(!controller.contains("paused") && !controller.contains("uid"), "{controller}");
    ensure!(!folder.join("tests").join(&name).join("q").exists(), "the paused parent is a case");
    let only: Vec<_> = of.into_iter().chain(["q"]).collect();
    let (code, _, say) = run(test, &only).await?;
    ensure!(code == Some(1) && say.contains("no parent can be recorded"), "{say}");
    let kinds: Value = test.controllers().get(&name).await?;
    ensure!(kinds["spec"]["paused"] == true, "the controller was written");
    Ok(())
}
