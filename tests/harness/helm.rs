//! Runs Helm as a person would, and gives back what it printed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
pub use binaries::helm::find_or_build;
use tokio::process::Command;

use crate::paths;

/// Helm with a kubeconfig, run in the checkout's folder, with no settings of the user's.
#[derive(Debug, Clone)]
pub struct Helm {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
}

impl Helm {
    /// Builds Helm if need be; `home` is where it may write.
    pub async fn new(kubeconfig: &Path, home: &Path) -> Result<Self> {
        let built = tokio::task::spawn_blocking(find_or_build);
        let program = built.await.context("building Helm panicked")??;
        Ok(Self { program, kubeconfig: kubeconfig.to_owned(), home: home.to_owned() })
    }

    /// Runs Helm: its stdout, or an error with its stderr.
    pub async fn run<S: AsRef<str>>(&self, args: &[S]) -> Result<String> {
        let output = Command::new(&self.program)
            .args(args.iter().map(AsRef::as_ref))
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HELM_CACHE_HOME", self.home.join("cache"))
            .env("HELM_CONFIG_HOME", self.home.join("config"))
            .env("HELM_DATA_HOME", self.home.join("data"))
            .current_dir(paths::workspace())
            .process_group(0) // Ctrl-C does not cut it off in the middle of a write
            .kill_on_drop(true)
            .output()
            .await
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let printed = String::from_utf8_lossy(&output.stdout);
            let line: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
            bail!("helm {} failed: {} {}", line.join(" "), said.trim(), printed.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
