//! Selection of parents: the objects that a controller reconciles, by its rules or by its finalizer on them.

use std::cell::OnceCell;

use crate::api::{ControllerKind, SpecError};
use crate::object::Object;
use crate::object::selector::Selector;

/// The parents that a controller reconciles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// A parent is selected by any of these.
    pub rules: Vec<SelectionRule>,
    /// The finalizer that this controller, or its like under another server, may have put on a parent.
    pub finalizer: String,
    /// The controller has a finalize hook.
    pub finalizes: bool,
}

/// One way of being selected: both selectors have to match. The default matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelectionRule {
    pub labels: Selector,
    pub annotations: Selector,
    /// Of parents that match, a change of the status alone is no change.
    pub ignore_status: bool,
}

impl Selection {
    /// Selected, or still to be finalized.
    pub fn includes(&self, parent: &Object) -> bool {
        self.selects(parent) || parent.finalizers.contains(&self.finalizer)
    }

    pub fn selects(&self, parent: &Object) -> bool {
        self.matching(parent).next().is_some()
    }

    /// There is no object that it does not select.
    pub fn is_everything(&self) -> bool {
        self.rules.iter().any(|rule| rule.labels.is_empty() && rule.annotations.is_empty())
    }

    /// The rules that a parent matches. Its annotations are read only where one of them asks for them.
    fn matching(&self, parent: &Object) -> impl Iterator<Item = &SelectionRule> {
        let read = OnceCell::new();
        self.rules.iter().filter(move |rule| {
            rule.labels.matches(&parent.labels)
                && (rule.annotations.is_empty()
                    || rule.annotations.matches(read.get_or_init(|| parent.annotations())))
        })
    }

    /// Reads its annotations at most once.
    pub(crate) fn judge(&self, parent: &Object) -> Judged {
        let mut matching = self.matching(parent).peekable();
        let selected = matching.peek().is_some();
        Judged {
            included: selected || parent.finalizers.contains(&self.finalizer),
            ignores_status: if selected {
                matching.all(|rule| rule.ignore_status)
            } else {
                self.rules.iter().all(|rule| rule.ignore_status)
            },
        }
    }
}

/// Result of a controller's rules for one parent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Judged {
    pub(crate) included: bool,
    /// A change of its status alone is no change.
    pub(crate) ignores_status: bool,
}

/// Checks that a controller's name fits into a finalizer: the API server takes 63 characters behind the slash. The
/// prefixes of both kinds are equally long.
pub(super) fn check_finalizer(controller: &str) -> Result<(), SpecError> {
    const MAX_NAME: usize = 63 - "compositecontroller-".len();
    if controller.len() <= MAX_NAME {
        return Ok(());
    }
    let problem = format!(
        "{} characters are too many for a controller with a finalize hook, whose name becomes part of a finalizer: at most {MAX_NAME}",
        controller.len()
    );
    Err(SpecError::new("metadata.name", problem))
}

/// The finalizer of a controller.
pub fn finalizer(kind: ControllerKind, controller: &str) -> String {
    format!("{}{controller}", finalizer_prefix(kind))
}

/// The kind and the name of the controller that a finalizer belongs to; `None` for other finalizers.
pub fn finalizer_owner(finalizer: &str) -> Option<(ControllerKind, &str)> {
    let of = |kind| Some((kind, finalizer.strip_prefix(finalizer_prefix(kind))?));
    of(ControllerKind::Composite).or_else(|| of(ControllerKind::Decorator))
}

fn finalizer_prefix(kind: ControllerKind) -> &'static str {
    match kind {
        ControllerKind::Composite => "metacontroller.io/compositecontroller-",
        ControllerKind::Decorator => "metacontroller.io/decoratorcontroller-",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finalizer_names_its_controller() {
        for kind in [ControllerKind::Composite, ControllerKind::Decorator] {
            assert_eq!(finalizer_owner(&finalizer(kind, "a-b")), Some((kind, "a-b")));
        }
        assert_eq!(finalizer(ControllerKind::Decorator, "c"), "metacontroller.io/decoratorcontroller-c");
        assert_eq!(finalizer_owner("foregroundDeletion"), None);
    }
}
