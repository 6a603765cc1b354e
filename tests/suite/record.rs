//! `metahook record`: live parents become cases that pass without the cluster.

use acceptance::api::{POD, SECRET};
use acceptance::fixture::{Fixture, guest};
use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::diff::{run, states};
use crate::secrecy::base64;
use crate::wasm;

/// A value that no file may have.
const HIDDEN: &str = "a-value-of-a-secret";

pub(crate) async fn a_live_parent_becomes_a_case_that_passes(test: &mut Fixture) -> Result<()> {
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
    ensure!(code == Some(0), "{out}{say}");
    let plan = std::fs::read_to_string(folder.join("tests").join(format!("{name}-a/plan.yaml")))?;
    ensure!(plan.contains("end: settled") && !plan.contains("change: "), "{plan}");
    let tests = folder.join("tests").display().to_string();
    let (passed, _) = test.server().run(&["test", &tests]).await?;
    ensure!(passed.contains("2 passed, 0 failed"), "{passed}");
    // What a new module would do to them, without the cluster.
    let empty = folder.join("empty.wasm");
    std::fs::write(&empty, wasm::answers(&json!({ "children": [] }))?)?;
    let refused = test.server().run(&["test", &tests, "--module", &empty.display().to_string()]).await;
    let refused = format!("{:#}", refused.err().context("the cases pass with another module")?);
    ensure!(refused.contains("2 of 2 cases failed"), "{refused}");

    let (code, _, say) = run(test, &words).await?;
    ensure!(code == Some(1) && say.contains("the case is there already"), "{say}");
    ensure!(states(test, &[&kind, &POD]).await? == before, "something was written");
    Ok(())
}

pub(crate) async fn secrets_are_recorded_without_their_values(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "stringData": { "key": HIDDEN },
    });
    test.store("hook", &wasm::answers(&json!({ "children": [secret], "status": {} }))?).await?;
    let namespaces = format!("--mount-secret-namespaces={}", test.name());
    test.server().flag(&namespaces);
    test.serve()?;
    test.host(test.controller().making(&SECRET, "InPlace").synced_by(test.hook("hook"))).await?;
    test.create(test.parent("p")).await?;
    test.within(&SECRET).until("s", "made", |_| true).await?;
    test.until_controller("settled", |cc| cc["status"]["settled"] == 1).await?;
    let name = test.name().to_owned();
    for (folder, flags, has) in [("without", &[][..], false), ("with", &["--with-secrets"], true)] {
        let folder = test.plane().scratch().join(format!("{name}-{folder}"));
        let shown = folder.display().to_string();
        let words = [&["record", "--controller", &name, "-o", &shown, &namespaces][..], flags].concat();
        let (code, out, say) = run(test, &words).await?;
        ensure!(code == Some(0), "{out}{say}");
        let observed = std::fs::read_to_string(folder.join("tests").join(format!("{name}-p/observed.yaml")))?;
        ensure!(observed.contains("kind: Secret"), "{observed}");
        ensure!(observed.contains(&base64(HIDDEN)) == has, "{observed}");
    }
    Ok(())
}
