//! Log records for those who look for a fault: bodies of hooks' requests and answers, and what a write changes.

use metahook_core::api::hook::HookName;
use metahook_core::children::Op;
use metahook_core::json::hidden::{shown_body, shown_differences};
use tracing::{Level, enabled};

use crate::controller::ControllerData;

/// Their lines have targets of their own, so that a filter of the log can choose them.
pub const BODIES: &str = "metahook::bodies";
pub const DIFFERENCES: &str = "metahook::differences";

pub(crate) fn log_request(hook: HookName, body: &[u8]) {
    if enabled!(target: BODIES, Level::TRACE) {
        tracing::trace!(target: BODIES, %hook, request = shown_body(body), "request");
    }
}

pub(crate) fn log_answer(hook: HookName, body: &[u8]) {
    if enabled!(target: BODIES, Level::TRACE) {
        tracing::trace!(target: BODIES, %hook, answer = shown_body(body), "answer");
    }
}

/// Before the operation is carried out.
pub(crate) fn log_differences(data: &ControllerData, op: &Op) {
    if !enabled!(target: DIFFERENCES, Level::TRACE) {
        return;
    }
    let (wanted, is_whole) = match op {
        Op::Replace { body, .. } => (body, true),
        Op::Apply { body, .. } | Op::Recreate { body, .. } => (body, false),
        _ => return,
    };
    let Some(found) = data.observed_child(op.id()).and_then(|child| serde_json::from_str(child.json()).ok())
    else {
        return;
    };
    let differences = shown_differences(wanted, &found, is_whole);
    tracing::trace!(target: DIFFERENCES, op = op.verb(), object = %op.id(), differences, "differences");
}
