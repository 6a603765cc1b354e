//! The commands that the book shows, typed by a shell: each is accepted.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use acceptance::cluster::Binaries;
use acceptance::fixture::Fixture;
use acceptance::paths;
use anyhow::{Context, Result, ensure};
use tokio::process::Command;

pub(crate) mod author_pages;
pub(crate) mod operation_pages;

/// Commands of one block, which are typed in one folder.
type Block = Vec<String>;

/// The blocks `sh` and `console` of a page of the book, in their order.
fn blocks(page: &str) -> Result<Vec<Block>> {
    let path = paths::workspace().join("runtime/docs/src").join(page);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let blocks = parse(&text);
    ensure!(!blocks.is_empty(), "{page} shows no command");
    Ok(blocks)
}

fn parse(page: &str) -> Vec<Block> {
    let (mut all, mut language) = (Vec::<Block>::new(), "");
    let mut goes_on = false;
    for line in page.lines().map(str::trim) {
        if let Some(named) = line.strip_prefix("```") {
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
        let part = command.strip_suffix('\\').unwrap_or(command);
        match block.last_mut().filter(|_| goes_on) {
            Some(last) => last.push_str(part),
            None => block.push(part.to_owned()),
        }
        goes_on = part.len() < command.len();
    }
    all.retain(|block| !block.is_empty());
    all
}

/// Where commands are typed: a home with the programs, a folder with the files that are named, and this cluster's names for the
/// words of the pages.
struct Desk {
    home: PathBuf,
    folder: PathBuf,
    kubeconfig: PathBuf,
    words: Vec<(&'static str, String)>,
    not_here: NotHere,
}

/// Parts of commands that are left out, each with the reason, and how often.
struct NotHere(Vec<(&'static str, &'static str, usize)>);

impl NotHere {
    fn new(parts: &[(&'static str, &'static str)]) -> Self {
        Self(parts.iter().map(|(part, reason)| (*part, *reason, 0)).collect())
    }

    fn leaves_out(&mut self, command: &str) -> bool {
        let found = self.0.iter_mut().find(|(part, _, _)| command.contains(part));
        found.map(|(_, _, times)| *times += 1).is_some()
    }

    fn are_all_needed(&self) -> Result<()> {
        for (part, reason, times) in &self.0 {
            ensure!(*times > 0, "no page has {part:?} any longer, which was left out since {reason}");
        }
        Ok(())
    }
}

impl Desk {
    fn new(test: &Fixture, not_here: &[(&'static str, &'static str)]) -> Result<Self> {
        let home = test.plane().scratch().join("desk");
        let bin = home.join(".local/bin");
        fs::create_dir_all(&bin)?;
        symlink(Binaries::find_or_build()?.kubectl(), bin.join("kubectl"))?;
        symlink(paths::server()?, bin.join("metahook"))?;
        let kubeconfig = test.plane().kubeconfig().to_owned();
        let words = vec![("~/", format!("{}/", home.display()))];
        Ok(Self { folder: home.clone(), home, kubeconfig, words, not_here: NotHere::new(not_here) })
    }

    /// Types the commands of a block that can be typed here; how many.
    async fn types(&mut self, block: &Block) -> Result<usize> {
        let mut typed = 0;
        let before = self.folder.clone();
        for command in block {
            if self.not_here.leaves_out(command) {
                continue;
            }
            let here = |line: String, (word, here): &(&str, String)| line.replace(word, here);
            let command = self.words.iter().fold(command.clone(), here);
            self.types_line(&command).await?;
            if let Some((_, folder)) = command.split_once("&& cd ") {
                self.folder = self.folder.join(folder);
            }
            typed += 1;
        }
        self.folder = before;
        Ok(typed)
    }

    /// Types a line; one that reads a condition prints something.
    async fn types_line(&self, line: &str) -> Result<()> {
        let path = std::env::var("PATH").context("PATH")?;
        let output = Command::new("/bin/bash")
            .args(["-euo", "pipefail", "-c", line])
            .current_dir(&self.folder)
            .env("PATH", format!("{}:{path}", self.home.join(".local/bin").display()))
            .env("KUBECONFIG", &self.kubeconfig)
            // What the repository is built with is there; nothing is fetched.
            .env("CARGO_NET_OFFLINE", "true")
            .env_remove("CARGO_TARGET_DIR")
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
