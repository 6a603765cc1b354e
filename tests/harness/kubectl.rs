//! Runs kubectl as a person would, and gives back what it printed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use crate::paths;

/// kubectl with a kubeconfig, run in the checkout's folder.
#[derive(Debug, Clone)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    pub fn new(program: PathBuf, kubeconfig: PathBuf) -> Self {
        Self { program, kubeconfig }
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Runs kubectl: its stdout without the newline at the end, or an error with its stderr.
    pub async fn run<S: AsRef<str>>(&self, args: &[S]) -> Result<String> {
        let output = Command::new(&self.program)
            .args(args.iter().map(AsRef::as_ref))
            .env("KUBECONFIG", &self.kubeconfig)
            .current_dir(paths::workspace())
            .process_group(0) // Ctrl-C does not cut it off in the middle of a write
            .output()
            .await
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let line: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
            bail!("kubectl {} failed: {}", line.join(" "), said.trim());
        }
        let printed = if output.stdout.is_empty() { output.stderr } else { output.stdout }; // "No resources found"
        Ok(String::from_utf8_lossy(&printed).trim_end().to_owned())
    }
}
