//! Flags for hooks: limits of modules, limits of calls, and where modules and mounts come from.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use metahook_core::api::customize::CustomizeBounds;
use metahook_core::api::kept::KeptBounds;
use metahook_core::api::policy::{BrakeLimits, HookPolicy, LimitBounds, Limits};

use crate::values::{FlagError, bytes, duration};
use metahook_server::hook::wasm::compile::{ModuleBounds, ModuleSettings};

/// This program, also where its file has been replaced by another version.
pub(super) const THIS_PROGRAM: &str = "/proc/self/exe";

/// The folder of the interpreters of scripts.
const RUNNERS: &str = "runners";

/// Limits of a module before its first call.
#[derive(Debug, Args)]
#[command(next_help_heading = "Modules")]
pub struct ModuleFlags {
    /// Bytes of a module as it is stored, compressed.
    #[arg(long = "module-packed-max", value_name = "BYTES", default_value = "16Mi", value_parser = bytes)]
    pub packed_max: u64,
    /// Bytes of a module, unpacked.
    #[arg(long = "module-size-max", value_name = "BYTES", default_value = "64Mi", value_parser = bytes)]
    pub size_max: u64,
    /// Functions of a module, and elements of its table.
    #[arg(long = "module-functions-max", value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub functions_max: u32,
    /// Processor time to compile a module.
    #[arg(long = "module-compile-timeout", value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub compile_timeout: Duration,
    /// Memory to compile a module.
    #[arg(long = "module-compile-memory", value_name = "BYTES", default_value = "1Gi", value_parser = bytes)]
    pub compile_memory: u64,
    /// Code of all loaded modules together, as it is compiled.
    #[arg(long = "module-code-max", value_name = "BYTES", default_value = "1Gi", value_parser = bytes)]
    pub code_max: u64,
    /// Compilations at once; one per two cores when absent.
    #[arg(long = "module-compilations", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub compilations: Option<u16>,
    /// Versions of each module or script that are kept in the server's namespace: where a new one is refused, a server that starts goes on with the last of them; 0 keeps none.
    #[arg(long = "kept-versions", value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(..=100))]
    pub kept_versions: u16,
    /// Bytes of all kept versions together, as they are stored; the oldest go first.
    #[arg(long = "kept-versions-max", value_name = "BYTES", default_value = "64Mi", value_parser = bytes)]
    pub kept_versions_max: u64,
    /// Folder for compiled modules, for the server alone: mode 0700; the server creates it.
    #[arg(long = "module-cache-dir", value_name = "FOLDER", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub cache_dir: Option<PathBuf>,
    /// Folder of the interpreters of scripts, python.wasm and javascript.wasm, which are compiled as the server starts; when absent the folder runners beside this program, and they are compiled for the first script.
    #[arg(long, value_name = "FOLDER", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub runners: Option<PathBuf>,
}

impl ModuleFlags {
    pub(super) fn kept(&self) -> KeptBounds {
        KeptBounds { versions: self.kept_versions.into(), bytes: self.kept_versions_max }
    }

    pub(super) fn settings(self, cores: usize) -> ModuleSettings {
        ModuleSettings {
            compiler: THIS_PROGRAM.into(),
            bounds: ModuleBounds {
                packed: self.packed_max,
                size: self.size_max,
                functions: self.functions_max,
                compile_time: self.compile_timeout,
                compile_memory: self.compile_memory,
                code: self.code_max,
            },
            // A compiler works with two threads.
            compilations: self.compilations.map_or((cores / 2).max(1), usize::from),
            cache: self.cache_dir.filter(|path| !path.as_os_str().is_empty()),
            seal_key: None,
            prepare_runners: self.runners.is_some(),
            runners: Some(self.runners.filter(|path| !path.as_os_str().is_empty()).unwrap_or_else(runners)),
        }
    }
}

/// Where the interpreters of scripts lie: beside this program, or, as a build leaves them, beside its folder.
pub(super) fn runners() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let beside = program.with_file_name(RUNNERS);
    let above = program.parent().map(|folder| folder.with_file_name(RUNNERS)).filter(|path| path.is_dir());
    if beside.is_dir() { beside } else { above.unwrap_or(beside) }
}

/// Where modules and mounted files come from.
#[derive(Debug, Args)]
#[command(next_help_heading = "Modules and mounts")]
pub struct PolicyFlags {
    /// Namespaces whose ConfigMaps may hold modules; all when absent.
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',')]
    pub module_namespaces: Vec<String>,
    /// Refuse modules that the controller's spec does not pin by `sha256`.
    #[arg(long)]
    pub require_pin: bool,
    /// Namespaces whose Secrets modules and scripts may mount, and have as parents, children and related objects; none when absent.
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',')]
    pub mount_secret_namespaces: Vec<String>,
    /// Memory that the mounted files of all hooks may take, each version until the last call that sees it ends.
    #[arg(long, value_name = "BYTES", default_value = "64Mi", value_parser = bytes)]
    pub mount_memory_max: u64,
    /// Children that may be deleted because the hooks or the spec of a controller changed, before the rest waits for a user.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub deletion_brake_children: usize,
    /// The same as a share of the controller's children: the larger of the two counts; 100 turns the brake off.
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub deletion_brake_percent: u8,
}

impl PolicyFlags {
    pub(super) fn policy(&self, limits: LimitBounds) -> HookPolicy {
        HookPolicy {
            limits,
            module_namespaces: names(&self.module_namespaces),
            require_pin: self.require_pin,
            mount_secret_namespaces: names(&self.mount_secret_namespaces),
            secrets_by_account: false,
            deletion_brake: BrakeLimits {
                children: self.deletion_brake_children,
                percent: self.deletion_brake_percent,
                exempt: Vec::new(),
            },
        }
    }
}

/// Bounds of customize hooks.
#[derive(Debug, Args)]
#[command(next_help_heading = "Related objects")]
#[expect(clippy::struct_field_names, reason = "each field has the name of its flag")]
pub struct CustomizeFlags {
    /// Bytes of an answer of a customize hook.
    #[arg(long, value_name = "BYTES", default_value = "2Mi", value_parser = bytes)]
    pub customize_bytes_max: u64,
    /// Names in an answer.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub customize_names_max: usize,
    /// Labels and expressions in the selectors of an answer.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub customize_expressions_max: usize,
    /// Values of labels in the selectors of an answer.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub customize_values_max: usize,
    /// Objects and rules that one reconcile looks at to find related objects.
    #[arg(long, value_name = "N", default_value_t = 500_000)]
    pub customize_steps_max: usize,
    /// Memory for the rules of one controller's parents.
    #[arg(long, value_name = "BYTES", default_value = "128Mi", value_parser = bytes)]
    pub customize_memory_max: u64,
    /// Watches of one controller's related objects.
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub customize_watches_max: usize,
}

impl CustomizeFlags {
    pub(super) fn bounds(&self) -> CustomizeBounds {
        let size = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
        CustomizeBounds {
            bytes: size(self.customize_bytes_max),
            names: self.customize_names_max,
            expressions: self.customize_expressions_max,
            values: self.customize_values_max,
            steps: self.customize_steps_max,
            memory: size(self.customize_memory_max),
            watches: self.customize_watches_max,
        }
    }
}

/// An empty value, as a chart may give it, names nothing.
fn names(given: &[String]) -> BTreeSet<String> {
    given.iter().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

/// Limits of one call of a hook: defaults, and the most that a spec may ask for.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits of hooks")]
#[expect(clippy::struct_field_names, reason = "each field has the name of its flag")]
pub struct HookLimits {
    /// Memory of a call.
    #[arg(long, value_name = "BYTES", default_value = "64Mi", value_parser = bytes)]
    pub hook_memory: u64,
    /// Most memory that a spec may ask for.
    #[arg(long, value_name = "BYTES", default_value = "512Mi", value_parser = bytes)]
    pub hook_memory_max: u64,
    /// Time of a call.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub hook_timeout: Duration,
    /// Most time that a spec may ask for.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub hook_timeout_max: Duration,
    /// Instructions of a call; four times as many for a script.
    #[arg(long, value_name = "N", default_value_t = 1_000_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub hook_instructions: u64,
    /// Most instructions that a spec may ask for.
    #[arg(long, value_name = "N", default_value_t = 100_000_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub hook_instructions_max: u64,
    /// Bytes of an answer on stdout.
    #[arg(long, value_name = "BYTES", default_value = "4Mi", value_parser = bytes)]
    pub hook_output: u64,
    /// Most bytes of an answer that a spec may ask for.
    #[arg(long, value_name = "BYTES", default_value = "32Mi", value_parser = bytes)]
    pub hook_output_max: u64,
    /// Bytes of stderr that are kept of a call.
    #[arg(long, value_name = "BYTES", default_value = "64Ki", value_parser = bytes)]
    pub hook_log: u64,
    /// Most bytes of stderr that a spec may ask for.
    #[arg(long, value_name = "BYTES", default_value = "1Mi", value_parser = bytes)]
    pub hook_log_max: u64,
}

impl HookLimits {
    pub(super) fn bounds(&self) -> Result<LimitBounds, FlagError> {
        let default = Limits {
            memory: self.hook_memory,
            timeout: self.hook_timeout,
            instructions: self.hook_instructions,
            output: self.hook_output,
            log: self.hook_log,
        };
        let ceiling = Limits {
            memory: self.hook_memory_max,
            timeout: self.hook_timeout_max,
            instructions: self.hook_instructions_max,
            output: self.hook_output_max,
            log: self.hook_log_max,
        };
        let above = [
            ("hook-memory", default.memory > ceiling.memory),
            ("hook-timeout", default.timeout > ceiling.timeout),
            ("hook-instructions", default.instructions > ceiling.instructions),
            ("hook-output", default.output > ceiling.output),
            ("hook-log", default.log > ceiling.log),
        ];
        match above.into_iter().find(|(_, above)| *above) {
            Some((flag, _)) => Err(FlagError::AboveMax(flag)),
            None => Ok(LimitBounds { default, ceiling }),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        modules: ModuleFlags,
    }

    fn settings(flags: &[&str], cores: usize) -> ModuleSettings {
        Flags::parse_from(["test"].iter().chain(flags)).modules.settings(cores)
    }

    #[test]
    fn the_bounds_of_the_flags_are_those_of_the_types() {
        let runners = Some(runners());
        assert_eq!(settings(&[], 1), ModuleSettings { runners, ..ModuleSettings::new(THIS_PROGRAM) });
    }

    #[test]
    fn there_is_one_compilation_per_two_cores_and_at_least_one() {
        for (cores, compilations) in [(1, 1), (2, 1), (3, 1), (4, 2), (64, 32)] {
            assert_eq!(settings(&[], cores).compilations, compilations, "{cores} cores");
        }
        assert_eq!(settings(&["--module-compilations=3"], 64).compilations, 3);
    }

    #[test]
    fn an_empty_folder_is_none() {
        assert_eq!(settings(&["--module-cache-dir="], 1).cache, None);
        assert_eq!(settings(&["--module-cache-dir=/x"], 1).cache, Some("/x".into()));
    }
}
