//! Artifacts: machine code that is trusted because our own compiler made it. No other file gives that trust.

use std::fmt;
use std::hash::{Hash, Hasher};

use ring::hmac;
use sha2::{Digest as _, Sha256};
use wasmtime::component::Component;
use wasmtime::{Engine, Module};

use super::outline::WasmKind;
use super::{Code, Digest};

/// Bytes from our compiler, directly or by way of a cache that only the server can write.
pub(super) struct Artifact(Vec<u8>);

/// The name of an artifact: the module, and all settings that decide about its code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name(String);

/// A key of the installation that only its servers know: it makes the seals of artifacts, so that other programs cannot.
#[derive(Clone, PartialEq, Eq)]
pub struct SealKey([u8; 32]);

/// Bytes of the seal of name and code, which is stored behind the code.
const SEAL: usize = 32;

impl Artifact {
    /// The output of a compiler that ended with success.
    pub(super) fn compiled(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The artifact that was stored under this name, if its seal is right.
    pub(super) fn open(key: &SealKey, name: &Name, mut stored: Vec<u8>) -> Option<Self> {
        let (code, seal) = stored.split_last_chunk::<SEAL>()?;
        hmac::verify(&key.hmac(), &digest(name, code), seal).ok()?;
        stored.truncate(stored.len() - SEAL);
        Some(Self(stored))
    }

    /// The two pieces to store, one after the other: code and seal.
    pub(super) fn seal(&self, key: &SealKey, name: &Name) -> (&[u8], hmac::Tag) {
        (&self.0, hmac::sign(&key.hmac(), &digest(name, &self.0)))
    }

    /// Code that the engine can run.
    ///
    /// # Errors
    /// An engine with other settings made the artifact, or it is for another machine.
    pub(super) fn load(&self, engine: &Engine, kind: WasmKind) -> wasmtime::Result<Code> {
        #[expect(unsafe_code, reason = "wasmtime cannot check machine code, and the types of this file do")]
        // SAFETY: `Engine::precompile_module` or `precompile_component` of our own program wrote these bytes. They came over a
        // pipe from a child that ended with success, or out of a folder that only the server can write, with a seal that only
        // its key makes. wasmtime refuses the one kind where it is taken for the other.
        unsafe {
            match kind {
                WasmKind::Module => Module::deserialize(engine, &self.0).map(Code::Module),
                WasmKind::Component => Component::deserialize(engine, &self.0).map(Code::Component),
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

fn digest(name: &Name, code: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(&name.0).chain_update([0]).chain_update(code).finalize().into()
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
    use super::*;

    fn key() -> SealKey {
        SealKey::of(b"secret")
    }

    fn sealed(name: &Name) -> Vec<u8> {
        let artifact = Artifact::compiled(b"machine code".to_vec());
        let (code, seal) = artifact.seal(&key(), name);
        [code, seal.as_ref()].concat()
    }

    #[test]
    fn a_sealed_artifact_is_opened() {
        let name = Name("a".into());
        assert_eq!(Artifact::open(&key(), &name, sealed(&name)).unwrap().0, b"machine code");
        assert!(
            Artifact::open(&SealKey::of(b"other"), &name, sealed(&name)).is_none(),
            "another installation"
        );
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
                assert!(Artifact::open(&key(), &name, altered).is_none(), "byte {place}, bit {bit}");
            }
            assert!(Artifact::open(&key(), &name, whole[..place].to_vec()).is_none(), "{place} bytes");
        }
        assert!(Artifact::open(&key(), &name, [whole.as_slice(), b"x"].concat()).is_none(), "a byte more");
        assert!(Artifact::open(&key(), &Name("b".into()), whole).is_none(), "under another name");
    }

    #[test]
    fn a_name_depends_on_module_and_engine_settings() {
        let engine = |fuel| Engine::new(super::super::engine_config().consume_fuel(fuel)).unwrap();
        let digest = Digest::of(b"module");
        let name = Name::new(digest, &engine(true));
        assert_eq!(name, Name::new(digest, &engine(true)));
        assert!(name != Name::new(digest, &engine(false)), "other settings");
        assert!(name != Name::new(Digest::of(b"other"), &engine(true)), "another module");
        assert!(name.as_str().starts_with(&digest.hex()));
    }
}
