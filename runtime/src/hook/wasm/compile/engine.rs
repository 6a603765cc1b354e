//! Engines: one for modules and one for components, with the settings that decide about their code.

use wasmtime::{Config, Engine};

use super::check;
use super::outline::WasmKind;

/// The machines that code runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeTarget {
    /// This one and its like, by all that its processor can: a call of a Rust hook takes 3 to 5 % less.
    Machine,
    /// All of the architecture. Code out of an image runs on nodes that are not known when it is built.
    Baseline,
}

impl CodeTarget {
    const ALL: [Self; 2] = [Self::Machine, Self::Baseline];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Baseline => "baseline",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.as_str() == text)
    }
}

/// The settings of an engine that decide about code: the compiler's process and the server share them. A pool of instances
/// is none of them. An engine for this machine runs code for both targets.
pub fn engine_config(kind: WasmKind, target: CodeTarget) -> Config {
    let mut config = Config::new();
    // Fuel is the measure of a call, equal on every machine; yields make a long call give way.
    config.consume_fuel(true);
    config.cranelift_nan_canonicalization(true);
    config.max_wasm_stack(512 << 10);
    config.async_stack_size(2 << 20);
    config.memory_guaranteed_dense_image_size(kind.dense_image());
    config.wasm_features(check::ALLOWED.complement(), false);
    if kind == WasmKind::Component {
        config.wasm_features(check::ALLOWED_IN_COMPONENTS, true);
        // Wasmtime copies values between inner components by modules of its own, which use both memories. Hooks' own modules
        // have one: `check::validate` refuses others first.
        config.wasm_multi_memory(true);
    }
    if let (CodeTarget::Baseline, "x86_64" | "aarch64", "linux") =
        (target, std::env::consts::ARCH, std::env::consts::OS)
    {
        let libc = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
        // Where the target is named, the compiler looks for no features of this processor.
        let is_known = config.target(&format!("{}-unknown-linux-{libc}", std::env::consts::ARCH)).is_ok();
        debug_assert!(is_known, "the machine that this program runs on");
    }
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
