//! Answer of a sync or finalize hook: from bytes to a checked value, or an error with the path of the fault.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::api::ControllerKind;
use crate::api::reason::EventKind;
pub use crate::api::webhook::UnmarshallMode as Mode;
use crate::decorator::Decoration;
use crate::hook::read::{self, Fields, ReadOptions, type_error};
use crate::hook::{AnswerWarning, AnswerWarnings, MAX_EVENTS, ResponseError};
use crate::object::id::{Gvk, Key, Uid, is_api_version};
use crate::related::deletion::Deletion;

/// A checked answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Response {
    /// Changes of the parent itself. A CompositeController's answer always has a status: an absent one is empty.
    pub decoration: Decoration,
    pub children: Vec<Map<String, Value>>,
    /// A webhook's answer had no list of children at all, which is hardly what its author means.
    pub forgot_children: bool,
    pub resync_after: Option<Duration>,
    /// The controller removes its finalizer from the parent.
    pub finalized: bool,
    /// Related objects to delete.
    pub deletions: Vec<Deletion>,
    /// Events to record on the parent.
    pub events: Vec<HookEvent>,
    /// Warnings, in loose mode.
    pub warnings: Vec<AnswerWarning>,
}

/// An Event on the parent that the hook asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookEvent {
    pub kind: EventKind,
    pub reason: String,
    pub message: String,
}

/// A shorter time means this one. Webhooks of Metacontroller's users ask for tenths of a second; what a hook writes meanwhile is
/// rationed by its parent's budget.
const MIN_RESYNC: Duration = Duration::from_millis(100);

/// A longer time means never.
const MAX_RESYNC: Duration = Duration::from_hours(24 * 365);

/// The API server's own bound.
const MAX_REASON_BYTES: usize = 128;

/// Reads the answer of a sync or finalize hook.
///
/// # Errors
/// The answer is empty, incomplete, followed by more bytes, or has a field of another type, as each could be a mistake that
/// deletes children. Of a module also: no `children`, or more than `max_children`.
pub fn sync(bytes: &[u8], reading: ReadOptions) -> Result<Response, ResponseError> {
    let ReadOptions { kind, via, mode, max_children, max_memory, deletes } = reading;
    let list = kind.children();
    let as_metacontroller = via.follows_metacontroller();
    let few_enough = |found: usize| {
        if as_metacontroller || found <= max_children {
            return Ok(());
        }
        Err(ResponseError::TooManyChildren { list, found, max: max_children })
    };
    let mut warnings = AnswerWarnings::default();
    let mut answer = match read::answer(bytes, (via, max_memory), list, &mut warnings) {
        Err(error @ ResponseError::TooManyValues { .. }) => {
            few_enough(read::count_children(bytes, kind))?;
            return Err(error);
        }
        read => read?,
    };
    let decoration = decoration(kind, &mut answer)?;
    let children = answer.list(list)?;
    let forgot_children = children.is_none();
    if forgot_children && !as_metacontroller {
        return Err(ResponseError::NoChildren(list));
    }
    let children = children.unwrap_or_default();
    few_enough(children.len())?;
    let children = children.into_iter().enumerate().map(|one| child(list, one)).collect::<Result<_, _>>()?;
    let resync_after = answer.scalar("resyncAfterSeconds", "a number")?;
    let finalized = answer.scalar("finalized", "true or false")?.unwrap_or_default();
    // Old webhooks may use the names `deleteRelated` and `events` for something else.
    let deletions =
        if as_metacontroller && !deletes { Vec::new() } else { deletions(&mut answer, &mut warnings)? };
    let events = match events(&mut answer, &mut warnings) {
        Err(error) if as_metacontroller && mode == Mode::Loose => {
            warnings.add(|| AnswerWarning::Ignored {
                path: "events".to_owned(),
                why: format!("is left out: {error}"),
            });
            Vec::new()
        }
        events => events?,
    };
    answer.end(&mut warnings);
    Ok(Response {
        decoration,
        children,
        forgot_children,
        resync_after: resync_after.and_then(resync_delay),
        finalized,
        deletions,
        events,
        warnings: warnings.finish(mode)?,
    })
}

fn decoration(kind: ControllerKind, answer: &mut Fields) -> Result<Decoration, ResponseError> {
    Ok(match kind {
        ControllerKind::Composite => {
            Decoration { status: Some(answer.object("status")?.unwrap_or_default()), ..Decoration::default() }
        }
        ControllerKind::Decorator => Decoration {
            labels: answer.changes("labels")?,
            annotations: answer.changes("annotations")?,
            status: answer.object("status")?,
        },
    })
}

fn resync_delay(seconds: f64) -> Option<Duration> {
    let asked = || Duration::try_from_secs_f64(seconds).unwrap_or(MAX_RESYNC);
    (seconds > 0.0).then(|| asked().clamp(MIN_RESYNC, MAX_RESYNC))
}

fn child(list: &str, (nth, child): (usize, Value)) -> Result<Map<String, Value>, ResponseError> {
    let Value::Object(child) = child else {
        return Err(type_error(&format!("{list}[{nth}]"), "an object", &child));
    };
    match child.get("kind") {
        Some(Value::String(kind)) if !kind.is_empty() => Ok(child),
        _ => Err(ResponseError::Value {
            path: format!("{list}[{nth}].kind"),
            expected: "a string that is not empty",
        }),
    }
}

/// Each Event once.
fn events(answer: &mut Fields, warnings: &mut AnswerWarnings) -> Result<Vec<HookEvent>, ResponseError> {
    let mut events = Vec::new();
    for (nth, item) in answer.list("events")?.into_iter().flatten().enumerate() {
        let event = event(Fields::of(format!("events[{nth}]"), item)?, warnings)?;
        if !events.contains(&event) {
            events.push(event);
        }
        // Enough was read to refuse the answer.
        if events.len() > 10 * MAX_EVENTS {
            break;
        }
    }
    if events.len() > MAX_EVENTS {
        return Err(ResponseError::TooManyEvents { found: events.len() });
    }
    Ok(events)
}

fn event(mut item: Fields, warnings: &mut AnswerWarnings) -> Result<HookEvent, ResponseError> {
    let value = |path, expected| Err(ResponseError::Value { path, expected });
    let kind = match item.text("type")?.as_deref() {
        None | Some("" | "Normal") => EventKind::Normal,
        Some("Warning") => EventKind::Warning,
        Some(_) => return value(item.path("type"), "Normal or Warning"),
    };
    let reason = item.text("reason")?.unwrap_or_default();
    if reason.is_empty() || reason.len() > MAX_REASON_BYTES {
        return value(item.path("reason"), "a word of at most 128 bytes");
    }
    let message = item.text("message")?.unwrap_or_default();
    item.end(warnings);
    Ok(HookEvent { kind, reason, message })
}

/// Reads the list `deleteRelated`, each object once.
///
/// # Errors
/// An object is not fully identified.
pub(crate) fn deletions(
    answer: &mut Fields,
    warnings: &mut AnswerWarnings,
) -> Result<Vec<Deletion>, ResponseError> {
    let (mut deletions, mut known) = (Vec::new(), BTreeSet::new());
    for (at, item) in answer.list("deleteRelated")?.into_iter().flatten().enumerate() {
        let one = deletion(at, Fields::of(format!("deleteRelated[{at}]"), item)?, warnings)?;
        if known.insert((one.gvk.clone(), one.key.clone(), one.uid.clone())) {
            deletions.push(one);
        }
    }
    Ok(deletions)
}

fn deletion(at: usize, mut item: Fields, warnings: &mut AnswerWarnings) -> Result<Deletion, ResponseError> {
    let api_version = item.required("apiVersion")?;
    if !is_api_version(&api_version) {
        let (path, expected) = (item.path("apiVersion"), "a version such as v1 or apps/v1");
        return Err(ResponseError::Value { path, expected });
    }
    let (kind, name, uid) = (item.required("kind")?, item.required("name")?, item.required("uid")?);
    let namespace = item.text("namespace")?.unwrap_or_default();
    item.end(warnings);
    let (gvk, key) = (Gvk::new(&api_version, &kind), Key::new(&namespace, &name));
    Ok(Deletion { at, gvk, key, uid: Uid::new(&uid) })
}
