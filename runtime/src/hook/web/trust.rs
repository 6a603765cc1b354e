//! Certificates and credentials of a webhook, read again when their objects change; the last good ones stay in use.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderValue;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use metahook_core::api::endpoint::WebhookTarget;
use metahook_core::api::mount::MountKind;
use metahook_core::api::reason::ConditionReason;
use metahook_core::api::trust::{Authorities, AuthorizationSource, CheckedTrust, KeyOfObject};
use metahook_core::api::url::{Credentials, basic};
use tokio::sync::watch;
use tokio_rustls::rustls::Error;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_util::task::AbortOnDropHandle;

use crate::cluster::named_objects::{
    Follower, ObjectWatches, Reference, ReferenceKind, ReferenceState, any_changed,
};
use crate::hook::web::pools::{Pool, Pools};
use crate::hook::web::tls::{Identity, TlsSettings, certificates};

/// How a webhook is reached at the moment.
#[derive(Clone)]
pub(super) struct Trusted {
    pub(super) pool: Pool,
    /// Pool for another port of the webhook's host, where a redirect leads that keeps the credentials.
    pub(super) redirected: Pool,
    /// Pool for another server, where a redirect leads: without the certificate of the client.
    pub(super) elsewhere: Pool,
    pub(super) authorization: Option<HeaderValue>,
}

/// Trust that a webhook is called with, and the problem of the trust that it should be called with.
#[derive(Clone, Default)]
pub(crate) struct TrustState {
    pub(super) trusted: Option<Arc<Trusted>>,
    pub(crate) problem: Option<TrustError>,
}

impl TrustState {
    /// The webhook can be called.
    pub(crate) fn is_known(&self) -> bool {
        self.trusted.is_some()
    }
}

/// The certificates and credentials of a webhook, followed as long as it is held.
pub(super) struct TrustSource {
    pub(super) state: watch::Receiver<TrustState>,
    _task: Option<AbortOnDropHandle<()>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TrustError {
    #[error("{field}: there is no {name}: create it")]
    Missing { field: String, name: Reference },
    #[error("{field}: the {name} cannot be read: {message}")]
    Unreadable { field: String, name: Reference, message: Arc<str> },
    /// The object was read, and the controller's account no longer may.
    #[error("{field}: the {name} may no longer be read: {message}")]
    TakenAway { field: String, name: Reference, message: Arc<str> },
    #[error("{field}: the {name} has no key {key:?} in its data: add it, or name another one")]
    NoKey { field: String, name: Reference, key: String },
    /// Never with what is in a Secret.
    #[error("{field}: {problem}")]
    Invalid { field: String, problem: String },
}

impl TrustError {
    /// The reason of the condition `ModulesLoaded`.
    pub(crate) fn reason(&self) -> ConditionReason {
        match self {
            Self::Missing { .. } => ConditionReason::TrustNotFound,
            Self::Unreadable { .. } | Self::TakenAway { .. } => ConditionReason::TrustUnreadable,
            Self::NoKey { .. } | Self::Invalid { .. } => ConditionReason::TrustInvalid,
        }
    }
}

impl TrustSource {
    pub(super) fn follow(target: &WebhookTarget, objects: &ObjectWatches, pools: &Arc<Pools>) -> Self {
        let (spec, from_url) = (&target.trust, target.credentials.as_ref().map(Credentials::basic));
        let follow = |key: &&KeyOfObject| {
            let name = reference(key);
            let follower = objects.follow(spec.reader.as_ref(), &name);
            (name, follower)
        };
        Self::of(spec, from_url, spec.keys().iter().map(follow).collect(), pools)
    }

    pub(super) fn of(
        spec: &CheckedTrust,
        from_url: Option<String>,
        objects: BTreeMap<Reference, Follower>,
        pools: &Arc<Pools>,
    ) -> Self {
        let mut follow = Follow { spec: spec.clone(), from_url, objects, pools: Arc::clone(pools) };
        let (sender, state) = watch::channel(TrustState::default());
        follow.publish(&sender);
        let task = if follow.objects.is_empty() { None } else { Some(tokio::spawn(follow.run(sender))) };
        Self { state, _task: task.map(AbortOnDropHandle::new) }
    }
}

struct Follow {
    spec: CheckedTrust,
    /// User and password of the URL, as a header has them.
    from_url: Option<String>,
    objects: BTreeMap<Reference, Follower>,
    pools: Arc<Pools>,
}

impl Follow {
    async fn run(mut self, state: watch::Sender<TrustState>) {
        loop {
            any_changed(self.objects.values_mut()).await;
            self.publish(&state);
        }
    }

    fn publish(&mut self, state: &watch::Sender<TrustState>) {
        let read = self.read();
        state.send_if_modified(|state| match read {
            Ok(None) => false,
            Ok(Some(trusted)) => {
                *state = TrustState { trusted: Some(Arc::new(trusted)), problem: None };
                true
            }
            Err(problem) => {
                let is_new = state.problem.as_ref() != Some(&problem);
                if matches!(problem, TrustError::TakenAway { .. }) {
                    state.trusted = None;
                }
                state.problem = Some(problem);
                is_new
            }
        });
    }

    /// `Ok(None)`: not everything is known yet.
    fn read(&mut self) -> Result<Option<Trusted>, TrustError> {
        let mut values = BTreeMap::new();
        let mut waits = false;
        for key in self.spec.keys() {
            let name = reference(key);
            let Some(follower) = self.objects.get_mut(&name) else { continue };
            match value(key, name, follower.now())? {
                Some(value) => drop(values.insert((key.field.clone(), key.key.clone()), value)),
                None => waits = true,
            }
        }
        if waits {
            return Ok(None);
        }
        let value = |key: &KeyOfObject| {
            values.get(&(key.field.clone(), key.key.clone())).cloned().unwrap_or_default()
        };
        let authorization = match &self.spec.authorization {
            None => self.from_url.clone().and_then(secret_header),
            Some(AuthorizationSource::Token { scheme, token }) => {
                Some(header(format!("{scheme} {}", text(token, value(token))?), token)?)
            }
            Some(AuthorizationSource::Basic { user, password }) => {
                let (name, secret) = (text(user, value(user))?, text(password, value(password))?);
                if name.contains(':') {
                    return Err(invalid(user, "is a user with a colon, which cannot be sent"));
                }
                Some(header(basic(&name, &secret), user)?)
            }
        };
        let authorities = match &self.spec.authorities {
            None => None,
            Some(Authorities::Inline { field, pem }) => {
                let problem =
                    || TrustError::Invalid { field: field.clone(), problem: NO_CERTIFICATE.to_owned() };
                Some(certificates(pem.as_bytes()).ok_or_else(problem)?)
            }
            Some(Authorities::Stored(key)) => {
                Some(certificates(&value(key)).ok_or_else(|| invalid(key, NO_CERTIFICATE))?)
            }
        };
        let identity = match &self.spec.certificate {
            None => None,
            Some(client) => {
                let (certificate, key) = (&client.certificate, &client.private_key);
                let chain =
                    certificates(&value(certificate)).ok_or_else(|| invalid(certificate, NO_CERTIFICATE))?;
                let key = PrivateKeyDer::from_pem_slice(&value(key))
                    .map_err(|_secret| invalid(key, "has no private key in PEM"))?;
                Some(Arc::new(Identity { chain, key }))
            }
        };
        let pools = self.pools_of(authorities, identity)?;
        Ok(Some(Trusted { authorization, ..pools }))
    }

    /// The pools, without credentials in a header.
    fn pools_of(
        &self,
        authorities: Option<Vec<CertificateDer<'static>>>,
        identity: Option<Arc<Identity>>,
    ) -> Result<Trusted, TrustError> {
        let elsewhere = TlsSettings { authorities: authorities.clone(), identity: None };
        let settings = TlsSettings { authorities, identity };
        let unusable = |error| match &self.spec.certificate {
            None => self.unusable(&error),
            Some(client) => {
                let problem = format!("makes no pair with the private key: {error}");
                invalid(&client.certificate, &problem)
            }
        };
        Ok(Trusted {
            elsewhere: self.pools.get_for_redirects(&elsewhere).map_err(|error| self.unusable(&error))?,
            pool: self.pools.get(&settings).map_err(unusable)?,
            redirected: self.pools.get_for_redirects(&settings).map_err(unusable)?,
            authorization: None,
        })
    }

    fn unusable(&self, error: &Error) -> TrustError {
        let field = match &self.spec.authorities {
            Some(Authorities::Inline { field, .. } | Authorities::Stored(KeyOfObject { field, .. })) => {
                field.clone()
            }
            None => "TLS".to_owned(),
        };
        TrustError::Invalid { field, problem: format!("cannot be used: {error}") }
    }
}

const NO_CERTIFICATE: &str = "has no certificate in PEM that can be used";

fn reference(key: &KeyOfObject) -> Reference {
    let kind = match key.kind {
        MountKind::ConfigMap => ReferenceKind::ConfigMap,
        MountKind::Secret => ReferenceKind::Secret,
    };
    Reference { kind, namespace: key.namespace.clone(), name: key.name.clone() }
}

fn invalid(key: &KeyOfObject, problem: &str) -> TrustError {
    let problem = format!("the key {:?} of the {} {problem}", key.key, reference(key));
    TrustError::Invalid { field: key.field.clone(), problem }
}

/// `Ok(None)`: it is not known yet.
fn value(key: &KeyOfObject, name: Reference, known: ReferenceState) -> Result<Option<Vec<u8>>, TrustError> {
    let field = key.field.clone();
    let object = match known {
        ReferenceState::NotYet => return Ok(None),
        ReferenceState::Missing => return Err(TrustError::Missing { field, name }),
        ReferenceState::Unreadable(message) => return Err(TrustError::Unreadable { field, name, message }),
        ReferenceState::TakenAway(message) => return Err(TrustError::TakenAway { field, name, message }),
        ReferenceState::There(object) => object,
    };
    // The parser's own message might quote a value.
    let unreadable = || TrustError::Unreadable {
        field: field.clone(),
        name: name.clone(),
        message: "its data is not a map of strings".into(),
    };
    let found = match key.kind {
        MountKind::ConfigMap => {
            let map: ConfigMap = serde_json::from_str(object.json()).map_err(|_quotes| unreadable())?;
            map.data.and_then(|mut data| data.remove(&key.key)).map(String::into_bytes)
        }
        MountKind::Secret => {
            let secret: Secret = serde_json::from_str(object.json()).map_err(|_quotes| unreadable())?;
            secret.data.and_then(|mut data| data.remove(&key.key)).map(|ByteString(bytes)| bytes)
        }
    };
    match found {
        None => Err(TrustError::NoKey { field, name, key: key.key.clone() }),
        Some(bytes) if bytes.trim_ascii().is_empty() => Err(invalid(key, "is empty")),
        Some(bytes) => Ok(Some(bytes)),
    }
}

/// The text of a key, without the space around it.
fn text(key: &KeyOfObject, value: Vec<u8>) -> Result<String, TrustError> {
    let text = String::from_utf8(value).map_err(|_secret| invalid(key, "is no text"))?;
    Ok(text.trim().to_owned())
}

fn header(value: String, key: &KeyOfObject) -> Result<HeaderValue, TrustError> {
    secret_header(value).ok_or_else(|| invalid(key, "has characters that no header may have"))
}

/// Nothing prints it.
fn secret_header(value: String) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}
