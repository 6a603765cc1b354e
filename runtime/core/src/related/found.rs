//! Findings of each rule of a customize hook, for people: a rule that finds nothing is a frequent slip.

use std::fmt;

use crate::object::id::Gvk;
use crate::related::rule::RelatedRule;

/// Rules of an answer that are shown.
pub const MAX_FOUND_RULES: usize = 10;

/// A rule, and what it finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundByRule {
    pub rule: RelatedRule,
    pub objects: usize,
    /// Those that are not in the namespace of the parent, which has one.
    pub elsewhere: usize,
}

/// Objects that a rule finds and no request in this naming can show.
/// See <https://github.com/metacontroller/metacontroller/issues/842>.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hidden {
    /// The rule's place in the answer.
    pub at: usize,
    pub gvk: Gvk,
    pub objects: usize,
}

impl fmt::Display for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, gvk, objects } = self;
        write!(f, "{objects} of relatedResources[{at}] ({gvk})")
    }
}
