//! Conditions of a status, each with the time of its last change.

use crate::keep::put;
use crate::object::lenient;
use crate::{Str, now};
use serde::Serialize as DeriveSerialize;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

/// The conditions in a status. The hook reads them with the parent's status, sets some, and answers with all of them.
///
/// A condition keeps its `lastTransitionTime` while its status (`True`, `False`, `Unknown`) stays the same. This type reads
/// the clock only when a status changes, so a hook whose conditions stay the same is pure (see [`now`]).
///
/// ```
/// use metahook_sdk::{Conditions, IgnoredAny, Sync, SyncResponse, testing::Request};
/// use serde::Deserialize;
/// use serde_json::json;
///
/// #[derive(Deserialize, Default)]
/// struct Status<'a> {
///     #[serde(borrow)]
///     conditions: Conditions<'a>,
/// }
///
/// fn sync(request: &Sync<'_, IgnoredAny, Status<'_>>) -> SyncResponse {
///     let pods = request.children.group("Pod.v1").len();
///     let conditions = request.parent.status.conditions.clone();
///     let conditions = conditions.with("Ready", pods > 0, "PodsRun", &format!("{pods} Pods run"));
///     SyncResponse::new().status(json!({ "conditions": conditions }))
/// }
///
/// let since = json!([{ "type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
/// let parent = json!({ "status": { "conditions": since } });
/// let answer = Request::of(parent).call(sync).unwrap();
/// assert_eq!(answer.status["conditions"][0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
/// assert_eq!(answer.status["conditions"][0]["message"], "0 Pods run");
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conditions<'a>(Vec<Condition<'a>>);

/// One condition of a status.
///
/// ```
/// use metahook_sdk::Conditions;
///
/// let json = r#"[{ "type": "Ready", "status": "True", "reason": "PodsRun", "observedGeneration": 2,
///     "lastTransitionTime": "2026-01-01T00:00:00Z" }]"#;
/// let conditions: Conditions<'_> = serde_json::from_str(json).unwrap();
/// let ready = conditions.get("Ready").unwrap();
/// assert_eq!((&*ready.status, &*ready.reason), ("True", "PodsRun"));
/// assert_eq!((&*ready.last_transition_time, ready.observed_generation), ("2026-01-01T00:00:00Z", Some(2)));
/// ```
#[derive(Debug, Clone, Default, PartialEq, DeriveSerialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition<'a> {
    /// Aspect that the condition is about: `Ready`.
    pub r#type: Str<'a>,
    /// `True`, `False` or `Unknown`.
    pub status: Str<'a>,
    /// Why, in a word: `PodsRun`.
    pub reason: Str<'a>,
    /// Why, in a sentence.
    pub message: Str<'a>,
    /// The time of the last change of the status.
    pub last_transition_time: Str<'a>,
    /// The parent's `metadata.generation` that it was set for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

lenient! { Condition<>:
    "type" => r#type,
    "status" => status,
    "reason" => reason,
    "message" => message,
    "lastTransitionTime" => last_transition_time,
    "observedGeneration" => observed_generation,
}

impl<'a> Conditions<'a> {
    /// The condition of a type.
    ///
    /// ```
    /// use metahook_sdk::Conditions;
    ///
    /// let conditions = Conditions::default().with("Ready", false, "NoPods", "0 of 3 Pods run");
    /// assert_eq!(conditions.get("Ready").unwrap().reason, "NoPods");
    /// assert!(!conditions.is_true("Ready") && conditions.get("Paused").is_none());
    /// ```
    pub fn get(&self, kind: &str) -> Option<&Condition<'a>> {
        self.0.iter().find(|condition| condition.r#type == *kind)
    }

    /// Whether the condition of a type is `True`.
    ///
    /// ```
    /// # use metahook_sdk::Conditions;
    /// let conditions = Conditions::default().with("Ready", true, "PodsRun", "3 of 3 Pods run");
    /// assert!(conditions.is_true("Ready"));
    /// assert!(!conditions.is_true("Paused"));
    /// ```
    pub fn is_true(&self, kind: &str) -> bool {
        self.get(kind).is_some_and(|condition| condition.status == "True")
    }

    /// All conditions, in the order in which they were first set.
    ///
    /// ```
    /// # use metahook_sdk::Conditions;
    /// let conditions = Conditions::default().with("Ready", false, "NoPods", "").with("Paused", true, "Spec", "");
    /// let is_true = conditions.iter().filter(|condition| condition.status == "True");
    /// assert_eq!(is_true.map(|condition| &*condition.r#type).collect::<Vec<_>>(), ["Paused"]);
    /// ```
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Condition<'a>> {
        self.0.iter()
    }

    /// Adds this condition, or replaces the one of its type. `status` is `true`, `false`, or `None` for `Unknown`.
    ///
    /// ```
    /// # use metahook_sdk::Conditions;
    /// let conditions = Conditions::default().with("Ready", true, "PodsRun", "3 of 3 Pods run");
    /// let conditions = conditions.with("Ready", None, "NoAnswer", "the Pods do not answer");
    /// assert_eq!(conditions.iter().len(), 1);
    /// assert_eq!(conditions.get("Ready").unwrap().status, "Unknown");
    /// ```
    #[must_use]
    pub fn with(mut self, kind: &str, status: impl Into<Option<bool>>, reason: &str, message: &str) -> Self {
        self.set(kind, status, reason, message);
        self
    }

    /// Removes the condition of this type.
    ///
    /// ```
    /// # use metahook_sdk::Conditions;
    /// let conditions = Conditions::default().with("Ready", true, "PodsRun", "").with("Paused", true, "Spec", "");
    /// let conditions = conditions.without("Paused");
    /// assert!(conditions.get("Paused").is_none() && conditions.is_true("Ready"));
    /// ```
    #[must_use]
    pub fn without(mut self, kind: &str) -> Self {
        self.0.retain(|condition| condition.r#type != *kind);
        self
    }

    /// Writes this generation of the parent into each condition.
    ///
    /// ```
    /// # use metahook_sdk::{Conditions, Sync, SyncResponse, testing::Request}; use serde_json::json;
    /// fn sync(request: &Sync<'_>) -> SyncResponse {
    ///     let conditions = Conditions::default().with("Ready", true, "PodsRun", "3 of 3 Pods run");
    ///     let conditions = conditions.observed(request.parent.metadata.generation);
    ///     SyncResponse::new().status(json!({ "conditions": conditions }))
    /// }
    /// # let answer = Request::of(json!({ "metadata": { "generation": 7 } })).call(sync).unwrap();
    /// # assert_eq!(answer.status["conditions"][0]["observedGeneration"], 7);
    /// ```
    #[must_use]
    pub fn observed(mut self, generation: Option<i64>) -> Self {
        self.0.iter_mut().for_each(|condition| condition.observed_generation = generation);
        self
    }

    /// Sets a condition, as [`with`](Self::with) does.
    ///
    /// ```
    /// # use metahook_sdk::Conditions;
    /// let mut conditions = Conditions::default();
    /// for (kind, pods) in [("Ready", 3), ("Degraded", 0)] {
    ///     conditions.set(kind, pods > 0, "Counted", &format!("{pods} Pods"));
    /// }
    /// assert!(conditions.is_true("Ready") && !conditions.is_true("Degraded"));
    /// ```
    pub fn set(&mut self, kind: &str, status: impl Into<Option<bool>>, reason: &str, message: &str) {
        self.set_at(kind, status.into(), [reason, message], now);
    }

    fn set_at(
        &mut self,
        kind: &str,
        status: Option<bool>,
        [reason, message]: [&str; 2],
        now: impl FnOnce() -> String,
    ) {
        let status = match status {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let at = self.0.iter().position(|condition| condition.r#type == *kind).unwrap_or(self.0.len());
        if at == self.0.len() {
            self.0.push(Condition { r#type: kind.to_owned().into(), ..Condition::default() });
        }
        if let Some(condition) = self.0.get_mut(at) {
            if condition.status != *status || condition.last_transition_time.is_empty() {
                condition.last_transition_time = now().into();
            }
            condition.status = status.into();
            condition.reason = reason.to_owned().into();
            condition.message = message.to_owned().into();
        }
    }
}

impl Serialize for Conditions<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Conditions<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(Option::deserialize(from)?.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::decode;
    use serde_json::{json, to_value};

    /// Sets the condition Ready; whether the clock was read.
    fn asks(conditions: &mut Conditions<'_>, status: Option<bool>, message: &str) -> bool {
        let mut asked = false;
        conditions.set_at("Ready", status, ["Why", message], || {
            asked = true;
            "2026-01-02T00:00:00Z".to_owned()
        });
        asked
    }

    #[test]
    fn the_clock_is_read_only_where_a_status_changes() {
        let text = br#"[{"type":"Other","status":"True"},
            {"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","observedGeneration":3}]"#;
        let mut conditions: Conditions<'_> = decode("conditions", text).unwrap();
        let time =
            |conditions: &Conditions<'_>| conditions.get("Ready").unwrap().last_transition_time.to_string();
        assert!(!asks(&mut conditions, Some(true), "another"));
        assert_eq!(time(&conditions), "2026-01-01T00:00:00Z");
        assert_eq!(conditions.get("Ready").unwrap().message, "another");
        assert!(conditions.is_true("Ready") && conditions.is_true("Other") && !conditions.is_true("No"));
        for status in [Some(false), None, Some(true)] {
            assert!(asks(&mut conditions, status, ""));
            assert!(!asks(&mut conditions, status, ""));
            assert_eq!(time(&conditions), "2026-01-02T00:00:00Z");
        }
        assert_eq!(conditions.iter().map(|one| &*one.r#type).collect::<Vec<_>>(), ["Other", "Ready"]);
    }

    #[test]
    fn a_new_condition_is_written_whole_and_can_be_taken_away() {
        let mut conditions = Conditions::default();
        assert!(asks(&mut conditions, None, "wait"));
        let written = json!([{
            "type": "Ready", "status": "Unknown", "reason": "Why", "message": "wait",
            "lastTransitionTime": "2026-01-02T00:00:00Z", "observedGeneration": 4,
        }]);
        let conditions = conditions.observed(Some(4));
        assert_eq!(to_value(&conditions).unwrap(), written);
        assert_eq!(to_value(conditions.without("Ready")).unwrap(), json!([]));
        assert_eq!(decode("conditions", b"null"), Ok(Conditions::default()));
    }
}
