//! Artifacts: machine code that is trusted because our own compiler made it. No other file gives that trust.

use std::fmt;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use ring::hmac;
use sha2::{Digest as _, Sha256};
use wasmtime::component::Component;
use wasmtime::{Engine, Module};

use super::code_space::CodeSpace;
use super::compiler::MAX_ARTIFACT;
use super::outline::WasmKind;
use super::{Code, Compiled, Digest};

/// Bytes from our compiler, directly or by way of a cache that only the server can write. They lie in a file that only this
/// process can open (`code_files`).
pub(super) struct Artifact {
    file: File,
    space: Arc<CodeSpace>,
}

/// A file of the cache, and its length: code and seal.
pub(super) struct Stored<F> {
    pub(super) file: F,
    pub(super) len: u64,
}

impl Stored<File> {
    /// # Errors
    /// It is no file, or larger than any artifact.
    pub(super) fn of(file: File) -> io::Result<Self> {
        let found = file.metadata()?;
        if !found.is_file() || found.len() > MAX_ARTIFACT {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self { file, len: found.len() })
    }
}

/// The name of an artifact: the module, and all settings that decide about its code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name(String);

/// A key of the installation that only its servers know: it makes the seals of artifacts, so that other programs cannot.
#[derive(Clone, PartialEq, Eq)]
pub struct SealKey([u8; 32]);

/// Bytes of the seal of name and code, which is stored behind the code.
const SEAL: usize = 32;

/// Bytes that are read at once.
const PIECE: usize = 64 << 10;

impl Artifact {
    /// An artifact in a file that a compiler which ended with success has filled, or that [`Artifact::open`] fills.
    pub(super) fn new(file: File, space: CodeSpace) -> Self {
        Self { file, space: Arc::new(space) }
    }

    /// Copies what was stored under this name into the empty file `own`: what lies in the cache may change later. `None`: the
    /// seal is wrong.
    ///
    /// # Errors
    /// The bytes cannot be read or copied.
    pub(super) fn open(
        key: &SealKey,
        name: &Name,
        mut stored: Stored<impl Read>,
        mut own: Self,
    ) -> io::Result<Option<Self>> {
        let Some(len) = stored.len.checked_sub(SEAL as u64) else { return Ok(None) };
        let found = copy(name, &mut (&mut stored.file).take(len), &mut own.file)?;
        let mut seal = Vec::new();
        stored.file.read_to_end(&mut seal)?;
        let is_right = hmac::verify(&key.hmac(), &found, &seal).is_ok();
        Ok(is_right.then_some(own))
    }

    /// Writes what is to be stored: code and seal.
    pub(super) fn store(&self, key: &SealKey, name: &Name, into: &mut impl Write) -> io::Result<()> {
        let mut code = &self.file;
        code.rewind()?;
        let digest = copy(name, &mut code, into)?;
        into.write_all(hmac::sign(&key.hmac(), &digest).as_ref())
    }

    /// Code that the engine can run.
    ///
    /// # Errors
    /// An engine with other settings made the artifact, or it is for another machine.
    pub(super) fn load(&self, engine: &Engine, kind: WasmKind) -> wasmtime::Result<Code> {
        // Of a file without a name this is the way to it.
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        #[expect(unsafe_code, reason = "wasmtime cannot check machine code, and the types of this file do")]
        // SAFETY: `Engine::precompile_module` or `precompile_component` of our own program wrote these bytes. They came over a
        // pipe from a child that ended with success, or out of a folder that only the server can write, with a seal that only
        // its key makes, which was right for the bytes of this very file; or out of one beside the runners where only
        // root and the server's user can write, who could replace this program, too. wasmtime refuses the one kind where it is taken for
        // the other. The file does not change while it is mapped: it has no name by which others could open it, and nothing
        // writes to it once it is an artifact.
        let mapped = unsafe {
            match kind {
                WasmKind::Module => Module::deserialize_file(engine, &path).map(Compiled::Module),
                WasmKind::Component => Component::deserialize_file(engine, &path).map(Compiled::Component),
            }
        };
        let compiled = mapped.or_else(|error| self.load_copy(engine, kind).or(Err(error)))?;
        Ok(Code { compiled, space: Arc::clone(&self.space) })
    }

    /// Loads a copy in memory, where nothing of the folder's disk may run (`noexec`).
    fn load_copy(&self, engine: &Engine, kind: WasmKind) -> wasmtime::Result<Compiled> {
        let (mut file, mut bytes) = (&self.file, Vec::new());
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        #[expect(unsafe_code, reason = "wasmtime cannot check machine code, and the types of this file do")]
        // SAFETY: as above.
        unsafe {
            match kind {
                WasmKind::Module => Module::deserialize(engine, &bytes).map(Compiled::Module),
                WasmKind::Component => Component::deserialize(engine, &bytes).map(Compiled::Component),
            }
        }
    }
}

impl Name {
    pub(super) fn new(module: Digest, engine: &Engine) -> Self {
        let mut settings = Settings(Sha256::new());
        // Of wasmtime's exact version, the target, the processor's features and every setting that changes code.
        engine.precompile_compatibility_hash().hash(&mut settings);
        env!("CARGO_PKG_VERSION").hash(&mut settings);
        Self(format!("{}-{:016x}", module.hex(), settings.finish()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl SealKey {
    /// The key of an installation's artifacts, from its secret.
    pub fn of(secret: &[u8]) -> Self {
        Self(Sha256::new().chain_update("metahook: compiled modules").chain_update(secret).finalize().into())
    }

    fn hmac(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }
}

/// The key is secret.
impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(..)")
    }
}

/// Copies code, and gives back the digest of it and its name.
fn copy(name: &Name, from: &mut impl Read, into: &mut impl Write) -> io::Result<[u8; 32]> {
    let mut digest = Sha256::new().chain_update(&name.0).chain_update([0]);
    let mut piece = vec![0; PIECE];
    loop {
        match from.read(&mut piece)? {
            0 => return Ok(digest.finalize().into()),
            len => {
                let read = piece.get(..len).unwrap_or_default();
                digest.update(read);
                into.write_all(read)?;
            }
        }
    }
}

/// A hasher with the same result in every process, which `std`'s does not promise.
struct Settings(Sha256);

impl Hasher for Settings {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let hash: [u8; 32] = self.0.clone().finalize().into();
        hash.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CodeTarget, engine_config};
    use super::*;

    fn key() -> SealKey {
        SealKey::of(b"secret")
    }

    fn file() -> File {
        tempfile::tempfile().unwrap()
    }

    fn sealed(name: &Name) -> Vec<u8> {
        let mut output = file();
        output.write_all(b"machine code").unwrap();
        let mut stored = Vec::new();
        Artifact::new(output, CodeSpace::default()).store(&key(), name, &mut stored).unwrap();
        stored
    }

    /// The code, if the seal is right.
    fn open(key: &SealKey, name: &Name, stored: &[u8]) -> Option<Vec<u8>> {
        let (own, len) = (Artifact::new(file(), CodeSpace::default()), stored.len() as u64);
        let mut artifact = Artifact::open(key, name, Stored { file: stored, len }, own).unwrap()?;
        let mut code = Vec::new();
        artifact.file.rewind().unwrap();
        artifact.file.read_to_end(&mut code).unwrap();
        Some(code)
    }

    #[test]
    fn a_sealed_artifact_is_opened() {
        let name = Name("a".into());
        assert_eq!(open(&key(), &name, &sealed(&name)).unwrap(), b"machine code");
        assert!(open(&SealKey::of(b"other"), &name, &sealed(&name)).is_none(), "another installation");
        assert_eq!(format!("{:?}", key()), "SealKey(..)");
    }

    #[test]
    fn every_changed_bit_and_missing_byte_is_found() {
        let name = Name("a".into());
        let whole = sealed(&name);
        for place in 0..whole.len() {
            for bit in 0..8 {
                let mut altered = whole.clone();
                altered[place] ^= 1 << bit;
                assert!(open(&key(), &name, &altered).is_none(), "byte {place}, bit {bit}");
            }
            assert!(open(&key(), &name, &whole[..place]).is_none(), "{place} bytes");
        }
        assert!(open(&key(), &name, &[whole.as_slice(), b"x"].concat()).is_none(), "a byte more");
        assert!(open(&key(), &Name("b".into()), &whole).is_none(), "under another name");
    }

    #[test]
    fn a_name_depends_on_module_and_engine_settings() {
        let engine = |fuel| {
            let mut config = engine_config(WasmKind::Module, CodeTarget::Baseline);
            Engine::new(config.consume_fuel(fuel)).unwrap()
        };
        let digest = Digest::of(b"module");
        let name = Name::new(digest, &engine(true));
        assert_eq!(name, Name::new(digest, &engine(true)));
        assert!(name != Name::new(digest, &engine(false)), "other settings");
        assert!(name != Name::new(Digest::of(b"other"), &engine(true)), "another module");
        assert!(name.as_str().starts_with(&digest.hex()));
    }
}
