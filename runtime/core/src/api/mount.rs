//! Mounts of a hook, folders that it may read: as stored, and checked.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::SpecError;
use crate::api::policy::{HookPolicy, ServiceAccountRef};

/// Mounts of one hook.
const MAX_MOUNTS: usize = 16;

/// Length of a mount's path.
const MAX_PATH_BYTES: usize = 255;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.configMap) != has(self.secret)",
    "message": "a mount is either a configMap or a secret",
}]))]
pub struct Mount {
    /// Absolute path of the directory, as the hook sees it.
    pub path: String,
    /// The ConfigMap whose keys are the files of the directory.
    pub config_map: Option<ObjectName>,
    /// The Secret whose keys are the files of the directory.
    pub secret: Option<ObjectName>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectName {
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

/// A folder with a file for each key of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MountRef {
    /// Absolute, as the hook sees it.
    pub path: String,
    pub kind: MountKind,
    pub namespace: String,
    pub name: String,
    /// The account that reads it; the server's own when absent.
    pub reader: Option<ServiceAccountRef>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MountKind {
    ConfigMap,
    Secret,
}

/// `field` is the list's.
pub(super) fn check(mounts: &[Mount], field: &str, policy: &HookPolicy) -> Result<Vec<MountRef>, SpecError> {
    if mounts.len() > MAX_MOUNTS {
        let problem =
            format!("{} mounts, and a hook may have {MAX_MOUNTS}: put several files into one", mounts.len());
        return Err(SpecError::new(field, problem));
    }
    let mut checked: Vec<MountRef> = Vec::new();
    for (i, mount) in mounts.iter().enumerate() {
        let next = mount.check(&format!("{field}[{i}]"), policy)?;
        let overlaps = |other: &&MountRef| {
            let (one, two) = (Path::new(&next.path), Path::new(&other.path));
            one.starts_with(two) || two.starts_with(one)
        };
        if let Some(other) = checked.iter().find(overlaps) {
            let problem = format!(
                "{:?} and the {:?} of another mount are the same or lie in each other: give each a folder of its own",
                next.path, other.path
            );
            return Err(SpecError::new(format!("{field}[{i}].path"), problem));
        }
        checked.push(next);
    }
    Ok(checked)
}

impl Mount {
    fn check(&self, field: &str, policy: &HookPolicy) -> Result<MountRef, SpecError> {
        if !is_normal(&self.path) {
            let problem = format!(
                "{:?} is no absolute path of a folder, such as \"/etc/greeting\": at most {MAX_PATH_BYTES} bytes, no empty parts, no \".\" and \"..\"",
                self.path
            );
            return Err(SpecError::new(format!("{field}.path"), problem));
        }
        let (kind, word, named) = match (&self.config_map, &self.secret) {
            (Some(map), None) => (MountKind::ConfigMap, "configMap", map),
            (None, Some(secret)) => (MountKind::Secret, "secret", secret),
            (None, None) | (Some(_), Some(_)) => {
                return Err(SpecError::new(
                    field,
                    "a mount is either a configMap or a secret: name just one",
                ));
            }
        };
        SpecError::check_names(&format!("{field}.{word}"), &named.namespace, &named.name)?;
        if kind == MountKind::Secret {
            policy.allows_secret(field, &named.namespace)?;
        }
        let ObjectName { namespace, name } = named.clone();
        Ok(MountRef { path: self.path.clone(), kind, namespace, name, reader: None })
    }
}

fn is_normal(path: &str) -> bool {
    let part = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(char::is_control);
    path.len() <= MAX_PATH_BYTES && path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(part))
}

/// Whether a key of a ConfigMap or Secret can be the name of a file; the API server lets no other in.
pub fn is_file_name(key: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (1..=253).contains(&key.len()) && key.bytes().all(plain) && key != "." && !key.starts_with("..")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(mounts: &Value) -> Result<Vec<MountRef>, String> {
        let mounts: Vec<Mount> = serde_json::from_value(mounts.clone()).unwrap();
        let policy = HookPolicy { mount_secret_namespaces: ["s".to_owned()].into(), ..HookPolicy::default() };
        super::check(&mounts, "mounts", &policy).map_err(|error| error.to_string())
    }

    fn at(path: &str) -> Value {
        json!({"path": path, "configMap": {"namespace": "n", "name": "m"}})
    }

    #[test]
    fn a_mount_is_a_config_map_or_a_secret_at_a_path() {
        let both =
            json!([at("/etc/greeting"), {"path": "/run/db", "secret": {"namespace": "s", "name": "db"}}]);
        let mount = |path: &str, kind, namespace: &str, name: &str| MountRef {
            path: path.to_owned(),
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            reader: None,
        };
        assert_eq!(
            check(&both),
            Ok(vec![
                mount("/etc/greeting", MountKind::ConfigMap, "n", "m"),
                mount("/run/db", MountKind::Secret, "s", "db")
            ])
        );
    }

    #[test]
    fn a_path_is_absolute_and_normal() {
        for path in ["", "/", "etc", "/etc/", "//etc", "/etc//x", "/etc/../x", "/..", "/./x", "/a\0b"] {
            let error = check(&json!([at(path)])).unwrap_err();
            assert!(error.starts_with(&format!("mounts[0].path: {path:?} is no absolute path")), "{error}");
        }
        assert!(check(&json!([at(&format!("/{}", "x".repeat(255)))])).is_err());
        for path in ["/a", "/etc/..x/y", "/ä b"] {
            assert!(check(&json!([at(path)])).is_ok(), "{path}");
        }
    }

    #[test]
    fn no_two_folders_lie_in_each_other() {
        assert!(check(&json!([at("/a/b"), at("/a/bc"), at("/a/c")])).is_ok());
        for (one, two) in [("/a", "/a"), ("/a", "/a/b"), ("/a/b/c", "/a")] {
            let error = check(&json!([at("/x"), at(one), at(two)])).unwrap_err();
            assert_eq!(
                error,
                format!(
                    "mounts[2].path: {two:?} and the {one:?} of another mount are the same or lie in each other: give each a folder of its own"
                )
            );
        }
    }

    #[test]
    fn what_is_missing_or_too_much_is_named() {
        let named = json!({"namespace": "n", "name": "m"});
        for (mount, says) in [
            (json!({"path": "/a"}), "mounts[0]: a mount is either a configMap or a secret: name just one"),
            (
                json!({"path": "/a", "configMap": named, "secret": named}),
                "mounts[0]: a mount is either a configMap or a secret: name just one",
            ),
            (
                json!({"path": "/a", "configMap": {"namespace": "", "name": "m"}}),
                "mounts[0].configMap.namespace: must not be empty",
            ),
            (
                json!({"path": "/a", "secret": {"namespace": "s", "name": ""}}),
                "mounts[0].secret.name: must not be empty",
            ),
            (
                json!({"path": "/a", "secret": named}),
                "mounts[0].secret.namespace: this server mounts Secrets from \"s\" only (--mount-secret-namespaces): add \"n\" to the flag, or mount a ConfigMap",
            ),
        ] {
            assert_eq!(check(&json!([mount])).unwrap_err(), says);
        }
        let many: Vec<Value> = (0..17).map(|i| at(&format!("/{i}"))).collect();
        assert!(check(&json!(many[..16])).is_ok());
        assert_eq!(
            check(&json!(many)).unwrap_err(),
            "mounts: 17 mounts, and a hook may have 16: put several files into one"
        );
    }

    #[test]
    fn a_key_never_leads_out_of_its_folder() {
        assert!(["a", "a.b-c_D9", ".x", "x..y"].into_iter().all(is_file_name));
        assert!(!["", ".", "..", "..x", "a/b", "a\\b", "a b", "ä", "a\0"].into_iter().any(is_file_name));
    }
}
