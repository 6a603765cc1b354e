//! Compiled modules on disk: found again, and never trusted when another user may have written them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use metahook_server::hook::wasm::compile::{ModuleBounds, ModuleSettings, Origin, SealKey};
use metahook_server::hook::wasm::run::Module;
use metahook_server::hook::wasm::source::ModuleRegistry;

use crate::{call, limits, modules, registry_with, until};

fn module(number: u32) -> Vec<u8> {
    wat::parse_str(format!("(module (func (export \"_start\")) (func (drop (i32.const {number}))))")).unwrap()
}

fn with_cache(folder: &Path) -> Arc<ModuleRegistry> {
    sealed_by(folder, Some(SealKey::of(b"secret")))
}

fn sealed_by(folder: &Path, seal_key: Option<SealKey>) -> Arc<ModuleRegistry> {
    registry_with(ModuleSettings { cache: Some(folder.to_owned()), seal_key, ..modules() })
}

/// Files that are kept; a file that is being written is not.
fn kept(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| !path.file_name().unwrap().to_string_lossy().starts_with('.')).collect()
}

/// A folder with one module in it.
async fn filled() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("cache");
    with_cache(&folder).load(module(1)).await.unwrap();
    until("it is kept", || kept(&folder).len() == 1).await;
    let file = kept(&folder).remove(0);
    (place, folder, file)
}

async fn runs(registry: &ModuleRegistry, module: &Module) {
    assert_eq!(registry.runtime().call(module, call("", limits())).await.answer, Ok(Vec::new()));
}

/// Loads it in a fresh runtime; true if nothing was compiled.
async fn is_found(folder: &Path, bytes: Vec<u8>) -> bool {
    let registry = with_cache(folder);
    let module = registry.load(bytes).await.unwrap();
    runs(&registry, &module).await;
    let found = matches!(module.origin, Origin::Cached(_));
    assert_eq!(registry.compilations(), u64::from(!found));
    found
}

#[tokio::test]
async fn a_compiled_module_is_found_by_the_next_server() {
    let (_place, folder, file) = filled().await;
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(is_found(&folder, module(1)).await);
    assert!(!is_found(&folder, module(2)).await, "another module");
}

#[tokio::test]
async fn what_is_not_as_it_was_written_is_compiled_again() {
    let (place, folder, file) = filled().await;
    let whole = fs::read(&file).unwrap();
    let flipped = |place: usize| {
        let mut bytes = whole.clone();
        bytes[place] ^= 1;
        bytes
    };
    let last = whole.len() - 1;
    // Its magic number, its headers, its code, the checksum's first and last byte.
    let mut damaged: Vec<Vec<u8>> = [0, 40, whole.len() / 2, last - 31, last].map(flipped).to_vec();
    damaged.extend([Vec::new(), whole[..last].to_vec(), whole[..20].to_vec(), [&*whole, b"x"].concat()]);
    for bytes in damaged {
        fs::write(&file, &bytes).unwrap();
        assert!(!is_found(&folder, module(1)).await, "{} of {} bytes", bytes.len(), whole.len());
        let is_replaced = |now: Vec<u8>| now.len() == whole.len() && now != bytes;
        until("it is replaced", || fs::read(&file).is_ok_and(is_replaced)).await;
        assert!(is_found(&folder, module(1)).await);
    }
    let elsewhere = place.path().join("elsewhere");
    fs::write(&elsewhere, &whole).unwrap();
    fs::remove_file(&file).unwrap();
    symlink(&elsewhere, &file).unwrap();
    assert!(!is_found(&folder, module(1)).await);
    until("a file is there again", || fs::symlink_metadata(&file).is_ok_and(|found| found.is_file())).await;
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).and_then(|()| fs::write(file.join("inside"), &whole)).unwrap();
    assert!(!is_found(&folder, module(1)).await, "a folder is no module");
    assert_eq!(fs::read(&elsewhere).unwrap(), whole, "what a link pointed to is left alone");
}

/// Who can write to the folder knows no key: a checksum could be made by anyone.
#[tokio::test]
async fn what_another_key_sealed_is_neither_taken_nor_removed() {
    let (_place, folder, file) = filled().await;
    let whole = fs::read(&file).unwrap();
    let unsealed = sealed_by(&folder, None);
    assert!(matches!(unsealed.load(module(1)).await.unwrap().origin, Origin::Compiled(_)));
    assert_eq!(fs::read(&file).unwrap(), whole, "without a key nothing is read or written");
    let stranger = sealed_by(&folder, Some(SealKey::of(b"another secret")));
    assert!(matches!(stranger.load(module(1)).await.unwrap().origin, Origin::Compiled(_)));
    until("it is replaced", || fs::read(&file).is_ok_and(|now| now.len() == whole.len() && now != whole))
        .await;
    assert!(!is_found(&folder, module(1)).await);
}

#[tokio::test]
async fn another_modules_code_is_not_taken() {
    let (_place, folder, file) = filled().await;
    assert!(!is_found(&folder, module(2)).await);
    until("both are kept", || kept(&folder).len() == 2).await;
    let other = kept(&folder).into_iter().find(|path| *path != file).unwrap();
    fs::copy(other, &file).unwrap();
    assert!(!is_found(&folder, module(1)).await);
}

#[tokio::test]
async fn a_folder_that_others_may_write_is_not_used() {
    let place = tempfile::tempdir().unwrap();
    for mode in [0o755, 0o770, 0o701] {
        let folder = place.path().join(format!("{mode:o}"));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
        assert!(!is_found(&folder, module(1)).await);
        assert!(!is_found(&folder, module(1)).await);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "{mode:o}");
    }
}

#[tokio::test]
async fn several_servers_may_share_a_folder() {
    const MODULES: u32 = 5;
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("cache");
    let servers: Vec<_> = (0..3).map(|_| with_cache(&folder)).collect();
    let loads = servers.iter().flat_map(|server| {
        (0..MODULES).map(|number| {
            let server = Arc::clone(server);
            tokio::spawn(async move { server.load(module(number)).await.map(drop) })
        })
    });
    for load in loads.collect::<Vec<_>>() {
        assert_eq!(load.await.unwrap(), Ok(()));
    }
    until("all are kept", || kept(&folder).len() == 5).await;
    for number in 0..MODULES {
        assert!(is_found(&folder, module(number)).await);
    }
}

/// The code of a module has its first data.
fn with_data(mib: usize, nth: u8) -> Vec<u8> {
    let data = format!("{}{nth}", "x".repeat((mib << 20) - 1));
    wat::parse_str(format!("(module (memory 64) (data (i32.const 0) \"{data}\") (func (export \"_start\")))"))
        .unwrap()
}

#[tokio::test]
async fn the_code_of_all_modules_has_a_bound_and_gives_its_room_back() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("cache");
    let bounds = ModuleBounds { code: 5 << 20, ..ModuleBounds::default() };
    let seal_key = Some(SealKey::of(b"secret"));
    let registry =
        registry_with(ModuleSettings { bounds, cache: Some(folder.clone()), seal_key, ..modules() });
    let first = registry.load(with_data(2, 1)).await.unwrap();
    let second = registry.load(with_data(2, 2)).await.unwrap();
    let error = registry.load(with_data(2, 3)).await.unwrap_err().to_string();
    assert!(
        error.starts_with(
            "with this module's 3Mi, the code of all loaded modules would take 7Mi, and 5Mi are"
        ),
        "{error}"
    );
    // A file that is being written to the cache is still in use.
    until("both are kept", || kept(&folder).len() == 2).await;
    drop(first);
    let third = registry.load(with_data(2, 4)).await.unwrap();
    for module in [&second, &third] {
        runs(&registry, module).await;
    }
    // What is found in the cache takes room, too, and is not compiled again where there is none.
    let compilations = registry.compilations();
    let error = registry.load(with_data(2, 1)).await.unwrap_err().to_string();
    assert!(error.contains("--module-code-max"), "{error}");
    assert_eq!(registry.compilations(), compilations);
}
