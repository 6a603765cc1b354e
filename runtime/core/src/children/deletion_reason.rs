//! Reasons of deletions, and the Events that a parent has of the children that go.

use std::collections::BTreeMap;
use std::fmt;

use crate::api::hook::HookName;
use crate::counted;
use crate::hash::Fingerprint;
use crate::object::id::ObjectId;
use crate::shorten;

/// Why a child goes. It comes back where it is made anew.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeletionReason {
    /// The hook's answer has no such child. With the version of all hooks.
    Unlisted(HookName, Fingerprint),
    /// The hook wants the child to be different in this place, and it is made anew.
    Changed(Option<String>),
    /// Another client changed the child in this place, and it is made anew.
    Drifted(Option<String>),
    /// A rolling update makes it anew.
    RolledOut,
}

/// A child that went, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deleted {
    pub id: ObjectId,
    pub reason: DeletionReason,
}

/// Names that one Event has.
const MAX_NAMES: usize = 10;

/// Bytes of a name, and of a place, that one Event shows.
const MAX_SHOWN: usize = 80;

/// Events of one reconcile: reasons beyond are counted.
const MAX_EVENTS: usize = 5;

impl DeletionReason {
    fn verb(&self) -> &'static str {
        match self {
            Self::Unlisted(..) => "deleted",
            Self::Changed(_) | Self::Drifted(_) | Self::RolledOut => "deleted to be made anew",
        }
    }
}

impl fmt::Display for DeletionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |place: &Option<String>| match place {
            Some(place) => format!("in {}", shorten(place, MAX_SHOWN)),
            None => "in a field that it no longer has".to_owned(),
        };
        match self {
            Self::Unlisted(hook, version) => {
                write!(f, "the answer of the {hook} hook does not list it (version {version})")
            }
            Self::Changed(differs) => {
                write!(
                    f,
                    "the answer of the hook differs from it {}, and its update strategy recreates it",
                    place(differs)
                )
            }
            Self::Drifted(differs) => {
                write!(
                    f,
                    "another client changed it {}, and its update strategy recreates it",
                    place(differs)
                )
            }
            Self::RolledOut => {
                f.write_str("the rolling update moves it to the latest revision of its parent")
            }
        }
    }
}

/// Messages about the children that a reconcile deleted, one for each reason. `home`: the namespace that needs no mention.
pub fn event_messages(home: &str, deleted: &[Deleted]) -> Vec<String> {
    let mut reasons = BTreeMap::<_, Vec<String>>::new();
    for Deleted { id, reason } in deleted {
        let name = if *id.key.namespace == *home { id.key.name.to_string() } else { id.key.to_string() };
        reasons.entry(reason).or_default().push(format!(
            "{} {}",
            id.resource.gvk.kind,
            shorten(&name, MAX_SHOWN)
        ));
    }
    let left_out = reasons.len().saturating_sub(MAX_EVENTS);
    let messages = reasons.into_iter().take(MAX_EVENTS).map(|(reason, mut names)| {
        names.sort_unstable();
        let count = names.len();
        names.truncate(MAX_NAMES);
        let more = count - names.len();
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        format!(
            "{}{more} {} {}: {reason}",
            names.join(", "),
            if count == 1 { "is" } else { "are" },
            reason.verb()
        )
    });
    let rest = (left_out > 0).then(|| {
        format!(
            "children are deleted for {}: the server's log has them",
            counted(left_out, "other reason", "other reasons")
        )
    });
    messages.chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::id::Key;
    use crate::object::testing::resource;

    fn deleted(name: &str, reason: DeletionReason) -> Deleted {
        Deleted { id: ObjectId { resource: resource("v1", "Pod"), key: Key::new("n", name) }, reason }
    }

    fn unlisted() -> DeletionReason {
        DeletionReason::Unlisted(HookName::Sync, Fingerprint::of(b"module"))
    }

    #[test]
    fn children_that_go_for_one_reason_share_a_message() {
        let version = Fingerprint::of(b"module");
        let all = [
            deleted("b", unlisted()),
            deleted("a", unlisted()),
            deleted("c", DeletionReason::Changed(Some("spec.image".to_owned()))),
        ];
        let expected = [
            format!("Pod a, Pod b are deleted: the answer of the sync hook does not list it (version {version})"),
            "Pod c is deleted to be made anew: the answer of the hook differs from it in spec.image, and its update strategy recreates it".to_owned(),
        ];
        assert_eq!(event_messages("n", &all), expected);
        assert!(event_messages("m", &all)[0].starts_with("Pod n/a, Pod n/b"));
        assert_eq!(event_messages("n", &[]), [""; 0]);
    }

    #[test]
    fn messages_are_short_however_many_go_and_however_long_their_names_are() {
        let name = |nth: usize| format!("{nth:03}{}", "x".repeat(250));
        let many: Vec<_> = (0..1000).map(|nth| deleted(&name(nth), unlisted())).collect();
        let messages = event_messages("n", &many);
        assert!(messages.len() == 1 && messages[0].len() <= 1024, "{}", messages[0].len());
        assert!(messages[0].contains(" and 990 more are deleted: "), "{}", messages[0]);
        assert!(!event_messages("n", &many[..10])[0].contains("more"));
        let places = |nth: usize| DeletionReason::Drifted(Some(format!("spec.{}", name(nth))));
        let all: Vec<_> = (0..7).map(|nth| deleted("a", places(nth))).collect();
        let messages = event_messages("n", &all);
        assert_eq!(messages.len(), MAX_EVENTS + 1);
        assert!(messages[MAX_EVENTS].starts_with("children are deleted for 2 other reasons"));
        assert_eq!(event_messages("n", &all[..MAX_EVENTS]).len(), MAX_EVENTS);
    }
}
