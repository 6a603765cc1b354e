//! Runs tests side by side on one control plane, with the command line and the closing line of Rust's own test runner.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use acceptance::figures::Figure;
use acceptance::fixture::Fixture;
use acceptance::paths;
use acceptance::wait::elapsed;
use anyhow::{Context, Result, anyhow, bail};
use futures_util::FutureExt;
use metahook_core::shorten_middle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::attacks::{self, Report};
use crate::control_planes::{ControlPlanes, Place, Plane};

/// More side by side only slow each other down on two cores.
const SIDE_BY_SIDE: usize = 6;

/// A test that takes longer hangs.
const LIMIT: Duration = Duration::from_mins(15);

/// A test of an experiment's long form that takes longer hangs.
const LONG_LIMIT: Duration = Duration::from_mins(20);

/// Bytes of why a test failed, in the list at the end.
const LONGEST_REASON: usize = 500;

/// Body of a test, with the fixture that it has to itself.
pub(crate) type Body = for<'a> fn(&'a mut Fixture) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// A test and its title, a sentence.
#[derive(Clone, Copy)]
pub(crate) struct Test {
    pub(crate) title: &'static str,
    pub(crate) body: Body,
    pub(crate) place: Place,
    /// The server may do what the manifests and `metahook rbac` allow, and no more.
    pub(crate) has_least_rights: bool,
    pub(crate) with_helm: bool,
    /// Paths of programs on this machine without which nothing can be tested.
    pub(crate) programs: &'static [&'static str],
    /// The languages of its scripts.
    pub(crate) languages: &'static [&'static str],
}

impl Test {
    /// Runs the test on a control plane with a node; skipped where there can be none.
    pub(crate) fn on_a_node(self) -> Self {
        Self { place: Place::WithNode, ..self }
    }

    /// Runs the test away from other tests.
    pub(crate) fn apart(self) -> Self {
        Self { place: Place::Apart, ..self }
    }

    /// Runs the test with a server that has no right but those that it needs.
    pub(crate) fn with_least_rights(self) -> Self {
        Self { has_least_rights: true, ..self }
    }

    /// Skipped where Helm can neither be found nor built.
    pub(crate) fn with_helm(self) -> Self {
        Self { with_helm: true, ..self }
    }

    /// Skipped where one of these is missing.
    pub(crate) fn with_programs(self, programs: &'static [&'static str]) -> Self {
        Self { programs, ..self }
    }

    /// Skipped where one of these languages has no runner.
    pub(crate) fn with_runners(self, languages: &'static [&'static str]) -> Self {
        Self { languages, ..self }
    }

    fn missing_runner(&self) -> Result<Option<&'static str>> {
        for language in self.languages {
            if paths::runner(language)?.is_none() {
                return Ok(Some(language));
            }
        }
        Ok(None)
    }

    fn missing_program(&self) -> Option<&'static str> {
        self.programs.iter().copied().find(|program| !Path::new(program).exists())
    }
}

/// How a test ended that did not fail.
enum Ended {
    Passed,
    /// Why.
    Skipped(String),
}

/// Lists functions as tests, by modules that are in scope: `tests![composite::{a_sentence, another}]`.
macro_rules! tests {
    ($($module:ident::{$($name:ident),* $(,)?}),* $(,)?) => {
        vec![$($(crate::runner::Test {
            title: concat!(stringify!($module), "::", stringify!($name)),
            body: |fixture| Box::pin($module::$name(fixture)),
            place: $crate::control_planes::Place::Plain,
            has_least_rights: false,
            with_helm: false,
            programs: &[],
            languages: &[],
        },)*)*]
    };
}
pub(crate) use tests;

/// Tests and options that the command line asks for.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) what: What,
    /// The logs stay even if all is well.
    pub(crate) keep_logs: bool,
    pub(crate) attack: Attack,
    exact: bool,
    filters: Vec<String>,
    skips: Vec<String>,
    side_by_side: Option<usize>,
}

/// How the experiments run.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Attack {
    /// In their short form.
    pub(crate) short: bool,
    /// Their table is JSON.
    json: bool,
    repeat: Option<usize>,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) enum What {
    #[default]
    Run,
    /// Only the titles.
    List,
    /// Only the control plane, until the process is ended.
    Hold,
    /// Only one with a node.
    HoldNode,
    /// Only the experiments, one after the other, with a table of their figures at the end.
    Attack,
}

impl Wanted {
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let mut wanted = Self::default();
        while let Some(arg) = args.next() {
            let (flag, given) = match arg.split_once('=') {
                Some((flag, value)) if flag.starts_with("--") => (flag, Some(value.to_owned())),
                _ => (arg.as_str(), None),
            };
            let mut value =
                || given.clone().or_else(|| args.next()).with_context(|| format!("{flag} wants a value"));
            match flag {
                "--list" => wanted.what = What::List,
                "--keep-logs" => wanted.keep_logs = true,
                "--hold" => wanted.what = What::Hold,
                "--hold-node" => wanted.what = What::HoldNode,
                "--attack" => wanted.what = What::Attack,
                "--short" => wanted.attack.short = true,
                "--json" => wanted.attack.json = true,
                "--repeat" => wanted.attack.repeat = Some(value()?.parse().context("--repeat")?),
                "--exact" => wanted.exact = true,
                "--skip" => wanted.skips.push(value()?),
                "--test-threads" => wanted.side_by_side = Some(value()?.parse().context("--test-threads")?),
                "--nocapture" | "--no-capture" | "--quiet" | "-q" => {}
                _ if flag.starts_with('-') => bail!("this suite does not know {flag}"),
                _ => wanted.filters.push(arg),
            }
        }
        Ok(wanted)
    }

    fn wants(&self, title: &str) -> bool {
        let named = |pattern: &String| {
            if self.exact { title == pattern } else { title.contains(pattern.as_str()) }
        };
        (self.filters.is_empty() || self.filters.iter().any(named)) && !self.skips.iter().any(named)
    }

    /// Tests that are asked for, of all.
    pub(crate) fn pick(&self, all: &[Test]) -> Vec<Test> {
        all.iter().copied().filter(|test| self.wants(test.title)).collect()
    }

    fn side_by_side(&self) -> usize {
        let usual = if self.what == What::Attack { 1 } else { SIDE_BY_SIDE };
        self.side_by_side.unwrap_or(usual).max(1)
    }
}

/// Runs the tests; says how each ended, then why some failed, then the sums. True if none failed.
pub(crate) async fn run(planes: &Arc<ControlPlanes>, wanted: &Wanted, all: &[Test]) -> bool {
    let start = Instant::now();
    let picked = wanted.pick(all).repeat(wanted.attack.repeat.unwrap_or(1));
    let permits = Arc::new(Semaphore::new(wanted.side_by_side()));
    let mut running = JoinSet::new();
    let alone = wanted.what == What::Attack && wanted.side_by_side() == 1;
    println!("\nrunning {} tests", picked.len());
    for test in &picked {
        let (test, planes, permits) = (*test, Arc::clone(planes), Arc::clone(&permits));
        running.spawn(async move {
            let _permit = permits.acquire_owned().await;
            let start = Instant::now();
            let (figures, result) = one(test, &planes, alone).await;
            let how = match &result {
                Ok(Ended::Passed) => "ok".to_owned(),
                Ok(Ended::Skipped(why)) => format!("ignored, {why}"),
                Err(_) => "FAILED".to_owned(),
            };
            println!("test {} ... {how} ({})", test.title, elapsed(start));
            let failure = result.as_ref().err().map(|why| format!("{why:#}"));
            let skipped = match &result {
                Ok(Ended::Skipped(why)) => Some(why.clone()),
                Ok(Ended::Passed) | Err(_) => None,
            };
            let report = Report { title: test.title, took: start.elapsed(), figures, failure, skipped };
            (report, result.map_err(|why| (test.title, why)))
        });
    }
    let (mut reports, ended): (Vec<_>, Vec<_>) = running.join_all().await.into_iter().unzip();
    if wanted.what == What::Attack {
        reports.sort_by_key(|report| report.title);
        println!("\n{}", attacks::table(&reports, wanted.attack.json));
    }
    let skipped = ended.iter().filter(|ended| matches!(ended, Ok(Ended::Skipped(_)))).count();
    let failures: Vec<_> = ended.into_iter().filter_map(Result::err).collect();
    close(&failures, skipped, picked.len(), all.len(), start);
    failures.is_empty()
}

/// `alone`: nothing else runs meanwhile.
async fn one(test: Test, planes: &ControlPlanes, alone: bool) -> (Vec<Figure>, Result<Ended>) {
    if let Some(program) = test.missing_program() {
        return (Vec::new(), Ok(Ended::Skipped(format!("no {program}"))));
    }
    match test.missing_runner() {
        Ok(None) => {}
        Ok(Some(language)) => {
            let why = format!("no runner for {language}: `cargo xtask runners {language}` says why");
            return (Vec::new(), Ok(Ended::Skipped(why)));
        }
        Err(why) => return (Vec::new(), Err(why)),
    }
    let plane = match planes.get(test.place).await {
        Ok(Ok(plane)) => plane,
        Ok(Err(missing)) => return (Vec::new(), Ok(Ended::Skipped(format!("no node: {missing}")))),
        Err(why) => return (Vec::new(), Err(why)),
    };
    if test.with_helm
        && let Err(why) = planes.helm().await
    {
        return (Vec::new(), Ok(Ended::Skipped(format!("no Helm: {why}"))));
    }
    let Plane { plane, client } = plane;
    match Fixture::new(plane, client, test.title).await {
        Ok(mut fixture) => {
            if alone {
                fixture.measure_time();
            }
            let result = on(test, &mut fixture).await;
            (fixture.take_figures(), result.map(|()| Ended::Passed))
        }
        Err(why) => (Vec::new(), Err(why)),
    }
}

async fn on(test: Test, fixture: &mut Fixture) -> Result<()> {
    let limit = attacks::form(LIMIT, LONG_LIMIT);
    let body = async {
        if test.has_least_rights {
            fixture.with_least_rights().await?;
        }
        (test.body)(fixture).await
    };
    let body = AssertUnwindSafe(body).catch_unwind();
    let result = match tokio::time::timeout(limit, body).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => Err(anyhow!("panicked: {}", message(panic.as_ref()))),
        Err(_) => Err(anyhow!("took longer than {} s", limit.as_secs())),
    };
    fixture.end(result).await
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

fn close(failures: &[(&str, anyhow::Error)], skipped: usize, ran: usize, all: usize, start: Instant) {
    if !failures.is_empty() {
        println!("\nfailures:");
    }
    for (title, why) in failures {
        println!("\n---- {title} ----");
        for cause in why.chain().skip(1).chain(why.chain().take(1)) {
            println!("{cause}");
        }
    }
    println!(
        "\ntest result: {}. {} passed; {} failed; {skipped} ignored; 0 measured; {} filtered out; finished in {:.2}s\n",
        if failures.is_empty() { "ok" } else { "FAILED" },
        ran - skipped - failures.len(),
        failures.len(),
        all.saturating_sub(ran),
        start.elapsed().as_secs_f64(),
    );
    // Once more and short: the end of a long log is what a reader sees first.
    for (title, why) in failures {
        let why = why.root_cause().to_string().replace('\n', "; ");
        println!("failed: {title}: {}", shorten_middle(&why, LONGEST_REASON));
    }
}
