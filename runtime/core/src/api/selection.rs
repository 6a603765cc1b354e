//! Selection of parents: which objects a controller reconciles.

use std::cell::OnceCell;

use crate::object::Object;
use crate::object::selector::Selector;

/// Which parents a controller looks at.
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
