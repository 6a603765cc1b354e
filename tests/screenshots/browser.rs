//! Chromium without a window.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::process::Command;

use crate::session::Session;

/// Names of the program.
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Width and height of the pictures.
/// The widest comes last: the book has it, and by then pages show rates.
const SIZES: [(&str, u32, u32); 3] = [("narrow", 400, 900), ("middle", 800, 1000), ("wide", 1280, 960)];

/// Chromium's setting of the colours that a page prefers.
const COLOURS: [(&str, &str); 2] = [("light", "1"), ("dark", "0")];

/// A picture takes a second; Chromium's first start takes longer.
const TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) struct Browser {
    program: &'static str,
    out: PathBuf,
}

impl Browser {
    pub(crate) fn find(out: &Path) -> Result<Self> {
        let is_there = |program: &&str| {
            let asked = std::process::Command::new(program).arg("--version").output();
            asked.is_ok_and(|output| output.status.success())
        };
        let Some(program) = PROGRAMS.into_iter().find(is_there) else {
            bail!("Chromium is missing: install Debian's package chromium, or another one of {PROGRAMS:?}");
        };
        std::fs::create_dir_all(out).with_context(|| out.display().to_string())?;
        Ok(Self { program, out: out.canonicalize()? })
    }

    /// Takes each page in all sizes and colours.
    pub(crate) async fn takes(&self, session: &Session, pages: &[(&str, &str)]) -> Result<()> {
        for (name, path) in pages {
            let url = session.url(path);
            for (size, width, height) in SIZES {
                for (colour, number) in COLOURS {
                    let file = self.out.join(format!("{name}-{size}-{colour}.png"));
                    self.take(&url, &file, (width, height), number).await?;
                }
            }
        }
        Ok(())
    }

    async fn take(&self, url: &str, file: &Path, (width, height): (u32, u32), colours: &str) -> Result<()> {
        let mut command = Command::new(self.program);
        command
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
            .arg(format!("--blink-settings=preferredColorScheme={colours}"))
            .arg(format!("--window-size={width},{height}"))
            .arg(format!("--screenshot={}", file.display()))
            .arg(url)
            .kill_on_drop(true);
        let output = tokio::time::timeout(TIMEOUT, command.output()).await;
        let output = output.with_context(|| format!("{} takes too long", self.program))??;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success() && file.is_file(), "{}: {said}", self.program);
        Ok(())
    }
}
