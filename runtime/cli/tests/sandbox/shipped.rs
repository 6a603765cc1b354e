//! Runners that are compiled when they are built: their code is found, and never trusted when another user may have written it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::{Arc, Mutex};

use metahook_core::api::hook::Language;
use metahook_server::hook::wasm::compile::ModuleSettings;
use metahook_server::hook::wasm::source::{ModuleRegistry, RunnerCompilation};

use crate::{call, limits, modules, registry_with};

/// An interpreter whose bytecode is empty.
fn runner(number: u32) -> Vec<u8> {
    wat::parse_str(format!("(module (func (export \"_start\")) (func (drop (i32.const {number}))))")).unwrap()
}

fn registry(folder: &Path) -> Arc<ModuleRegistry> {
    registry_with(ModuleSettings { runners: Some(folder.to_owned()), ..modules() })
}

/// A folder with a runner and its code.
async fn shipped() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.path().join("javascript.wasm"), runner(1)).unwrap();
    let code = folder.path().join("javascript.code");
    assert_eq!(registry(folder.path()).compile_runners().await.unwrap(), [code]);
    folder
}

/// Loads a script in a fresh runtime; true if nothing was compiled for it.
async fn is_found(folder: &Path) -> bool {
    let registry = registry(folder);
    registry.load_script(Language::JavaScript, "hook.js", b"a script".to_vec()).await.unwrap();
    registry.compilations() == 0
}

#[tokio::test]
async fn the_code_of_a_runner_is_found_beside_it_and_made_once() {
    let folder = shipped().await;
    assert!(is_found(folder.path()).await);
    let again = registry(folder.path());
    again.compile_runners().await.unwrap();
    assert_eq!(again.compilations(), 0);
    fs::remove_file(folder.path().join("javascript.code")).unwrap();
    assert!(!is_found(folder.path()).await);
}

#[tokio::test]
async fn a_runner_that_is_compiled_is_reported_and_its_time_is_that_of_its_script() {
    let folder = shipped().await;
    let code = folder.path().join("javascript.code");
    let load = async || {
        let (registry, all) = (registry(folder.path()), Arc::new(Mutex::new(Vec::new())));
        let heard = Arc::clone(&all);
        registry.on_runner_compilation(move |compilation| heard.lock().unwrap().push(compilation));
        let load = registry.load_script(Language::JavaScript, "hook.js", b"a script".to_vec());
        let script = load.await.unwrap();
        (all.lock().unwrap().clone(), script.origin.compile_time().unwrap())
    };
    assert_eq!(load().await.0, []);
    fs::write(&code, b"junk").unwrap();
    let (all, script_took) = load().await;
    let [RunnerCompilation::Begins { language, code: named, refused }, RunnerCompilation::Ended { took, .. }] =
        &*all
    else {
        panic!("{all:?}")
    };
    assert_eq!((*language, named), (Language::JavaScript, &code));
    assert!(refused.as_deref().is_some_and(|why| why.starts_with("it is damaged")), "{refused:?}");
    assert!(script_took >= *took);
}

#[tokio::test]
async fn the_code_of_another_runner_is_not_used_and_made_anew() {
    let folder = shipped().await;
    fs::write(folder.path().join("javascript.wasm"), runner(2)).unwrap();
    assert!(!is_found(folder.path()).await);
    registry(folder.path()).compile_runners().await.unwrap();
    assert!(is_found(folder.path()).await);
}

#[tokio::test]
async fn code_that_is_damaged_or_that_others_may_have_written_is_not_used() {
    type Damage = fn(&Path, &Path);
    let damages: [(&str, Damage); 6] = [
        ("a byte is another", |_, code| {
            let mut bytes = fs::read(code).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            fs::write(code, bytes).unwrap();
        }),
        ("it is cut", |_, code| fs::write(code, &fs::read(code).unwrap()[..100]).unwrap()),
        ("it is empty", |_, code| fs::write(code, b"").unwrap()),
        ("others may write it", |_, code| {
            fs::set_permissions(code, Permissions::from_mode(0o666)).unwrap();
        }),
        ("others may replace it", |folder, _| {
            fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
        }),
        ("it is a link", |folder, code| {
            fs::rename(code, folder.join("elsewhere")).unwrap();
            symlink(folder.join("elsewhere"), code).unwrap();
        }),
    ];
    for (what, damage) in damages {
        let folder = shipped().await;
        damage(folder.path(), &folder.path().join("javascript.code"));
        assert!(!is_found(folder.path()).await, "{what}");
    }
}

#[tokio::test]
async fn no_code_is_left_where_others_could_replace_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o775)).unwrap();
    fs::write(folder.path().join("javascript.wasm"), runner(1)).unwrap();
    let error = registry(folder.path()).compile_runners().await.unwrap_err().to_string();
    assert!(error.contains("its mode is 0775") && error.contains("chmod go-w"), "{error}");
    assert!(!folder.path().join("javascript.code").exists());
}

#[tokio::test]
async fn code_that_is_replaced_while_it_runs_harms_no_call() {
    let folder = shipped().await;
    let registry = registry(folder.path());
    let load = || registry.load_script(Language::JavaScript, "hook.js", b"a script".to_vec());
    let script = load().await.unwrap();
    fs::write(folder.path().join("javascript.code"), b"").unwrap();
    let answer = registry.runtime().call(&script, call("", limits())).await.answer;
    assert_eq!(answer, Ok(Vec::new()));
}
