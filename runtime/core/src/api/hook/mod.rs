//! Hook of a controller: a WebAssembly module, a script or a webhook.

mod stored;
#[cfg(test)]
mod tests;
mod transport;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::SpecError;
use crate::api::endpoint::WebhookTarget;
use crate::api::mount::MountRef;
use crate::api::policy::{HookPolicy, Limits, ServiceAccountRef};
use crate::api::webhook::{UnmarshallMode, Webhook};
use crate::object::Naming;

pub use crate::api::per_hook::{HookName, PerHook};
pub use stored::{ConfigMapKey, Language, Script, ScriptKey, Wasm};
pub use transport::HookTransport;

/// One hook: a `wasm` module, a `script` or a `webhook`. With none of them it is disabled.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "[has(self.webhook), has(self.wasm), has(self.script)].filter(named, named).size() <= 1",
        "message": "a hook is a webhook, a wasm module or a script, not several",
    },
    {
        "rule": "!has(self.shadow) || has(self.webhook) || has(self.wasm) || has(self.script)",
        "message": "a shadow is compared with a hook: name a webhook, a wasm module or a script beside it",
    },
]))]
pub struct HookSpec {
    /// How requests name objects, and how strictly the server reads answers.
    #[serde(default)]
    #[schemars(default)]
    pub version: HookVersion,
    pub webhook: Option<Webhook>,
    pub wasm: Option<Wasm>,
    pub script: Option<Script>,
    /// A second hook that the server calls with the same request. The server compares its answer with the hook's, and never carries it out.
    pub shadow: Option<Shadow>,
}

/// A hook that is compared with another one: `wasm`, `script` or `webhook`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.webhook), has(self.wasm), has(self.script)].filter(named, named).size() == 1",
    "message": "a shadow is a webhook, a wasm module or a script",
}]))]
pub struct Shadow {
    pub webhook: Option<Webhook>,
    pub wasm: Option<Wasm>,
    pub script: Option<Script>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HookVersion {
    #[default]
    #[serde(alias = "")]
    V1,
    V2,
}

impl HookVersion {
    pub fn naming(self) -> Naming {
        match self {
            Self::V1 => Naming::Relative,
            Self::V2 => Naming::Uniform,
        }
    }

    /// Default for refusing unknown and repeated fields of answers; a webhook may override it.
    pub fn mode(self) -> UnmarshallMode {
        match self {
            Self::V1 => UnmarshallMode::Loose,
            Self::V2 => UnmarshallMode::Strict,
        }
    }
}

/// A [`HookSpec`] after its checks, with a module or a webhook.
#[derive(Debug, Clone, PartialEq)]
pub struct EnabledHook {
    pub version: HookVersion,
    pub target: HookTarget,
}

/// A hook by its kind, as a spec names it; a script is a module. [`HookTransport`] is the kind alone.
#[derive(Debug, Clone, PartialEq)]
pub enum HookTarget {
    Wasm(WasmHook),
    Webhook(WebhookTarget),
}

/// A Wasm hook or a script, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct WasmHook {
    pub module: ModuleRef,
    pub settings: Option<Value>,
    pub mounts: Vec<MountRef>,
    pub limits: Limits,
}

/// Which bytes a module or a script is made of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModuleRef {
    /// Language of a script; a module has none.
    pub language: Option<Language>,
    pub namespace: String,
    pub name: String,
    pub key: String,
    pub sha256: Option<String>,
    /// The account that reads it; the server's own when absent.
    pub reader: Option<ServiceAccountRef>,
}

impl EnabledHook {
    pub fn via(&self) -> HookTransport {
        match self.target {
            HookTarget::Wasm(_) => HookTransport::Wasm,
            HookTarget::Webhook(_) => HookTransport::Webhook,
        }
    }

    /// The module or the script that it calls.
    pub fn module(&self) -> Option<&ModuleRef> {
        match &self.target {
            HookTarget::Wasm(hook) => Some(&hook.module),
            HookTarget::Webhook(_) => None,
        }
    }

    /// How its answers are read.
    pub fn mode(&self) -> UnmarshallMode {
        let said = match &self.target {
            HookTarget::Wasm(_) => None,
            HookTarget::Webhook(target) => target.mode,
        };
        said.unwrap_or(self.version.mode())
    }
}

impl WasmHook {
    /// From now on the module and its mounts are read with the rights of `account`.
    pub(super) fn read_as(&mut self, account: &ServiceAccountRef) {
        self.module.reader = Some(account.clone());
        for mount in &mut self.mounts {
            mount.reader = Some(account.clone());
        }
    }
}

impl HookSpec {
    /// `Ok(None)`: the hook is disabled.
    pub fn check(&self, field: &str, policy: &HookPolicy) -> Result<Option<EnabledHook>, SpecError> {
        self.ways().check(self.version, field, policy)
    }

    /// The shadow, which speaks the hook's version; `Ok(None)`: there is none.
    pub fn check_shadow(&self, field: &str, policy: &HookPolicy) -> Result<Option<EnabledHook>, SpecError> {
        let Some(shadow) = &self.shadow else { return Ok(None) };
        if self.ways().is_none() {
            return Err(SpecError::new(
                field,
                "there is no hook to compare it with: name one beside the shadow",
            ));
        }
        shadow.ways().check(self.version, field, policy)?.map(Some).ok_or_else(|| {
            SpecError::new(field, "names neither a webhook nor a wasm module nor a script: name one")
        })
    }

    pub(super) fn ways(&self) -> Ways<'_> {
        let Self { version: _, webhook, wasm, script, shadow: _ } = self;
        Ways { webhook: webhook.as_ref(), wasm: wasm.as_ref(), script: script.as_ref() }
    }
}

impl Shadow {
    pub(super) fn ways(&self) -> Ways<'_> {
        let Self { webhook, wasm, script } = self;
        Ways { webhook: webhook.as_ref(), wasm: wasm.as_ref(), script: script.as_ref() }
    }
}

/// The fields of a hook that say of which kind it is; at most one may be set. Its users take it apart without `..`, so that
/// the compiler names them when a field is added.
#[derive(Clone, Copy)]
pub(super) struct Ways<'a> {
    pub(super) webhook: Option<&'a Webhook>,
    pub(super) wasm: Option<&'a Wasm>,
    pub(super) script: Option<&'a Script>,
}

impl Ways<'_> {
    fn is_none(self) -> bool {
        let Self { webhook, wasm, script } = self;
        webhook.is_none() && wasm.is_none() && script.is_none()
    }

    fn check(
        self,
        version: HookVersion,
        field: &str,
        policy: &HookPolicy,
    ) -> Result<Option<EnabledHook>, SpecError> {
        let Self { webhook, wasm, script } = self;
        let target = match (webhook, wasm, script) {
            (None, None, None) => return Ok(None),
            (Some(webhook), None, None) => HookTarget::Webhook(webhook.check(&format!("{field}.webhook"))?),
            (None, Some(wasm), None) => HookTarget::Wasm(wasm.check(&format!("{field}.wasm"), policy)?),
            (None, None, Some(script)) => HookTarget::Wasm(script.check(&format!("{field}.script"), policy)?),
            _ => {
                let problem = "a hook is a webhook, a wasm module or a script, not several: keep one";
                return Err(SpecError::new(field, problem));
            }
        };
        Ok(Some(EnabledHook { version, target }))
    }
}
