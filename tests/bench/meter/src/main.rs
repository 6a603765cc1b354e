//! Calls hooks in this process and says how long each call took: asked line by line on stdin by `cargo xtask bench`.
//!
//! ```text
//! answer MODULE REQUEST COUNT                  from the bytes of a request to its decoded answer
//! run MODULE REQUEST COUNT                     the same without the answer
//! compile MODULE COUNT                         from the bytes of a module to one that can be called
//! beside NEIGHBOUR MODULE REQUEST MILLISECONDS as `answer`, by each worker of a controller for so long, while those of
//!                                              another one call the neighbour again and again; `-` is no neighbour
//! ```
//!
//! Each is answered by one line of nanoseconds.
#![allow(clippy::print_stdout, reason = "its answers")]

use std::collections::BTreeMap;
use std::fs;
use std::io::stdin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use metahook::cli::{Cli, Command};
use metahook::hook::wasm::module::{Module, Runtime};
use metahook::hook::wasm::run::{Call, Seed};
use metahook::server::Settings;
use metahook_core::protocol::response::{self, Mode};
use metahook_core::spec::hook::Limits;
use tokio::task::JoinSet;

/// As in the server: a call runs on one of its threads.
#[tokio::main]
async fn main() -> Result<()> {
    let Cli { command: Command::Serve(serve) } = Cli::read(["metahook", "serve"].map(Into::into));
    metahook::start_log(&serve)?;
    let settings = serve.settings()?;
    let mut meter =
        Meter { runtime: runtime(&settings)?, settings, modules: BTreeMap::new(), requests: BTreeMap::new() };
    for line in stdin().lines() {
        let line = line?;
        let times = meter.answer(&line).await.with_context(|| format!("{line:?}"))?;
        let words: Vec<String> = times.iter().map(|time| time.as_nanos().to_string()).collect();
        println!("{}", words.join(" "));
    }
    Ok(())
}

struct Meter {
    /// Those of a server without flags.
    settings: Settings,
    runtime: Arc<Runtime>,
    modules: BTreeMap<String, Arc<Module>>,
    requests: BTreeMap<String, Bytes>,
}

/// What is called, by whom, and whether its answer counts.
#[derive(Clone)]
struct Subject {
    runtime: Arc<Runtime>,
    module: Arc<Module>,
    request: Bytes,
    limits: Limits,
    controller: &'static str,
    answers: bool,
}

impl Meter {
    async fn answer(&mut self, line: &str) -> Result<Vec<Duration>> {
        let words: Vec<&str> = line.split(' ').collect();
        match *words.as_slice() {
            [way @ ("answer" | "run"), module, request, count] => {
                let subject = Subject { answers: way == "answer", ..self.subject(module, request).await? };
                let count = count.parse()?;
                tokio::spawn(async move { subject.times(count).await }).await?
            }
            ["compile", module, count] => self.compile(module, count.parse()?).await,
            ["beside", neighbour, module, request, time] => {
                let subject = self.subject(module, request).await?;
                let neighbour = match neighbour {
                    "-" => None,
                    module => {
                        Some(Subject { controller: "neighbour", ..self.subject(module, request).await? })
                    }
                };
                self.beside(neighbour, &subject, Duration::from_millis(time.parse()?)).await
            }
            _ => bail!("not a question"),
        }
    }

    /// A module that nobody uses any more is forgotten: each time it is compiled anew.
    async fn compile(&self, module: &str, count: usize) -> Result<Vec<Duration>> {
        let (runtime, bytes) = (runtime(&self.settings)?, wat::parse_file(module)?);
        let mut times = Vec::new();
        for _ in 0..count {
            let bytes = bytes.clone();
            let start = Instant::now();
            drop(runtime.load(bytes).await?);
            times.push(start.elapsed());
        }
        Ok(times)
    }

    async fn beside(
        &self,
        neighbour: Option<Subject>,
        subject: &Subject,
        time: Duration,
    ) -> Result<Vec<Duration>> {
        let workers = self.settings.workers;
        let mut others = JoinSet::new();
        for neighbour in neighbour.iter().flat_map(|neighbour| vec![neighbour.clone(); workers]) {
            others.spawn(async move {
                loop {
                    drop(neighbour.call().await);
                }
            });
        }
        let mut callers = JoinSet::new();
        for subject in vec![subject.clone(); workers] {
            callers.spawn(async move { subject.times_until(Instant::now() + time).await });
        }
        let mut times = Vec::new();
        while let Some(called) = callers.join_next().await {
            times.extend(called??);
        }
        others.shutdown().await;
        Ok(times)
    }

    async fn subject(&mut self, module: &str, request: &str) -> Result<Subject> {
        if !self.modules.contains_key(module) {
            let loaded = self.runtime.load(wat::parse_file(module)?).await?;
            self.modules.insert(module.to_owned(), loaded);
        }
        if !self.requests.contains_key(request) {
            let read = fs::read(request).with_context(|| format!("cannot read {request}"))?;
            self.requests.insert(request.to_owned(), read.into());
        }
        let (module, request) = (self.modules.get(module), self.requests.get(request));
        Ok(Subject {
            runtime: Arc::clone(&self.runtime),
            module: module.map(Arc::clone).context("no module")?,
            request: request.cloned().context("no request")?,
            limits: self.settings.hook_limits.default,
            controller: "hello-controller",
            answers: true,
        })
    }
}

/// As the server makes it.
fn runtime(settings: &Settings) -> Result<Arc<Runtime>> {
    Ok(Arc::new(Runtime::new(settings.hook_concurrency, &settings.hook_limits)?))
}

impl Subject {
    async fn times(&self, count: usize) -> Result<Vec<Duration>> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            self.call().await?;
            times.push(start.elapsed());
        }
        Ok(times)
    }

    /// At least one, however long it takes.
    async fn times_until(&self, end: Instant) -> Result<Vec<Duration>> {
        let mut times = self.times(1).await?;
        while Instant::now() < end {
            times.extend(self.times(1).await?);
        }
        Ok(times)
    }

    async fn call(&self) -> Result<()> {
        let call = Call {
            controller: self.controller,
            hook: "sync",
            request: self.request.clone(),
            limits: self.limits,
            seed: Seed::default(),
            mounts: &[],
        };
        let called = self.runtime.call(&self.module, call).await;
        let answer = called.answer.map_err(|error| anyhow!("{error}: {}", called.log.text))?;
        if self.answers {
            response::sync(&answer, Mode::Loose)?;
        }
        Ok(())
    }
}
