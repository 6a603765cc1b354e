//! Space that the code of all loaded modules takes together, on disk or in memory, which has a bound.

use std::sync::{Arc, Mutex};

use super::module_error::ModuleError;
use crate::sync::lock;

/// Bytes of the code of all loaded modules.
#[derive(Clone, Default)]
pub(super) struct LoadedCode(Arc<Mutex<u64>>);

/// The space that one module's code takes, which is given back with it.
#[derive(Default)]
pub(in crate::hook::wasm) struct CodeSpace {
    bytes: u64,
    loaded: Arc<Mutex<u64>>,
}

impl LoadedCode {
    /// Takes space for the code of one module.
    ///
    /// # Errors
    /// With it, all code would take more than `max`.
    pub(super) fn add(&self, bytes: u64, max: u64) -> Result<CodeSpace, ModuleError> {
        let mut loaded = lock(&self.0);
        let together = loaded.saturating_add(bytes);
        if together > max {
            return Err(ModuleError::AllCode { bytes, others: *loaded, max });
        }
        *loaded = together;
        Ok(CodeSpace { bytes, loaded: Arc::clone(&self.0) })
    }
}

impl Drop for CodeSpace {
    fn drop(&mut self) {
        let mut loaded = lock(&self.loaded);
        *loaded = loaded.saturating_sub(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_code_has_one_space_which_is_given_back() {
        const MAX: u64 = 100 << 20;
        let (loaded, mib) = (LoadedCode::default(), |mib: u64| mib << 20);
        let (first, second) = (loaded.add(mib(60), MAX).unwrap(), loaded.add(mib(40), MAX).unwrap());
        let message = loaded.add(1, MAX).err().unwrap().to_string();
        assert_eq!(
            message,
            "with this module's 1Mi, the code of all loaded modules would take 101Mi, and 100Mi are allowed (--module-code-max): raise it where disk and memory have room, or make the modules smaller"
        );
        drop(second);
        assert!(loaded.add(mib(40) + 1, MAX).is_err());
        assert!(loaded.add(mib(40), MAX).is_ok());
        drop(first);
        assert!(loaded.add(MAX, MAX).is_ok());
        assert!(loaded.add(u64::MAX, u64::MAX).is_ok(), "a runner has no bound");
    }
}
