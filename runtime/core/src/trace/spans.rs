//! Spans of a reconcile, as OpenTelemetry has them: one for the reconcile, and one for each of its steps.

use super::{ReconcileTrace, TraceEnd, TracedObject, TracedStep, TracedWriteEnd};
use crate::hook::Usage;

/// A span without its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanFacts {
    /// One of a few, as tools group spans by it.
    pub name: String,
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// Why the reconcile or the step failed.
    pub error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeValue {
    Text(String),
    Number(u64),
}

type Attributes = Vec<(&'static str, AttributeValue)>;

/// The span of a whole reconcile. Spans of its steps are below it.
pub fn reconcile_span(trace: &ReconcileTrace) -> SpanFacts {
    let (end, error) = match &trace.end {
        TraceEnd::Unchanged => ("unchanged", None),
        TraceEnd::Wrote => ("wrote", None),
        TraceEnd::Paused => ("paused", None),
        TraceEnd::Again(_) => ("again", None),
        TraceEnd::Failed(error) => ("failed", Some(error.clone())),
    };
    let mut attributes = vec![text("metahook.controller", &trace.controller)];
    attributes.extend(object(&trace.parent));
    attributes.extend([text("metahook.cause", &trace.whole_cause()), text("metahook.end", end)]);
    if let TraceEnd::Again(why) = &trace.end {
        attributes.push(text("metahook.end.reason", why));
    }
    if trace.left_out > 0 {
        attributes.push(number("metahook.steps.left_out", trace.left_out));
    }
    SpanFacts { name: "reconcile".to_owned(), attributes, error }
}

/// The span of one step.
pub fn step_span(step: &TracedStep) -> SpanFacts {
    let (name, attributes, error) = match step {
        TracedStep::Finalizers => ("change finalizers".to_owned(), Vec::new(), None),
        TracedStep::Read { object: id } => ("read child".to_owned(), object(id), None),
        TracedStep::Claimed { verb, object: id } => (format!("{verb} child"), object(id), None),
        TracedStep::Related { earlier, usage, rules, objects, error, .. } => {
            let earlier = text("metahook.answer", if *earlier { "earlier" } else { "new" });
            let counts = [number("metahook.rules", *rules), number("metahook.objects", *objects)];
            let attributes = [earlier].into_iter().chain(counts).chain(used(*usage));
            ("look up related objects".to_owned(), attributes.collect(), error.clone())
        }
        TracedStep::Called { hook, older, usage, error, .. } => {
            let state = text("metahook.parent.state", if *older { "older" } else { "latest" });
            let attributes = [text("metahook.hook", hook), state].into_iter().chain(used(*usage));
            (format!("call {hook} hook"), attributes.collect(), error.clone())
        }
        TracedStep::Planned { writes, left, unchanged, left_out } => {
            let attributes = vec![
                number("metahook.writes", writes.len()),
                number("metahook.left", left.len()),
                number("metahook.unchanged", *unchanged),
                number("metahook.plan.left_out", *left_out),
            ];
            ("plan".to_owned(), attributes, None)
        }
        TracedStep::StatusLeft { why } => {
            ("leave status".to_owned(), vec![text("metahook.reason", &why.to_string())], None)
        }
        TracedStep::LeftFields { conflicts, more, waits } => {
            let mut attributes = vec![number("metahook.conflicts", conflicts.len() + more)];
            attributes.extend(waits.then(|| text("metahook.reason", "waits for older controllers")));
            ("leave fields".to_owned(), attributes, None)
        }
        TracedStep::Held { children, .. } => {
            ("hold deletions".to_owned(), vec![number("metahook.children", *children)], None)
        }
        TracedStep::Unknown => ("unknown step".to_owned(), Vec::new(), None),
        TracedStep::RecordedDeletions => ("record deletions".to_owned(), Vec::new(), None),
        TracedStep::Tried { object: id } => ("dry run".to_owned(), object(id), None),
        TracedStep::Wrote { verb, object: id, reason, warnings, end, took_us: _ } => {
            let (end, error) = match end {
                TracedWriteEnd::Changed => ("changed", None),
                TracedWriteEnd::NoEffect => ("no effect", None),
                TracedWriteEnd::Failed(error) => ("failed", Some(error.clone())),
            };
            let mut attributes = object(id);
            attributes.push(text("metahook.end", end));
            attributes.extend(reason.iter().map(|reason| text("metahook.reason", reason)));
            if !warnings.is_empty() {
                attributes.push(text("metahook.warnings", &warnings.join("; ")));
            }
            (format!("{verb} object"), attributes, error)
        }
        TracedStep::DeletedRelated { object: id, deleted } => {
            let end = text("metahook.end", if *deleted { "deleted" } else { "gone" });
            let id = id.as_ref().map(object).unwrap_or_default();
            ("delete related object".to_owned(), id.into_iter().chain([end]).collect(), None)
        }
    };
    SpanFacts { name, attributes, error }
}

fn object(id: &TracedObject) -> Attributes {
    let mut attributes = vec![text("k8s.object.kind", &id.kind), text("k8s.object.name", &id.name)];
    if !id.group.is_empty() {
        attributes.push(text("k8s.object.group", &id.group));
    }
    if !id.namespace.is_empty() {
        attributes.push(text("k8s.namespace.name", &id.namespace));
    }
    attributes
}

fn used(usage: Option<Usage>) -> impl Iterator<Item = (&'static str, AttributeValue)> {
    usage.into_iter().flat_map(|usage| {
        let number = |name, number| (name, AttributeValue::Number(number));
        [number("metahook.instructions", usage.instructions), number("metahook.memory", usage.memory)]
    })
}

fn text(name: &'static str, value: &str) -> (&'static str, AttributeValue) {
    (name, AttributeValue::Text(value.to_owned()))
}

fn number(name: &'static str, value: usize) -> (&'static str, AttributeValue) {
    (name, AttributeValue::Number(u64::try_from(value).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spans(steps: &Value, end: &Value) -> Vec<SpanFacts> {
        let trace = json!({
            "controller": "CompositeController c", "generation": 1, "resourceVersion": "1", "began": "", "tookUs": 1,
            "parent": {"group": "example.com", "resource": "hellos", "kind": "Hello", "namespace": "n", "name": "a"},
            "cause": "spec changed", "leftOut": 3, "steps": steps, "end": end,
        });
        let trace: ReconcileTrace = serde_json::from_value(trace).unwrap();
        [reconcile_span(&trace)].into_iter().chain(trace.steps.iter().map(step_span)).collect()
    }

    /// One line for each attribute.
    fn shown(span: &SpanFacts) -> String {
        let value = |value: &AttributeValue| match value {
            AttributeValue::Text(text) => text.clone(),
            AttributeValue::Number(number) => number.to_string(),
        };
        let attributes = span.attributes.iter().map(|(name, is)| format!(" {name}={}", value(is)));
        format!("{}{}{:?}", span.name, attributes.collect::<String>(), span.error)
    }

    #[test]
    fn a_reconcile_and_its_steps_have_a_span_each() {
        let pod = json!({"group": "", "resource": "pods", "kind": "Pod", "namespace": "n", "name": "a"});
        let steps = json!([
            {"step": "related", "earlier": true, "tookUs": 1, "rules": 1, "objects": 2},
            {"step": "called", "hook": "sync", "tookUs": 1, "usage": {"instructions": 7, "memory": 65536}},
            {"step": "called", "hook": "sync", "older": true, "tookUs": 1, "error": "it loops"},
            {"step": "planned", "writes": [{"verb": "create", "object": pod}], "left": [], "unchanged": 2},
            {"step": "wrote", "verb": "create", "object": pod, "reason": "why", "end": {"failed": "no right"}},
            {"step": "deletedRelated", "object": pod, "deleted": false},
        ]);
        let found: Vec<_> = spans(&steps, &json!({"failed": "all is lost"})).iter().map(shown).collect();
        let pod = "k8s.object.kind=Pod k8s.object.name=a k8s.namespace.name=n";
        let expected = [
            "reconcile metahook.controller=CompositeController c k8s.object.kind=Hello k8s.object.name=a k8s.object.group=example.com k8s.namespace.name=n metahook.cause=spec changed metahook.end=failed metahook.steps.left_out=3Some(\"all is lost\")",
            "look up related objects metahook.answer=earlier metahook.rules=1 metahook.objects=2None",
            "call sync hook metahook.hook=sync metahook.parent.state=latest metahook.instructions=7 metahook.memory=65536None",
            "call sync hook metahook.hook=sync metahook.parent.state=olderSome(\"it loops\")",
            "plan metahook.writes=1 metahook.left=0 metahook.unchanged=2 metahook.plan.left_out=0None",
            &format!("create object {pod} metahook.end=failed metahook.reason=whySome(\"no right\")"),
            &format!("delete related object {pod} metahook.end=goneNone"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn only_a_failed_reconcile_is_an_error() {
        for (end, word, error) in [
            (json!("unchanged"), "unchanged", None),
            (json!("wrote"), "wrote", None),
            (json!("paused"), "paused", None),
            (json!({"again": "busy"}), "again", None),
            (json!({"failed": "no"}), "failed", Some("no".to_owned())),
        ] {
            let [span] = &spans(&json!([]), &end)[..] else { panic!("one") };
            let is = ("metahook.end", AttributeValue::Text(word.to_owned()));
            assert!(span.attributes.contains(&is), "{span:?}");
            assert_eq!(span.error, error);
        }
    }
}
