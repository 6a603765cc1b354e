//! Selector of a parent's children: a label made from its uid, or the selector in its own spec.

use serde::Deserialize;

use crate::object::Object;
use crate::object::selector::{LabelSelector, Selector, SelectorError};

/// The label of a generated selector; its value is the parent's uid.
pub const UID_LABEL: &str = "controller-uid";

#[derive(Debug, thiserror::Error)]
pub enum ChildSelectorError {
    #[error(
        "spec.selector of the parent selects nothing: give it matchLabels or matchExpressions, or set generateSelector in the controller"
    )]
    Empty,
    #[error("spec.selector of the parent is no label selector")]
    Malformed(#[source] serde_json::Error),
    #[error("spec.selector of the parent")]
    Refused(#[from] SelectorError),
}

/// The selector of one parent's children.
pub fn selector(parent: &Object, generated: bool) -> Result<Selector, ChildSelectorError> {
    if generated {
        return Ok(Selector::equals(UID_LABEL, parent.uid.as_str()));
    }
    let selector = Selector::of(&own_selector(parent).map_err(ChildSelectorError::Malformed)?)?;
    if selector.is_empty() { Err(ChildSelectorError::Empty) } else { Ok(selector) }
}

/// The selector in `spec.selector` of a parent; empty where it has none.
pub(crate) fn own_selector(parent: &Object) -> Result<LabelSelector, serde_json::Error> {
    #[derive(Deserialize)]
    struct Parent {
        spec: Option<Spec>,
    }
    #[derive(Deserialize)]
    struct Spec {
        selector: Option<LabelSelector>,
    }
    let Parent { spec } = serde_json::from_str(parent.json())?;
    Ok(spec.and_then(|spec| spec.selector).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::testing::a;

    #[test]
    fn a_generated_selector_ignores_the_parents_own() {
        let parent = a("e/v1", "P", "n/p").uid("u").with("spec.selector", json!("nonsense")).object();
        assert_eq!(selector(&parent, true).unwrap(), Selector::equals("controller-uid", "u"));
    }

    #[test]
    fn a_parent_has_to_select_something() {
        for spec in [json!({}), json!({"selector": {}}), json!({"selector": null}), json!(null)] {
            let parent = a("e/v1", "P", "n/p").with("spec", spec).object();
            assert!(matches!(selector(&parent, false), Err(ChildSelectorError::Empty)));
        }
        let parent = a("e/v1", "P", "n/p").with("spec.selector", json!({"matchLabels": 1})).object();
        assert!(matches!(selector(&parent, false), Err(ChildSelectorError::Malformed(_))));
    }
}
