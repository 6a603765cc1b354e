//! Flags that the commands of authors share: limits of calls, mounts, the hook's name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use metahook_core::api::SpecError;
use metahook_core::api::hook::HookName;
use metahook_core::api::policy::{LimitBounds, Limits, WasmLimits};

use metahook_author::documents::{Document, DocumentError, read_bytes};
use metahook_author::hook_modules::{FoundFiles, HookFile, HookFileError, HookModules};
use metahook_author::progress::Progress;
use metahook_author::render::hooks::HookFiles;
use metahook_author::render::setup::{SetupError, spec_limits};
use metahook_author::sandbox::{LoadError, Sandbox};
use metahook_server::hook::wasm::compile::ModuleSettings;
use metahook_server::hook::wasm::run::{Files, MountedFolder};

/// Bytes of all files of a mount, as of a `ConfigMap`.
const MAX_MOUNTED: u64 = 1 << 20;

/// Limits of a call, named as in a controller's spec.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Limits of a call, as in the spec")]
#[expect(clippy::struct_field_names, reason = "each field has the name of its flag")]
pub struct LimitFlags {
    /// Memory of the call; when absent that of the spec of the controller's hook, or 64Mi.
    #[arg(long = "limits.memory", value_name = "BYTES")]
    pub limits_memory: Option<String>,
    /// Time of the call; when absent that of the spec, or 10s.
    #[arg(long = "limits.timeout", value_name = "DURATION")]
    pub limits_timeout: Option<String>,
    /// Instructions of the call; when absent those of the spec, or 1000000000, four times as many for a script.
    #[arg(long = "limits.instructions", value_name = "N")]
    pub limits_instructions: Option<u64>,
    /// Bytes of the answer; when absent those of the spec, or 4Mi.
    #[arg(long = "limits.output", value_name = "BYTES")]
    pub limits_output: Option<String>,
    /// Bytes of stderr that are kept; when absent those of the spec, or 64Ki.
    #[arg(long = "limits.log", value_name = "BYTES")]
    pub limits_log: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error("--mount {folder}")]
    Read { folder: String, source: std::io::Error },
    #[error("--mount")]
    File(#[from] DocumentError),
    #[error("--mount {folder}: its files have more than {MAX_MOUNTED} bytes, and no ConfigMap holds more")]
    TooLarge { folder: String },
    #[error("--mount {folder} holds {name:?}, whose name no key of a ConfigMap has")]
    Name { folder: String, name: PathBuf },
}

/// The server's default field manager.
pub(super) const FIELD_MANAGER: &str = "metacontroller";

/// Where the interpreters of scripts come from.
#[derive(Debug, Clone, Default, Args)]
pub struct RunnerFlags {
    /// Folder of the interpreters of scripts, python.wasm and javascript.wasm; when absent the folder runners beside this program.
    #[arg(long, value_name = "FOLDER", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub runners: Option<PathBuf>,
}

/// The files that stand for what a controller's hooks are made of in a cluster.
#[derive(Debug, Clone, Default, Args)]
pub struct HookFileFlags {
    /// The file of the module or script of the controller's hooks: of those whose key has its name, else of those of its kind. When absent, and for other hooks, the only module that Cargo built beside the files, or the file beside them that has the name of the key.
    #[arg(long, value_name = "MODULE", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub module: Option<PathBuf>,
    /// A folder that stands for a mount of the controller, for example `/etc/greeting=./greeting`; several times for several.
    #[arg(long, value_name = "PATH=FOLDER", value_parser = mount)]
    pub mount: Vec<MountFlag>,
    #[command(flatten)]
    pub runners: RunnerFlags,
}

#[derive(Debug, thiserror::Error)]
pub enum HookFilesError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    File(#[from] HookFileError),
    #[error(transparent)]
    Mount(#[from] MountError),
}

#[derive(Debug, thiserror::Error)]
pub enum LimitsError {
    #[error(transparent)]
    Flag(#[from] SpecError),
    /// The controller cannot be read, or no server with the default ceilings takes it.
    #[error(transparent)]
    Controller(#[from] SetupError),
}

impl HookFilesError {
    /// The module is there, and the server would not take it.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Load(error) if error.is_refusal())
    }
}

impl HookFileFlags {
    /// The files of the hooks of the controllers among the documents, which lie beside these files.
    pub(super) fn modules(
        &self,
        documents: &[Document],
        beside: &[PathBuf],
    ) -> Result<HookModules<HookFile>, HookFileError> {
        HookModules::of(self.module.clone(), documents, &FoundFiles::beside(beside, documents))
    }

    pub(super) async fn files(&self, paths: &HookModules<HookFile>) -> Result<HookFiles, HookFilesError> {
        let mounts = self.mount.iter().map(MountFlag::read).collect::<Result<_, _>>()?;
        let sandbox = Arc::new(Sandbox::new(self.runners.module_settings())?);
        let mut loaded = BTreeMap::new();
        for file in paths.all() {
            if !loaded.contains_key(file) {
                let _step = Progress::of_stderr().step(format!("compiling {}", file.path.display()));
                loaded.insert(file.clone(), sandbox.load(file).await?);
            }
        }
        Ok(HookFiles { sandbox, modules: paths.map(|file| loaded.get(file).cloned()), mounts })
    }
}

impl LimitFlags {
    /// As the server checks the limits of a spec. Those that no flag names are those of the spec of the controller among the
    /// documents, if that names the hook.
    pub(super) fn limits(
        &self,
        file: &HookFile,
        documents: &[Document],
        hook: HookName,
    ) -> Result<Limits, LimitsError> {
        let bounds = LimitBounds::default().of(file.language.is_some());
        let default = spec_limits(documents, hook)?.unwrap_or(bounds.default);
        let limits = WasmLimits {
            memory: self.limits_memory.clone(),
            timeout: self.limits_timeout.clone(),
            instructions: self.limits_instructions,
            output: self.limits_output.clone(),
            log: self.limits_log.clone(),
        };
        Ok(limits.check("--limits", &LimitBounds { default, ..bounds })?)
    }
}

impl RunnerFlags {
    /// Modules are compiled by this program, and not kept. Without the flag `METAHOOK_RUNNERS` names the folder of the
    /// interpreters of scripts. An empty value names nothing, as for the server.
    pub(super) fn module_settings(&self) -> ModuleSettings {
        let named = self.runners.clone().filter(|path| !path.as_os_str().is_empty());
        let named = named.or_else(|| std::env::var_os("METAHOOK_RUNNERS").map(PathBuf::from));
        let runners = named.unwrap_or_else(super::hook_flags::runners);
        ModuleSettings { runners: Some(runners), ..ModuleSettings::new(super::hook_flags::THIS_PROGRAM) }
    }
}

pub(super) fn hook_name(text: &str) -> Result<HookName, String> {
    [HookName::Sync, HookName::Finalize, HookName::Customize]
        .into_iter()
        .find(|name| name.as_str() == text)
        .ok_or_else(|| "write sync, finalize or customize".to_owned())
}

/// `PATH=FOLDER`: the path that the hook sees, and the folder that it is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountFlag {
    pub path: String,
    pub folder: PathBuf,
}

pub(super) fn mount(text: &str) -> Result<MountFlag, String> {
    match text.split_once('=') {
        Some((path, folder)) if path.len() > 1 && path.starts_with('/') && !folder.is_empty() => {
            Ok(MountFlag { path: path.trim_end_matches('/').to_owned(), folder: folder.into() })
        }
        _ => Err("write PATH=FOLDER, for example /etc/greeting=./greeting".to_owned()),
    }
}

impl MountFlag {
    /// The files of the folder, as the server shows the keys of a `ConfigMap`.
    pub(super) fn read(&self) -> Result<MountedFolder, MountError> {
        let folder = || self.folder.display().to_string();
        let mut files = Files::new();
        let mut left = MAX_MOUNTED;
        let failed = |source| MountError::Read { folder: folder(), source };
        for entry in std::fs::read_dir(&self.folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() {
                continue;
            }
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                return Err(MountError::Name { folder: folder(), name: path });
            };
            let bytes = file(&path, left, &folder)?;
            left = left.saturating_sub(bytes.len() as u64);
            files.insert(name.to_owned(), Bytes::from(bytes));
        }
        Ok(MountedFolder { path: self.path.clone(), files: files.into() })
    }
}

fn file(path: &Path, left: u64, folder: &dyn Fn() -> String) -> Result<Vec<u8>, MountError> {
    match read_bytes(path, left) {
        Err(DocumentError::TooLarge { .. }) => Err(MountError::TooLarge { folder: folder() }),
        read => Ok(read?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use metahook_author::documents::of_text;
    use metahook_server::telemetry::error_chain;

    #[test]
    fn limits_are_checked_as_those_of_a_spec() {
        let of = |flags: &LimitFlags, name: &str| {
            flags.limits(&HookFile::named(name.into(), &[]), &[], HookName::Sync)
        };
        assert_eq!(of(&LimitFlags::default(), "hook.wasm").unwrap(), LimitBounds::default().default);
        let script = of(&LimitFlags::default(), "hook.py").unwrap();
        assert_eq!(script, LimitBounds::default().of(true).default);
        assert_eq!(script.instructions, 4_000_000_000);
        let asked = LimitFlags { limits_memory: Some("512Mi".to_owned()), ..LimitFlags::default() };
        assert_eq!(of(&asked, "hook.wasm").unwrap().memory, 512 << 20);
        let above = LimitFlags { limits_memory: Some("513Mi".to_owned()), ..LimitFlags::default() };
        let error = of(&above, "hook.wasm").unwrap_err().to_string();
        assert!(
            error.starts_with("--limits.memory: 513Mi is above this server's ceiling of 512Mi"),
            "{error}"
        );
    }

    #[test]
    fn limits_that_no_flag_names_are_those_of_the_spec() {
        let controller = "
            apiVersion: metacontroller.k8s.io/v1alpha1
            kind: CompositeController
            metadata: {name: c}
            spec:
              parentResource: {apiVersion: apps/v1, resource: deployments}
              generateSelector: true
              hooks:
                sync:
                  script:
                    language: python
                    configMap: {namespace: hooks, name: s, key: sync}
                    limits: {memory: 128Mi, instructions: 7}
                customize: {webhook: {url: http://h.n/c}}";
        let documents = of_text("c.yaml", controller).unwrap();
        let flags = LimitFlags { limits_memory: Some("96Mi".to_owned()), ..LimitFlags::default() };
        let file = HookFile::named("sync".into(), &documents);
        let of = |hook| flags.limits(&file, &documents, hook).unwrap();
        let (sync, finalize, customize) =
            (of(HookName::Sync), of(HookName::Finalize), of(HookName::Customize));
        assert_eq!((sync.memory, sync.instructions, sync.output), (96 << 20, 7, 4 << 20));
        assert_eq!(finalize, sync, "sync is called where there is no finalize");
        assert_eq!(customize.instructions, 4_000_000_000, "a webhook has no limits");
        let refused = |from: &str, to: &str| {
            let documents = of_text("c.yaml", &controller.replace(from, to)).unwrap();
            error_chain(&flags.limits(&file, &documents, HookName::Sync).unwrap_err())
        };
        let above = refused("128Mi", "1Gi");
        assert!(above.contains("limits.memory: 1Gi is above this server's ceiling"), "{above}");
        let unreadable = refused("generateSelector: true", "generateSelector: 7");
        assert!(unreadable.contains("the spec cannot be read"), "{unreadable}");
    }

    #[test]
    fn runners_lie_where_the_flag_says() {
        let of = |folder: Option<&str>| {
            RunnerFlags { runners: folder.map(PathBuf::from) }.module_settings().runners
        };
        assert_eq!(of(Some("/x")), Some("/x".into()));
        assert_eq!(of(Some("")), of(None), "an empty value names nothing");
    }

    #[test]
    fn a_mount_is_a_path_and_a_folder() {
        assert_eq!(mount("/etc/x/=y"), Ok(MountFlag { path: "/etc/x".to_owned(), folder: "y".into() }));
        for wrong in ["etc=y", "/=y", "/etc", "/etc=", ""] {
            assert!(mount(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_files_of_a_mount_are_as_large_as_a_config_map_at_most() {
        let folder = tempfile::tempdir().unwrap();
        let flag = MountFlag { path: "/m".to_owned(), folder: folder.path().to_owned() };
        let size = usize::try_from(MAX_MOUNTED).unwrap();
        std::fs::write(folder.path().join("a"), vec![0; size - 1]).unwrap();
        std::fs::create_dir(folder.path().join("below")).unwrap();
        std::fs::write(folder.path().join("b"), [0]).unwrap();
        assert_eq!(flag.read().unwrap().files.keys().collect::<Vec<_>>(), ["a", "b"]);
        std::fs::write(folder.path().join("b"), [0, 0]).unwrap();
        let error = flag.read().unwrap_err().to_string();
        assert!(error.contains("more than 1048576 bytes"), "{error}");
        let absent = MountFlag { path: "/m".to_owned(), folder: "/nowhere".into() };
        assert_eq!(absent.read().unwrap_err().to_string(), "--mount /nowhere");
    }
}
