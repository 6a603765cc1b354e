//! The commands that the pages on operation show, typed by a shell on a cluster with a controller, a parent and a version to go
//! back to: each is accepted. Those that need the server's Pod are typed on a node (`node_pages`). On a control plane of its own, as the pages apply the manifests.

use std::fs;

use acceptance::api::CONFIG_MAP;
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, config_map, text};
use acceptance::wait::{PATIENCE, until};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::modules::digest;
use crate::pages::node_pages::ON_A_NODE;
use crate::pages::{Desk, blocks};
use crate::scripts::until_loaded;

/// The page on live objects comes first: it compares with the script as it is then.
pub(crate) const PAGES: [&str; 9] = [
    "diff.md",
    "upgrades.md",
    "operations.md",
    "alerts.md",
    "troubleshooting.md",
    "shadows.md",
    "explain.md",
    "dashboard.md",
    "sizing.md",
];

/// Parts of commands that are typed nowhere, each with the reason. `ON_A_NODE` has those that are typed there.
const NOT_HERE: [(&str, &str); 9] = [
    ("cargo run", "it builds the server that runs here"),
    ("cosign verify", "it asks for a release that is published, and for Sigstore's servers"),
    ("sha256sum", "it reads what was downloaded: the workflow of releases types it"),
    ("--reconciles", "it waits for reconciles: `replayed` types it"),
    ("metahook dashboard", "it runs until Ctrl-C: `dashboard` asks for its pages"),
    ("metahook replay", "it reads what --reconciles wrote: `replayed` types it"),
    ("metahook test night", "it runs the cases that `metahook replay` wrote: `replayed` types it"),
    ("kubectl delete", "later commands ask about what it removes: `chart_node` types some"),
    ("wait --for=delete configmap", "it follows a deletion of controllers: `chart_node` types it"),
];

const SCRIPT: &str = r#"
def sync(parent, children):
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "child"}, "data": {"is": "WORD"}}
    return {"status": {}, "children": [child]}
"#;

pub(crate) async fn the_commands_of_the_pages_on_operation(test: &mut Fixture) -> Result<()> {
    let mut day = Fixture::on_its_own_plane(test.name()).await?;
    let typed = types_all(&mut day).await;
    day.end(typed).await
}

async fn types_all(test: &mut Fixture) -> Result<()> {
    two_versions_and_a_parent(test).await?;
    let mut desk = desk(test).await?;
    let mut typed = 0;
    for page in PAGES {
        // Until the parent has settled something would change.
        desk.is_patient = page == "diff.md";
        for block in blocks(page)? {
            typed += desk.types(&block).await.with_context(|| page.to_owned())?.len();
        }
    }
    ensure!(typed >= 40, "only {typed} commands were typed");
    desk.not_here.are_all_needed()
}

async fn desk(test: &mut Fixture) -> Result<Desk> {
    let mut desk = Desk::new(test.plane(), &[&NOT_HERE[..], &ON_A_NODE].concat())?;
    let name = test.name().to_owned();
    let controller = test.controllers().get(&name).await?;
    fs::write(desk.folder.join("controller.yaml"), serde_json::to_vec(&controller)?)?;
    fs::write(desk.folder.join("sync.py"), SCRIPT.replace("WORD", "two"))?;
    let parents = text(&controller, "/spec/parentResource/resource");
    let (group, _) = text(&controller, "/spec/parentResource/apiVersion").split_once('/').context("group")?;
    desk.words.extend([
        ("KIND NAME", format!("{parents}.{group} -n {name} parent")),
        ("hellos demo/hello", format!("{parents} {name}/parent")),
        ("DIGEST", format!("sha256:{}", digest(b"x"))),
        ("demo/your-name", format!("{name}/parent")),
        ("--controller hello ", format!("--controller {name} ")),
        ("record hello ", format!("record {name} ")),
        ("target/wasm32-wasip1/release/hello.wasm", "sync.py".to_owned()),
        ("hello-controller", name.clone()),
        ("FOLDER", "manifests".to_owned()),
        ("NAME", name),
    ]);
    Ok(desk)
}

/// What the pages are about: a controller of this server, a version to go back to, and a parent.
async fn two_versions_and_a_parent(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let script = |word: &str| json!({ "sync.py": SCRIPT.replace("WORD", word) });
    test.make(&test.config_maps(), config_map("hook", json!({}), script("one"))).await?;
    // The namespace of the pages' accounts.
    test.plane().kubectl().run(&["create", "namespace", "hello"]).await?;
    // The manifests' namespace and Lease, as the pages look there.
    test.plane().kubectl().run(&["apply", "--server-side", "-k", "manifests"]).await?;
    for flag in ["--leader-election", "--leader-election-namespace=metacontroller"] {
        test.server().flag(flag);
    }
    test.serve()?;
    let hook = Hook::script("python", test.name(), "hook", "sync.py");
    test.host(test.controller().making(&CONFIG_MAP, "InPlace").synced_by(hook)).await?;
    until_loaded(test, test.name()).await?;
    test.create(test.parent("parent")).await?;
    for word in ["one", "two"] {
        test.config_maps().merge_as("pages", "hook", &json!({ "data": script(word) })).await?;
        let is = |child: &Value| child["data"]["is"] == word;
        test.config_maps().until("child", &format!("made by the version {word}"), is).await?;
    }
    let kubeconfig = test.plane().kubeconfig().display().to_string();
    let name = test.name().to_owned();
    let server = test.server();
    until("`metahook history` shows both versions", PATIENCE, async || {
        let (said, _) = server.run(&["history", &name, "--kubeconfig", &kubeconfig]).await?;
        Ok(if said.matches("sha256:").count() >= 2 { Ok(()) } else { Err(said) })
    })
    .await
}
