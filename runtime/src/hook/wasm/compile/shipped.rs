//! Code of runners that is compiled when they are built, and lies beside them: `python.code` beside `python.wasm`.
//!
//! It is trusted as the program is: it belongs to root or to the server's user, and nobody else may write it. Its seal says that
//! it is whole, and of this runner, this version of the server and these settings of the engine.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;

use super::artifact::{Artifact, Name, SealKey};
use super::compiler::{MAX_ARTIFACT, Source};
use super::outline::WasmKind;
use super::{Code, CodeLoader, Inspected, ModuleBounds, ModuleError, blocking};

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

impl CodeLoader {
    /// The code that lies beside a runner. Where there is none that fits, the runner is compiled.
    pub(super) async fn shipped(
        &self,
        name: &Name,
        kind: WasmKind,
        path: &Path,
        bounds: &ModuleBounds,
    ) -> Result<Option<Code>, ModuleError> {
        let (loaded, max_code) = (self.loaded.clone(), bounds.code);
        let engine = self.engines.of(kind).clone();
        let (name, path) = (name.clone(), path.to_owned());
        let find = move || {
            let code = (|| {
                let (file, len) = open(&path)?;
                let artifact = Artifact::new(file, loaded.add(len, max_code)?);
                if !artifact.is_sealed(&key(), &name, &mut open(&seal_path(&path))?.0)? {
                    return Err(ShippedError::Seal);
                }
                artifact.load(&engine, kind).map_err(ShippedError::Engine)
            })();
            match code {
                Ok(code) => return Ok(Some(code)),
                Err(ShippedError::Module(error)) => return Err(error),
                Err(ShippedError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(file = %path.display(), %error, "compiled code of a runner is not used: it is compiled again");
                }
            }
            Ok(None)
        };
        blocking(find).await
    }

    /// Compiles a runner, and writes its code and its seal. A reader finds all of it or nothing.
    pub(in crate::hook::wasm) async fn ship(
        &self,
        Inspected { facts, module }: Inspected,
        bounds: &ModuleBounds,
        path: &Path,
    ) -> Result<(), ModuleError> {
        let kind = WasmKind::of(&module.bytes);
        let name = Name::new(facts.digest, self.engines.of(kind));
        if self.shipped(&name, kind, path, bounds).await?.is_some() {
            return Ok(());
        }
        let (output, _) = self.compiler.compile(Source::Memory(module), bounds, self.files.create()?).await?;
        let size = output.metadata().map_err(|error| ModuleError::Code(error.to_string()))?.len();
        let artifact = Artifact::new(output, self.loaded.add(size, bounds.code)?);
        let path = path.to_owned();
        let write = move || {
            let (code, seal) = (path.with_extension("code.new"), seal_path(&path));
            // The seal goes first and comes last: none fits half of another code.
            let written = remove(&seal)
                .and_then(|()| artifact.store_apart(&key(), &name, &mut create(&code)?))
                .and_then(|sealed| {
                    std::fs::rename(&code, &path)?;
                    create(&seal)?.write_all(&sealed)
                });
            written.map_err(|error| ModuleError::Code(format!("{}: {error}", path.display())))
        };
        blocking(write).await
    }
}

fn seal_path(code: &Path) -> PathBuf {
    code.with_extension("seal")
}

fn remove(path: &Path) -> io::Result<()> {
    std::fs::remove_file(path).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

fn create(path: &Path) -> io::Result<File> {
    remove(path)?;
    File::options().write(true).create_new(true).mode(0o644).open(path)
}

/// Opens a file that only root or this user can change.
fn open(path: &Path) -> Result<(File, u64), ShippedError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    trusted(&std::fs::metadata(folder)?)?;
    // No links; and a pipe must not block the open.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    trusted(&found)?;
    if !found.is_file() || found.len() > MAX_ARTIFACT {
        return Err(io::Error::from(io::ErrorKind::InvalidData).into());
    }
    Ok((file, found.len()))
}

fn trusted(found: &std::fs::Metadata) -> Result<(), ShippedError> {
    if found.uid() != 0 && found.uid() != geteuid().as_raw() {
        return Err(ShippedError::Foreign(found.uid()));
    }
    let mode = found.mode() & 0o7777;
    if mode & 0o022 != 0 { Err(ShippedError::Writable(mode)) } else { Ok(()) }
}
