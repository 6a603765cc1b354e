//! Texts of a parent with other characters, as far as its definition and Kubernetes allow any.

use serde_json::{Value, json};

use super::specs::{has_logic, has_rules, rules};

/// Text of several scripts, with characters of up to four bytes.
pub(super) const UNICODE: &str = "ü-你好-🦀-\u{1f468}\u{200d}\u{1f469}";

/// Fields below which Kubernetes has texts of its own form: labels, selectors, quantities.
const TYPED_BELOW: [&str; 8] =
    ["selector", "labels", "matchExpressions", "limits", "requests", "capacity", "hard", "overhead"];
const TYPED_BELOW_ENDS: [&str; 5] = ["Selector", "Labels", "Ref", "Refs", "Reference"];

/// Fields whose texts name something in a cluster.
const NAMES: [&str; 10] = [
    "name",
    "names",
    "generateName",
    "namespace",
    "namespaces",
    "kind",
    "apiVersion",
    "apiGroup",
    "uid",
    "group",
];
const NAME_ENDS: [&str; 2] = ["Name", "Namespace"];
/// They name a person or a thing to people.
const FREE_NAMES: [&str; 5] = ["displayName", "fullName", "firstName", "lastName", "nickName"];

/// Fields of built-in kinds and of Pods that take any text.
const FREE: [&str; 6] = ["annotations", "value", "args", "command", "message", "description"];

/// The ends of quantities, shares and durations.
const UNITS: [&str; 22] = [
    "", "%", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "s", "ms", "h",
    "us", "ns",
];

/// Knowledge about the place of a text.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// The field, or that of the list.
    pub field: &'a str,
    /// The schema in the definition of the kind.
    pub schema: Option<&'a Value>,
    /// It is of a built-in kind, or of a Pod.
    pub is_built_in: bool,
}

/// The schema of a spec in that of whole objects, with the rules of the object that name fields of the spec. `None`: one is about
/// all of the spec.
pub(super) fn spec_schema(root: &Value, spec: &Value) -> Option<Value> {
    let mut schema = root.pointer("/properties/spec")?.clone();
    let fields = schema.get("properties").and_then(Value::as_object);
    let is_field = |name: &str| spec.get(name).or_else(|| fields?.get(name)).is_some();
    if has_logic(root) || rules(root).any(|rule| is_of_all(rule, is_field)) {
        return None;
    }
    let own = schema.as_object_mut()?.entry("x-kubernetes-validations").or_insert(json!([]));
    own.as_array_mut()?
        .extend(rules(root).filter(|rule| rule.contains("spec")).map(|rule| json!({ "rule": rule })));
    Some(schema)
}

/// Whether a rule of the object looks at its spec otherwise than at a field of it, or at whether there is one.
fn is_of_all(rule: &str, is_field: impl Fn(&str) -> bool) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let rule = rule.replace("has(self.spec)", "");
    rule.split("self.spec").skip(1).filter(|rest| !rest.starts_with(is_word)).any(|rest| {
        let name = rest.strip_prefix('.').and_then(|rest| rest.split(|c| !is_word(c)).next());
        !name.is_some_and(&is_field)
    })
}

/// Puts other characters into the texts that may have any.
pub(super) fn replace_texts(value: &mut Value, place: Place<'_>) {
    let Place { field, schema, is_built_in } = place;
    let of_schema = |word: &str| schema.and_then(|schema| schema.get(word));
    let rules: Vec<_> = schema.into_iter().flat_map(rules).collect();
    // The rules of an object name its fields.
    let is_whole = !value.is_object() || schema.is_some_and(has_logic);
    if is_typed_below(field) || is_whole && schema.is_some_and(has_rules) {
        return;
    }
    match value {
        Value::String(text) if may_be_free(text, place) => {
            *text = text_of(schema).unwrap_or_else(|| std::mem::take(text));
        }
        Value::Array(items) => {
            // Its items have to differ.
            let is_set = of_schema("x-kubernetes-list-type").is_some_and(|kind| *kind == "set");
            let keys = of_schema("x-kubernetes-list-map-keys").and_then(Value::as_array);
            let schema = of_schema("items");
            for item in items.iter_mut().filter(|_| !is_set) {
                let before = item.clone();
                replace_texts(item, Place { schema, ..place });
                for key in keys.into_iter().flatten().filter_map(Value::as_str) {
                    if let (Some(field), Some(before)) = (item.get_mut(key), before.get(key)) {
                        field.clone_from(before);
                    }
                }
            }
        }
        Value::Object(members) => {
            let is_built_in = is_built_in || members.get("containers").is_some_and(Value::is_array);
            let is_free = |name: &str| !rules.iter().any(|rule| rule.contains(name));
            for (name, value) in members.iter_mut().filter(|(name, _)| is_free(name)) {
                let own = schema.and_then(|schema| schema.get("properties")?.get(name));
                let others = of_schema("additionalProperties").filter(|it| it.is_object());
                // No rule names the keys of a map: each may be about any of its values.
                if own.is_none() && others.is_some() && !rules.is_empty() {
                    continue;
                }
                let schema = own.or(others);
                let field = if field == "annotations" { field } else { name };
                replace_texts(value, Place { field, schema, is_built_in });
            }
        }
        _ => {}
    }
}

fn is_typed_below(field: &str) -> bool {
    TYPED_BELOW.contains(&field) || TYPED_BELOW_ENDS.iter().any(|end| field.ends_with(end))
}

fn may_be_free(text: &str, Place { field, is_built_in, .. }: Place<'_>) -> bool {
    if is_built_in {
        return FREE.contains(&field);
    }
    let is_name = NAMES.contains(&field) || NAME_ENDS.iter().any(|end| field.ends_with(end));
    (!is_name || FREE_NAMES.contains(&field)) && !is_quantity(text)
}

/// `50%`, `100m`, `1.5Gi`, `10s`, `8080`.
fn is_quantity(text: &str) -> bool {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    unit.len() < text.len() && UNITS.contains(&unit)
}

/// A text as long as the schema allows. `None`: the schema asks for more than a length.
fn text_of(schema: Option<&Value>) -> Option<String> {
    let of = |word: &str| schema.and_then(|schema| schema.get(word));
    let is_restricted = ["enum", "pattern", "format", "x-kubernetes-int-or-string"];
    if is_restricted.iter().any(|word| of(word).is_some()) {
        return None;
    }
    let length = |word: &str| of(word)?.as_u64().and_then(|length| usize::try_from(length).ok());
    let (least, most) = (length("minLength").unwrap_or(0), length("maxLength").unwrap_or(usize::MAX));
    let usual = UNICODE.chars().count();
    // A longer one than a ConfigMap holds is not made.
    let count = usual.max(least).min(most);
    (count <= 1 << 20).then(|| UNICODE.chars().cycle().take(count).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(mut value: Value, schema: Option<&Value>) -> Value {
        replace_texts(&mut value, Place { field: "spec", schema, is_built_in: false });
        value
    }

    #[test]
    fn texts_that_kubernetes_restricts_stay() {
        let typed = json!({
            "selector": { "matchLabels": { "app": "x" }, "matchExpressions": [{ "key": "a", "values": ["b"] }] },
            "podSelector": { "app": "x" }, "template": { "metadata": { "labels": { "app": "x" }, "name": "y" } },
            "resources": { "limits": { "cpu": "100m" } }, "size": "1.5Gi", "share": "50%", "every": "10s",
            "configMapName": "c", "targetNamespace": "n", "secretRef": { "name": "s", "key": "k" },
        });
        assert_eq!(replaced(typed.clone(), None), typed);
        let pod = json!({ "containers": [{
            "name": "c", "image": "x", "imagePullPolicy": "Always", "args": ["a"], "env": [{ "name": "A", "value": "1" }],
        }], "restartPolicy": "Never" });
        let expected = json!({ "containers": [{
            "name": "c", "image": "x", "imagePullPolicy": "Always", "args": [UNICODE],
            "env": [{ "name": "A", "value": UNICODE }],
        }], "restartPolicy": "Never" });
        assert_eq!(replaced(json!({ "template": { "spec": pod } }), None)["template"]["spec"], expected);
        let free =
            json!({ "displayName": "x", "tags": ["a", "b"], "annotations": { "name": "y" }, "m": "m" });
        let all = json!({ "displayName": UNICODE, "tags": [UNICODE, UNICODE], "annotations": { "name": UNICODE }, "m": UNICODE });
        assert_eq!(replaced(free, None), all);
    }

    #[test]
    fn texts_keep_to_the_schema() {
        let rules = json!([{ "rule": "self.odd == 'a'" }]);
        let schema = json!({ "type": "object", "x-kubernetes-validations": rules, "properties": {
            "pattern": { "type": "string", "pattern": "^[a-z]+$" }, "one": { "type": "string", "enum": ["a"] },
            "at": { "type": "string", "format": "date-time" }, "short": { "type": "string", "maxLength": 3 },
            "long": { "type": "string", "minLength": 30 }, "any": { "type": "string" },
            "ruled": { "type": "string", "x-kubernetes-validations": [{ "rule": "self == 'a'" }] },
            "set": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
            "map": { "type": "array", "x-kubernetes-list-map-keys": ["id"], "items": {
                "type": "object", "properties": { "id": { "type": "string" }, "text": { "type": "string" } } } },
            "words": { "type": "object", "additionalProperties": { "type": "string", "maxLength": 1 } },
        } });
        let before = json!({
            "odd": "a", "pattern": "a", "one": "a", "at": "2000-01-01T00:00:00Z", "short": "a", "long": "a".repeat(30), "any": "a",
            "ruled": "a", "set": ["a", "b"], "map": [{ "id": "a", "text": "a" }], "words": { "w": "a" },
        });
        let mut expected = before.clone();
        expected["short"] = json!(UNICODE.chars().take(3).collect::<String>());
        expected["long"] = json!(UNICODE.chars().cycle().take(30).collect::<String>());
        expected["any"] = json!(UNICODE);
        expected["map"][0]["text"] = json!(UNICODE);
        expected["words"]["w"] = json!("ü");
        assert_eq!(replaced(before, Some(&schema)), expected);
        let words = json!({ "w": "a" });
        let rules = json!([{ "rule": "self.all(key, self[key] == 'a')" }]);
        let map = json!({ "x-kubernetes-validations": rules, "additionalProperties": { "type": "string" } });
        assert_eq!(replaced(words.clone(), Some(&map)), words, "a rule is about all values");
    }

    #[test]
    fn texts_keep_to_rules_above_the_spec() {
        let spec = json!({ "odd": "a", "other": "a" });
        let of = |rule: &str| {
            let fields = json!({ "properties": { "absent": { "type": "string" } } });
            let rules = json!([{ "rule": rule }]);
            let root = json!({ "x-kubernetes-validations": rules, "properties": { "spec": fields } });
            spec_schema(&root, &spec).map(|schema| replaced(spec.clone(), Some(&schema)))
        };
        let all = json!({ "odd": UNICODE, "other": UNICODE });
        let one = json!({ "odd": "a", "other": UNICODE });
        assert_eq!(of("self.spec.odd == 'x'"), Some(one.clone()));
        assert_eq!(of("!has(self.spec) || self.spec.odd == self.metadata.name"), Some(one));
        for free in ["self.metadata.name == 'x'", "self.spec.absent == 'x'", "self.spec == oldSelf.spec"] {
            assert_eq!(of(free), Some(all.clone()), "{free}");
        }
        for whole in ["self.spec.all(k, k != 'x')", "self.spec['odd'] == 'x'", "size(self.spec) < 3"] {
            assert_eq!(of(whole), None, "{whole}");
        }
    }
}
