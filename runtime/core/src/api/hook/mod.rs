//! Hook of a controller: a WebAssembly module, a script or a webhook.

#[cfg(test)]
mod tests;
mod transport;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::SpecError;
use crate::api::endpoint::WebhookTarget;
use crate::api::mount::{self, Mount, MountRef};
use crate::api::policy::{HookPolicy, Limits, ServiceAccountRef, WasmLimits};
use crate::api::webhook::{UnmarshallMode, Webhook};
use crate::object::Naming;

pub use crate::api::per_hook::{HookName, PerHook};
pub use transport::HookTransport;

/// One hook as stored: `wasm`, `script` or `webhook`; with none it is disabled.
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
pub struct Hook {
    /// The shape of requests and answers.
    #[serde(default)]
    #[schemars(default)]
    pub version: HookVersion,
    pub webhook: Option<Webhook>,
    pub wasm: Option<Wasm>,
    pub script: Option<Script>,
    /// Called with the same request as the hook; its answer is compared, and never carried out.
    pub shadow: Option<Shadow>,
}

/// What may take the place of a hook: `wasm`, `script` or `webhook`.
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

/// A hook that runs inside the server: a WASI preview 1 command out of a ConfigMap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wasm {
    /// Where the module is stored.
    pub config_map: ConfigMapKey,
    /// Pins the module: SHA-256 of its bytes, in hexadecimal; `sha256:` may come before it, as in the controller's status.
    #[schemars(regex(pattern = r"^(sha256:)?[0-9a-f]{64}$"))]
    pub sha256: Option<String>,
    /// Handed to the hook as `settings` of each request.
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub settings: Option<Value>,
    /// Directories that the hook may read: one entry each, a file per key.
    #[schemars(length(max = 16))]
    pub mounts: Option<Vec<Mount>>,
    pub limits: Option<WasmLimits>,
}

/// A hook that is a text, run inside the server by the interpreter of its language.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Script {
    pub language: Language,
    /// Where the script is stored.
    pub config_map: ScriptKey,
    /// Pins the script: SHA-256 of its bytes, in hexadecimal; `sha256:` may come before it, as in the controller's status.
    #[schemars(regex(pattern = r"^(sha256:)?[0-9a-f]{64}$"))]
    pub sha256: Option<String>,
    /// Handed to the hook as `settings` of each request.
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub settings: Option<Value>,
    /// Directories that the hook may read: one entry each, a file per key.
    #[schemars(length(max = 16))]
    pub mounts: Option<Vec<Mount>>,
    pub limits: Option<WasmLimits>,
}

/// Where the interpreter sees the script.
const SCRIPT_FOLDER: &str = "/hook/";

/// The language of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    Python,
    #[serde(rename = "javascript")]
    JavaScript,
}

impl Language {
    pub const ALL: [Self; 2] = [Self::Python, Self::JavaScript];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::JavaScript => "javascript",
        }
    }

    /// The language of a file, by the end of its name.
    pub fn of_file(name: &str) -> Option<Self> {
        match name.rsplit_once('.')?.1 {
            "py" => Some(Self::Python),
            "js" | "mjs" => Some(Self::JavaScript),
            _ => None,
        }
    }

    /// The key of a ConfigMap that holds a script, where none is named.
    pub fn default_key(self) -> &'static str {
        match self {
            Self::Python => "hook.py",
            Self::JavaScript => "hook.js",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigMapKey {
    pub namespace: String,
    pub name: String,
    /// The key of `binaryData` or `data` that holds the module; `hook.wasm` when absent.
    pub key: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScriptKey {
    pub namespace: String,
    pub name: String,
    /// The key of `data` or `binaryData` that holds the script; `hook.py` or `hook.js` when absent.
    pub key: Option<String>,
}

/// A [`Hook`] after its checks, with a module or a webhook.
#[derive(Debug, Clone, PartialEq)]
pub struct EnabledHook {
    pub version: HookVersion,
    pub call: Call,
}

/// A hook by its kind, as a spec names it; a script is a module. [`HookTransport`] is the kind alone.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
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
        match self.call {
            Call::Wasm(_) => HookTransport::Wasm,
            Call::Webhook(_) => HookTransport::Webhook,
        }
    }

    /// The module or the script that it calls.
    pub fn module(&self) -> Option<&ModuleRef> {
        match &self.call {
            Call::Wasm(hook) => Some(&hook.module),
            Call::Webhook(_) => None,
        }
    }

    /// How its answers are read.
    pub fn mode(&self) -> UnmarshallMode {
        let said = match &self.call {
            Call::Wasm(_) => None,
            Call::Webhook(target) => target.mode,
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

impl Hook {
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
        let call = match (webhook, wasm, script) {
            (None, None, None) => return Ok(None),
            (Some(webhook), None, None) => Call::Webhook(webhook.check(&format!("{field}.webhook"))?),
            (None, Some(wasm), None) => Call::Wasm(wasm.check(&format!("{field}.wasm"), policy)?),
            (None, None, Some(script)) => Call::Wasm(script.check(&format!("{field}.script"), policy)?),
            _ => {
                let problem = "a hook is a webhook, a wasm module or a script, not several: keep one";
                return Err(SpecError::new(field, problem));
            }
        };
        Ok(Some(EnabledHook { version, call }))
    }
}

/// Fields that modules and scripts share in a spec.
struct Stored<'a> {
    /// The field of the hook.
    field: &'a str,
    namespace: &'a str,
    name: &'a str,
    key: &'a str,
    language: Option<Language>,
    sha256: Option<&'a str>,
    settings: Option<&'a Value>,
    mounts: Option<&'a [Mount]>,
    limits: Option<&'a WasmLimits>,
}

impl Stored<'_> {
    fn check(self, policy: &HookPolicy) -> Result<WasmHook, SpecError> {
        let Self { field, namespace, name, key, language, .. } = self;
        SpecError::check_names(&format!("{field}.configMap"), namespace, name)?;
        let module = ModuleRef {
            language,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            key: key.to_owned(),
            sha256: self.sha256.map(|pin| pin.strip_prefix("sha256:").unwrap_or(pin).to_owned()),
            reader: None,
        };
        policy.allows_module(field, namespace, module.sha256.is_some())?;
        let mounts = mount::check(self.mounts.unwrap_or_default(), &format!("{field}.mounts"), policy)?;
        let limits = self.limits.cloned().unwrap_or_default();
        let bounds = policy.limits.of(language.is_some());
        let limits = limits.check(&format!("{field}.limits"), &bounds)?;
        Ok(WasmHook { module, settings: self.settings.cloned(), mounts, limits })
    }
}

/// The key that is named, or the default.
fn key_or<'a>(named: Option<&'a String>, default: &'a str) -> &'a str {
    named.map(String::as_str).filter(|key| !key.is_empty()).unwrap_or(default)
}

impl Wasm {
    fn check(&self, field: &str, policy: &HookPolicy) -> Result<WasmHook, SpecError> {
        let map = &self.config_map;
        Stored {
            field,
            namespace: &map.namespace,
            name: &map.name,
            key: key_or(map.key.as_ref(), "hook.wasm"),
            language: None,
            sha256: self.sha256.as_deref(),
            settings: self.settings.as_ref(),
            mounts: self.mounts.as_deref(),
            limits: self.limits.as_ref(),
        }
        .check(policy)
    }
}

impl Script {
    fn check(&self, field: &str, policy: &HookPolicy) -> Result<WasmHook, SpecError> {
        let map = &self.config_map;
        let key = key_or(map.key.as_ref(), self.language.default_key());
        if !mount::is_file_name(key) {
            let problem =
                format!("{key:?} is no name of a file: name the key as the script's file, like hook.py");
            return Err(SpecError::new(format!("{field}.configMap.key"), problem));
        }
        let mounts = self.mounts.iter().flatten().zip(0..);
        let mut own = mounts.filter(|(mount, _)| format!("{}/", mount.path).starts_with(SCRIPT_FOLDER));
        if let Some((mount, number)) = own.next() {
            let problem = format!("{:?} is where the script itself lies: mount it elsewhere", mount.path);
            return Err(SpecError::new(format!("{field}.mounts[{number}].path"), problem));
        }
        Stored {
            field,
            namespace: &map.namespace,
            name: &map.name,
            key,
            language: Some(self.language),
            sha256: self.sha256.as_deref(),
            settings: self.settings.as_ref(),
            mounts: self.mounts.as_deref(),
            limits: self.limits.as_ref(),
        }
        .check(policy)
    }
}
