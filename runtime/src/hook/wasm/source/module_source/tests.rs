//! Tests of what a ConfigMap holds under a key, and of the way to a version that is kept.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Response;
use k8s_openapi::ByteString;
use metahook_core::api::kept::KeptBounds;
use metahook_core::api::policy::LimitBounds;
use metahook_core::object::Object;
use serde_json::json;

use super::*;
use crate::cluster::fake;
use crate::hook::wasm::compile::ModuleSettings;
use crate::hook::wasm::run::RuntimeSettings;

fn hook(json: &str) -> Result<Content, String> {
    content(config_map("n", "m"), "hook.wasm".to_owned(), json, 1 << 20).map_err(|error| error.to_string())
}

#[test]
fn bytes_come_from_binary_data_and_else_from_data() {
    let both = r#"{"binaryData":{"hook.wasm":"AGFzbQ=="},"data":{"hook.wasm":"text"}}"#;
    assert_eq!(hook(both), Ok(Content::Plain(b"\0asm".to_vec())));
    assert_eq!(hook(r#"{"data":{"hook.wasm":"text"}}"#), Ok(Content::Plain(b"text".to_vec())));
}

#[test]
fn a_missing_key_is_an_error_that_names_the_others() {
    assert_eq!(
        hook(r#"{"binaryData":{"a.wasm":""},"data":{"b":""}}"#).unwrap_err(),
        "the ConfigMap n/m has no key \"hook.wasm\" in binaryData or data; it has a.wasm, b"
    );
    assert!(hook("{}").unwrap_err().ends_with("it has no keys at all"));
}

#[test]
fn an_index_names_the_parts_and_stands_alone() {
    let index = Index::of("m", &"0".repeat(64), 1000, 2);
    let text = json!(index).to_string();
    let map =
        |extra: serde_json::Value| json!({"data": {"hook.wasm.json": text}, "binaryData": extra}).to_string();
    assert_eq!(hook(&map(json!({}))), Ok(Content::Packed(index)));
    assert_eq!(
        hook(&map(json!({"hook.wasm": "AGFzbQ=="}))).unwrap_err(),
        "the ConfigMap n/m has both \"hook.wasm\", a module, and \"hook.wasm.json\", the index of one: remove one of the keys"
    );
    assert_eq!(
        hook(r#"{"data":{"hook.wasm.json":"{}"}}"#).unwrap_err(),
        "ConfigMap n/m, key \"hook.wasm.json\": it is not the JSON of an index (missing field `sha256` at line 1 column 2): write it with `metahook pack`"
    );
}

fn registry(compiler: impl Into<PathBuf>) -> Arc<ModuleRegistry> {
    let (limits, modules) = (LimitBounds::default(), ModuleSettings::new(compiler));
    Arc::new(ModuleRegistry::new(&RuntimeSettings { concurrency: 1, limits, modules }).unwrap())
}

fn spec() -> ModuleRef {
    let [namespace, name, key] = ["n", "m", "hook.wasm"].map(str::to_owned);
    ModuleRef { language: None, namespace, name, key, sha256: None, reader: None }
}

/// A program that finds no memory once, and then puts out what it is to compile to.
fn failing_once(folder: &std::path::Path, artifact: &[u8]) -> PathBuf {
    let (text, program, output) = (folder.join("text"), folder.join("compiler"), folder.join("artifact"));
    let failed = folder.join("failed");
    std::fs::write(&output, artifact).unwrap();
    let script = format!(
        "#!/bin/sh\n/bin/cat >/dev/null\nif [ -e {0} ]; then exec /bin/cat {1}; fi\n: >{0}\necho memory allocation of 8 bytes failed >&2\nexit 1\n",
        failed.display(),
        output.display()
    );
    std::fs::write(&text, script).unwrap();
    // This process never has the program open: another test that starts one would keep it open, and nothing could run it.
    let install = format!("cp {0} {1} && chmod +x {1}", text.display(), program.display());
    assert!(std::process::Command::new("/bin/sh").args(["-c", &install]).status().unwrap().success());
    program
}

#[tokio::test]
async fn a_module_whose_compiler_had_no_memory_is_loaded_later_without_an_edit() {
    let module = wat::parse_str(r#"(module (memory (export "memory") 1) (func (export "_start")))"#).unwrap();
    let artifact = registry("none").runtime().engines.modules.precompile_module(&module).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(failing_once(folder.path(), &artifact));
    let stored = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"},
        "binaryData": {"hook.wasm": ByteString(module)},
    });
    let stored = Object::parse(&stored.to_string(), None).unwrap();
    let stored = watch::Sender::new(ReferenceState::There(Arc::new(stored)));
    let objects = Arc::new(ObjectWatches::new(fake::answering(|_| None)));
    let loader = Loader::new(objects, Arc::clone(&registry), spec(), "c");
    let loader = Loader { map: Follower::fed_by(&stored), ..loader };
    let (state, mut published) = watch::channel(ModuleState::default());
    let _task = AbortOnDropHandle::new(tokio::spawn(loader.run(state)));
    let failed = published.wait_for(|state| state.problem.is_some()).await.unwrap().problem.clone().unwrap();
    assert!(failed.may_heal() && failed.to_string().contains("memory"), "{failed}");
    // A child process does not wait for a paused clock.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(10)).await;
    tokio::time::resume();
    let serves = published.wait_for(|state| state.module.is_some() && state.problem.is_none());
    tokio::time::timeout(Duration::from_secs(30), serves).await.unwrap().unwrap();
    assert_eq!(registry.compilations(), 2);
}

#[tokio::test(start_paused = true)]
async fn kept_versions_that_cannot_be_listed_are_asked_for_again() {
    let asked = Arc::new(AtomicUsize::new(0));
    let lists = Arc::clone(&asked);
    let api = fake::answering(move |request| {
        request.uri().query().filter(|query| query.contains("labelSelector"))?;
        let status = if lists.fetch_add(1, Ordering::Relaxed) == 0 { 500 } else { 200 };
        Response::builder().status(status).body(r#"{"metadata":{},"items":[]}"#.to_owned()).ok()
    });
    let (registry, spec) = (registry("no compiler"), spec());
    let owners = watch::Sender::new(BTreeSet::from([Owner::named("c", "1")]));
    let versions = Arc::new(KeptVersions::new(api.clone(), KeptBounds::default()));
    let keeper = Keeper::new(versions, spec.clone(), owners.subscribe(), watch::Sender::new(None));
    let bad = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"hook.wasm":"none"}}"#;
    let stored = ReferenceState::There(Arc::new(Object::parse(bad, None).unwrap()));
    let stored = watch::Sender::new(stored);
    let loader = Loader::new(Arc::new(ObjectWatches::new(api)), registry, spec, "c");
    let loader = Loader { map: Follower::fed_by(&stored), keeper: Some(keeper), ..loader };
    let (state, mut published) = watch::channel(ModuleState::default());
    let _task = AbortOnDropHandle::new(tokio::spawn(loader.run(state)));
    published.wait_for(|state| state.problem.is_some()).await.unwrap();
    let before = asked.load(Ordering::Relaxed);
    while asked.load(Ordering::Relaxed) == before {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(asked.load(Ordering::Relaxed), before + 1, "nothing is kept");
}

#[test]
fn a_source_that_is_refused_again_and_again_is_loaded_less_often() {
    let seconds = |refusals| pause(refusals).as_secs();
    assert_eq!([0, 1, 10, 11, 12, 13, 14, u32::MAX].map(seconds), [0, 0, 0, 1, 2, 4, 8, 8]);
}
