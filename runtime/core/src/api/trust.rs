//! Certificates and credentials of a webhook after their checks: the objects and keys that they come from.

use crate::api::SpecError;
use crate::api::mount::{MountKind, ObjectName};
use crate::api::policy::ServiceAccountRef;
use crate::api::webhook::{Authorization, CaBundle, OptionalKeyRef, Trust};

/// A [`Trust`] after its checks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckedTrust {
    /// In place of the system's.
    pub authorities: Option<Authorities>,
    pub certificate: Option<ClientCertificate>,
    pub authorization: Option<AuthorizationSource>,
    /// The account that reads the objects; the server's own when absent.
    pub reader: Option<ServiceAccountRef>,
}

/// Certificates in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authorities {
    Inline { field: String, pem: String },
    Stored(KeyOfObject),
}

/// Both in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    pub certificate: KeyOfObject,
    pub private_key: KeyOfObject,
}

/// Source of the header `Authorization`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthorizationSource {
    Token { scheme: String, token: KeyOfObject },
    Basic { user: KeyOfObject, password: KeyOfObject },
}

/// A key of a ConfigMap or Secret, and the field of the spec that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyOfObject {
    pub field: String,
    pub kind: MountKind,
    pub namespace: String,
    pub name: String,
    pub key: String,
}

impl CheckedTrust {
    /// Nothing is asked for: the system's certificates, and no credentials.
    pub fn is_empty(&self) -> bool {
        self.authorities.is_none() && self.certificate.is_none() && self.authorization.is_none()
    }

    /// The keys that are read.
    pub fn keys(&self) -> Vec<&KeyOfObject> {
        let mut all = Vec::new();
        if let Some(Authorities::Stored(key)) = &self.authorities {
            all.push(key);
        }
        if let Some(ClientCertificate { certificate, private_key }) = &self.certificate {
            all.extend([certificate, private_key]);
        }
        match &self.authorization {
            None => {}
            Some(AuthorizationSource::Token { token, .. }) => all.push(token),
            Some(AuthorizationSource::Basic { user, password }) => all.extend([user, password]),
        }
        all
    }
}

impl Trust {
    /// Asks for nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// `field`: where it is in the spec.
    pub(super) fn check(&self, field: &str) -> Result<CheckedTrust, SpecError> {
        let authorities = self.ca_bundle.as_ref().map(|bundle| bundle.check(&format!("{field}.caBundle")));
        let certificate = self.client_tls.as_ref().map(|client| {
            let field = format!("{field}.clientTLS.secretRef");
            let key = |key: &Option<String>, default| {
                of_secret(&field, &client.secret_ref, key.as_deref(), default)
            };
            Ok::<_, SpecError>(ClientCertificate {
                certificate: key(&client.cert_key, "tls.crt")?,
                private_key: key(&client.private_key_key, "tls.key")?,
            })
        });
        let authorization = match (&self.authorization, &self.basic_auth) {
            (Some(_), Some(_)) => {
                let problem =
                    "is given beside authorization, and a request has only one of them: take one out";
                return Err(SpecError::new(format!("{field}.basicAuth"), problem));
            }
            (Some(token), None) => Some(token.check(&format!("{field}.authorization"))?),
            (None, Some(basic)) => {
                let field = format!("{field}.basicAuth.secretRef");
                let key = |key: &Option<String>, default| {
                    of_secret(&field, &basic.secret_ref, key.as_deref(), default)
                };
                Some(AuthorizationSource::Basic {
                    user: key(&basic.username_key, "username")?,
                    password: key(&basic.password_key, "password")?,
                })
            }
            (None, None) => None,
        };
        Ok(CheckedTrust {
            authorities: authorities.transpose()?,
            certificate: certificate.transpose()?,
            authorization,
            reader: None,
        })
    }
}

impl CaBundle {
    fn check(&self, field: &str) -> Result<Authorities, SpecError> {
        let stored = |part: &str, kind, key: &OptionalKeyRef| {
            let field = format!("{field}.{part}");
            let OptionalKeyRef { name, namespace, key } = key;
            key_of(field, kind, [namespace, name], key.as_deref(), "ca.crt").map(Authorities::Stored)
        };
        match (&self.inline, &self.secret_ref, &self.config_map_ref) {
            (Some(pem), None, None) => {
                Ok(Authorities::Inline { field: format!("{field}.inline"), pem: pem.clone() })
            }
            (None, Some(key), None) => stored("secretRef", MountKind::Secret, key),
            (None, None, Some(key)) => stored("configMapRef", MountKind::ConfigMap, key),
            (None, None, None) => {
                let problem = "names no certificates: give it inline, secretRef or configMapRef";
                Err(SpecError::new(field, problem))
            }
            _ => {
                let problem = "has more than one of inline, secretRef and configMapRef: keep one of them";
                Err(SpecError::new(field, problem))
            }
        }
    }
}

impl Authorization {
    fn check(&self, field: &str) -> Result<AuthorizationSource, SpecError> {
        let scheme = self.scheme.as_deref().map(str::trim).filter(|scheme| !scheme.is_empty());
        let scheme = scheme.unwrap_or("Bearer").to_owned();
        let refuse = |part: &str, problem: String| Err(SpecError::new(format!("{field}.{part}"), problem));
        if scheme.eq_ignore_ascii_case("basic") {
            return refuse("type", format!("{scheme:?} is what basicAuth is for: use that"));
        }
        if !scheme.chars().all(|c| c.is_ascii_graphic()) {
            return refuse("type", format!("{scheme:?} is no word that a header may have, such as Bearer"));
        }
        let secret = &self.secret_ref;
        if secret.key.is_empty() {
            return refuse("secretRef.key", "must not be empty".to_owned());
        }
        let field = format!("{field}.secretRef");
        let place = [&secret.namespace, &secret.name];
        let token = key_of(field, MountKind::Secret, place, Some(&secret.key), "")?;
        Ok(AuthorizationSource::Token { scheme, token })
    }
}

fn of_secret(
    field: &str,
    secret: &ObjectName,
    key: Option<&str>,
    default: &str,
) -> Result<KeyOfObject, SpecError> {
    let place = [&secret.namespace, &secret.name];
    key_of(field.to_owned(), MountKind::Secret, place, key, default)
}

fn key_of(
    field: String,
    kind: MountKind,
    [namespace, name]: [&String; 2],
    key: Option<&str>,
    default: &str,
) -> Result<KeyOfObject, SpecError> {
    SpecError::check_names(&field, namespace, name)?;
    let key = key.filter(|key| !key.is_empty()).unwrap_or(default).to_owned();
    Ok(KeyOfObject { field, kind, namespace: namespace.clone(), name: name.clone(), key })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(trust: Value) -> Result<CheckedTrust, String> {
        let trust: Trust = serde_json::from_value(trust).unwrap();
        trust.check("f").map_err(|error| error.to_string())
    }

    #[test]
    fn keys_have_metacontrollers_defaults() {
        let keys = |trust: Value| {
            let trust = check(trust).unwrap();
            let text = |key: &&KeyOfObject| format!("{} {:?} {}", key.field, key.kind, key.key);
            trust.keys().iter().map(text).collect::<Vec<_>>().join(", ")
        };
        let object = json!({"name": "a", "namespace": "n"});
        let expected = "f.caBundle.configMapRef ConfigMap ca.crt, f.clientTLS.secretRef Secret tls.crt, f.clientTLS.secretRef Secret tls.key, f.basicAuth.secretRef Secret username, f.basicAuth.secretRef Secret password";
        let trust = json!({
            "caBundle": {"configMapRef": object},
            "clientTLS": {"secretRef": object},
            "basicAuth": {"secretRef": object},
        });
        assert_eq!(keys(trust), expected);
        let key = json!({"name": "a", "namespace": "n", "key": "k"});
        let trust = json!({"caBundle": {"secretRef": key}, "authorization": {"secretRef": key}});
        assert_eq!(keys(trust), "f.caBundle.secretRef Secret k, f.authorization.secretRef Secret k");
        assert!(check(json!({})).unwrap().is_empty());
        let inline = check(json!({"caBundle": {"inline": "pem"}})).unwrap();
        assert!(!inline.is_empty() && inline.keys().is_empty());
    }

    #[test]
    fn the_scheme_is_bearer_unless_the_spec_says_otherwise() {
        let key = json!({"name": "a", "namespace": "n", "key": "k"});
        for (given, expected) in
            [(Value::Null, "Bearer"), (json!(" "), "Bearer"), (json!(" Token "), "Token")]
        {
            let trust = check(json!({"authorization": {"type": given, "secretRef": key}})).unwrap();
            let Some(AuthorizationSource::Token { scheme, .. }) = trust.authorization else { panic!() };
            assert_eq!(scheme, expected);
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_field() {
        let object = json!({"name": "a", "namespace": "n"});
        let key = json!({"name": "a", "namespace": "n", "key": "k"});
        for (trust, says) in [
            (json!({"caBundle": {}}), "f.caBundle: names no certificates"),
            (json!({"caBundle": {"inline": "x", "secretRef": object}}), "f.caBundle: has more than one of"),
            (
                json!({"caBundle": {"configMapRef": object, "secretRef": object}}),
                "f.caBundle: has more than one of",
            ),
            (
                json!({"caBundle": {"secretRef": {"name": "", "namespace": "n"}}}),
                "f.caBundle.secretRef.name: must not be empty",
            ),
            (
                json!({"clientTLS": {"secretRef": {"name": "a", "namespace": ""}}}),
                "f.clientTLS.secretRef.namespace: must not be empty",
            ),
            (
                json!({"authorization": {"type": " bAsic", "secretRef": key}}),
                "f.authorization.type: \"bAsic\" is what basicAuth is for",
            ),
            (
                json!({"authorization": {"type": "a b", "secretRef": key}}),
                "f.authorization.type: \"a b\" is no word",
            ),
            (
                json!({"authorization": {"secretRef": {"name": "a", "namespace": "n", "key": ""}}}),
                "f.authorization.secretRef.key: must not be empty",
            ),
            (
                json!({"authorization": {"secretRef": key}, "basicAuth": {"secretRef": object}}),
                "f.basicAuth: is given beside authorization",
            ),
        ] {
            let error = check(trust).unwrap_err();
            assert!(error.starts_with(says), "{error}");
        }
    }
}
