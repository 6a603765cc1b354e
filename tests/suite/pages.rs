//! The commands that the pages on operation show, typed by a shell on a cluster with a controller, a parent and a version to go
//! back to: each is accepted. On a control plane of its own, as the pages apply the manifests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use acceptance::api::CONFIG_MAP;
use acceptance::cluster::Binaries;
use acceptance::fixture::Fixture;
use acceptance::objects::{Hook, config_map, text};
use acceptance::paths;
use acceptance::wait::{PATIENCE, until};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::modules::digest;
use crate::scripts::until_loaded;

const PAGES: [&str; 5] = ["upgrades.md", "operations.md", "alerts.md", "troubleshooting.md", "shadows.md"];

/// Parts of commands that cannot run on this control plane, each with the reason.
const NOT_HERE: [(&str, &str); 6] = [
    ("logs ", "the server's Pod runs on no node"),
    ("rollout status", "the server's Pod runs on no node"),
    ("port-forward", "the server's Pod runs on no node"),
    ("curl ", "it reads what the line before it forwards"),
    ("/pods/metacontroller-0", "the server's Pod runs on no node"),
    ("cargo run", "it builds the server that runs here"),
];

const SCRIPT: &str = r#"
def sync(parent, children):
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "child"}, "data": {"is": "WORD"}}
    return {"status": {}, "children": [child]}
"#;

/// The commands of a page's blocks `sh` and `console`, in their order.
fn commands(page: &str) -> Vec<String> {
    let (mut all, mut block) = (Vec::<String>::new(), "");
    let mut goes_on = false;
    for line in page.lines().map(str::trim) {
        if let Some(language) = line.strip_prefix("```") {
            block = if block.is_empty() { language } else { "" };
            continue;
        }
        let command = match block {
            _ if goes_on => Some(line),
            "sh" => Some(line),
            "console" => line.strip_prefix("$ "),
            _ => None,
        };
        let Some(command) = command.filter(|command| !command.is_empty()) else { continue };
        let part = command.strip_suffix('\\').unwrap_or(command);
        match all.last_mut().filter(|_| goes_on) {
            Some(last) => last.push_str(part),
            None => all.push(part.to_owned()),
        }
        goes_on = part.len() < command.len();
    }
    all
}

/// A folder with all files that the commands name, and the names of this cluster for the words of the pages.
struct Desk {
    folder: PathBuf,
    names: Vec<(&'static str, String)>,
}

impl Desk {
    async fn of(test: &mut Fixture) -> Result<Self> {
        let folder = test.plane().scratch().join("desk");
        let bin = folder.join("bin");
        fs::create_dir_all(&bin)?;
        symlink(Binaries::find_or_build()?.kubectl(), bin.join("kubectl"))?;
        symlink(paths::server()?, bin.join("metahook"))?;
        symlink(paths::workspace().join("manifests"), folder.join("manifests"))?;
        let name = test.name().to_owned();
        let controller = test.controllers().get(&name).await?;
        fs::write(folder.join("controller.yaml"), serde_json::to_vec(&controller)?)?;
        let parents = text(&controller, "/spec/parentResource/resource");
        let (group, _) =
            text(&controller, "/spec/parentResource/apiVersion").split_once('/').context("group")?;
        let names = vec![
            ("KIND NAME", format!("{parents}.{group} -n {name} parent")),
            ("hellos demo/hello", format!("{parents} {name}/parent")),
            ("DIGEST", format!("sha256:{}", digest(b"x"))),
            ("hello-controller", name.clone()),
            ("NAME", name),
        ];
        Ok(Self { folder, names })
    }

    fn here(&self, command: &str) -> String {
        self.names.iter().fold(command.to_owned(), |line, (word, here)| line.replace(word, here))
    }

    /// Types a line; one that reads a condition prints something.
    async fn types(&self, kubeconfig: &Path, line: &str) -> Result<()> {
        let path = std::env::var("PATH").context("PATH")?;
        let output = Command::new("/bin/bash")
            .args(["-euo", "pipefail", "-c", line])
            .current_dir(&self.folder)
            .env("PATH", format!("{}:{path}", self.folder.join("bin").display()))
            .env("KUBECONFIG", kubeconfig)
            .kill_on_drop(true)
            .output()
            .await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`{line}` failed: {}", said.trim());
        let shows = !output.stdout.is_empty() || !line.contains("jsonpath") || line.contains("message");
        ensure!(shows, "`{line}` printed nothing");
        Ok(())
    }
}

pub(crate) async fn the_commands_of_the_pages_on_operation(test: &mut Fixture) -> Result<()> {
    let mut day = Fixture::on_its_own_plane(test.name()).await?;
    let typed = types_all(&mut day).await;
    day.end(typed).await
}

async fn types_all(test: &mut Fixture) -> Result<()> {
    two_versions_and_a_parent(test).await?;
    let desk = Desk::of(test).await?;
    let kubeconfig = test.plane().kubeconfig().to_owned();
    let (mut typed, mut left_out) = (0, [0; NOT_HERE.len()]);
    for page in PAGES {
        let path = paths::workspace().join("runtime/docs/src").join(page);
        let commands = commands(&fs::read_to_string(&path)?);
        ensure!(!commands.is_empty(), "{page} shows no command");
        for command in commands {
            if let Some(reason) = NOT_HERE.iter().position(|(part, _)| command.contains(part)) {
                left_out[reason] += 1;
                continue;
            }
            desk.types(&kubeconfig, &desk.here(&command)).await.with_context(|| page.to_owned())?;
            typed += 1;
        }
    }
    for ((part, reason), times) in NOT_HERE.iter().zip(left_out) {
        ensure!(times > 0, "no page has {part:?} any longer, which was left out since {reason}");
    }
    ensure!(typed >= 40, "only {typed} commands were typed");
    Ok(())
}

/// What the pages are about: a controller of this server, a version to go back to, and a parent.
async fn two_versions_and_a_parent(test: &mut Fixture) -> Result<()> {
    test.define_kind().await?;
    let script = |word: &str| json!({ "sync.py": SCRIPT.replace("WORD", word) });
    test.make(&test.config_maps(), config_map("hook", json!({}), script("one"))).await?;
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
