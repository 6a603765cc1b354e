//! Hosting: which controllers a server runs. One that carries the label of `metahook dev` runs on its author's machine alone.

use crate::api::ControllerKind;
use crate::object::Object;
use crate::object::selector::Selector;
use crate::presence::lease_name;

/// Label of a controller that a session of `metahook dev` runs; its value is the session's name.
pub const DEV_LABEL: &str = "metahook.dev/dev";

/// Bytes of a label's value.
const MAX_LABEL: usize = 63;

/// The controllers that a server hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosting {
    /// Controllers with these labels, but none that a session of `metahook dev` has.
    Server(Selector),
    /// The controller of this session.
    Dev(Session),
}

/// A session of `metahook dev`: its name, and the one controller that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub name: String,
    pub kind: ControllerKind,
    pub controller: String,
}

impl Hosting {
    /// # Guarantees
    /// No controller is hosted by a server and by a session of `metahook dev`, and none by two sessions of different names.
    pub fn hosts(&self, controller: &Object) -> bool {
        let session = controller.labels.get(DEV_LABEL);
        match self {
            Self::Server(selector) => session.is_none() && selector.matches(&controller.labels),
            Self::Dev(Session { name, kind, controller: own }) => {
                session == Some(name)
                    && *controller.gvk.kind == *kind.as_str()
                    && *controller.key.name == **own
            }
        }
    }

    pub fn is_dev(&self) -> bool {
        matches!(self, Self::Dev(_))
    }
}

/// Annotation of a Lease: the selector of the controllers that its servers host, where they do not host all.
pub const SELECTOR: &str = "metahook.dev/target-label-selector";

/// Whether the servers that sign this Lease host a controller. A Lease that does not have its selector is an earlier release's, and
/// says nothing.
pub fn hosts(lease: &Object, controller: &Object) -> bool {
    let selector = match lease.annotations().remove(SELECTOR) {
        Some(text) => Selector::parse(&text),
        None => Ok(Selector::default()),
    };
    selector.is_ok_and(|selector| {
        lease_name(&selector) == *lease.key.name && Hosting::Server(selector).hosts(controller)
    })
}

/// The text as the value of a label: other characters become dashes. `None` where nothing is left of it.
pub fn label_value(text: &str) -> Option<String> {
    let one = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let all: String = text.chars().map(one).take(MAX_LABEL).collect();
    let value = all.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    (!value.is_empty()).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::testing::a;

    fn controller(kind: &str, name: &str, labels: &serde_json::Value) -> Object {
        let metadata = json!({ "name": name, "uid": "u", "resourceVersion": "1", "labels": labels });
        let api = "metacontroller.k8s.io/v1alpha1";
        Object::parse(&json!({ "apiVersion": api, "kind": kind, "metadata": metadata }).to_string(), None)
            .unwrap()
    }

    fn session(name: &str) -> Hosting {
        Hosting::Dev(Session {
            name: name.to_owned(),
            kind: ControllerKind::Composite,
            controller: "c".to_owned(),
        })
    }

    #[test]
    fn a_controller_is_hosted_by_servers_or_by_its_session() {
        let all = Hosting::Server(Selector::default());
        let team = Hosting::Server(Selector::parse("team=a").unwrap());
        let hosts = |kind: &str, name: &str, labels: &serde_json::Value| {
            [&all, &team, &session("ann"), &session("bob")]
                .map(|hosting| hosting.hosts(&controller(kind, name, labels)))
        };
        let composite = "CompositeController";
        for (name, labels, expected) in [
            ("c", json!({}), [true, false, false, false]),
            ("c", json!({"team": "a"}), [true, true, false, false]),
            ("c", json!({"team": "a", DEV_LABEL: "ann"}), [false, false, true, false]),
            ("c", json!({DEV_LABEL: "bob"}), [false, false, false, true]),
            ("c", json!({DEV_LABEL: "eve"}), [false; 4]),
            ("c", json!({DEV_LABEL: ""}), [false; 4]),
            ("d", json!({DEV_LABEL: "ann"}), [false; 4]),
        ] {
            assert_eq!(hosts(composite, name, &labels), expected, "{name} {labels}");
        }
        assert_eq!(hosts("DecoratorController", "c", &json!({DEV_LABEL: "ann"})), [false; 4]);
    }

    #[test]
    fn any_text_becomes_the_value_of_a_label() {
        let value = |text: &str| label_value(text);
        assert_eq!(value("ann@laptop").as_deref(), Some("ann-laptop"));
        assert_eq!(value("a_b.c-D9").as_deref(), Some("a_b.c-D9"));
        assert_eq!(value("..ü me ü").as_deref(), Some("me"));
        assert_eq!(value(&"x".repeat(MAX_LABEL)).unwrap().len(), MAX_LABEL);
        assert_eq!(value(&"x".repeat(MAX_LABEL + 1)).unwrap().len(), MAX_LABEL);
        assert_eq!((value(""), value("-ü-")), (None, None));
    }

    #[test]
    fn a_lease_counts_for_the_controllers_that_its_servers_host() {
        let lease = |name: &str, selector: Option<&str>| {
            let lease = a("coordination.k8s.io/v1", "Lease", &format!("n/{name}"));
            match selector {
                Some(selector) => lease.annotation(SELECTOR, selector),
                None => lease,
            }
        };
        let controller = |labels: &[&str]| {
            let controller = a("metacontroller.k8s.io/v1alpha1", "CompositeController", "c");
            labels.iter().fold(controller, |controller, key| controller.label(key, "a")).object()
        };
        let (all, team) = (lease_name(&Selector::default()), lease_name(&Selector::equals("team", "a")));
        for (name, selector, expected) in [
            (&*all, None, [true, true, false]),
            (&*team, Some("team=a"), [false, true, false]),
            (&*team, Some("team in (a)"), [false, true, false]),
            // Of an earlier release; of another selector; no selector; another program's.
            (&*team, None, [false; 3]),
            (&*team, Some("team=b"), [false; 3]),
            (&*team, Some("a>1"), [false; 3]),
            ("kube-controller-manager", None, [false; 3]),
        ] {
            let lease = lease(name, selector).object();
            let found = [controller(&[]), controller(&["team"]), controller(&["team", DEV_LABEL])]
                .map(|controller| hosts(&lease, &controller));
            assert_eq!(found, expected, "{name} {selector:?}");
        }
    }
}
