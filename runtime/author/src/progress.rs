//! Progress of commands: a command names on stderr each step that takes longer than a second, or than five where stderr is no
//! terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::time::Instant;

use metahook_server::sync::lock;
use metahook_server::telemetry::escape;

/// A step that ends sooner is not shown.
const TOLD_AFTER: Duration = Duration::from_secs(1);

/// Nor is one that ends sooner than this, where stderr is no terminal, but a log for example.
const LOGGED_AFTER: Duration = Duration::from_secs(5);

/// Where a command names its long steps, and after which time; nowhere by default.
#[derive(Clone, Default)]
pub struct Progress {
    to: Option<Arc<Mutex<dyn Write + Send>>>,
    after: Duration,
}

/// A step under way, until it is dropped.
#[must_use = "the step ends when this is dropped"]
pub struct Step(Option<(mpsc::Sender<()>, JoinHandle<()>)>);

/// Items of a step that are done, one after the other.
pub struct DoneItems {
    progress: Progress,
    total: usize,
    done: usize,
    shown_at: Instant,
}

/// A wait whose reason may change.
pub(crate) struct WaitStep {
    progress: Progress,
    since: Instant,
    told: String,
}

impl Progress {
    /// Steps are shown on stderr.
    pub fn of_stderr() -> Self {
        let after = if io::stderr().is_terminal() { TOLD_AFTER } else { LOGGED_AFTER };
        Self { to: Some(Arc::new(Mutex::new(io::stderr()))), after }
    }

    /// `what` is done, for example "compiling hook.wasm".
    pub fn step(&self, what: impl Into<String>) -> Step {
        self.step_after(self.after, what.into())
    }

    /// A thread tells: the step may leave this one no time.
    fn step_after(&self, delay: Duration, what: String) -> Step {
        if self.to.is_none() {
            return Step(None);
        }
        let ((done, ended), progress) = (mpsc::channel(), self.clone());
        let teller = move || {
            if ended.recv_timeout(delay) == Err(RecvTimeoutError::Timeout) {
                progress.tell(&what);
            }
        };
        // Without a thread the step is just not told.
        Step(thread::Builder::new().spawn(teller).ok().map(|teller| (done, teller)))
    }

    /// Begins to count done items, of `total`.
    pub fn done_items(&self, total: usize) -> DoneItems {
        DoneItems { progress: self.clone(), total, done: 0, shown_at: Instant::now() }
    }

    pub(crate) fn waiting(&self) -> WaitStep {
        WaitStep { progress: self.clone(), since: Instant::now(), told: String::new() }
    }

    /// Who cannot read it loses nothing.
    fn tell(&self, what: &str) {
        self.note(&format!("{what} …"));
    }

    /// Shows at once what a user waits for.
    pub(crate) fn note(&self, what: &str) {
        if let Some(to) = &self.to {
            drop(writeln!(lock(to), "metahook: {}", escape(what)));
        }
    }
}

impl DoneItems {
    /// Another one is done. `what` they are, for example "parents compared".
    pub fn add(&mut self, what: &str) {
        self.done += 1;
        if self.shown_at.elapsed() >= self.progress.after && self.done < self.total {
            self.progress.tell(&format!("{} of {} {what}", self.done, self.total));
            self.shown_at = Instant::now();
        }
    }
}

impl WaitStep {
    /// Tells each reason once.
    pub(crate) fn because(&mut self, why: &str) {
        if self.since.elapsed() >= self.progress.after && self.told != why {
            self.progress.tell(why);
            why.clone_into(&mut self.told);
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some((done, teller)) = self.0.take() {
            drop(done);
            drop(teller.join());
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Progress, and what it has told so far.
    pub(crate) fn recorded() -> (Progress, impl Fn() -> String) {
        let told = Arc::new(Mutex::new(Vec::new()));
        let to: Arc<Mutex<dyn Write + Send>> = Arc::clone(&told) as _;
        (Progress { to: Some(to), after: TOLD_AFTER }, move || {
            String::from_utf8(lock(&told).clone()).unwrap()
        })
    }

    #[test]
    fn a_step_that_goes_on_is_told_once() {
        let (progress, told) = recorded();
        let step = progress.step_after(Duration::ZERO, "compiling \u{1b}[2J".to_owned());
        while told().is_empty() {
            thread::yield_now();
        }
        drop(step);
        assert_eq!(told(), "metahook: compiling \\u{1b}[2J …\n");
        drop(progress.step_after(Duration::from_hours(1), "ended before".to_owned()));
        assert_eq!(told().lines().count(), 1);
        assert!(Progress::default().step("nowhere").0.is_none(), "no thread is started");
    }

    #[tokio::test(start_paused = true)]
    async fn items_that_are_done_are_counted_once_a_second() {
        let (progress, told) = recorded();
        let mut items = progress.done_items(5);
        for millis in [400, 700, 10, 1500, 2000] {
            tokio::time::advance(Duration::from_millis(millis)).await;
            items.add("parents compared");
        }
        assert_eq!(
            told(),
            "metahook: 2 of 5 parents compared …\nmetahook: 4 of 5 parents compared …\n",
            "the end needs no line"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_tells_each_reason_that_lasts_longer_than_a_second() {
        let (progress, told) = recorded();
        let mut waiting = progress.waiting();
        waiting.because("at first");
        tokio::time::advance(TOLD_AFTER).await;
        for why in ["one", "one", "another"] {
            waiting.because(why);
        }
        assert_eq!(told(), "metahook: one …\nmetahook: another …\n");
    }
}
