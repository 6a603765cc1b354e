//! Secrets as parents and children: in which namespaces the hooks of a controller are shown them.
//!
//! A hook that may make Secrets could otherwise read those of others: by labels that a parent's selector matches, or by a token
//! that Kubernetes puts into a Secret of the hook's own. So it has the Secrets that it makes wherever its parents are, but for
//! those two.

use std::collections::BTreeSet;

use crate::api::policy::from;
use crate::api::{ControllerError, SpecError};
use crate::object::cached::CachedObject;
use crate::object::id::{Gvr, Resource, Uid};

/// The type of a Secret that Kubernetes puts the token of a ServiceAccount into. A Secret keeps its type.
const TOKEN: &str = "kubernetes.io/service-account-token";

/// Namespaces whose Secrets a controller may have as parents and children.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ShownSecrets {
    /// All: the hooks are webhooks, or the rights of the controller's own account bound them.
    #[default]
    All,
    /// Secrets in the namespaces of the server's flag.
    In(BTreeSet<String>),
}

impl ShownSecrets {
    /// Whether a hook may be shown an object as a child of the parent with this uid.
    pub(crate) fn shows_child(&self, kind: &Resource, child: &CachedObject, parent: &Uid) -> bool {
        self.shows(kind, &child.key.namespace)
            || (child.controller.as_ref() == Some(parent) && !is_token(secret_type(child).as_deref()))
    }

    /// Whether a hook may ask for a child of this type in a namespace.
    pub(crate) fn allows_child(&self, kind: &Resource, namespace: &str, of_type: Option<&str>) -> bool {
        self.shows(kind, namespace) || !is_token(of_type)
    }

    /// Whether all objects of a kind in a namespace may be parents or children, also those that the parent did not make.
    pub fn shows(&self, kind: &Resource, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::In(_) if !is_secrets(&kind.gvr()) => true,
            Self::In(namespaces) => namespaces.contains(namespace),
        }
    }

    /// Where the Secrets come from that hooks are shown, for a message: `from "a" only`.
    pub(crate) fn from(&self) -> String {
        match self {
            Self::All => "from anywhere".to_owned(),
            Self::In(namespaces) => from(namespaces),
        }
    }

    /// The only namespaces that parents of a kind may be in; `None`: any.
    pub(crate) fn namespaces_of(&self, parents: &Gvr) -> Option<BTreeSet<String>> {
        match self {
            Self::In(namespaces) if is_secrets(parents) => Some(namespaces.clone()),
            Self::In(_) | Self::All => None,
        }
    }

    /// # Errors
    /// The parents are Secrets, and hooks are shown none. `field` names the parents.
    pub(super) fn check(&self, field: &str, parents: &Gvr) -> Result<(), ControllerError> {
        if self.namespaces_of(parents).is_none_or(|namespaces| !namespaces.is_empty()) {
            return Ok(());
        }
        let problem = format!(
            "modules and scripts are shown Secrets {} (--mount-secret-namespaces): add the namespaces of those that are meant to the flag, or set spec.serviceAccountRef",
            self.from()
        );
        Err(SpecError::new(field, problem).into())
    }

    /// Warning to users that parents of a kind are left out, where they are.
    pub(super) fn warning(&self, parents: &Gvr) -> Option<String> {
        self.namespaces_of(parents)?;
        Some(format!(
            "modules and scripts are shown Secrets {} (--mount-secret-namespaces): those of other namespaces are no parents of this controller; add their namespaces to the flag, or set spec.serviceAccountRef",
            self.from()
        ))
    }
}

fn is_token(of_type: Option<&str>) -> bool {
    of_type == Some(TOKEN)
}

/// The type of a Secret; that of a token where it cannot be read.
fn secret_type(secret: &CachedObject) -> Option<String> {
    let of_type = secret.of_type()?;
    Some(of_type.as_str().unwrap_or(TOKEN).to_owned())
}

pub(super) fn is_secrets(kind: &Gvr) -> bool {
    kind.group.is_empty() && &*kind.resource == "secrets"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::id::Gvk;

    fn kind(api_version: &str, plural: &str) -> Resource {
        let gvk = Gvk::new(api_version, "X");
        Resource { gvk, plural: plural.into(), namespaced: true, has_status: false }
    }

    #[test]
    fn secrets_of_other_namespaces_are_not_shown_and_other_kinds_are() {
        let some = ShownSecrets::In(["a".to_owned()].into());
        let secrets = kind("v1", "secrets");
        for (shown, kind, namespace, shows) in [
            (&some, &secrets, "a", true),
            (&some, &secrets, "b", false),
            (&some, &kind("e.com/v1", "secrets"), "b", true),
            (&some, &kind("v1", "pods"), "b", true),
            (&ShownSecrets::All, &secrets, "b", true),
            (&ShownSecrets::In(BTreeSet::new()), &secrets, "a", false),
        ] {
            assert_eq!(shown.shows(kind, namespace), shows, "{shown:?} {kind:?} {namespace}");
        }
        assert_eq!(some.namespaces_of(&secrets.gvr()), Some(["a".to_owned()].into()));
        assert_eq!(some.namespaces_of(&Gvr::new("v1", "pods")), None);
        assert_eq!(some.warning(&Gvr::new("v1", "pods")), None);
    }
}
