//! Modules and scripts as a spec names them: in which ConfigMap they are stored, and what they get.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ModuleRef, WasmHook};
use crate::api::SpecError;
use crate::api::mount::{self, Mount};
use crate::api::policy::{HookPolicy, WasmLimits};

/// A WebAssembly module in a ConfigMap, which runs inside the server: a WASI preview 1 command or a component.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wasm {
    /// Where the module is stored.
    pub config_map: ConfigMapKey,
    /// SHA-256 of the module, in hexadecimal, with or without `sha256:` before it. The server runs no other module. Default: any module.
    #[schemars(regex(pattern = r"^(sha256:)?[0-9a-f]{64}$"))]
    pub sha256: Option<String>,
    /// The hook gets this value as `settings` of each request.
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub settings: Option<Value>,
    /// Directories that the hook may read, with a file for each key of a ConfigMap or Secret.
    #[schemars(length(max = 16))]
    pub mounts: Option<Vec<Mount>>,
    pub limits: Option<WasmLimits>,
}

/// A text in a ConfigMap, which the interpreter of its language runs inside the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Script {
    pub language: Language,
    /// Where the script is stored.
    pub config_map: ScriptKey,
    /// SHA-256 of the script, in hexadecimal, with or without `sha256:` before it. The server runs no other script. Default: any script.
    #[schemars(regex(pattern = r"^(sha256:)?[0-9a-f]{64}$"))]
    pub sha256: Option<String>,
    /// The hook gets this value as `settings` of each request.
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub settings: Option<Value>,
    /// Directories that the hook may read, with a file for each key of a ConfigMap or Secret.
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

    /// Its name in a sentence.
    pub fn title(self) -> &'static str {
        match self {
            Self::Python => "Python",
            Self::JavaScript => "JavaScript",
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
    /// Namespace of the ConfigMap.
    pub namespace: String,
    /// Name of the ConfigMap.
    pub name: String,
    /// The key of `binaryData` or `data` that holds the module. Default: `hook.wasm`.
    pub key: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScriptKey {
    /// Namespace of the ConfigMap.
    pub namespace: String,
    /// Name of the ConfigMap.
    pub name: String,
    /// The key of `data` or `binaryData` that holds the script. Default: `hook.py` or `hook.js`.
    pub key: Option<String>,
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
    pub(super) fn check(&self, field: &str, policy: &HookPolicy) -> Result<WasmHook, SpecError> {
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
    pub(super) fn check(&self, field: &str, policy: &HookPolicy) -> Result<WasmHook, SpecError> {
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
