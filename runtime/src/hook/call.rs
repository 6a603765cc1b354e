//! Calls of hooks: the present version of a hook of any kind, what a call of it is made with, and what came of the call.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use metahook_core::api::endpoint::EtagPolicy;
use metahook_core::api::hook::{HookName, HookTransport};
use metahook_core::api::policy::Limits;
use metahook_core::hash::{Fingerprint, Fingerprinter};
use metahook_core::hook::Usage;
use metahook_core::hook::etag::KeptAnswer;
use metahook_core::reconcile::outcome::Retry;

use super::wasm::run::{Call, CallError, Log, Runtime, Seed};
use super::wasm::source::LoadedModule;
use super::web::{WebAnswer, WebError, Webhook};
use crate::memory::Reservation;

/// A hook in one version. A script is a module, and so is a component.
#[derive(Clone)]
pub enum LoadedHook {
    Wasm { loaded: LoadedModule, limits: Limits },
    Webhook(Arc<Webhook>),
}

/// The circumstances of a call: all that differs between two calls of a hook with the same request.
#[derive(Clone)]
pub struct CallContext<'a> {
    /// The sandbox of modules.
    pub runtime: &'a Runtime,
    pub controller: &'a str,
    pub hook: HookName,
    /// The time that a module's realtime clock starts at.
    pub now: SystemTime,
    /// The source of a module's random numbers.
    pub seed: Seed,
    /// The memory that the call and its answer are charged to.
    pub memory: &'a Reservation,
    /// An earlier answer, which a webhook need not repeat.
    pub kept: Option<Arc<KeptAnswer>>,
    pub purpose: CallPurpose,
}

/// The purpose of a call's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallPurpose {
    /// The server carries it out.
    Reconcile,
    /// The server compares it with that of the hook.
    Shadow,
    /// An author looks at it.
    Author,
}

/// The result of a call, with its log and usage also where it failed.
#[derive(Debug)]
pub struct CallResult {
    pub answer: Result<Vec<u8>, HookCallError>,
    /// The tag that a webhook gave to its answer.
    pub(crate) tag: Option<Box<[u8]>>,
    pub took: Duration,
    /// The text that a module printed on stderr.
    pub log: Log,
    /// The part of its limits that a module used; a webhook has none.
    pub usage: Option<Usage>,
    /// The answer depends on the request alone, which is not known of a webhook.
    pub pure: Option<bool>,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum HookCallError {
    #[error(transparent)]
    Wasm(#[from] CallError),
    #[error(transparent)]
    Webhook(#[from] WebError),
}

impl HookCallError {
    /// One word, for metrics and for the controller's status.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Wasm(error) => error.category(),
            Self::Webhook(error) => error.category(),
        }
    }

    /// The server no longer waited for the hook.
    pub(crate) fn is_stopping(&self) -> bool {
        match self {
            Self::Wasm(error) => matches!(error, CallError::Stopping),
            Self::Webhook(_) => false,
        }
    }

    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Wasm(_) => Retry::WithEvent,
            Self::Webhook(error) => error.busy().map_or(Retry::WithEvent, Retry::After),
        }
    }
}

impl LoadedHook {
    pub fn via(&self) -> HookTransport {
        match self {
            Self::Wasm { .. } => HookTransport::Wasm,
            Self::Webhook(_) => HookTransport::Webhook,
        }
    }

    /// The fingerprint of a module and of the content of its mounts. A webhook has no version.
    pub(crate) fn identity(&self) -> Option<Fingerprint> {
        match self {
            Self::Wasm { loaded, .. } => Some(loaded.identity),
            Self::Webhook(_) => None,
        }
    }

    /// Adds the version of the hook to the identity of a controller's hooks. The spec, which has a webhook's URL, is in it already.
    pub(crate) fn add_to(&self, identity: &mut Fingerprinter) {
        match self {
            Self::Wasm { loaded, .. } => identity.add(loaded.identity.as_bytes()),
            Self::Webhook(_) => identity.add(b"webhook"),
        }
    }

    /// How answers are kept, of a webhook that gives them tags.
    pub(crate) fn etag(&self) -> Option<EtagPolicy> {
        match self {
            Self::Wasm { .. } => None,
            Self::Webhook(webhook) => webhook.etag(),
        }
    }

    /// Calls the hook once.
    pub async fn call(&self, request: Bytes, context: CallContext<'_>) -> CallResult {
        match self {
            Self::Wasm { loaded, limits } => call_module(loaded, *limits, request, context).await,
            Self::Webhook(webhook) => call_webhook(webhook, request, context).await,
        }
    }
}

async fn call_module(
    loaded: &LoadedModule,
    limits: Limits,
    request: Bytes,
    context: CallContext<'_>,
) -> CallResult {
    let CallContext { runtime, controller, hook, now, seed, memory, purpose, .. } = context;
    let (mounts, memory) = (&*loaded.mounts.folders, memory.clone());
    let (hook, is_of_shadow) = (hook.as_str(), purpose == CallPurpose::Shadow);
    let call = Call { controller, hook, is_of_shadow, request, now, limits, seed, mounts, memory };
    let start = Instant::now();
    // The answer of a reconcile's call is of no use once the server stops.
    let called = if purpose == CallPurpose::Reconcile {
        runtime.call_until_stop(&loaded.module, call).await
    } else {
        runtime.call(&loaded.module, call).await
    };
    CallResult {
        took: start.elapsed(),
        answer: called.answer.map_err(HookCallError::from),
        tag: None,
        log: called.log,
        usage: Some(called.usage),
        pure: Some(called.pure),
    }
}

async fn call_webhook(webhook: &Webhook, request: Bytes, context: CallContext<'_>) -> CallResult {
    let start = Instant::now();
    let answer = webhook.call(request, context.kept, context.memory).await;
    let took = start.elapsed();
    let (answer, tag) = match answer {
        Ok(WebAnswer { bytes, tag }) => (Ok(bytes), tag),
        Err(error) => (Err(error.into()), None),
    };
    CallResult { answer, tag, took, log: Log::default(), usage: None, pure: None }
}
