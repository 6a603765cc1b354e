//! Protocol of hooks, the same for modules and webhooks: requests put together from the objects' own bytes, and answers.

pub mod customize;
pub mod etag;
mod fault;
pub mod last_words;
pub mod log_line;
pub mod read;
pub mod response;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::ControllerKind;
use crate::object::{ChildMap, Naming, Object};
pub(crate) use fault::AnswerWarnings;
pub use fault::{AnswerWarning, ResponseError, ignored};

/// The part of its budget that a call used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Usage {
    pub instructions: u64,
    /// The largest linear memory, in bytes.
    pub memory: u64,
}

/// Memory that the values of an answer may take: far more than 10,000 large children need.
pub const MAX_ANSWER_MEMORY: usize = 128 << 20;

/// Bytes of a webhook's answer, unless the user of the server says otherwise.
pub const DEFAULT_WEBHOOK_ANSWER: usize = 32 << 20;

/// Memory that the values of a webhook's answer may take where it may have so many bytes.
pub fn webhook_answer_memory(max_answer: usize) -> usize {
    const PER_BYTE: usize = MAX_ANSWER_MEMORY / DEFAULT_WEBHOOK_ANSWER;
    max_answer.saturating_mul(PER_BYTE).max(MAX_ANSWER_MEMORY)
}

/// Events in one answer.
pub(super) const MAX_EVENTS: usize = 10;

/// Labels, or annotations, in one answer. The server remembers them for each object, and removing an absent one costs
/// nothing at the API server, which therefore sets no bound.
pub(super) const MAX_KEYS: usize = 1000;

/// Bytes of a request to a module.
pub const MAX_REQUEST: usize = 32 << 20;

/// A request that is not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the request has {0} bytes, and {MAX_REQUEST} are allowed: the parent has too many or too large related objects"
)]
pub struct RequestTooLarge(pub usize);

/// A sync or finalize request.
#[derive(Debug, Clone, Copy)]
pub struct Sync<'a> {
    /// Decides the field names for the parent and its children.
    pub kind: ControllerKind,
    /// The controller object, as it was when the controller started.
    pub controller: &'a str,
    pub parent: &'a Object,
    pub children: &'a ChildMap,
    /// Objects that the customize hook's rules select.
    pub related: &'a ChildMap,
    /// JSON from the controller's spec; only Wasm hooks have it.
    pub settings: Option<&'a str>,
    pub naming: Naming,
    pub finalizing: bool,
}

/// A request whose size is counted, before it is put together.
#[derive(Debug, Clone, Copy)]
pub struct SizedRequest<'a> {
    request: Sync<'a>,
    /// Bytes of its parts and of the objects' names, without what stands between them.
    size: usize,
    /// Children and related objects that are shown.
    objects: usize,
}

impl<'a> Sync<'a> {
    pub fn bytes(self) -> Vec<u8> {
        self.sized().bytes()
    }

    pub fn sized(self) -> SizedRequest<'a> {
        let home = &self.parent.key.namespace;
        let settings = self.settings.map_or(0, str::len);
        let (mut size, mut objects) = (self.controller.len() + self.parent.json().len() + settings, 0);
        for (_, object) in self.children.objects().chain(self.related.objects()) {
            if let Some(name) = self.naming.name(home, &object.key) {
                size += name.len() + object.json().len();
                objects += 1;
            }
        }
        SizedRequest { request: self, size, objects }
    }

    fn push_groups(&self, field: &str, objects: &ChildMap, out: &mut String) {
        let mut groups: Vec<_> =
            objects.groups().map(|(resource, objects)| (resource.gvk.group_key(), objects)).collect();
        groups.sort_by(|a, b| a.0.cmp(&b.0));
        push_field(out, field, "{");
        for (key, objects) in &groups {
            push_field(out, key, "{");
            let named = objects
                .values()
                .filter_map(|o| Some((self.naming.name(&self.parent.key.namespace, &o.key)?, o)));
            for (name, object) in named {
                push_field(out, &name, object.json());
            }
            out.push('}');
        }
        out.push('}');
    }
}

impl SizedRequest<'_> {
    /// Bytes that there is room for, which is enough where few names need escapes.
    pub fn capacity(&self) -> usize {
        self.size + 64 * self.objects + 256
    }

    /// # Guarantees
    /// Every declared or related kind has its group, even an empty one. The same input gives the same bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = String::with_capacity(self.capacity());
        let request = &self.request;
        out.push('{');
        push_field(&mut out, "controller", request.controller);
        push_field(&mut out, request.kind.parent(), request.parent.json());
        request.push_groups(request.kind.children(), request.children, &mut out);
        request.push_groups("related", request.related, &mut out);
        push_field(&mut out, "finalizing", if request.finalizing { "true" } else { "false" });
        if let Some(settings) = request.settings {
            push_field(&mut out, "settings", settings);
        }
        out.push('}');
        out.into_bytes()
    }

    /// The request as bytes, which are not put together where they are too many for a module.
    ///
    /// # Errors
    /// The request, without what stands between objects and their names, has more bytes than a module may get.
    pub fn bytes_for_module(&self) -> Result<Vec<u8>, RequestTooLarge> {
        if self.size > MAX_REQUEST { Err(RequestTooLarge(self.size)) } else { Ok(self.bytes()) }
    }
}

/// Most names need no escapes, but those of some kinds, a Role's for example, hold anything but a slash and a percent sign.
fn push_field(out: &mut String, key: &str, value: &str) {
    if !out.ends_with('{') {
        out.push(',');
    }
    if key.contains(|c: char| c == '"' || c == '\\' || c.is_control()) {
        out.push_str(&Value::from(key).to_string());
    } else {
        out.push('"');
        out.push_str(key);
        out.push('"');
    }
    out.push(':');
    out.push_str(value);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::object::testing::{a, resource};

    fn request(naming: Naming, settings: Option<&str>) -> Value {
        let (pods, maps) = (resource("v1", "Pod"), resource("v1", "ConfigMap"));
        let mut children = ChildMap::default();
        children.declare(&maps);
        children.insert(&pods, a("v1", "Pod", "n/b").object());
        children.insert(&pods, a("v1", "Pod", "n/a").object());
        let parent = a("e/v1", "P", "n/p").with("spec", json!({"who": "\"you\""})).object();
        let sync = Sync {
            kind: ControllerKind::Composite,
            controller: r#"{"kind":"C"}"#,
            parent: &parent,
            children: &children,
            related: &ChildMap::default(),
            settings,
            naming,
            finalizing: false,
        };
        serde_json::from_slice(&sync.bytes()).unwrap()
    }

    #[test]
    fn all_five_fields_are_always_there() {
        let request = request(Naming::Relative, None);
        assert_eq!(request["controller"], json!({"kind": "C"}));
        assert_eq!(request["parent"]["spec"], json!({"who": "\"you\""}));
        assert_eq!(request["related"], json!({}));
        assert_eq!(request["finalizing"], json!(false));
        assert_eq!(request["children"]["ConfigMap.v1"], json!({}), "a declared kind has its group");
        assert_eq!(request["children"]["Pod.v1"].as_object().unwrap().keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(request.get("settings"), None);
    }

    proptest! {
        #[test]
        fn whatever_objects_are_called_the_request_names_just_them(names in prop::collection::btree_set("[^/%]{1,12}", 0..4)) {
            let roles = resource("rbac.authorization.k8s.io/v1", "Role");
            let mut related = ChildMap::default();
            related.declare(&roles);
            for name in &names {
                related.insert(&roles, a("rbac.authorization.k8s.io/v1", "Role", &format!("n/{name}")).object());
            }
            let parent = a("e/v1", "P", "n/p").object();
            let request = Sync {
                kind: ControllerKind::Composite,
                controller: "{}",
                parent: &parent,
                children: &ChildMap::default(),
                related: &related,
                settings: None,
                naming: Naming::Relative,
                finalizing: false,
            };
            let request: Value = serde_json::from_slice(&request.bytes()).unwrap();
            let found = request["related"]["Role.rbac.authorization.k8s.io/v1"].as_object().unwrap();
            let found: std::collections::BTreeSet<String> = found.keys().cloned().collect();
            prop_assert_eq!(found, names);
        }
    }

    #[test]
    fn names_count_in_the_size_of_a_request() {
        let parent = a("e/v1", "P", "n/p").object();
        let size = |naming, key: &str| {
            let mut children = ChildMap::default();
            children.insert(&resource("v1", "Pod"), a("v1", "Pod", key).uid("u").object());
            let related = &ChildMap::default();
            let (kind, controller, finalizing) = (ControllerKind::Composite, "{}", false);
            let request = Sync {
                kind,
                controller,
                parent: &parent,
                children: &children,
                related,
                settings: None,
                naming,
                finalizing,
            };
            let sized = request.sized();
            assert!(sized.size <= request.bytes().len() && request.bytes().len() <= sized.capacity());
            sized.size
        };
        let long = format!("n/{}", "x".repeat(1001));
        // Once in the object, and once as its name.
        assert_eq!(size(Naming::Relative, &long) - size(Naming::Relative, "n/x"), 2000);
        assert_eq!(size(Naming::Uniform, "n/x") - size(Naming::Relative, "n/x"), 2);
        assert_eq!(size(Naming::Relative, "m/x"), size(Naming::Relative, "m/y"), "it is not shown");
    }

    #[test]
    fn v2_names_objects_with_their_namespace_and_settings_are_passed_on() {
        let request = request(Naming::Uniform, Some(r#"{"greeting":"Hi"}"#));
        assert_eq!(
            request["children"]["Pod.v1"].as_object().unwrap().keys().collect::<Vec<_>>(),
            ["n/a", "n/b"]
        );
        assert_eq!(request["settings"], json!({"greeting": "Hi"}));
    }
}
