//! Types kubectl lines, prints what comes back, and waits for it to become what it should.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use acceptance::kubectl::Kubectl;
use anyhow::{Result, bail, ensure};
use binaries::elapsed::elapsed;

use crate::interrupt::Interrupt;

const INTERVAL: Duration = Duration::from_millis(200);

/// kubectl at a prompt.
#[derive(Clone)]
pub(crate) struct Terminal {
    kubectl: Kubectl,
    /// Said with every line on a cluster that is not our own.
    context: Option<String>,
    interrupt: Arc<Interrupt>,
}

impl Terminal {
    pub(crate) fn new(kubectl: Kubectl, context: Option<String>, interrupt: &Arc<Interrupt>) -> Self {
        Self { kubectl, context, interrupt: Arc::clone(interrupt) }
    }

    /// Runs a line and shows it with what came back.
    pub(crate) async fn types(&self, line: &[&str]) -> Result<String> {
        self.prompt(line);
        let start = Instant::now();
        let printed = self.run_quietly(line).await?;
        reply(&printed, start);
        Ok(printed)
    }

    /// Runs a line again and again until what comes back is as `is` wants it; shows it once.
    pub(crate) async fn waits(&self, line: &[&str], what: &str, is: impl Fn(&str) -> bool) -> Result<String> {
        self.prompt(line);
        let start = Instant::now();
        loop {
            let printed = self.run_quietly(line).await;
            match printed {
                Ok(printed) if is(&printed) => {
                    reply(&printed, start);
                    return Ok(printed);
                }
                Ok(_) | Err(_) if start.elapsed() < LIMIT => tokio::time::sleep(INTERVAL).await,
                Ok(last) => bail!("waited {} for {what}; last seen: {last}", elapsed(start)),
                Err(last) => bail!("waited {} for {what}; last seen: {last:#}", elapsed(start)),
            }
            ensure!(!self.interrupted(), "interrupted while waiting for {what}");
        }
    }

    /// Runs a line without showing it.
    pub(crate) async fn run_quietly(&self, line: &[&str]) -> Result<String> {
        ensure!(!self.interrupted(), "interrupted");
        self.kubectl.run(&self.whole(line)).await
    }

    fn interrupted(&self) -> bool {
        self.interrupt.is_set()
    }

    fn whole<'a>(&'a self, line: &[&'a str]) -> Vec<&'a str> {
        let context = self.context.iter().flat_map(|name| ["--context", name.as_str()]);
        context.chain(line.iter().copied()).collect()
    }

    fn prompt(&self, line: &[&str]) {
        let words: Vec<_> = self.whole(line).into_iter().map(quoted).collect();
        println!("$ kubectl {}", words.join(" "));
    }
}

/// The garbage collector may notice a new kind after 30 s, and come to a parent that was deleted before after twice
/// the time since.
const LIMIT: Duration = Duration::from_mins(3);

fn reply(printed: &str, start: Instant) {
    printed.lines().for_each(|line| println!("  {line}"));
    if start.elapsed() >= Duration::from_secs(2) {
        println!("  (after {})", elapsed(start));
    }
}

/// A word as it has to be typed in a shell.
fn quoted(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_take_them_apart() {
        let words = ["--type=merge", r#"{"spec":{"who":"My Name"}}"#, "it's", ""];
        assert_eq!(
            words.map(quoted),
            ["--type=merge", r#"'{"spec":{"who":"My Name"}}'"#, r"'it'\''s'", "''"]
        );
    }
}
