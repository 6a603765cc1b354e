//! Calls of a hook until it has nothing new to say.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answer, Request, text};
use crate::IntoResponse;

impl Request {
    /// Calls the hook again and again, with the children and the status of its last answer, until the answer stays the same.
    /// Returns all answers, and the last one only once.
    ///
    /// ```
    /// use metahook_sdk::{Sync, SyncResponse, testing::Request};
    /// use serde_json::json;
    ///
    /// fn sync(request: &Sync<'_>) -> SyncResponse {
    ///     let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
    ///     SyncResponse::new().child(map).status(json!({ "maps": request.children.group("ConfigMap.v1").len() }))
    /// }
    ///
    /// let answers = Request::of(json!({})).settle(sync, 10).unwrap();
    /// assert_eq!(answers.last().unwrap().status, json!({ "maps": 1 }));
    /// ```
    ///
    /// # Errors
    /// A call fails, or the answer still changes after `most` calls.
    pub fn settle<R, A>(mut self, hook: impl Fn(&R) -> A, most: usize) -> Result<Vec<Answer>, String>
    where
        R: Deserialize<'static>,
        A: IntoResponse,
    {
        let mut answers: Vec<Answer> = Vec::new();
        for _ in 0..most {
            let answer = self.clone().call(&hook)?;
            if answers.last() == Some(&answer) {
                return Ok(answers);
            }
            self.carry_out(&answer);
            answers.push(answer);
        }
        let last: Vec<_> = answers.iter().rev().take(2).rev().map(|answer| &*answer.raw).collect();
        Err(format!("the answer still changes after {most} calls: {}", last.join(", then ")))
    }

    /// Carries out an answer as the server would, as far as the next request shows it.
    fn carry_out(&mut self, answer: &Answer) {
        self.observed = [&answer.children[..], &answer.attachments].concat();
        let doomed: Vec<_> = answer.delete_related.iter().filter_map(|one| text(one, "/uid")).collect();
        self.related.retain(|object| text(object, "/metadata/uid").is_none_or(|uid| !doomed.contains(&uid)));
        let Value::Object(object) = &mut self.object else { return };
        if !answer.status.is_null() {
            object.insert("status".to_owned(), answer.status.clone());
        }
        for (field, changes) in [("labels", &answer.labels), ("annotations", &answer.annotations)] {
            if changes.is_empty() {
                continue;
            }
            let metadata = object.entry("metadata").or_insert_with(|| json!({}));
            let Value::Object(metadata) = metadata else { continue };
            let Value::Object(texts) = metadata.entry(field).or_insert_with(|| json!({})) else { continue };
            texts.extend(changes.iter().map(|(key, value)| (key.clone(), value.clone())));
            texts.retain(|_, value| !value.is_null());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decorate, DecorateResponse, IgnoredAny, Raw, Sync, SyncResponse};

    #[test]
    fn a_hook_that_swings_is_found() {
        fn swings(request: &Sync<'_, IgnoredAny, Value>) -> SyncResponse {
            SyncResponse::new().status(json!({ "on": request.parent.status["on"] != true }))
        }
        let why = Request::of(json!({})).settle(swings, 5).unwrap_err();
        let last = r#"{"children":[],"status":{"on":false}}, then {"children":[],"status":{"on":true}}"#;
        assert_eq!(why, format!("the answer still changes after 5 calls: {last}"));
    }

    #[test]
    fn what_a_decorator_asks_for_is_there_in_the_next_call() {
        fn sync(
            request: &Decorate<'_, IgnoredAny, IgnoredAny, Raw<'_>, IgnoredAny, crate::Object<'_>>,
        ) -> DecorateResponse {
            let labels = &request.object.metadata.labels;
            let seen = [labels.get("a").is_some(), labels.get("b").is_some()].map(u8::from);
            let (pods, related) =
                (request.attachments.group("Pod.v1").len(), request.related.group("Pod.v1"));
            let status = json!([seen, pods, related.len()]);
            let answer = DecorateResponse::new().label("a", "1").remove_label("b").status(status);
            let answer =
                answer.attachment(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "x" } }));
            related.values().fold(answer, DecorateResponse::delete_related)
        }
        let object = json!({ "metadata": { "name": "o", "namespace": "n", "labels": { "b": "2" } } });
        let old = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "old", "namespace": "n", "uid": "u" } });
        let answers = Request::decorating(object).related(old).settle(sync, 5).unwrap();
        let statuses: Vec<_> = answers.iter().map(|answer| &answer.status).collect();
        assert_eq!(statuses, [&json!([[0, 1], 0, 1]), &json!([[1, 0], 1, 0])]);
    }
}
