//! `metahook check` and `render` ask a cluster about kinds and children, and write nothing.

use std::process::Output;

use acceptance::api::{CONFIG_MAP, POD, SERVICE_ACCOUNT};
use acceptance::fixture::Fixture;
use acceptance::objects::config_map;
use acceptance::paths;
use acceptance::rights::kubeconfig_of;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::wasm;

/// Runs the binary with files of a folder of the test.
async fn metahook(test: &Fixture, files: &[(&str, Vec<u8>)], line: &[&str]) -> Result<(Option<i32>, String)> {
    let folder = test.plane().scratch().join(test.name());
    std::fs::create_dir_all(&folder)?;
    for (name, content) in files {
        std::fs::write(folder.join(name), content)?;
    }
    let Output { status, stdout, stderr } =
        Command::new(paths::server()?).args(line).current_dir(&folder).kill_on_drop(true).output().await?;
    let said = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    Ok((status.code(), said))
}

pub(crate) async fn what_its_api_server_would_not_keep_breaks_a_law(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let controller = test.controller().making(&CONFIG_MAP, "InPlace").making(&POD, "OnDelete");
    let controller = controller.synced_by(test.hook("hook")).json().to_string();
    let files = |children: Value| -> Result<_> {
        Ok([
            ("controller.yaml", controller.clone().into_bytes()),
            ("parent.yaml", test.parent("p").json().to_string().into_bytes()),
            ("hook.wasm", wasm::answers(&json!({ "children": children }))?),
        ])
    };
    let kubeconfig = format!("--kubeconfig={}", test.plane().kubeconfig().display());
    let check = ["check", "hook.wasm", "-f", "controller.yaml", "-f", "parent.yaml", &kubeconfig];
    let fine = config_map("child", json!({}), json!({ "a": "b" }));
    let (code, said) = metahook(test, &files(json!([fine]))?, &check).await?;
    let law = "the API server of the cluster keeps what is answered (dry run)";
    ensure!(code == Some(0) && said.contains(&format!("ok   {law}\n")), "{said}");

    // No schema tells.
    let refused = config_map("child", json!({}), json!({ "a/b": "c" }));
    let container = json!({ "name": "c", "image": "i", "resources": { "limits": { "cpu": "1000m" } } });
    let otherwise = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "pod" }, "spec": { "containers": [container] } });
    let (code, said) = metahook(test, &files(json!([refused, otherwise]))?, &check).await?;
    ensure!(code == Some(1) && said.contains(&format!("FAIL {law}\n")), "{said}");
    for fault in [
        "spec.containers[name=c].resources.limits.cpu is kept otherwise",
        "a valid config key must consist of",
    ] {
        ensure!(said.contains(fault), "not {fault:?}: {said}");
    }
    ensure!(test.config_maps().find("child").await?.is_none(), "it is written");

    // The kind is known by the cluster alone.
    let render = ["render", "--module=hook.wasm", "-f", "controller.yaml", "-f", "parent.yaml"];
    let (code, said) = metahook(test, &[], &render).await?;
    ensure!(code == Some(2) && said.contains("is not built in"), "{said}");
    let (code, said) = metahook(test, &[], &[&render[..], &[&kubeconfig]].concat()).await?;
    ensure!(code == Some(0) && said.contains("create ConfigMap"), "{said}");

    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "nobody" } });
    test.make(&test.within(&SERVICE_ACCOUNT), account).await?;
    let nobody = kubeconfig_of(test.plane(), test.name(), "nobody").await?;
    let nobody = format!("--kubeconfig={}", nobody.display());
    let (code, said) = metahook(test, &[], &[&render[..], &[&nobody]].concat()).await?;
    ensure!(code == Some(1) && said.contains("ask for the right to list them"), "{said}");
    Ok(())
}
