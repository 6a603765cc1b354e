//! Compiled code, taken for what our own compiler made: the one place where that trust is given.

use std::hash::{Hash, Hasher};

use sha2::{Digest as _, Sha256};
use wasmtime::{Engine, Module as Code};

use crate::hook::wasm::source::module::Digest;

/// Bytes that came from our compiler, directly or by way of a cache that nobody else writes.
pub(crate) struct Artifact(Vec<u8>);

/// What an artifact is called: the module, and everything that makes its code what it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name(String);

/// A checksum of name and code stands behind the code.
const SEAL: usize = 32;

impl Artifact {
    /// The output of a compiler that ended well.
    pub(crate) fn compiled(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// What was sealed under this name, if not a bit has changed since.
    pub(crate) fn open(name: &Name, mut sealed: Vec<u8>) -> Option<Self> {
        let (code, seal) = sealed.split_last_chunk::<SEAL>()?;
        if *seal != checksum(name, code) {
            return None;
        }
        sealed.truncate(sealed.len() - SEAL);
        Some(Self(sealed))
    }

    /// The two pieces to store, one after the other: code and checksum.
    pub(crate) fn seal(&self, name: &Name) -> (&[u8], [u8; SEAL]) {
        (&self.0, checksum(name, &self.0))
    }

    /// Makes code of it that can be run.
    ///
    /// *Errors*: it was made by an engine with other settings, or for another machine.
    pub(crate) fn load(&self, engine: &Engine) -> wasmtime::Result<Code> {
        #[expect(unsafe_code, reason = "wasmtime cannot check machine code, and the types of this file do")]
        // SAFETY: these bytes are what `Engine::precompile_module` of our own program wrote. They came over a pipe from
        // a child that ended well, or passed a checksum over these very bytes, out of a folder that only we can write.
        unsafe {
            Code::deserialize(engine, &self.0)
        }
    }
}

impl Name {
    pub(crate) fn new(module: Digest, engine: &Engine) -> Self {
        let mut settings = Settings(Sha256::new());
        // wasmtime's exact version, the target, the processor's features and every setting that changes code.
        engine.precompile_compatibility_hash().hash(&mut settings);
        env!("CARGO_PKG_VERSION").hash(&mut settings);
        Self(format!("{}-{:016x}", module.hex(), settings.finish()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

fn checksum(name: &Name, code: &[u8]) -> [u8; SEAL] {
    Sha256::new().chain_update(&name.0).chain_update([0]).chain_update(code).finalize().into()
}

/// Hashes the same in every process, as `std`'s hasher does not promise to.
struct Settings(Sha256);

impl Hasher for Settings {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let hash: [u8; SEAL] = self.0.clone().finalize().into();
        hash.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(name: &Name) -> Vec<u8> {
        let artifact = Artifact::compiled(b"machine code".to_vec());
        let (code, seal) = artifact.seal(name);
        [code, &seal].concat()
    }

    #[test]
    fn what_was_sealed_is_opened() {
        let name = Name("a".into());
        assert_eq!(Artifact::open(&name, sealed(&name)).unwrap().0, b"machine code");
    }

    #[test]
    fn every_changed_bit_and_every_missing_byte_is_found() {
        let name = Name("a".into());
        let whole = sealed(&name);
        for place in 0..whole.len() {
            for bit in 0..8 {
                let mut altered = whole.clone();
                altered[place] ^= 1 << bit;
                assert!(Artifact::open(&name, altered).is_none(), "byte {place}, bit {bit}");
            }
            assert!(Artifact::open(&name, whole[..place].to_vec()).is_none(), "{place} bytes");
        }
        assert!(Artifact::open(&name, [whole.as_slice(), b"x"].concat()).is_none(), "a byte more");
        assert!(Artifact::open(&Name("b".into()), whole).is_none(), "under another name");
    }

    #[test]
    fn a_name_is_the_same_in_each_engine_of_the_same_settings() {
        let engine = |fuel| Engine::new(crate::hook::wasm::run::engine::config().consume_fuel(fuel)).unwrap();
        let digest = Digest::of(b"module");
        let name = Name::new(digest, &engine(true));
        assert_eq!(name, Name::new(digest, &engine(true)));
        assert!(name != Name::new(digest, &engine(false)), "other settings");
        assert!(name != Name::new(Digest::of(b"other"), &engine(true)), "another module");
        assert!(name.as_str().starts_with(&digest.hex()));
    }
}
