//! `metahook compile-runners`: the interpreters of scripts are compiled when they are built, not when they are first used.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use metahook_core::api::policy::LimitBounds;
use metahook_server::hook::wasm::compile::ModuleError;
use metahook_server::hook::wasm::run::{EngineError, RuntimeSettings};
use metahook_server::hook::wasm::source::ModuleRegistry;

use super::author_flags::RunnerFlags;

#[derive(Debug, Args)]
pub struct CompileRunners {
    #[command(flatten)]
    runners: RunnerFlags,
}

#[derive(Debug, thiserror::Error)]
pub enum CompileRunnersError {
    #[error("the sandbox cannot be set up")]
    Sandbox(#[from] EngineError),
    #[error("there is neither python.wasm nor javascript.wasm in {}: name their folder with --runners", .0.display())]
    None(PathBuf),
    #[error(transparent)]
    Module(#[from] ModuleError),
    #[error("cannot print")]
    Print(#[from] std::io::Error),
}

impl CompileRunners {
    /// Writes the code of each runner beside it, unless it is there.
    ///
    /// # Errors
    /// A runner cannot be compiled, or its code cannot be written.
    pub async fn run(self, mut out: impl Write) -> Result<(), CompileRunnersError> {
        let modules = self.runners.module_settings();
        let settings = RuntimeSettings { concurrency: 1, limits: LimitBounds::default(), modules };
        let folder = settings.modules.runners.clone().unwrap_or_default();
        let written = ModuleRegistry::new(&settings)?.compile_runners().await?;
        if written.is_empty() {
            return Err(CompileRunnersError::None(folder));
        }
        for path in written {
            writeln!(out, "{}", path.display())?;
        }
        Ok(())
    }
}
