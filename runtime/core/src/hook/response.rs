//! Answer of a sync or finalize hook: from bytes to a checked value, or an error with the path of the fault.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::api::ControllerKind;
use crate::api::hook::HookTransport;
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
    let few_enough = |found: usize| match via {
        HookTransport::Wasm if found > max_children => {
            Err(ResponseError::TooManyChildren { list, found, max: max_children })
        }
        HookTransport::Wasm | HookTransport::Webhook => Ok(()),
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
    if forgot_children && via == HookTransport::Wasm {
        return Err(ResponseError::NoChildren(list));
    }
    let children = children.unwrap_or_default();
    few_enough(children.len())?;
    let children = children.into_iter().enumerate().map(|one| child(list, one)).collect::<Result<_, _>>()?;
    let resync_after = answer.scalar("resyncAfterSeconds", "a number")?;
    let finalized = answer.scalar("finalized", "true or false")?.unwrap_or_default();
    let deletions = match via {
        // Old webhooks may use the name of this field for something else.
        HookTransport::Webhook if !deletes => Vec::new(),
        HookTransport::Wasm | HookTransport::Webhook => deletions(&mut answer, &mut warnings)?,
    };
    let events = match (events(&mut answer, &mut warnings), via, mode) {
        // Old webhooks may use the name of this field for something else.
        (Err(error), HookTransport::Webhook, Mode::Loose) => {
            warnings.add(AnswerWarning::Ignored {
                path: "events".to_owned(),
                why: format!("is left out: {error}"),
            });
            Vec::new()
        }
        (events, _, _) => events?,
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::hook::HookTransport;
    use crate::api::webhook::UnmarshallMode;
    use crate::hook::{MAX_ANSWER_MEMORY, read, webhook_answer_memory};

    const MAX: usize = 3;

    fn read(via: HookTransport, mode: Mode, text: &str) -> Result<Response, String> {
        let max_memory = MAX_ANSWER_MEMORY;
        let kind = ControllerKind::Composite;
        let reading = ReadOptions { kind, via, mode, max_children: MAX, max_memory, deletes: false };
        sync(text.as_bytes(), reading).map_err(|error| error.to_string())
    }

    fn loose(text: &str) -> Result<Response, String> {
        read(HookTransport::Wasm, Mode::Loose, text)
    }

    #[test]
    fn a_full_answer_is_read() {
        let answer = loose(
            r#"{"status":{"a":1},"children":[{"kind":"Pod"}],"resyncAfterSeconds":1.5,"finalized":true,"events":[{"type":"Warning","reason":"R","message":"m"}]}"#,
        )
        .unwrap();
        assert_eq!(answer.decoration.status, json!({"a": 1}).as_object().cloned());
        assert_eq!(answer.children.len(), 1);
        assert_eq!((answer.resync_after, answer.finalized), (Some(Duration::from_millis(1500)), true));
        let event = HookEvent { kind: EventKind::Warning, reason: "R".to_owned(), message: "m".to_owned() };
        assert_eq!(answer.events, [event]);
    }

    #[test]
    fn what_asks_for_ages_means_never() {
        for seconds in ["1e19", "18446744073709551615", "1e300"] {
            let answer = loose(&format!(r#"{{"children":[],"resyncAfterSeconds":{seconds}}}"#)).unwrap();
            assert_eq!(answer.resync_after, Some(MAX_RESYNC));
        }
    }

    #[test]
    fn a_resync_is_asked_for_after_a_tenth_of_a_second_at_least() {
        for (seconds, millis) in
            [("1e-9", 100), ("0.099", 100), ("0.1", 100), ("0.101", 101), ("1.001", 1_001)]
        {
            let answer = loose(&format!(r#"{{"children":[],"resyncAfterSeconds":{seconds}}}"#)).unwrap();
            assert_eq!(answer.resync_after, Some(Duration::from_millis(millis)), "{seconds}");
        }
    }

    #[test]
    fn children_of_a_module_beyond_the_bound_are_counted_and_refused() {
        let of =
            |children: usize| format!(r#"{{"children":[{}]}}"#, vec![r#"{"kind":"P"}"#; children].join(","));
        assert_eq!(loose(&of(3)).unwrap().children.len(), 3);
        for found in [4, 1_000_000] {
            let says =
                format!("the hook's answer: children has {found} items, and 3 are allowed (--max-children)");
            assert_eq!(loose(&of(found)).unwrap_err(), says);
        }
        assert_eq!(read(HookTransport::Webhook, Mode::Strict, &of(4)).unwrap().children.len(), 4);
    }

    #[test]
    fn an_answer_of_very_many_values_is_refused_unread() {
        let bomb =
            format!(r#"{{"children":[],"status":{{"x":[{}]}}}}"#, vec![r#"{"":0}"#; 300_000].join(","));
        assert!(loose(&bomb).unwrap_err().contains("would take more than 128 MiB"));
        let text = format!(r#"{{"children":[],"status":{{"x":"{}\""}}}}"#, "{[,".repeat(500_000));
        assert!(loose(&text).is_ok(), "brackets in a text are text");
    }

    #[test]
    fn a_webhook_may_say_as_much_as_the_flag_allows() {
        let text = format!(r#"{{"children":[],"status":{{"x":[{}]}}}}"#, vec!["0"; 1000].join(","));
        let needs = text.len() + crate::json::size::tree_size(text.as_bytes());
        let read = |via, max_memory| {
            let (kind, mode) = (ControllerKind::Composite, Mode::Loose);
            let reading = ReadOptions { kind, via, mode, max_children: MAX, max_memory, deletes: false };
            sync(text.as_bytes(), reading).map(|_| ()).map_err(|error| error.to_string())
        };
        for via in [HookTransport::Wasm, HookTransport::Webhook] {
            assert_eq!(read(via, needs), Ok(()));
        }
        let says = "the hook's answer has so many values that reading it would take more than 0 MiB";
        assert_eq!(read(HookTransport::Wasm, needs - 1).unwrap_err(), says);
        let flag = ": answer with fewer, or raise --max-webhook-answer, of which this is the fourfold";
        assert_eq!(read(HookTransport::Webhook, needs - 1).unwrap_err(), format!("{says}{flag}"));
        let memory = [1, 32 << 20, (32 << 20) + 1, 1 << 30, usize::MAX].map(webhook_answer_memory);
        assert_eq!(memory, [128 << 20, 128 << 20, (128 << 20) + 4, 4 << 30, usize::MAX]);
    }

    #[test]
    fn an_event_named_twice_is_one_and_more_than_ten_are_refused() {
        let of = |reasons: &mut dyn Iterator<Item = usize>| {
            let events: Vec<_> = reasons.map(|reason| json!({ "reason": format!("R{reason}") })).collect();
            loose(&json!({ "children": [], "events": events }).to_string()).map(|answer| answer.events.len())
        };
        assert_eq!(of(&mut (0..100).map(|nth| nth % 10)), Ok(10));
        assert!(of(&mut (0..11)).unwrap_err().contains("events has 11 different items, and 10 are allowed"));
        assert!(of(&mut (0..100_000)).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
                        for kind in [ControllerKind::Composite, ControllerKind::Decorator] {
                let reading = ReadOptions { kind, via: HookTransport::Webhook, mode: Mode::Strict, max_children: MAX, max_memory: MAX_ANSWER_MEMORY, deletes: true };
                drop(sync(&bytes, reading));
            }
        }
    }

    fn read_deletions(list: &Value, mode: UnmarshallMode) -> Result<Vec<Deletion>, String> {
        let mut warnings = AnswerWarnings::default();
        let text = json!({ "deleteRelated": list }).to_string();
        let mut answer =
            read::answer(text.as_bytes(), (HookTransport::Wasm, MAX_ANSWER_MEMORY), "", &mut warnings)
                .unwrap();
        let read = deletions(&mut answer, &mut warnings).and_then(|read| warnings.finish(mode).map(|_| read));
        read.map_err(|error| error.to_string())
    }

    fn with(field: &str, value: Value) -> Value {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "namespace": "n", "name": "a", "uid": "u"});
        pod[field] = value;
        pod
    }

    #[test]
    fn an_object_is_named_whole_and_once() {
        let node = json!({"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "v"});
        let pod = with("name", json!("a"));
        let list = json!([node, pod, pod, with("uid", json!("w"))]);
        let read = read_deletions(&list, UnmarshallMode::Strict).unwrap();
        let text = |one: &Deletion| format!("{} {} {} {}", one.at, one.gvk, one.key, one.uid);
        assert_eq!(
            read.iter().map(text).collect::<Vec<_>>(),
            ["0 v1 Node x v", "1 v1 Pod n/a u", "3 v1 Pod n/a w"]
        );
    }

    #[test]
    fn nothing_may_be_said_in_any_way() {
        for list in [json!(null), json!([])] {
            assert_eq!(read_deletions(&list, UnmarshallMode::Strict), Ok(Vec::new()));
        }
        assert_eq!(
            read_deletions(&json!([with("namespace", json!(null))]), UnmarshallMode::Strict).unwrap().len(),
            1
        );
    }

    #[test]
    fn what_is_wrong_is_named_by_its_path() {
        for (list, says) in [
            (json!({}), "deleteRelated must be a list, not an object"),
            (json!(["a"]), "deleteRelated[0] must be an object, not a string"),
            (json!([with("uid", json!(null))]), "deleteRelated[0].uid must be a string that is not empty"),
            (json!([with("uid", json!(""))]), "deleteRelated[0].uid must be a string that is not empty"),
            (json!([with("uid", json!(1))]), "deleteRelated[0].uid must be a string, not a number"),
            (json!([with("name", json!(""))]), "deleteRelated[0].name must be a string that is not empty"),
            (json!([with("kind", json!(null))]), "deleteRelated[0].kind must be a string that is not empty"),
            (
                json!([with("namespace", json!([]))]),
                "deleteRelated[0].namespace must be a string, not a list",
            ),
            (
                json!([with("apiVersion", json!(""))]),
                "deleteRelated[0].apiVersion must be a string that is not",
            ),
            (
                json!([with("apiVersion", json!("../v1"))]),
                "deleteRelated[0].apiVersion must be a version such as",
            ),
        ] {
            for mode in [UnmarshallMode::Loose, UnmarshallMode::Strict] {
                let error = read_deletions(&list, mode).unwrap_err();
                assert!(error.contains(says), "{error}");
            }
        }
        let unknown = json!([with("why", json!("old"))]);
        assert!(read_deletions(&unknown, UnmarshallMode::Loose).is_ok());
        let error = read_deletions(&unknown, UnmarshallMode::Strict).unwrap_err();
        assert!(error.contains("has the unknown field deleteRelated[0].why"), "{error}");
    }
}
