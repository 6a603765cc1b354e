//! List types of a kind and where it may hold nulls, as the API server publishes them in its schemas (`OpenAPI` v3).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::object::id::Gvk;

/// Bytes of the fields that name an item of a list, with their defaults: the names of all items have them.
const MAX_KEYS: usize = 512;

/// One place of an object and what is below it. Knows nothing where nothing is published.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lists {
    /// Kind of the list at this place, where one is. For an object: whether it is one value, which only server-side
    /// apply takes it for.
    pub kind: Option<ListKind>,
    pub members: BTreeMap<String, Arc<Lists>>,
    /// Every item of a list, every member of a map.
    pub each: Option<Arc<Lists>>,
    /// A null here is a value (`nullable`). The API server drops any other null of a custom resource.
    pub nullable: bool,
    /// Members and items that are not published are kept as they are, nulls too
    /// (`x-kubernetes-preserve-unknown-fields`). Then all that is published is in `members` and `each`, also where
    /// nothing more is known about it.
    pub open: bool,
}

/// Any place below an open one.
static UNPUBLISHED: Lists =
    Lists { kind: None, members: BTreeMap::new(), each: None, nullable: true, open: true };

/// `x-kubernetes-list-type`, and `x-kubernetes-map-type` where it is atomic.
#[derive(Debug, Clone, PartialEq)]
pub enum ListKind {
    /// One value: a client that sets it sets all of it.
    Atomic,
    /// Each item at most once; clients add their own.
    Set,
    /// The items differ in these fields.
    Map(Vec<ListKey>),
}

/// A field of `x-kubernetes-list-map-keys`.
#[derive(Debug, Clone, PartialEq)]
pub struct ListKey {
    pub field: String,
    /// Value of the field in an item that does not name it.
    pub default: Option<Value>,
}

impl Lists {
    pub fn is_empty(&self) -> bool {
        self.kind.is_none() && self.members.is_empty() && self.each.is_none() && !self.nullable && !self.open
    }

    pub fn member(&self, name: &str) -> Option<&Self> {
        self.members.get(name).map(AsRef::as_ref).or_else(|| self.item())
    }

    pub fn item(&self) -> Option<&Self> {
        self.each.as_deref().or_else(|| self.open.then_some(&UNPUBLISHED))
    }
}

/// The document of one group and version, as far as lists and nulls are concerned.
#[derive(Deserialize)]
pub struct Document {
    #[serde(default)]
    components: Components,
}

#[derive(Default, Deserialize)]
struct Components {
    #[serde(default)]
    schemas: BTreeMap<String, Schema>,
}

#[derive(Deserialize)]
struct Schema {
    #[serde(rename = "$ref")]
    reference: Option<String>,
    #[serde(default, rename = "allOf")]
    all_of: Vec<Schema>,
    #[serde(default)]
    properties: BTreeMap<String, Schema>,
    items: Option<Box<Schema>>,
    /// A schema, or whether there may be any.
    #[serde(rename = "additionalProperties")]
    additional: Option<Additional>,
    default: Option<Value>,
    #[serde(default)]
    nullable: bool,
    #[serde(default, rename = "x-kubernetes-preserve-unknown-fields")]
    preserves_unknown_fields: bool,
    #[serde(rename = "x-kubernetes-list-type")]
    list_type: Option<String>,
    #[serde(rename = "x-kubernetes-map-type")]
    map_type: Option<String>,
    #[serde(default, rename = "x-kubernetes-list-map-keys")]
    list_map_keys: Vec<String>,
    #[serde(default, rename = "x-kubernetes-group-version-kind")]
    kinds: Vec<Names>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Additional {
    Schema(Box<Schema>),
    Any(bool),
    Other(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
struct Names {
    group: String,
    version: String,
    kind: String,
}

/// Schemas that were read already; `None` while one is being read, so that those which hold themselves end.
type Read<'a> = BTreeMap<&'a str, Option<Arc<Lists>>>;

impl Document {
    /// # Errors
    /// The text is not the JSON of such a document.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Published schema of a kind's lists; `None` where the kind is not in the document.
    pub fn lists(&self, gvk: &Gvk) -> Option<Arc<Lists>> {
        let is_it =
            |kind: &Names| kind.group == *gvk.group && kind.version == *gvk.version && kind.kind == *gvk.kind;
        let found = self.components.schemas.values().find(|schema| schema.kinds.iter().any(is_it));
        found.map(|schema| self.read(schema, &mut Read::new()))
    }

    fn read<'a>(&'a self, schema: &'a Schema, known: &mut Read<'a>) -> Arc<Lists> {
        let mut lists = Lists::default();
        self.add(&mut lists, schema, known);
        Arc::new(lists)
    }

    fn add<'a>(&'a self, lists: &mut Lists, schema: &'a Schema, known: &mut Read<'a>) {
        let references =
            schema.reference.iter().chain(schema.all_of.iter().filter_map(|s| s.reference.as_ref()));
        for reference in references {
            let target = self.follow(reference, known);
            lists.kind = lists.kind.take().or_else(|| target.kind.clone());
            lists
                .members
                .extend(target.members.iter().map(|(name, below)| (name.clone(), Arc::clone(below))));
            lists.each = lists.each.take().or_else(|| target.each.clone());
            lists.open |= target.open;
            lists.nullable |= target.nullable;
        }
        lists.open |=
            schema.preserves_unknown_fields || matches!(schema.additional, Some(Additional::Any(true)));
        lists.nullable |= schema.nullable;
        for (name, member) in &schema.properties {
            let below = self.read(member, known);
            if lists.open || !below.is_empty() {
                lists.members.insert(name.clone(), below);
            }
        }
        let additional = schema.additional.as_ref().and_then(|additional| match additional {
            Additional::Schema(schema) => Some(schema.as_ref()),
            Additional::Any(_) | Additional::Other(_) => None,
        });
        if let Some(each) = schema.items.as_deref().or(additional) {
            lists.each = Some(self.read(each, known)).filter(|below| lists.open || !below.is_empty());
        }
        lists.kind = lists.kind.take().or_else(|| self.kind(schema));
    }

    fn follow<'a>(&'a self, reference: &'a str, known: &mut Read<'a>) -> Arc<Lists> {
        let Some((_, name)) = reference.rsplit_once('/') else { return Arc::default() };
        if let Some(read) = known.get(name) {
            return read.clone().unwrap_or_default();
        }
        let Some(schema) = self.components.schemas.get(name) else { return Arc::default() };
        known.insert(name, None);
        let read = self.read(schema, known);
        known.insert(name, Some(Arc::clone(&read)));
        read
    }

    /// A list whose keys are too long counts as one about which nothing is published.
    fn kind(&self, schema: &Schema) -> Option<ListKind> {
        Some(match schema.list_type.as_deref().or(schema.map_type.as_deref())? {
            "atomic" => ListKind::Atomic,
            "set" => ListKind::Set,
            "map" if !schema.list_map_keys.is_empty() => {
                let default = |field: &str| self.default(schema.items.as_deref()?, field);
                let key = |field: &String| ListKey { field: field.clone(), default: default(field) };
                let keys: Vec<_> = schema.list_map_keys.iter().map(key).collect();
                let size = |key: &ListKey| {
                    let default = key.default.as_ref().map_or(0, |default| default.to_string().len());
                    key.field.len() + default
                };
                if keys.iter().map(size).sum::<usize>() > MAX_KEYS {
                    return None;
                }
                ListKind::Map(keys)
            }
            _ => return None,
        })
    }

    /// The default of a field of items.
    fn default<'a>(&'a self, items: &'a Schema, field: &str) -> Option<Value> {
        let named = |schema: &'a Schema| {
            let (_, name) = schema.reference.as_ref()?.rsplit_once('/')?;
            self.components.schemas.get(name)
        };
        let targets = std::iter::once(items).chain(&items.all_of);
        targets
            .flat_map(|schema| [Some(schema), named(schema)])
            .flatten()
            .find_map(|schema| schema.properties.get(field)?.default.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lists() -> Arc<Lists> {
        let port = json!({"type": "object", "properties": {"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}}});
        let list = |kind: &str, keys: &[&str], item: &str| {
            json!({"type": "array", "items": {"default": {}, "allOf": [{"$ref": format!("#/components/schemas/{item}")}]},
                   "x-kubernetes-list-type": kind, "x-kubernetes-list-map-keys": keys})
        };
        let spec = json!({"properties": {
            "ports": list("map", &["port", "protocol"], "Port"),
            "names": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "rules": list("atomic", &[], "Port"),
            "plain": {"type": "array", "items": {"type": "string"}},
            "byName": {"type": "object", "additionalProperties": list("atomic", &[], "Port")},
            "free": {"type": "object", "additionalProperties": true},
            "whole": {"type": "object", "additionalProperties": {"type": "string"}, "x-kubernetes-map-type": "atomic"},
            "itself": {"$ref": "#/components/schemas/Spec"},
        }});
        let thing = json!({"properties": {"spec": {"allOf": [{"$ref": "#/components/schemas/Spec"}]}},
            "x-kubernetes-group-version-kind": [{"group": "e", "version": "v1", "kind": "Thing"}]});
        let text =
            json!({"components": {"schemas": {"Port": port, "Spec": spec, "Thing": thing}}}).to_string();
        Document::parse(&text).unwrap().lists(&Gvk::new("e/v1", "Thing")).unwrap()
    }

    #[test]
    fn list_types_and_keys_are_read_through_references() {
        let lists = lists();
        let kind =
            |name: &str| lists.member("spec").unwrap().member(name).and_then(|below| below.kind.clone());
        let key = |field: &str, default: Option<Value>| ListKey { field: field.to_owned(), default };
        assert_eq!(
            kind("ports"),
            Some(ListKind::Map(vec![key("port", None), key("protocol", Some(json!("TCP")))]))
        );
        assert_eq!((kind("names"), kind("rules")), (Some(ListKind::Set), Some(ListKind::Atomic)));
        assert_eq!((kind("plain"), kind("free")), (None, None));
        assert_eq!(kind("whole"), Some(ListKind::Atomic));
        let by_name = lists.member("spec").unwrap().member("byName").unwrap();
        assert_eq!(by_name.member("any").unwrap().kind, Some(ListKind::Atomic));
    }

    #[test]
    fn a_list_whose_keys_are_long_is_as_one_without_a_type() {
        let of = |length: usize| {
            let key = "k".repeat(length);
            let list = json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]});
            let thing = json!({"type": "object", "properties": {"l": list}, "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Thing"}]});
            let document = json!({"components": {"schemas": {"Thing": thing}}}).to_string();
            let lists = Document::parse(&document).unwrap().lists(&Gvk::new("v1", "Thing")).unwrap();
            lists.member("l").is_some_and(|l| l.kind.is_some())
        };
        assert_eq!((of(MAX_KEYS), of(MAX_KEYS + 1)), (true, false));
    }

    #[test]
    fn where_a_null_may_be_is_read() {
        let spec = json!({"type": "object", "properties": {
            "plain": {"type": "string"},
            "nullable": {"type": "string", "nullable": true},
            "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"known": {"type": "string"}, "inner": {"type": "object", "properties": {"x": {"type": "string"}}}}},
            "any": {"type": "object", "additionalProperties": true},
            "map": {"type": "object", "additionalProperties": {"type": "string", "nullable": true}},
            "items": {"type": "array", "items": {"type": "object", "properties": {"a": {"nullable": true}, "b": {"type": "string"}}}},
            "rawItems": {"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": true}},
        }});
        let thing = json!({"properties": {"spec": spec},
            "x-kubernetes-group-version-kind": [{"group": "e", "version": "v1", "kind": "Thing"}]});
        let text = json!({"components": {"schemas": {"Thing": thing}}}).to_string();
        let all = Document::parse(&text).unwrap().lists(&Gvk::new("e/v1", "Thing")).unwrap();
        let may_be = |path: &str| {
            let step = |lists, step: &str| match step {
                "*" => Lists::item(lists),
                name => lists.member(name),
            };
            path.split('.').try_fold(all.as_ref(), step).is_some_and(|lists| lists.nullable)
        };
        for path in
            ["nullable", "raw.n", "raw.n.o.*.p", "any.x", "any.x.y", "map.x", "items.*.a", "rawItems.*.a"]
        {
            assert!(may_be(&format!("spec.{path}")), "{path}");
        }
        for path in [
            "plain",
            "raw",
            "raw.known",
            "raw.inner",
            "raw.inner.x",
            "any",
            "map",
            "items.*",
            "items.*.b",
            "unknown",
        ] {
            assert!(!may_be(&format!("spec.{path}")), "{path}");
        }
        assert!(
            !all.member("spec").unwrap().members.contains_key("plain"),
            "nothing is kept of what holds none"
        );
    }

    #[test]
    fn a_kind_that_is_not_there_is_told_from_one_without_lists() {
        let of = |text: &str| Document::parse(text).unwrap().lists(&Gvk::new("v1", "Thing"));
        assert_eq!(of("{}"), None);
        let there = r#"{"components":{"schemas":{"T":{"x-kubernetes-group-version-kind":[{"group":"","version":"v1","kind":"Thing"}]}}}}"#;
        assert_eq!(of(there), Some(Arc::default()));
        assert!(Document::parse("[1]").is_err());
    }
}
