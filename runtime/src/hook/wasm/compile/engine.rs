//! Engines: one for modules and one for components, with the settings that decide about their code.

use wasmtime::{Config, Engine};

use super::check;
use super::outline::WasmKind;

/// The settings of an engine that decide about code: the compiler's process and the server share them. A pool of instances
/// is none of them.
pub fn engine_config() -> Config {
    let mut config = Config::new();
    // Fuel is the measure of a call, equal on every machine; yields make a long call give way.
    config.consume_fuel(true);
    config.cranelift_nan_canonicalization(true);
    config.max_wasm_stack(512 << 10);
    config.async_stack_size(2 << 20);
    config.memory_guaranteed_dense_image_size(WasmKind::Module.dense_image());
    config.wasm_features(check::ALLOWED.complement(), false);
    // The baseline of the architecture: code that one machine compiles, all others run, be it out of an image or a shared cache.
    if let ("x86_64" | "aarch64", "linux") = (std::env::consts::ARCH, std::env::consts::OS) {
        let libc = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
        let is_known = config.target(&format!("{}-unknown-linux-{libc}", std::env::consts::ARCH)).is_ok();
        debug_assert!(is_known, "the machine that this program runs on");
    }
    config
}

/// The settings of an engine for components, where they decide about code.
pub fn component_engine_config() -> Config {
    let mut config = engine_config();
    config.wasm_features(check::ALLOWED_IN_COMPONENTS, true);
    config.memory_guaranteed_dense_image_size(WasmKind::Component.dense_image());
    // Wasmtime copies values between inner components by modules of its own, which use both memories. Hooks' own modules have
    // one: `check::validate` refuses others first.
    config.wasm_multi_memory(true);
    config
}

/// The engines of the two kinds.
#[derive(Clone)]
pub(in crate::hook::wasm) struct Engines {
    pub(in crate::hook::wasm) modules: Engine,
    pub(in crate::hook::wasm) components: Engine,
}

impl Engines {
    pub(super) fn of(&self, kind: WasmKind) -> &Engine {
        match kind {
            WasmKind::Module => &self.modules,
            WasmKind::Component => &self.components,
        }
    }
}
