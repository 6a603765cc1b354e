//! Flags that bound what hooks may ask for, whoever writes their specs.

use std::collections::BTreeSet;

use clap::Args;
use metahook_core::api::hook::LimitBounds;
use metahook_core::api::policy::HookPolicy;

use super::bytes;

/// Where modules and mounted files come from.
#[derive(Debug, Args)]
#[command(next_help_heading = "Modules and mounts")]
pub struct PolicyFlags {
    /// Namespaces whose ConfigMaps may hold modules; all when absent.
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',')]
    pub module_namespaces: Vec<String>,
    /// Refuse modules that the controller does not pin by `sha256`.
    #[arg(long)]
    pub require_pin: bool,
    /// Namespaces whose Secrets hooks may mount; none when absent.
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',')]
    pub mount_secret_namespaces: Vec<String>,
    /// Memory that the mounted files of all hooks may take, each version until the last call that sees it ends.
    #[arg(long, value_name = "BYTES", default_value = "64Mi", value_parser = bytes)]
    pub mount_memory_max: u64,
}

impl PolicyFlags {
    pub(super) fn policy(&self, limits: LimitBounds) -> HookPolicy {
        HookPolicy {
            limits,
            module_namespaces: names(&self.module_namespaces),
            require_pin: self.require_pin,
            mount_secret_namespaces: names(&self.mount_secret_namespaces),
            secrets_by_account: false,
        }
    }
}

/// An empty value, as a chart may give it, names nothing.
fn names(given: &[String]) -> BTreeSet<String> {
    given.iter().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}
