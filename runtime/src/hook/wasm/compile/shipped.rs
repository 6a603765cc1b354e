//! Code of runners that is compiled when they are built, and lies beside them: `python.code` beside `python.wasm`.
//!
//! The server trusts it as the program itself: root or the server's user owns it, and no other user may write it or its
//! folder. The seal at its end says that it is whole, and of this runner, this version of the server and these settings of the engine.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;
use wasmtime::Engine;

use super::artifact::{Artifact, Name, SealKey, Stored};
use super::compiler::Source;
use super::outline::WasmKind;
use super::{
    Code, CodeLoader, CodeTarget, Digest, Inspected, ModuleBounds, ModuleError, blocking, engine_config,
};

#[derive(Debug, thiserror::Error)]
enum ShippedError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it belongs to user {0}, and only root and the server's user are trusted: chown it")]
    Foreign(u32),
    #[error("its mode is {0:04o}, so that others could put code there: chmod go-w it")]
    Writable(u32),
    #[error(
        "it is damaged, or of another runner, another version of the server or another kind of processor"
    )]
    Seal,
    #[error("{0}")]
    Module(#[from] ModuleError),
    #[error("it is no code of this engine: {0}")]
    Engine(wasmtime::Error),
}

/// Who makes this seal can be anybody: it finds damage, and the owner of the file gives the trust.
fn key() -> SealKey {
    SealKey::of(b"runners that are compiled when they are built")
}

/// The name of a runner's code, which is for all machines of the architecture.
fn name(digest: Digest, kind: WasmKind) -> wasmtime::Result<Name> {
    let engine = Engine::new(&engine_config(kind, CodeTarget::Baseline))?;
    Ok(Name::new(digest, &engine))
}

/// Where the code of a runner may lie, compiled before.
#[derive(Clone, Copy)]
pub(in crate::hook::wasm) struct RunnerCode<'a> {
    pub(in crate::hook::wasm) path: &'a Path,
    /// Hears before the runner is compiled, and why the file is not used, where there is one.
    pub(in crate::hook::wasm) compiles: &'a (dyn Fn(Option<&str>) + Send + Sync),
}

/// Search for a runner's code.
pub(super) enum Shipped {
    Found(Code),
    Absent,
    /// There is a file that is not used, and why.
    Refused(String),
}

impl CodeLoader {
    /// The code of a module that may be a runner.
    pub(super) async fn beside(
        &self,
        runner: Option<RunnerCode<'_>>,
        digest: Digest,
        kind: WasmKind,
        bounds: &ModuleBounds,
    ) -> Result<Shipped, ModuleError> {
        match runner {
            Some(runner) => self.shipped(digest, kind, runner.path, bounds).await,
            None => Ok(Shipped::Absent),
        }
    }

    /// The code that lies beside a runner. Where there is none that fits, the runner is compiled.
    async fn shipped(
        &self,
        digest: Digest,
        kind: WasmKind,
        path: &Path,
        bounds: &ModuleBounds,
    ) -> Result<Shipped, ModuleError> {
        let own = self.own(bounds.code);
        let engine = self.engines.of(kind).clone();
        let path = path.to_owned();
        let find = move || {
            let code = (|| {
                // What is replaced while it is mapped would end the server: it runs a copy.
                let stored = open(&path)?;
                let own = own(stored.len)?;
                let name = name(digest, kind).map_err(ShippedError::Engine)?;
                let artifact = Artifact::open(&key(), &name, stored, own)?.ok_or(ShippedError::Seal)?;
                artifact.load(&engine, kind).map_err(ShippedError::Engine)
            })();
            match code {
                Ok(code) => Ok(Shipped::Found(code)),
                Err(ShippedError::Module(error)) => Err(error),
                Err(ShippedError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                    Ok(Shipped::Absent)
                }
                Err(error) => {
                    tracing::warn!(file = %path.display(), %error, "compiled code of a runner is not used: it is compiled again");
                    Ok(Shipped::Refused(error.to_string()))
                }
            }
        };
        blocking(find).await
    }

    /// Compiles a runner, and writes its code with its seal. A reader finds all of it or nothing.
    ///
    /// # Errors
    /// Others can write to the folder, so that no server would use the code; or the code cannot be made or written.
    pub(in crate::hook::wasm) async fn ship(
        &self,
        Inspected { facts, module }: Inspected,
        bounds: &ModuleBounds,
        path: &Path,
    ) -> Result<(), ModuleError> {
        let kind = WasmKind::of(&module.bytes);
        if let Shipped::Found(_) = self.shipped(facts.digest, kind, path, bounds).await? {
            return Ok(());
        }
        let folder = path.to_owned();
        let check = move || {
            trusted_folder(&folder)
                .map_err(|error| ModuleError::Code(format!("the folder of {}: {error}", folder.display())))
        };
        blocking(check).await?;
        let (source, output) = (Source::Memory(module), self.files.create()?);
        let (artifact, _) = self.compiled(source, bounds, CodeTarget::Baseline, output).await?;
        let name = name(facts.digest, kind).map_err(|error| ModuleError::Code(error.to_string()))?;
        let path = path.to_owned();
        let write = move || {
            let new = path.with_extension(format!("code.{}", std::process::id()));
            // One that was killed may have left it.
            std::fs::remove_file(&new).unwrap_or_default();
            let written = create(&new)
                .and_then(|mut file| artifact.store(&key(), &name, &mut file))
                .and_then(|()| std::fs::rename(&new, &path));
            let written = written.inspect_err(|_| std::fs::remove_file(&new).unwrap_or_default());
            written.map_err(|error| ModuleError::Code(format!("{}: {error}", path.display())))
        };
        blocking(write).await
    }
}

fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(0o644).open(path)
}

/// Opens a file that only root or this user can change.
fn open(path: &Path) -> Result<Stored<File>, ShippedError> {
    trusted_folder(path)?;
    // No links; and a pipe must not block the open.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    trusted(&file.metadata()?)?;
    Ok(Stored::of(file)?)
}

fn trusted_folder(code: &Path) -> Result<(), ShippedError> {
    let folder = code.parent().filter(|folder| !folder.as_os_str().is_empty());
    trusted(&std::fs::metadata(folder.unwrap_or(Path::new(".")))?)
}

fn trusted(found: &std::fs::Metadata) -> Result<(), ShippedError> {
    if found.uid() != 0 && found.uid() != geteuid().as_raw() {
        return Err(ShippedError::Foreign(found.uid()));
    }
    let mode = found.mode() & 0o7777;
    if mode & 0o022 != 0 { Err(ShippedError::Writable(mode)) } else { Ok(()) }
}
