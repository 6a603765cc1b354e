//! Policy for hooks, set by the server's flags: it bounds what specs may ask for.

use std::collections::BTreeSet;

use crate::api::SpecError;
use crate::api::limits::LimitBounds;

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
        let allowed = &self.mount_secret_namespaces;
        if self.secrets_by_account || allowed.contains(namespace) {
            return Ok(());
        }
        let from = if allowed.is_empty() {
            "from nowhere".to_owned()
        } else {
            format!("from {} only", listed(allowed))
        };
        let problem = format!(
            "this server mounts Secrets {from} (--mount-secret-namespaces): add {namespace:?} to the flag, or mount a ConfigMap"
        );
        Err(SpecError::new(format!("{field}.secret.namespace"), problem))
    }
}

fn listed(names: &BTreeSet<String>) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
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
}
