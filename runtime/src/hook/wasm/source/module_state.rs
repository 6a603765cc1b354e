//! State of a followed module: the last good one, and why the one that should be called is not.

use std::sync::Arc;

use metahook_core::api::packed::{IndexError, PART_KEY, index_key};
use metahook_core::api::reason::ConditionReason;
use tokio::sync::watch;

use crate::cluster::named_objects::Reference;
use crate::hook::wasm::compile::ModuleError;
use crate::hook::wasm::run::Module;

/// The last good module, and the problem of the one that should be called.
#[derive(Debug, Clone, Default)]
pub(super) struct ModuleState {
    pub(super) module: Option<Arc<Module>>,
    /// When an earlier server accepted the module, where it was kept since.
    pub(super) kept_since: Option<Arc<str>>,
    pub(super) problem: Option<ModuleSourceError>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ModuleSourceError {
    #[error(
        "there is no {map}: create it, for example with `kubectl -n {} create configmap {} --from-file={key}=FILE`",
        map.namespace, map.name
    )]
    NoConfigMap { map: Arc<Reference>, key: String },
    #[error("the {map} has no key {key:?} in binaryData or data; it has {found}")]
    NoKey { map: Arc<Reference>, key: String, found: String },
    #[error(
        "the {map} has both {key:?}, a module, and {:?}, the index of one: remove one of the keys",
        index_key(key)
    )]
    TwoModules { map: Arc<Reference>, key: String },
    #[error("the {map} cannot be read: {message}")]
    Unreadable { map: Arc<Reference>, message: Arc<str> },
    /// The module was read, and the controller's account no longer may.
    #[error("the {map} may no longer be read: {message}")]
    TakenAway { map: Arc<Reference>, message: Arc<str> },
    #[error("{map}, key {:?}: {source}", index_key(key))]
    Index { map: Arc<Reference>, key: String, source: IndexError },
    #[error(
        "there is no {part}, part {} of {count} of the module in {map}: apply all that `metahook pack` wrote",
        number + 1
    )]
    NoPart { part: Arc<Reference>, number: usize, count: usize, map: Arc<Reference> },
    #[error("the {part}, a part of the module in {map}, has no binaryData.{PART_KEY}: pack it again")]
    EmptyPart { part: Arc<Reference>, map: Arc<Reference> },
    /// `found` is the digest, where the bytes could be unpacked.
    #[error("{map}, key {key}: {source}")]
    Module { map: Arc<Reference>, key: String, found: Option<String>, source: Box<ModuleError> },
    #[error(
        "{map}, key {key}: the module's digest is {found}, and the spec pins {pinned}: update the pin or put the module back"
    )]
    Pinned { map: Arc<Reference>, key: String, found: String, pinned: String },
    #[error(
        "{map}: the parts make a module of {size} bytes with the digest {found}, and the index says {wanted}: pack it again"
    )]
    Mixed { map: Arc<Reference>, size: usize, found: String, wanted: String },
    #[error("the server prepares its runner for {language}, which takes some seconds once")]
    RunnerNotReady { language: &'static str },
    #[error("{path} cannot be read: {message}")]
    File { path: Arc<str>, message: Arc<str> },
    #[error("{path}: {source}")]
    InFile { path: Arc<str>, source: Box<ModuleError> },
}

impl ModuleSourceError {
    /// The reason of the condition `ModulesLoaded`.
    pub(super) fn reason(&self) -> ConditionReason {
        match self {
            Self::NoConfigMap { .. } => ConditionReason::ConfigMapNotFound,
            Self::RunnerNotReady { .. } => ConditionReason::RunnerNotReady,
            Self::NoKey { .. } => ConditionReason::KeyNotFound,
            Self::TwoModules { .. } => ConditionReason::KeysConflict,
            Self::Unreadable { .. } | Self::TakenAway { .. } => ConditionReason::ConfigMapUnreadable,
            Self::Index { .. } => ConditionReason::IndexInvalid,
            Self::NoPart { .. } | Self::EmptyPart { .. } => ConditionReason::PartNotFound,
            Self::Module { .. } | Self::File { .. } | Self::InFile { .. } => ConditionReason::ModuleInvalid,
            Self::Pinned { .. } | Self::Mixed { .. } => ConditionReason::DigestMismatch,
        }
    }

    /// The digest of the refused module, where it is known.
    pub(super) fn refused(&self) -> Option<&str> {
        if let Self::Module { found: Some(found), .. }
        | Self::Pinned { found, .. }
        | Self::Mixed { found, .. } = self
        {
            return Some(found);
        }
        None
    }

    /// Whether a version that was kept may run in the place of the one that is stored. What may not be read is no reason to
    /// call a copy of it.
    pub(super) fn allows_kept(&self) -> bool {
        match self {
            Self::NoConfigMap { .. }
            | Self::NoKey { .. }
            | Self::TwoModules { .. }
            | Self::Index { .. }
            | Self::NoPart { .. }
            | Self::EmptyPart { .. }
            | Self::Module { .. }
            | Self::Pinned { .. }
            | Self::Mixed { .. } => true,
            Self::Unreadable { .. }
            | Self::TakenAway { .. }
            | Self::RunnerNotReady { .. }
            | Self::File { .. }
            | Self::InFile { .. } => false,
        }
    }

    /// Whether the same bytes may load another time.
    pub(super) fn may_heal(&self) -> bool {
        matches!(self, Self::Module { source, .. } if source.may_heal())
    }
}

pub(super) fn publish(state: &watch::Sender<ModuleState>, loaded: Result<Arc<Module>, ModuleSourceError>) {
    state.send_if_modified(|state| match loaded {
        Ok(module) => {
            let same =
                state.problem.is_none() && state.module.as_ref().is_some_and(|m| m.digest == module.digest);
            *state = ModuleState { module: Some(module), kept_since: None, problem: None };
            !same
        }
        Err(problem) => {
            let same = state.problem.as_ref() == Some(&problem);
            if matches!(problem, ModuleSourceError::TakenAway { .. }) {
                state.module = None;
                state.kept_since = None;
            }
            state.problem = Some(problem);
            !same
        }
    });
}

/// Publishes a version that was kept, in the place of the one that is refused.
pub(super) fn publish_kept(
    state: &watch::Sender<ModuleState>,
    module: Arc<Module>,
    since: &str,
    problem: ModuleSourceError,
) {
    state.send_replace(ModuleState {
        module: Some(module),
        kept_since: Some(since.into()),
        problem: Some(problem),
    });
}
