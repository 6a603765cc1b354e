//! Hooks as people write them are pure unless they ask what time it is, whatever their language does at its start.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use acceptance::fixture::Fixture;
use acceptance::paths;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use metahook_core::api::hook::Language;
use metahook_core::api::policy::{LimitBounds, Limits};
use metahook_core::hook::Usage;
use metahook_server::hook::wasm::compile::ModuleSettings;
use metahook_server::hook::wasm::run::{
    Call, Called, Files, Module, MountedFolder, Reservation, RuntimeSettings, Seed,
};
use metahook_server::hook::wasm::source::ModuleRegistry;
use serde_json::{Value, json};
use tokio::sync::{Mutex, OnceCell};

/// A guest that can be called, on a runtime of its own.
pub(crate) struct Probe {
    registry: Arc<ModuleRegistry>,
    module: Arc<Module>,
}

/// Answer of a probe.
pub(crate) struct Answer {
    pub(crate) status: Value,
    pub(crate) pure: bool,
    pub(crate) log: String,
    usage: Usage,
}

impl Probe {
    pub(crate) async fn load(name: &str) -> Result<Self> {
        Self::load_file(&paths::guest(name)?).await
    }

    pub(crate) async fn load_component(name: &str) -> Result<Self> {
        Self::load_file(&paths::component(name)?).await
    }

    async fn load_file(path: &Path) -> Result<Self> {
        let mut modules = ModuleSettings::new(paths::server()?);
        modules.bounds.compile_time = Duration::from_mins(10); // a large probe on a busy machine
        let settings = RuntimeSettings { concurrency: 1, limits: LimitBounds::default(), modules };
        let registry = Arc::new(ModuleRegistry::new(&settings)?);
        let module = registry.load(fs::read(path)?).await?;
        Ok(Self { registry, module })
    }

    /// A script, whose interpreter is compiled once for all tests.
    pub(crate) async fn load_script(language: Language, file: &str, source: &str) -> Result<Self> {
        static SHARED: OnceCell<Arc<ModuleRegistry>> = OnceCell::const_new();
        // An interpreter is loaded for as long as a script uses it.
        static LOADED: Mutex<Vec<Arc<Module>>> = Mutex::const_new(Vec::new());
        let registry = SHARED.get_or_try_init(async || {
            let mut modules = ModuleSettings::new(paths::server()?);
            modules.runners = Some(paths::runners()?);
            let settings = RuntimeSettings { concurrency: 2, limits: LimitBounds::default(), modules };
            Ok::<_, anyhow::Error>(Arc::new(ModuleRegistry::new(&settings)?))
        });
        let registry = Arc::clone(registry.await?);
        let module = registry.load_script(language, file, source.as_bytes().to_vec()).await?;
        LOADED.lock().await.push(Arc::clone(&module));
        Ok(Self { registry, module })
    }

    /// Calls it `seconds` after 1970.
    pub(crate) async fn call(&self, request: &Value, seed: u8, seconds: u64) -> Result<Answer> {
        self.call_with(&[], request, (seed, seconds)).await
    }

    /// Calls the probe with mounts.
    pub(crate) async fn call_with(
        &self,
        mounts: &[MountedFolder],
        request: &Value,
        (seed, seconds): (u8, u64),
    ) -> Result<Answer> {
        let Called { answer, log, usage, pure } = self.called(mounts, request, (seed, seconds)).await;
        let answer: Value = serde_json::from_slice(&answer.with_context(|| log.text.clone())?)?;
        Ok(Answer { status: answer["status"].clone(), pure, log: log.text, usage })
    }

    /// Error of a call that has to fail.
    pub(crate) async fn failure(&self, request: &Value) -> Result<String> {
        let failed = self.called(&[], request, (1, 1)).await.answer.err();
        Ok(failed.with_context(|| format!("{request} has an answer"))?.to_string())
    }

    async fn called(&self, mounts: &[MountedFolder], request: &Value, (seed, seconds): (u8, u64)) -> Called {
        let call = Call {
            controller: "probe",
            hook: "sync",
            is_of_shadow: false,
            request: Bytes::from(request.to_string()),
            now: UNIX_EPOCH + Duration::from_secs(seconds),
            limits: limits(),
            seed: Seed([seed; 32]),
            mounts,
            memory: Reservation::default(),
        };
        self.registry.runtime().call(&self.module, call).await
    }
}

/// The default limits, with the longest timeout: the machine may be busy.
fn limits() -> Limits {
    let LimitBounds { default, ceiling } = LimitBounds::default();
    Limits { timeout: ceiling.timeout, ..default }
}

pub(crate) fn request() -> Value {
    let parent = json!({
        "apiVersion": "example.com/v1",
        "kind": "Probe",
        "metadata": { "name": "a", "namespace": "default", "uid": "1" },
        "spec": { "numbers": [1, 2, 3], "text": "hi" }
    });
    json!({ "controller": {}, "parent": parent, "children": {}, "finalizing": false })
}

pub(crate) fn with_settings(settings: Value) -> Value {
    let mut request = request();
    request["settings"] = settings;
    request
}

/// A mount with two files.
pub(crate) fn mount() -> [MountedFolder; 1] {
    let file = |name: &str, text: &'static str| (name.to_owned(), Bytes::from_static(text.as_bytes()));
    let files = Files::from([file("name", "World"), file("greeting", "Hello")]).into();
    [MountedFolder { path: "/etc/greeting".to_owned(), files }]
}

/// 26 letters in the order of a map: the same at each call, another with another seed.
pub(crate) async fn has_an_order_of_its_seed(probe: &Probe) -> Result<Answer> {
    let first = probe.call(&request(), 1, 1).await?;
    let again = probe.call(&request(), 1, 2_000_000_000).await?;
    let other = probe.call(&request(), 2, 1).await?;
    let order = |answer: &Answer| answer.status["order"].as_str().map(str::to_owned);
    let mut letters: Vec<char> = order(&first).context("no order")?.chars().collect();
    letters.sort_unstable();
    ensure!(letters.iter().copied().eq('a'..='z'), "{}", first.status);
    ensure!(first.status == again.status, "{} and then {}", first.status, again.status);
    ensure!(order(&first) != order(&other), "two seeds, one order: {}", first.status);
    ensure!(first.pure && again.pure && other.pure, "not pure: {}", first.status);
    Ok(first)
}

pub(crate) async fn a_rust_hook_with_a_hash_map_is_pure(_: &mut Fixture) -> Result<()> {
    has_an_order_of_its_seed(&Probe::load("probe_hashmap").await?).await.map(drop)
}

pub(crate) async fn a_rust_hook_that_asks_for_the_time_is_not_pure(_: &mut Fixture) -> Result<()> {
    let probe = Probe::load("probe_clock").await?;
    let answer = probe.call(&request(), 1, 1_000_000).await?;
    ensure!(answer.status == json!({ "seconds": 1_000_000 }), "{}", answer.status);
    ensure!(!answer.pure, "it knows what time it is");
    Ok(())
}

/// One test for all of it, since a Go module takes seconds to compile.
pub(crate) async fn a_go_hook_sleeps_at_once_reads_its_mount_and_is_pure_until_it_logs_the_time(
    _: &mut Fixture,
) -> Result<()> {
    let probe = Probe::load("probe_go").await?;
    let answer = has_an_order_of_its_seed(&probe).await?;
    ensure!(answer.status["spec"] == request()["parent"]["spec"], "{}", answer.status);
    ensure!(answer.log.is_empty(), "it said {}", answer.log);
    let limits = limits();
    let Usage { instructions, memory } = answer.usage;
    ensure!(instructions < limits.instructions / 10 && memory < limits.memory, "{:?}", answer.usage);

    let reads = with_settings(json!({ "mount": "/etc/greeting" }));
    let answer = probe.call_with(&mount(), &reads, (1, 1)).await?;
    ensure!(answer.status["files"] == json!({ "name": "World", "greeting": "Hello" }), "{}", answer.status);
    ensure!(answer.pure, "to read is not to know the time");

    let answer = probe.call(&with_settings(json!({ "log": true })), 1, 1_000_000).await?;
    ensure!(answer.log == "1970/01/12 13:46:40 asked\n", "{}", answer.log);
    ensure!(!answer.pure, "it knows what time it is");
    Ok(())
}

/// 44 is `noent`, which a C library says itself where no mount fits; 63 is `perm`, 69 `rofs`.
pub(crate) async fn a_rust_hook_reads_its_mounts_and_changes_nothing(_: &mut Fixture) -> Result<()> {
    let probe = Probe::load("probe_files").await?;
    let expected = json!({
        "names": ["greeting", "name"],
        "content": "World",
        "end": "ld",
        "told": [5, 5, 0],
        "refused": [69, 69, 69, 69, 69, 63, 44, 44]
    });
    for seconds in [1, 2] {
        let answer = probe.call_with(&mount(), &request(), (1, seconds)).await?;
        ensure!(answer.status == expected, "{}", answer.status);
        ensure!(answer.pure, "to read is not to know the time");
    }
    Ok(())
}
