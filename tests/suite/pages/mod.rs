//! The commands that the book shows, typed by a shell: each is accepted.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use acceptance::control_plane::ControlPlane;
use acceptance::fixture::Fixture;
use acceptance::helm;
use acceptance::paths;
use acceptance::wait::{PATIENCE, until};
use anyhow::{Context, Result, anyhow, ensure};
use tokio::process::Command;

pub(crate) mod author_pages;
pub(crate) mod node_pages;
pub(crate) mod operation_pages;
pub(crate) mod symptoms;
pub(crate) mod typed_pages;

/// Commands of one block, which are typed in one folder.
pub(crate) type Block = Vec<String>;

/// The blocks `sh` and `console` of a page of the book, in their order.
pub(crate) fn blocks(page: &str) -> Result<Vec<Block>> {
    let path = paths::workspace().join("runtime/docs/src").join(page);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let blocks = parse(&text);
    ensure!(!blocks.is_empty(), "{page} shows no command");
    Ok(blocks)
}

/// The blocks of a page, for a test that types each in its place.
pub(crate) fn all_blocks<const N: usize>(page: &str) -> Result<[Block; N]> {
    let blocks = blocks(page)?;
    blocks
        .try_into()
        .map_err(|all: Vec<Block>| anyhow!("{page} has {} blocks, and the test types {N}", all.len()))
}

fn parse(page: &str) -> Vec<Block> {
    let (mut all, mut language) = (Vec::<Block>::new(), "");
    let mut goes_on = false;
    for line in page.lines().map(str::trim) {
        // A block may begin an item of a list.
        let item = line.trim_start_matches(|c: char| c.is_ascii_digit() || ".-* ".contains(c));
        if let Some(named) = item.strip_prefix("```") {
            language = if language.is_empty() { named } else { "" };
            if ["sh", "console"].contains(&language) {
                all.push(Block::new());
            }
            continue;
        }
        let command = match language {
            _ if goes_on => Some(line),
            "sh" => Some(line),
            "console" => line.strip_prefix("$ "),
            _ => None,
        };
        let Some(command) = command.filter(|command| !command.is_empty()) else { continue };
        let Some(block) = all.last_mut() else { continue };
        let joined = command.strip_suffix('\\');
        // What runs in the background serves the next line, which the same shell gets.
        let is_in_background = without_comment(command).ends_with(" &");
        let part = joined.map_or_else(
            || if is_in_background { format!("{command}\n") } else { command.to_owned() },
            str::to_owned,
        );
        match block.last_mut().filter(|_| goes_on) {
            Some(last) => last.push_str(&part),
            None => block.push(part),
        }
        goes_on = joined.is_some() || is_in_background;
    }
    all.retain(|block| !block.is_empty());
    all
}

fn without_comment(command: &str) -> &str {
    command.split_once(" # ").map_or(command, |(typed, _)| typed).trim_end()
}

/// Where commands are typed: a home with the programs, a folder with the files that are named, and this cluster's names for the
/// words of the pages.
pub(crate) struct Desk {
    pub(crate) home: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) words: Vec<(&'static str, String)>,
    /// Parts of commands that are not typed here.
    pub(crate) not_here: Parts,
    /// The user tries a line again until it succeeds.
    pub(crate) is_patient: bool,
    kubeconfig: PathBuf,
}

/// Parts of commands, each with the reason why commands with it are set apart, and how often they were.
pub(crate) struct Parts(Vec<(&'static str, &'static str, usize)>);

impl Parts {
    pub(crate) fn new(parts: &[(&'static str, &'static str)]) -> Self {
        Self(parts.iter().map(|(part, reason)| (*part, *reason, 0)).collect())
    }

    pub(crate) fn are_in(&mut self, command: &str) -> bool {
        let found = self.0.iter_mut().find(|(part, _, _)| command.contains(part));
        found.map(|(_, _, times)| *times += 1).is_some()
    }

    pub(crate) fn are_all_needed(&self) -> Result<()> {
        for (part, reason, times) in &self.0 {
            ensure!(*times > 0, "no page has {part:?} any longer, which was set apart since {reason}");
        }
        Ok(())
    }
}

impl Desk {
    pub(crate) fn new(plane: &ControlPlane, not_here: &[(&'static str, &'static str)]) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("desk-").tempdir_in(plane.scratch())?.keep();
        let bin = home.join(".local/bin");
        fs::create_dir_all(&bin)?;
        symlink(plane.binaries().kubectl(), bin.join("kubectl"))?;
        symlink(paths::server()?, bin.join("metahook"))?;
        symlink(paths::workspace().join("manifests"), home.join("manifests"))?;
        let kubeconfig = plane.kubeconfig().to_owned();
        let words = vec![("~/", format!("{}/", home.display()))];
        let not_here = Parts::new(not_here);
        Ok(Self { folder: home.clone(), home, words, not_here, is_patient: false, kubeconfig })
    }

    /// Helm is among the programs; the test runs only where it is built.
    pub(crate) fn with_helm(self) -> Result<Self> {
        symlink(helm::find_or_build()?, self.home.join(".local/bin/helm"))?;
        Ok(self)
    }

    /// Types the commands of a block that can be typed here; what each printed.
    pub(crate) async fn types(&mut self, block: &Block) -> Result<Vec<String>> {
        let mut printed = Vec::new();
        let before = self.folder.clone();
        for command in block {
            if self.not_here.are_in(command) {
                continue;
            }
            let command = self.here(command);
            printed.push(self.types_line(&command).await?);
            if let Some((_, folder)) = command.split_once("&& cd ") {
                self.folder = self.folder.join(folder);
            }
        }
        self.folder = before;
        Ok(printed)
    }

    /// The command with this cluster's names.
    fn here(&self, command: &str) -> String {
        let here = |line: String, (word, here): &(&str, String)| line.replace(word, here);
        self.words.iter().fold(command.to_owned(), here)
    }

    async fn types_line(&self, line: &str) -> Result<String> {
        if !self.is_patient {
            return self.types_once(line).await;
        }
        until(line, PATIENCE, async || Ok(self.types_once(line).await.map_err(|why| format!("{why:#}"))))
            .await
    }

    /// One that reads a condition prints something, and a log begins its comment.
    async fn types_once(&self, line: &str) -> Result<String> {
        let path = std::env::var("PATH").context("PATH")?;
        let mut command = Command::new("/bin/bash");
        for folder in ["CACHE", "CONFIG", "DATA"] {
            command.env(format!("HELM_{folder}_HOME"), self.home.join("helm").join(folder));
        }
        let output = command
            // Nothing goes on in the background.
            .args([
                "-euo",
                "pipefail",
                "-c",
                &format!("trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n{line}"),
            ])
            .current_dir(&self.folder)
            .env("PATH", format!("{}:{path}", self.home.join(".local/bin").display()))
            .env("KUBECONFIG", &self.kubeconfig)
            // What the repository is built with is there; nothing is fetched.
            .env("CARGO_NET_OFFLINE", "true")
            .env_remove("CARGO_TARGET_DIR")
            .kill_on_drop(true)
            .output()
            .await?;
        let [printed, said] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        ensure!(output.status.success(), "`{line}` failed: {} {}", said.trim(), printed.trim());
        let shows = !printed.is_empty() || !line.contains("jsonpath") || line.contains("message");
        ensure!(shows, "`{line}` printed nothing");
        if let Some((_, comment)) = line.split_once(" # ").filter(|_| line.contains(" logs ")) {
            let log = printed.trim();
            ensure!(!log.is_empty() && comment.starts_with(log), "`{line}` printed {log:?}");
        }
        Ok(printed.into_owned())
    }
}

/// The server of a test hosts the controllers with its label alone.
pub(crate) fn is_hosted_here(test: &Fixture, controller: &Path) -> Result<()> {
    let written = fs::read_to_string(controller)?;
    let label = test.label();
    let (key, value) = label.split_once('=').context("a label")?;
    let labelled = written.replacen("metadata:", &format!("metadata:\n  labels: {{{key}: {value}}}"), 1);
    Ok(fs::write(controller, labelled)?)
}
