//! Bundle: objects of an author's files in the order in which a cluster takes them, and the modules and scripts that their
//! controllers need besides.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::api::ControllerKind;
use crate::api::hook::{HookName, Language, ModuleRef};
use crate::object::id::{Gvk, Gvr};

/// The key of a ConfigMap that holds a module where a spec names none.
const DEFAULT_KEY: &str = "hook.wasm";

/// The group of controllers, whatever their version.
const OUR_GROUP: &str = "metacontroller.k8s.io/";

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bundle {
    pub namespaces: Vec<Value>,
    pub definitions: Vec<Value>,
    /// Whatever has no place of its own: rights, mounts, parents.
    pub others: Vec<Value>,
    pub controllers: Vec<(ControllerKind, Value)>,
}

/// Where a controller's module or script is stored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModulePlace {
    pub namespace: String,
    pub name: String,
    pub key: String,
    /// Language of a script; a module has none.
    pub language: Option<Language>,
}

/// A hook of a controller: the controller's kind and name, and the hook's; of a shadow it has none.
pub type ModuleUser = (ControllerKind, String, Option<HookName>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    #[error("it has no {0}: each object needs apiVersion, kind and metadata.name")]
    Unnamed(&'static str),
    #[error("the same {0} comes twice: give it once")]
    Twice(String),
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The kind of controllers that a document is one of.
pub fn controller_kind(document: &Value) -> Option<ControllerKind> {
    let is_ours = text(document, "/apiVersion").starts_with(OUR_GROUP);
    let kinds = [ControllerKind::Composite, ControllerKind::Decorator].into_iter();
    kinds.filter(|_| is_ours).find(|kind| kind.as_str() == text(document, "/kind"))
}

/// The kind that an object is of; empty where it names none.
pub fn gvk(object: &Value) -> Gvk {
    Gvk::new(text(object, "/apiVersion"), text(object, "/kind"))
}

impl Bundle {
    /// Documents by their place, which errors name.
    pub fn of(documents: impl IntoIterator<Item = (String, Value)>) -> Result<Self, (String, BundleError)> {
        let (mut all, mut seen) = (Self::default(), BTreeSet::new());
        for (place, document) in documents {
            for (field, pointer) in
                [("apiVersion", "/apiVersion"), ("kind", "/kind"), ("metadata.name", "/metadata/name")]
            {
                if text(&document, pointer).is_empty() {
                    return Err((place, BundleError::Unnamed(field)));
                }
            }
            let kind = gvk(&document);
            let (namespace, name) =
                (text(&document, "/metadata/namespace"), text(&document, "/metadata/name"));
            if !seen.insert((
                kind.group.to_string(),
                kind.kind.to_string(),
                namespace.to_owned(),
                name.to_owned(),
            )) {
                return Err((place, BundleError::Twice(format!("{} {name}", kind.kind))));
            }
            match (controller_kind(&document), &*kind.group, &*kind.kind) {
                (Some(kind), ..) => all.controllers.push((kind, document)),
                (None, "", "Namespace") => all.namespaces.push(document),
                (None, "apiextensions.k8s.io", "CustomResourceDefinition") => all.definitions.push(document),
                (None, ..) => all.others.push(document),
            }
        }
        Ok(all)
    }

    /// The modules and scripts that the controllers name and that are in no ConfigMap of the bundle, with the hooks that call them.
    /// `namespace`: of objects that name none.
    pub fn modules(&self, namespace: &str) -> BTreeMap<ModulePlace, Vec<ModuleUser>> {
        let mut all = BTreeMap::<ModulePlace, Vec<ModuleUser>>::new();
        for (kind, controller) in &self.controllers {
            let name = text(controller, "/metadata/name");
            for (place, hook) in modules_of(controller) {
                if !self.holds(&place, namespace) {
                    all.entry(place).or_default().push((*kind, name.to_owned(), hook));
                }
            }
        }
        all
    }

    fn holds(&self, place: &ModulePlace, default: &str) -> bool {
        self.others.iter().filter(|object| gvk(object).is_named("v1", "ConfigMap")).any(|map| {
            let namespace = Some(text(map, "/metadata/namespace")).filter(|it| !it.is_empty());
            namespace.unwrap_or(default) == place.namespace && text(map, "/metadata/name") == place.name
        })
    }

    /// Whether a definition of the bundle makes this kind, in whatever version.
    pub fn defines(&self, kind: &Gvk) -> bool {
        let is_of = |definition: &Value| {
            text(definition, "/spec/group") == &*kind.group
                && text(definition, "/spec/names/kind") == &*kind.kind
        };
        self.definitions.iter().any(is_of)
    }

    /// The kinds of parents of the controllers.
    pub fn parents(&self) -> BTreeSet<Gvr> {
        self.controllers.iter().flat_map(|(_, controller)| parents_of(controller)).collect()
    }
}

/// The kinds of parents of a controller.
pub fn parents_of(controller: &Value) -> Vec<Gvr> {
    let parent = |parent: &Value| Gvr::new(text(parent, "/apiVersion"), text(parent, "/resource"));
    let one = controller.pointer("/spec/parentResource").map(parent);
    let several = controller.pointer("/spec/resources").and_then(Value::as_array);
    one.into_iter().chain(several.into_iter().flatten().map(parent)).collect()
}

/// The kinds of a controller's children, or attachments.
pub fn children_of(controller: &Value) -> Vec<Gvr> {
    let lists = ["/spec/childResources", "/spec/attachments"].map(|list| controller.pointer(list));
    let rules = lists.into_iter().flatten().filter_map(Value::as_array).flatten();
    rules.map(|rule| Gvr::new(text(rule, "/apiVersion"), text(rule, "/resource"))).collect()
}

/// The modules and scripts that a controller names, with the hook that calls each.
pub fn modules_of(controller: &Value) -> Vec<(ModulePlace, Option<HookName>)> {
    let mut all = Vec::new();
    for hook in [HookName::Sync, HookName::Finalize, HookName::Customize] {
        let own = format!("/spec/hooks/{}", hook.as_str());
        for (pointer, of) in [(own.clone(), Some(hook)), (format!("{own}/shadow"), None)] {
            let named = controller.pointer(&pointer).into_iter().flat_map(named);
            all.extend(named.map(|place| (place, of)));
        }
    }
    all
}

/// Places of the module or the script that a hook names. A script in an unknown language is left to the API server,
/// which refuses it.
fn named(hook: &Value) -> impl Iterator<Item = ModulePlace> {
    let language = Language::ALL.into_iter().find(|it| it.as_str() == text(hook, "/script/language"));
    let module = hook.pointer("/wasm/configMap").map(|map| place(map, None, DEFAULT_KEY));
    let script = hook.pointer("/script/configMap").zip(language);
    let script = script.map(|(map, language)| place(map, Some(language), language.default_key()));
    module.into_iter().chain(script)
}

impl From<&ModuleRef> for ModulePlace {
    fn from(named: &ModuleRef) -> Self {
        let ModuleRef { language, namespace, name, key, .. } = named.clone();
        Self { namespace, name, key, language }
    }
}

fn place(map: &Value, language: Option<Language>, default: &str) -> ModulePlace {
    let key = Some(text(map, "/key")).filter(|key| !key.is_empty()).unwrap_or(default);
    let text = |pointer| text(map, pointer).to_owned();
    ModulePlace { namespace: text("/namespace"), name: text("/name"), key: key.to_owned(), language }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(api: &str, kind: &str, name: &str) -> Value {
        json!({ "apiVersion": api, "kind": kind, "metadata": { "name": name } })
    }

    fn controller(name: &str, hooks: &Value) -> Value {
        let mut controller = object("metacontroller.k8s.io/v1alpha1", "CompositeController", name);
        let parents = json!({ "apiVersion": "example.com/v1", "resource": "demos" });
        controller["spec"] = json!({ "parentResource": parents, "hooks": hooks });
        controller
    }

    fn bundle(documents: &[Value]) -> Result<Bundle, (String, BundleError)> {
        let placed = documents.iter().enumerate().map(|(nth, document)| (nth.to_string(), document.clone()));
        Bundle::of(placed)
    }

    fn wasm(name: &str) -> Value {
        json!({ "wasm": { "configMap": { "namespace": "n", "name": name } } })
    }

    #[test]
    fn each_object_has_its_turn() {
        let namespace = object("v1", "Namespace", "n");
        let definition = object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "d");
        let (map, demo) = (object("v1", "ConfigMap", "m"), object("example.com/v1", "Demo", "a"));
        let own = controller("c", &json!({}));
        let all = bundle(&[map.clone(), own.clone(), definition.clone(), demo.clone(), namespace.clone()]);
        let expected = Bundle {
            namespaces: vec![namespace],
            definitions: vec![definition],
            others: vec![map, demo],
            controllers: vec![(ControllerKind::Composite, own)],
        };
        assert_eq!(all, Ok(expected));
        assert_eq!(all.unwrap().parents(), [Gvr::new("example.com/v1", "demos")].into());
    }

    #[test]
    fn what_cannot_be_applied_is_named() {
        let refused = |documents: &[Value]| bundle(documents).unwrap_err();
        let unnamed = |field| ("0".to_owned(), BundleError::Unnamed(field));
        assert_eq!(refused(&[json!({ "kind": "K" })]), unnamed("apiVersion"));
        assert_eq!(refused(&[json!({ "apiVersion": "v1" })]), unnamed("kind"));
        let generated = json!({ "apiVersion": "v1", "kind": "K", "metadata": { "generateName": "x-" } });
        assert_eq!(refused(&[generated]), unnamed("metadata.name"));
        let (one, newer) = (object("g/v1", "K", "a"), object("g/v2", "K", "a"));
        assert_eq!(refused(&[one, newer]), ("1".to_owned(), BundleError::Twice("K a".to_owned())));
    }

    #[test]
    fn modules_that_no_config_map_of_the_bundle_holds_are_needed() {
        let mut shadowed = wasm("one");
        shadowed["shadow"] = wasm("four");
        let hooks = json!({ "sync": shadowed, "finalize": wasm("one"), "customize": wasm("two") });
        let mut keyed = wasm("three");
        keyed["wasm"]["configMap"]["key"] = json!("k");
        let second = controller("d", &json!({ "sync": keyed, "finalize": { "webhook": {} } }));
        let all = bundle(&[controller("c", &hooks), second, object("v1", "ConfigMap", "two")]).unwrap();
        let place = |name: &str, key: &str| ModulePlace {
            namespace: "n".to_owned(),
            name: name.to_owned(),
            key: key.to_owned(),
            language: None,
        };
        let user = |name: &str, hook| (ControllerKind::Composite, name.to_owned(), hook);
        let expected = [
            (place("four", "hook.wasm"), vec![user("c", None)]),
            (
                place("one", "hook.wasm"),
                vec![user("c", Some(HookName::Sync)), user("c", Some(HookName::Finalize))],
            ),
            (place("three", "k"), vec![user("d", Some(HookName::Sync))]),
        ];
        assert_eq!(all.modules("n"), expected.into());
        assert_eq!(all.modules("other").len(), 4, "the ConfigMap is in another namespace");
    }

    #[test]
    fn scripts_are_needed_as_modules_are() {
        let script = |language: &str, key: Value| {
            let map = json!({ "namespace": "n", "name": "hook", "key": key });
            json!({ "script": { "language": language, "configMap": map } })
        };
        let mut shadowed = script("python", Value::Null);
        shadowed["shadow"] = script("javascript", json!("sync.mjs"));
        let hooks = json!({ "sync": shadowed, "customize": script("cobol", Value::Null) });
        let found = bundle(&[controller("c", &hooks)]).unwrap().modules("n");
        let found = found.keys().map(|place| (place.key.as_str(), place.language)).collect::<Vec<_>>();
        assert_eq!(found, [("hook.py", Some(Language::Python)), ("sync.mjs", Some(Language::JavaScript))]);
    }
}
