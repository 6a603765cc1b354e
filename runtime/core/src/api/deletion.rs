//! Kinds of related objects that hooks may delete: as stored, and checked.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::{self, SpecError};
use crate::object::id::Gvr;

/// A kind of which hooks may have related objects deleted, though they are no children.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RelatedDeletion {
    pub api_version: String,
    /// The plural name, lower case.
    pub resource: String,
    /// Not only in the parent's own namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub any_namespace: Option<bool>,
}

/// That objects of a kind may be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub resource: Gvr,
    pub any_namespace: bool,
}

impl Grant {
    /// Of this kind, in whichever version.
    pub fn grants(&self, resource: &Gvr) -> bool {
        self.resource.is_kin(resource)
    }
}

/// Each kind once; a grant has its place in the spec.
pub fn check(granted: Option<&[RelatedDeletion]>) -> Result<Vec<Grant>, SpecError> {
    let mut grants = Vec::<Grant>::new();
    for (at, entry) in granted.into_iter().flatten().enumerate() {
        let field = format!("spec.relatedDeletion[{at}]");
        let resource = api::resource(&field, &entry.api_version, &entry.resource)?;
        if let Some(earlier) = grants.iter().position(|earlier| earlier.grants(&resource)) {
            let problem = format!(
                "{resource} is granted by spec.relatedDeletion[{earlier}] already: take one of the two out"
            );
            return Err(SpecError::new(field, problem));
        }
        grants.push(Grant { resource, any_namespace: entry.any_namespace.unwrap_or_default() });
    }
    Ok(grants)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn checked(granted: Value) -> Result<Vec<Grant>, String> {
        let granted: Vec<RelatedDeletion> = serde_json::from_value(granted).unwrap();
        check(Some(&granted)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_grant_is_about_one_namespace_unless_it_says_otherwise() {
        let grants = checked(json!([
            {"apiVersion": "v1", "resource": "pods"},
            {"apiVersion": "apps/v1", "resource": "deployments", "anyNamespace": true},
        ]));
        let grants = grants.unwrap();
        assert_eq!(grants[0], Grant { resource: Gvr::new("v1", "pods"), any_namespace: false });
        assert!(grants[1].any_namespace && grants[1].grants(&Gvr::new("apps/v1beta1", "deployments")));
        assert!(!grants[1].grants(&Gvr::new("v1", "deployments")));
        assert_eq!(check(None), Ok(Vec::new()));
    }

    #[test]
    fn what_is_wrong_is_named_by_its_field() {
        let pods = json!({"apiVersion": "v1", "resource": "pods"});
        for (entry, says) in [
            (
                json!({"apiVersion": "", "resource": "pods"}),
                "spec.relatedDeletion[1].apiVersion: \"\" is no version",
            ),
            (
                json!({"apiVersion": "v1", "resource": ""}),
                "spec.relatedDeletion[1].resource: \"\" names no resource",
            ),
            (
                json!({"apiVersion": "v1", "resource": "pods/log"}),
                "spec.relatedDeletion[1].resource: \"pods/log\"",
            ),
            (
                json!({"apiVersion": "v2", "resource": "pods", "anyNamespace": true}),
                "spec.relatedDeletion[1]: v2 pods is granted by spec.relatedDeletion[0] already",
            ),
        ] {
            let error = checked(json!([pods, entry])).unwrap_err();
            assert!(error.starts_with(says), "{error}");
        }
    }
}
