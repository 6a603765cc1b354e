//! Pause of a parent or of a whole controller: no hook is called, nothing is written, and a deletion waits.

use crate::api::PAUSED;
use crate::api::reason::EventReason;
use crate::object::Object;
use crate::reconcile::config::ControllerConfig;
use crate::reconcile::has_finalizer;

/// The cause of a pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pause {
    /// `spec.paused` of the controller.
    Controller,
    /// The annotation of the parent.
    Parent,
    /// The annotation has neither of its two values. Who writes it wants a pause rather than none.
    Unclear(String),
}

/// The length of an annotation's value that a message shows.
const MAX_SHOWN: usize = 64;

impl Pause {
    /// The pause of a parent; `None`: it is reconciled.
    pub fn of(parent: &Object, config: &ControllerConfig) -> Option<Self> {
        if config.paused {
            return Some(Self::Controller);
        }
        let value = parent.annotations().remove(PAUSED)?;
        match value.as_str() {
            "true" => Some(Self::Parent),
            "false" => None,
            _ => Some(Self::Unclear(value)),
        }
    }

    /// The Event about a paused parent. A pause of the controller has an Event of its own, so that a parent has one only where
    /// its deletion waits.
    pub fn event(&self, parent: &Object, config: &ControllerConfig) -> Option<(EventReason, String)> {
        let controller = format!("{} {}", config.kind.name().as_str(), config.name);
        let waits = parent.deleting && has_finalizer(parent, &config.selection);
        let (reason, mut message) = match self {
            Self::Controller if !waits => return None,
            Self::Controller => (EventReason::Paused, format!("{controller} is paused by spec.paused")),
            Self::Parent => (
                EventReason::Paused,
                format!(
                    "{} and writes nothing, as its annotation {PAUSED} is \"true\"; what changes meanwhile is caught up once it is \"false\" or gone",
                    paused_by(&controller)
                ),
            ),
            Self::Unclear(value) => {
                let value = crate::shorten_middle(value, MAX_SHOWN);
                let message = format!(
                    "the annotation {PAUSED} is {value:?}, and it may be \"true\" or \"false\": {controller} takes the object for paused until it is \"false\" or gone"
                );
                (EventReason::PauseUnclear, message)
            }
        };
        if waits {
            message += "; the object is being deleted, and waits until then for the finalize hook";
        }
        Some((reason, message))
    }
}

/// How the Event `Paused` about a parent begins. `controller`: kind and name.
pub fn paused_by(controller: &str) -> String {
    format!("{controller} calls no hook for this object")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::testing::{Build, a};
    use crate::reconcile::testing::{config, decorator};

    fn parent(value: Option<&str>) -> Build {
        let parent = a("e/v1", "P", "n/p");
        match value {
            Some(value) => parent.annotation(PAUSED, value),
            None => parent,
        }
    }

    #[test]
    fn an_annotation_pauses_its_object_and_an_unclear_one_does_too() {
        let pause = |value| Pause::of(&parent(value).object(), &config());
        assert_eq!([pause(None), pause(Some("false"))], [None, None]);
        assert_eq!(pause(Some("true")), Some(Pause::Parent));
        for value in ["yes", "", "True", "0"] {
            assert_eq!(pause(Some(value)), Some(Pause::Unclear(value.to_owned())));
        }
    }

    #[test]
    fn a_paused_controller_pauses_all_whatever_their_annotations_say() {
        let config = ControllerConfig { paused: true, ..config() };
        for value in [None, Some("true"), Some("false")] {
            assert_eq!(Pause::of(&parent(value).object(), &config), Some(Pause::Controller));
        }
    }

    #[test]
    fn an_event_names_the_value_and_what_waits() {
        let config = decorator();
        let event = |pause: &Pause, parent: Build| pause.event(&parent.object(), &config);
        assert_eq!(event(&Pause::Controller, parent(None)), None);
        let finalizer = config.selection.finalizer.clone();
        let going = || parent(None).with("metadata.finalizers", serde_json::json!([finalizer])).deleting();
        let (reason, message) = event(&Pause::Controller, going()).unwrap();
        assert_eq!(reason, EventReason::Paused);
        assert!(message.contains("spec.paused") && message.ends_with("for the finalize hook"), "{message}");
        let (_, message) = event(&Pause::Parent, parent(None)).unwrap();
        assert!(message.contains("is \"true\"") && !message.contains("being deleted"), "{message}");
        assert!(event(&Pause::Parent, going()).unwrap().1.contains("being deleted"));
        let (reason, message) = event(&Pause::Unclear("y".repeat(2000)), parent(None)).unwrap();
        assert_eq!(reason, EventReason::PauseUnclear);
        assert!(message.len() < 400 && message.contains("yyy…yyy"), "{message}");
    }
}
