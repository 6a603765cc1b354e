//! Related objects that an answer wants deleted, as it names them.

use std::collections::BTreeSet;

use crate::hook::read::Fields;
use crate::hook::response_error::{AnswerWarnings, ResponseError};
use crate::object::id::{Gvk, Key, Uid, is_api_version};
use crate::related::deletion::Deletion;

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
    use serde_json::{Value, json};

    use super::*;
    use crate::api::hook::Via;
    use crate::api::webhook::UnmarshallMode;
    use crate::hook::read;

    fn read(list: &Value, mode: UnmarshallMode) -> Result<Vec<Deletion>, String> {
        let mut warnings = AnswerWarnings::default();
        let text = json!({ "deleteRelated": list }).to_string();
        let mut answer = read::answer(text.as_bytes(), Via::Wasm, "", &mut warnings).unwrap();
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
        let read = read(&list, UnmarshallMode::Strict).unwrap();
        let text = |one: &Deletion| format!("{} {} {} {}", one.at, one.gvk, one.key, one.uid);
        assert_eq!(
            read.iter().map(text).collect::<Vec<_>>(),
            ["0 v1 Node x v", "1 v1 Pod n/a u", "3 v1 Pod n/a w"]
        );
    }

    #[test]
    fn nothing_may_be_said_in_any_way() {
        for list in [json!(null), json!([])] {
            assert_eq!(read(&list, UnmarshallMode::Strict), Ok(Vec::new()));
        }
        assert_eq!(read(&json!([with("namespace", json!(null))]), UnmarshallMode::Strict).unwrap().len(), 1);
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
                let error = read(&list, mode).unwrap_err();
                assert!(error.contains(says), "{error}");
            }
        }
        let unknown = json!([with("why", json!("old"))]);
        assert!(read(&unknown, UnmarshallMode::Loose).is_ok());
        let error = read(&unknown, UnmarshallMode::Strict).unwrap_err();
        assert!(error.contains("has the unknown field deleteRelated[0].why"), "{error}");
    }
}
