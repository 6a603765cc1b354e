//! Calls hooks in this process and says how long each call took: asked line by line on stdin by `cargo xtask bench`.
//!
//! ```text
//! answer MODULE REQUEST COUNT                  from the bytes of a request to its decoded answer
//! run MODULE REQUEST COUNT                     the same without the answer
//! compile MODULE COUNT                         from the bytes of a module to one that can be called
//! cached FOLDER MODULE COUNT                   the same with what was compiled and kept in the folder
//! guest MODULE REQUEST                         of a hook that is loaded anew, as `Meter::guest` says
//! runners                                      compiles the interpreters of scripts where no code lies beside them
//! beside NEIGHBOUR MODULE REQUEST MILLISECONDS as `answer`, by each worker of a controller for so long, while those of
//!                                              another one call the neighbour again and again; `-` is no neighbour
//! ```
//!
//! Each is answered by one line of nanoseconds.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "its answers, and why there are none")]

use std::collections::BTreeMap;
use std::fs;
use std::io::stdin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use metahook::{Cli, Command};
use metahook_core::api::ControllerKind;
use metahook_core::api::hook::{HookTransport, Language};
use metahook_core::api::policy::Limits;
use metahook_core::hook::MAX_ANSWER_MEMORY;
use metahook_core::hook::read::ReadOptions;
use metahook_core::hook::response::{self, Mode};
use metahook_server::hook::wasm::compile::{ModuleSettings, Origin, SealKey};
use metahook_server::hook::wasm::run::{Call, Called, Module, Reservation, RuntimeSettings, Seed};
use metahook_server::hook::wasm::source::ModuleRegistry;
use metahook_server::server::Settings;
use tokio::task::JoinSet;

/// As in the server: what it starts to compile is itself, and a call runs on one of its threads.
fn main() -> ExitCode {
    metahook_server::compile(std::env::args_os()).unwrap_or_else(|| match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-meter: {error:#}");
            ExitCode::FAILURE
        }
    })
}

#[tokio::main]
async fn measure() -> Result<()> {
    let Cli { command: Command::Serve(serve) } = Cli::read(["metahook", "serve"].map(Into::into)) else {
        bail!("no settings of a server");
    };
    metahook::start_log(&serve)?;
    let settings = serve.settings()?;
    let mut meter = Meter {
        registry: registry(&settings)?,
        settings,
        modules: BTreeMap::new(),
        requests: BTreeMap::new(),
    };
    for line in stdin().lines() {
        let line = line?;
        let times = meter.answer(&line).await.with_context(|| format!("{line:?}"))?;
        let words: Vec<String> = times.iter().map(|time| time.as_nanos().to_string()).collect();
        println!("{}", words.join(" "));
    }
    Ok(())
}

struct Meter {
    /// Settings of a server without flags.
    settings: Settings,
    registry: Arc<ModuleRegistry>,
    modules: BTreeMap<String, Arc<Module>>,
    requests: BTreeMap<String, Bytes>,
}

/// As the server's flag.
const MAX_CHILDREN: usize = 10_000;

/// A module with its request and caller, and whether its answer counts.
#[derive(Clone)]
struct Subject {
    registry: Arc<ModuleRegistry>,
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
            ["runners"] => {
                let start = Instant::now();
                self.registry.compile_runners().await?;
                Ok(vec![start.elapsed()])
            }
            ["guest", module, request] => self.guest(module, request).await,
            ["compile", module, count] => self.load(None, module, count.parse()?).await,
            ["cached", folder, module, count] => self.load(Some(folder), module, count.parse()?).await,
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

    /// Measures a hook that is loaded anew: nanoseconds to load it, those of its first call, instructions, bytes of
    /// memory, and 1 where it is pure.
    async fn guest(&self, module: &str, request: &str) -> Result<Vec<Duration>> {
        let registry = registry(&self.settings)?;
        let start = Instant::now();
        let loaded = load(&registry, module).await?;
        let took = start.elapsed();
        let request = fs::read(request)?.into();
        let subject = Subject {
            registry,
            module: loaded,
            request,
            limits: self.settings.hook_policy.limits.default,
            controller: "hello-controller",
            answers: true,
        };
        let start = Instant::now();
        let called = subject.called().await;
        let first = start.elapsed();
        let number = Duration::from_nanos;
        let usage = called.usage;
        Ok(vec![took, first, number(usage.instructions), number(usage.memory), number(called.pure.into())])
    }

    /// A module without a user is forgotten: each time it is loaded anew.
    async fn load(&self, cache: Option<&str>, module: &str, count: usize) -> Result<Vec<Duration>> {
        let mut settings = self.settings.clone();
        settings.modules.cache = cache.map(Into::into);
        let (registry, bytes) = (registry(&settings)?, wat::parse_file(module)?);
        // What is compiled is kept a moment after it serves.
        while cache.is_some() && matches!(registry.load(bytes.clone()).await?.origin, Origin::Compiled(_)) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let mut times = Vec::new();
        for _ in 0..count {
            let bytes = bytes.clone();
            let start = Instant::now();
            drop(registry.load(bytes).await?);
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
        let workers = self.settings.options.workers;
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
            let loaded = load(&self.registry, module).await?;
            self.modules.insert(module.to_owned(), loaded);
        }
        if !self.requests.contains_key(request) {
            let read = fs::read(request).with_context(|| format!("cannot read {request}"))?;
            self.requests.insert(request.to_owned(), read.into());
        }
        let (module, request) = (self.modules.get(module), self.requests.get(request));
        Ok(Subject {
            registry: Arc::clone(&self.registry),
            module: module.map(Arc::clone).context("no module")?,
            request: request.cloned().context("no request")?,
            limits: self.settings.hook_policy.limits.default,
            controller: "hello-controller",
            answers: true,
        })
    }
}

/// A module, or a script by the end of its name.
async fn load(registry: &Arc<ModuleRegistry>, path: &str) -> Result<Arc<Module>> {
    Ok(match Language::of_file(path) {
        Some(language) => registry.load_script(language, "hook", fs::read(path)?).await?,
        None => registry.load(wat::parse_file(path)?).await?,
    })
}

/// As the server makes it.
fn registry(settings: &Settings) -> Result<Arc<ModuleRegistry>> {
    Ok(Arc::new(ModuleRegistry::new(&RuntimeSettings {
        concurrency: settings.hook_concurrency,
        limits: settings.hook_policy.limits,
        modules: ModuleSettings { seal_key: Some(SealKey::of(b"bench")), ..settings.modules.clone() },
    })?))
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

    async fn called(&self) -> Called {
        let call = Call {
            controller: self.controller,
            hook: "sync",
            is_of_shadow: false,
            request: self.request.clone(),
            now: SystemTime::now(),
            limits: self.limits,
            seed: Seed::default(),
            mounts: &[],
            memory: Reservation::default(),
        };
        self.registry.runtime().call(&self.module, call).await
    }

    async fn call(&self) -> Result<()> {
        let called = self.called().await;
        let answer = called.answer.map_err(|error| anyhow!("{error}: {}", called.log.text))?;
        if self.answers {
            let reading = ReadOptions {
                kind: ControllerKind::Composite,
                via: HookTransport::Wasm,
                mode: Mode::Loose,
                max_children: MAX_CHILDREN,
                max_memory: MAX_ANSWER_MEMORY,
                deletes: true,
            };
            response::sync(&answer, reading)?;
        }
        Ok(())
    }
}
