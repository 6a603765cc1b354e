//! Errors of desired children: each names the child, the field, and what to do.

use super::{AnswerPosition, ChildKind};
use crate::object::id::{Gvk, Key};
use crate::object::selector::UID_LABEL;
use crate::shorten;

/// Length of an annotation's key in a message.
const MAX_KEY_LENGTH: usize = 100;

/// A child of an answer that cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DesiredError {
    #[error("the hook's answer: {at}.{field} must be {expected}")]
    Field { at: AnswerPosition, field: &'static str, expected: &'static str },
    #[error("the hook's answer: {at}.metadata.annotations{} must be {}, not {found}", place(key.as_ref()), if key.is_some() { "a string" } else { "an object of strings" })]
    Annotations { at: AnswerPosition, key: Option<String>, found: &'static str },
    #[error(
        "the hook's answer: {at} is a {gvk}, which the controller's spec does not declare: add it to {}; declared are: {declared}", at.kind.declares()
    )]
    Undeclared { at: AnswerPosition, gvk: Gvk, declared: String },
    #[error(
        "the hook's answer: {at} is a {gvk}, and the controller's spec declares it as {declared}: answer with that apiVersion"
    )]
    OtherVersion { at: AnswerPosition, gvk: Gvk, declared: String },
    #[error(
        "the hook's answer: {at}.metadata.namespace is {found:?}; {} of a parent in namespace {parent:?} have to be in that namespace", at.kind.children()
    )]
    OtherNamespace { at: AnswerPosition, found: String, parent: String },
    #[error(
        "the hook's answer: {at} is a {gvk}, which has no namespace; a parent in a namespace cannot own it"
    )]
    ClusterScoped { at: AnswerPosition, gvk: Gvk },
    #[error(
        "the hook's answer: {at}.metadata.namespace is missing; its parent has no namespace that could stand in: name one"
    )]
    NoNamespace { at: AnswerPosition },
    #[error(
        "the hook's answer: {at} is a Secret in namespace {namespace:?} that Kubernetes puts a token into, and modules and scripts are shown Secrets {from} (--mount-secret-namespaces): add the namespace to the flag, or set spec.serviceAccountRef"
    )]
    Secret { at: AnswerPosition, namespace: String, from: String },
    #[error("the hook's answer: {at} is {gvk} {key} a second time")]
    Twice { at: AnswerPosition, gvk: Gvk, key: Key },
    #[error(
        "labels on desired child {gvk} {key} don't match parent selector: {mismatch}{}", advice(*generated)
    )]
    Labels { gvk: Gvk, key: Key, mismatch: String, generated: bool },
}

/// In another version it would be the same object twice: seen in one, and made in the other.
pub(super) fn undeclared(child_kinds: &[ChildKind], at: AnswerPosition, gvk: &Gvk) -> DesiredError {
    let same = |kind: &&ChildKind| kind.resource.gvk.group == gvk.group && kind.resource.gvk.kind == gvk.kind;
    match child_kinds.iter().find(same) {
        Some(kind) => {
            DesiredError::OtherVersion { at, gvk: gvk.clone(), declared: kind.resource.gvk.api_version() }
        }
        None => DesiredError::Undeclared { at, gvk: gvk.clone(), declared: declared(child_kinds) },
    }
}

/// Advice about labels that the parent's selector does not match. The server gives a child the label of a selector that
/// it generates, so one with another value comes from the hook.
fn advice(generated: bool) -> String {
    if generated {
        format!(
            ", which is the parent's uid; it was probably copied from the parent's metadata: remove `{UID_LABEL}` from the labels you copy"
        )
    } else {
        ": give it the labels that spec.selector of the parent asks for".to_owned()
    }
}

/// Declared kinds that a message names.
pub(super) const MAX_DECLARED: usize = 10;

/// The kinds of a spec, for a message.
pub(super) fn declared(child_kinds: &[ChildKind]) -> String {
    let named = child_kinds.iter().take(MAX_DECLARED).map(|kind| kind.resource.gvk.to_string());
    let more = child_kinds.len().saturating_sub(MAX_DECLARED);
    let more = (more > 0).then(|| format!("and {more} more"));
    let all: Vec<_> = named.chain(more).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

impl DesiredError {
    /// The place of the child, where it has no name that counts.
    pub fn at(&self) -> Option<AnswerPosition> {
        match self {
            Self::Field { at, .. } | Self::Annotations { at, .. } | Self::NoNamespace { at } => Some(*at),
            _ => None,
        }
    }

    /// The API server would take it, but no reconcile would manage it.
    pub(super) fn is_unmanaged(&self) -> bool {
        match self {
            Self::Undeclared { .. }
            | Self::OtherVersion { .. }
            | Self::OtherNamespace { .. }
            | Self::ClusterScoped { .. } => true,
            Self::Field { .. }
            | Self::Annotations { .. }
            | Self::NoNamespace { .. }
            | Self::Secret { .. }
            | Self::Twice { .. }
            | Self::Labels { .. } => false,
        }
    }
}

fn place(key: Option<&String>) -> String {
    key.map(|key| format!("[{:?}]", shorten(key, MAX_KEY_LENGTH))).unwrap_or_default()
}
