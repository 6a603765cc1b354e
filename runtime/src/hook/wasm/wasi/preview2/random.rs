//! Random numbers of a component: one stream for all three interfaces, as preview 1 has one.

use wasmtime::{Result, bail};
use wasmtime_wasi::p2::bindings::random::{insecure, insecure_seed, random};

use super::ComponentState;
use crate::hook::wasm::wasi::determinism::MAX_BYTES;

impl ComponentState {
    fn bytes(&mut self, len: u64) -> Result<Vec<u8>> {
        if len > MAX_BYTES.into() {
            bail!("it wanted {len} random bytes at once and may have {MAX_BYTES}: ask for less, more often");
        }
        self.cost.add(len);
        let mut bytes = vec![0; usize::try_from(len)?];
        self.call.random.fill(&mut bytes);
        Ok(bytes)
    }

    fn number(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.call.random.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

impl random::Host for ComponentState {
    fn get_random_bytes(&mut self, len: u64) -> Result<Vec<u8>> {
        self.bytes(len)
    }

    fn get_random_u64(&mut self) -> Result<u64> {
        Ok(self.number())
    }
}

impl insecure::Host for ComponentState {
    fn get_insecure_random_bytes(&mut self, len: u64) -> Result<Vec<u8>> {
        self.bytes(len)
    }

    fn get_insecure_random_u64(&mut self) -> Result<u64> {
        Ok(self.number())
    }
}

impl insecure_seed::Host for ComponentState {
    fn insecure_seed(&mut self) -> Result<(u64, u64)> {
        Ok((self.number(), self.number()))
    }
}
