//! Bounds of customize hooks: how much they may ask for, and of which kinds.

use std::collections::BTreeSet;

use crate::api::policy::from;
use crate::api::shown_secrets::{ShownSecrets, is_secrets};
use crate::object::id::Gvr;

/// Bounds of customize hooks, which no spec changes. They count each different rule of an answer once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CustomizeBounds {
    /// Bytes of an answer.
    pub bytes: usize,
    /// Names in an answer.
    pub names: usize,
    /// Labels and expressions in the selectors of an answer.
    pub expressions: usize,
    /// Values of labels in the selectors of an answer.
    pub values: usize,
    /// Objects that one reconcile looks at to find those of its rules.
    pub steps: usize,
    /// Bytes that the server remembers of the rules of one controller.
    pub memory: usize,
    /// Watches of related objects of one controller.
    pub watches: usize,
}

impl Default for CustomizeBounds {
    fn default() -> Self {
        Self {
            bytes: 2 << 20,
            names: 10_000,
            expressions: 10_000,
            values: 10_000,
            steps: 500_000,
            memory: 128 << 20,
            watches: 256,
        }
    }
}

/// Kinds that the rules of a customize hook may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelatedKinds {
    /// The kinds of the spec's list. A list that names Secrets opens no namespace: the author of a spec may lack the
    /// right to read them.
    Listed { kinds: Vec<Gvr>, secrets: ShownSecrets },
    /// All kinds; Secrets only in these namespaces.
    SecretsIn(BTreeSet<String>),
    /// All kinds: the rights of the controller's own account bound them.
    ByAccount,
    /// All kinds, as webhooks have it with Metacontroller.
    Webhooks,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RelatedKindError {
    #[error(
        "the hook's answer: relatedResources[{at}] asks for {kind}, which spec.relatedKinds of the controller does not name: add {{apiVersion: {}, resource: {}}} to it where that is meant",
        kind.api_version(), kind.resource
    )]
    NotListed { at: usize, kind: Gvr },
    #[error(
        "the hook's answer: relatedResources[{at}] asks for Secrets {}, and modules and scripts are shown Secrets {from} (--mount-secret-namespaces): let the rule name a namespace of the flag, or set spec.serviceAccountRef",
        namespace.as_ref().map_or("of any namespace".to_owned(), |namespace| format!("of namespace {namespace:?}"))
    )]
    Secrets { at: usize, namespace: Option<String>, from: String },
}

impl RelatedKinds {
    /// Whether the rule at a place may ask for a kind; `namespace` is the only one that it may find objects in, where
    /// there is one.
    ///
    /// # Errors
    /// It may not.
    pub fn allow(&self, at: usize, kind: &Gvr, namespace: Option<&str>) -> Result<(), RelatedKindError> {
        match self {
            Self::Listed { kinds, .. } if !kinds.iter().any(|one| one.is_kin(kind)) => {
                Err(RelatedKindError::NotListed { at, kind: kind.clone() })
            }
            Self::Listed { secrets: ShownSecrets::In(allowed), .. } | Self::SecretsIn(allowed)
                if is_secrets(kind) && !namespace.is_some_and(|namespace| allowed.contains(namespace)) =>
            {
                let namespace = namespace.map(ToOwned::to_owned);
                Err(RelatedKindError::Secrets { at, namespace, from: from(allowed) })
            }
            Self::Listed { .. } | Self::SecretsIn(_) | Self::ByAccount | Self::Webhooks => Ok(()),
        }
    }

    /// Whether users should know that the kind is asked for.
    pub fn shows_secrets(&self, kind: &Gvr) -> bool {
        *self == Self::Webhooks && is_secrets(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_shown_secrets_where_they_may_mount_them_and_other_kinds_anywhere() {
        let [secrets, pods] = ["secrets", "pods"].map(|plural| Gvr::new("v1", plural));
        let kinds = RelatedKinds::SecretsIn(["a".to_owned()].into());
        assert_eq!(kinds.allow(0, &pods, None), Ok(()));
        assert_eq!(kinds.allow(0, &Gvr::new("example.com/v1", "secrets"), None), Ok(()));
        assert_eq!(kinds.allow(0, &secrets, Some("a")), Ok(()));
        let refused =
            |kinds: &RelatedKinds, namespace| kinds.allow(3, &secrets, namespace).unwrap_err().to_string();
        assert_eq!(
            refused(&kinds, Some("b")),
            "the hook's answer: relatedResources[3] asks for Secrets of namespace \"b\", and modules and scripts are shown Secrets from \"a\" only (--mount-secret-namespaces): let the rule name a namespace of the flag, or set spec.serviceAccountRef"
        );
        assert!(refused(&kinds, None).contains("asks for Secrets of any namespace, and"));
        let nowhere = RelatedKinds::SecretsIn(BTreeSet::new());
        assert!(
            refused(&nowhere, Some("a")).contains("modules and scripts are shown Secrets from nowhere (")
        );
        for (kinds, shows) in [(RelatedKinds::ByAccount, false), (RelatedKinds::Webhooks, true)] {
            assert_eq!(kinds.allow(0, &secrets, None), Ok(()));
            assert_eq!((kinds.shows_secrets(&secrets), kinds.shows_secrets(&pods)), (shows, false));
        }
    }

    #[test]
    fn a_list_of_kinds_names_all_that_may_be_related() {
        let kinds = vec![Gvr::new("v1", "secrets"), Gvr::new("apps/v1", "deployments")];
        let kinds = RelatedKinds::Listed { kinds, secrets: ShownSecrets::All };
        assert_eq!(kinds.allow(0, &Gvr::new("v1", "secrets"), None), Ok(()));
        assert_eq!(kinds.allow(0, &Gvr::new("apps/v1beta1", "deployments"), None), Ok(()));
        assert_eq!(
            kinds.allow(7, &Gvr::new("apps/v1", "replicasets"), Some("n")).unwrap_err().to_string(),
            "the hook's answer: relatedResources[7] asks for apps/v1 replicasets, which spec.relatedKinds of the controller does not name: add {apiVersion: apps/v1, resource: replicasets} to it where that is meant"
        );
    }
    #[test]
    fn a_list_that_names_secrets_opens_no_namespace_to_modules() {
        let [secrets, pods] = ["secrets", "pods"].map(|plural| Gvr::new("v1", plural));
        let shown = ShownSecrets::In(["a".to_owned()].into());
        let kinds = RelatedKinds::Listed { kinds: vec![secrets.clone(), pods.clone()], secrets: shown };
        assert_eq!((kinds.allow(0, &pods, None), kinds.allow(0, &secrets, Some("a"))), (Ok(()), Ok(())));
        let unlisted = RelatedKinds::SecretsIn(["a".to_owned()].into());
        for namespace in [None, Some("b")] {
            let refused = kinds.allow(3, &secrets, namespace);
            assert!(matches!(refused, Err(RelatedKindError::Secrets { at: 3, .. })), "{refused:?}");
            assert_eq!(refused, unlisted.allow(3, &secrets, namespace));
        }
    }
}
