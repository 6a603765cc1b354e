//! Bounds of a controller: what the server's flags let its hooks do and use, and the ServiceAccount whose rights it has.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::{self, SpecError, units};
use crate::object::id::Gvr;

/// The default trusts every user who may create controllers, except with Secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HookPolicy {
    pub limits: LimitBounds,
    /// Where modules may lie; anywhere when empty.
    pub module_namespaces: BTreeSet<String>,
    /// Modules without `sha256` are refused.
    pub require_pin: bool,
    /// Where Secrets may be mounted from; nowhere when empty.
    pub mount_secret_namespaces: BTreeSet<String>,
    /// Secrets are read with the rights of the controller's own account, which say where they may come from.
    pub secrets_by_account: bool,
    /// The threshold of deletions after a change, where a spec sets no other one.
    pub deletion_brake: BrakeLimits,
}

impl HookPolicy {
    /// For a controller with an account of its own.
    #[must_use]
    pub fn by_account(&self) -> Self {
        Self { secrets_by_account: true, ..self.clone() }
    }

    /// `field` is the wasm hook's.
    pub(super) fn allows_module(
        &self,
        field: &str,
        namespace: &str,
        is_pinned: bool,
    ) -> Result<(), SpecError> {
        let allowed = &self.module_namespaces;
        if !allowed.is_empty() && !allowed.contains(namespace) {
            let problem = format!(
                "{namespace:?} is not where this server takes modules from, which is {} (--module-namespaces): store the module there, or add the namespace to the flag",
                listed(allowed)
            );
            return Err(SpecError::new(format!("{field}.configMap.namespace"), problem));
        }
        if self.require_pin && !is_pinned {
            let problem = "is missing, and this server runs pinned modules only (--require-pin): write the SHA-256 of the module here, as `metahook pack` prints it";
            return Err(SpecError::new(format!("{field}.sha256"), problem));
        }
        Ok(())
    }

    /// `field` is the mount's.
    pub(super) fn allows_secret(&self, field: &str, namespace: &str) -> Result<(), SpecError> {
        if self.secrets_by_account || self.mount_secret_namespaces.contains(namespace) {
            return Ok(());
        }
        let problem = format!(
            "this server mounts Secrets {} (--mount-secret-namespaces): add {namespace:?} to the flag, or mount a ConfigMap",
            from(&self.mount_secret_namespaces)
        );
        Err(SpecError::new(format!("{field}.secret.namespace"), problem))
    }
}

pub(super) fn from(namespaces: &BTreeSet<String>) -> String {
    let names = listed(namespaces);
    if names.is_empty() { "from nowhere".to_owned() } else { format!("from {names} only") }
}

fn listed(names: &BTreeSet<String>) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

/// Limits of one call. None may exceed the server's ceiling.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WasmLimits {
    /// Memory of the module, for example `64Mi`. Default: the server's flag `--hook-memory`.
    pub memory: Option<String>,
    /// Time that a call takes, for example `10s`. Default: the server's flag `--hook-timeout`.
    pub timeout: Option<String>,
    /// Instructions of a call, which are the same on every machine. Default: the server's flag `--hook-instructions`; four times as
    /// many for a script.
    #[schemars(range(min = 1))]
    pub instructions: Option<u64>,
    /// Bytes of the answer, for example `4Mi`. Default: the server's flag `--hook-output`.
    pub output: Option<String>,
    /// Bytes of log lines that the server keeps of a call, for example `64Ki`. Default: the server's flag `--hook-log`.
    pub log: Option<String>,
}

/// Limits with numbers in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub memory: u64,
    pub timeout: Duration,
    pub instructions: u64,
    pub output: u64,
    pub log: u64,
}

/// The server's defaults and ceilings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitBounds {
    pub default: Limits,
    pub ceiling: Limits,
}

impl Default for LimitBounds {
    fn default() -> Self {
        Self {
            default: Limits {
                memory: 64 << 20,
                timeout: Duration::from_secs(10),
                instructions: 1_000_000_000,
                output: 4 << 20,
                log: 64 << 10,
            },
            ceiling: Limits {
                memory: 512 << 20,
                timeout: Duration::from_mins(1),
                instructions: 100_000_000_000,
                output: 32 << 20,
                log: 1 << 20,
            },
        }
    }
}

/// An interpreter takes some hundred thousand instructions before a script begins, and a hundred times those of a module after that.
const SCRIPT_INSTRUCTIONS: u64 = 4;

impl LimitBounds {
    /// The bounds of a hook: a script has room for more instructions where its spec names none.
    #[must_use]
    pub fn of(&self, is_script: bool) -> Self {
        let Self { default, ceiling } = *self;
        let times = if is_script { SCRIPT_INSTRUCTIONS } else { 1 };
        let instructions = default.instructions.saturating_mul(times).min(ceiling.instructions);
        Self { default: Limits { instructions, ..default }, ceiling }
    }
}

impl WasmLimits {
    /// `field` is that of the limits.
    pub fn check(&self, field: &str, bounds: &LimitBounds) -> Result<Limits, SpecError> {
        let LimitBounds { default, ceiling } = bounds;
        let size = |name: &str, text: &Option<String>, default: u64, ceiling: u64| {
            let Some(text) = text else { return Ok(default) };
            let field = format!("{field}.{name}");
            let value = units::bytes(text).filter(|bytes| *bytes > 0).ok_or_else(|| {
                SpecError::new(&field, format!("{text:?} is no amount of bytes: write it like 64Mi"))
            })?;
            within(&field, text, value, &ceiling, &units::print_bytes(ceiling))
        };
        let timeout = match &self.timeout {
            None => default.timeout,
            Some(text) => {
                let field = format!("{field}.timeout");
                let value =
                    units::duration(text).filter(|duration| !duration.is_zero()).ok_or_else(|| {
                        SpecError::new(&field, format!("{text:?} is no duration: write it like 10s or 500ms"))
                    })?;
                within(&field, text, value, &ceiling.timeout, &format!("{}s", ceiling.timeout.as_secs_f64()))?
            }
        };
        let instructions = match self.instructions {
            None => default.instructions,
            Some(0) => {
                return Err(SpecError::new(
                    format!("{field}.instructions"),
                    "0 is too few for any hook: leave it out",
                ));
            }
            Some(number) => {
                let field = format!("{field}.instructions");
                within(
                    &field,
                    &number.to_string(),
                    number,
                    &ceiling.instructions,
                    &ceiling.instructions.to_string(),
                )?
            }
        };
        Ok(Limits {
            memory: size("memory", &self.memory, default.memory, ceiling.memory)?,
            timeout,
            instructions,
            output: size("output", &self.output, default.output, ceiling.output)?,
            log: size("log", &self.log, default.log, ceiling.log)?,
        })
    }
}

fn within<T: PartialOrd>(
    field: &str,
    text: &str,
    value: T,
    ceiling: &T,
    ceiling_text: &str,
) -> Result<T, SpecError> {
    if value > *ceiling {
        let problem = format!(
            "{text} is above this server's ceiling of {ceiling_text}: lower it, or raise the ceiling by the server's flags --hook-*-max"
        );
        return Err(SpecError::new(field, problem));
    }
    Ok(value)
}

/// A ServiceAccount: what the controller writes, and what its modules are made of, is written and read with its rights.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ServiceAccountRef {
    /// Namespace of the ServiceAccount.
    pub namespace: String,
    /// Name of the ServiceAccount.
    pub name: String,
}

impl ServiceAccountRef {
    /// # Errors
    /// A name that no ServiceAccount has.
    pub fn check(&self, field: &str) -> Result<(), SpecError> {
        for (part, text) in [("namespace", &self.namespace), ("name", &self.name)] {
            let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
            if text.is_empty() || !text.chars().all(allowed) {
                let problem = format!("{text:?} is no name: lower case letters, digits, dashes and dots");
                return Err(SpecError::new(format!("{field}.{part}"), problem));
            }
        }
        Ok(())
    }

    /// The account's user name at the API server.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

/// The account as messages name it: `hello/greeter`.
impl fmt::Display for ServiceAccountRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The share of children that no number of deletions exceeds: the brake is off.
const ALL: u8 = 100;

/// Deletions beyond both numbers are held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrakeLimits {
    pub children: usize,
    /// Percentage of the children that the controller manages.
    pub percent: u8,
    /// Kinds whose deletions are not counted, in any version.
    pub exempt: Vec<Gvr>,
}

impl Default for BrakeLimits {
    fn default() -> Self {
        Self { children: 5, percent: 20, exempt: Vec::new() }
    }
}

impl BrakeLimits {
    pub fn is_exempt(&self, kind: &Gvr) -> bool {
        self.exempt.iter().any(|exempt| exempt.is_kin(kind))
    }

    /// The deletions that do not wait, of so many children.
    pub fn max_deletions(&self, managed: usize) -> usize {
        if self.percent >= ALL {
            return usize::MAX;
        }
        // Divided first: the product of a large number would not fit.
        let (hundreds, rest) = (managed / 100, managed % 100);
        let percent = usize::from(self.percent);
        self.children.max(hundreds * percent + rest * percent / 100)
    }
}

/// Deletions beyond both numbers wait.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeletionBrakeSpec {
    /// The server deletes this number of children in any case. Default: the server's flag `--deletion-brake-children`.
    pub children: Option<u32>,
    /// The server deletes this percentage of the controller's children in any case; 100 turns the brake off.
    /// Default: the server's flag `--deletion-brake-percent`.
    #[schemars(range(min = 0, max = 100))]
    pub percent: Option<u8>,
    /// Kinds of children whose deletions never wait. Default: none.
    pub exempt: Option<Vec<ExemptKind>>,
}

/// A kind of children whose deletions never wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExemptKind {
    /// Group and version of the kind, such as `apps/v1`; of the core group the version alone, `v1`.
    pub api_version: String,
    /// Plural name of the kind, in lower case, such as `deployments`.
    pub resource: String,
}

impl DeletionBrakeSpec {
    /// The limits of the spec, with the numbers of the server's flags where the spec names none.
    pub fn check(&self, flags: &BrakeLimits) -> Result<BrakeLimits, SpecError> {
        if let Some(percent) = self.percent.filter(|percent| *percent > ALL) {
            return Err(SpecError::new(
                "spec.deletionBrake.percent",
                format!("{percent} is more than {ALL}"),
            ));
        }
        let exempt = self.exempt.iter().flatten().enumerate().map(|(at, kind)| {
            api::resource(&format!("spec.deletionBrake.exempt[{at}]"), &kind.api_version, &kind.resource)
        });
        let children = self.children.map(|children| usize::try_from(children).unwrap_or(usize::MAX));
        Ok(BrakeLimits {
            children: children.unwrap_or(flags.children),
            percent: self.percent.unwrap_or(flags.percent),
            exempt: exempt.collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn modules_lie_anywhere_unless_the_flag_names_namespaces() {
        let anywhere = HookPolicy::default();
        assert_eq!(anywhere.allows_module("wasm", "x", false), Ok(()));
        let bounded = HookPolicy { module_namespaces: names(&["a", "b"]), ..HookPolicy::default() };
        assert_eq!(bounded.allows_module("wasm", "b", false), Ok(()));
        let refused = bounded.allows_module("wasm", "x", false).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "wasm.configMap.namespace: \"x\" is not where this server takes modules from, which is \"a\", \"b\" (--module-namespaces): store the module there, or add the namespace to the flag"
        );
    }

    #[test]
    fn a_pin_is_wanted_where_the_flag_says_so() {
        let pinned = HookPolicy { require_pin: true, ..HookPolicy::default() };
        assert_eq!(pinned.allows_module("wasm", "x", true), Ok(()));
        let refused = pinned.allows_module("wasm", "x", false).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "wasm.sha256: is missing, and this server runs pinned modules only (--require-pin): write the SHA-256 of the module here, as `metahook pack` prints it"
        );
    }

    #[test]
    fn secrets_are_mounted_from_nowhere_but_where_the_flag_says() {
        let from = |allowed| HookPolicy { mount_secret_namespaces: names(allowed), ..HookPolicy::default() };
        assert_eq!(from(&["hello"]).allows_secret("mounts[0]", "hello"), Ok(()));
        assert_eq!(
            from(&[]).allows_secret("mounts[0]", "hello").unwrap_err().to_string(),
            "mounts[0].secret.namespace: this server mounts Secrets from nowhere (--mount-secret-namespaces): add \"hello\" to the flag, or mount a ConfigMap"
        );
        assert_eq!(
            from(&["a"]).allows_secret("mounts[0]", "hello").unwrap_err().problem,
            "this server mounts Secrets from \"a\" only (--mount-secret-namespaces): add \"hello\" to the flag, or mount a ConfigMap"
        );
    }

    #[test]
    fn an_account_is_a_user_and_has_a_name_that_fits_into_one() {
        let account = |namespace: &str, name: &str| ServiceAccountRef {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        assert_eq!(account("hello", "greeter").user(), "system:serviceaccount:hello:greeter");
        assert_eq!(account("hello", "a.b-1").check("f"), Ok(()));
        for (account, says) in [
            (account("", "x"), "f.namespace: \"\" is no name"),
            (account("n", ""), "f.name: \"\" is no name"),
            (account("n", "x:y"), "f.name: \"x:y\" is no name"),
            (account("n\r\nx", "y"), "f.namespace: "),
        ] {
            assert!(account.check("f").unwrap_err().to_string().starts_with(says));
        }
    }
}
