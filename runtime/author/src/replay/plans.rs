//! Plans of a recorded request: what the server would write after the recorded answer, and after another one.
//!
//! The objects are those that the hook was shown. So both plans lack what the hook was not shown: revisions of a rolling update,
//! and what the server remembered of the parent. No deletion is held, and fields are merged as the server does by default.

use std::collections::BTreeSet;

use metahook_core::object::id::Key;
use metahook_core::recording::RecordedCall;
use metahook_server::telemetry::error_chain;
use serde::Serialize;
use serde_json::Value;

use crate::documents::{Document, of_cluster};
use crate::render::Simulation;

/// A status may wait for the reconcile after that of the children, and a parent that has settled writes nothing more.
const MAX_RECONCILES: usize = 3;

/// Two plans beside each other.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "is")]
pub enum Plans {
    /// The answers differ in nothing that the server writes.
    Same,
    Different {
        recorded: Value,
        now: Value,
    },
    /// No plan can be made of the request.
    Unknown {
        why: String,
    },
}

impl Plans {
    /// The plans of a call of a sync or a finalize hook. `now`: another answer.
    pub(super) async fn of(call: &RecordedCall, definitions: &[Value], recorded: &str, now: &[u8]) -> Self {
        let planned = async {
            let documents = documents(call, definitions)?;
            let parent = call.parent.key();
            let recorded = plan(&documents, &parent, recorded.as_bytes()).await?;
            Ok::<_, String>((recorded, plan(&documents, &parent, now).await?))
        };
        match planned.await {
            Ok((recorded, now)) if recorded == now => Self::Same,
            Ok((recorded, now)) => Self::Different { recorded, now },
            Err(why) => Self::Unknown { why },
        }
    }
}

async fn plan(documents: &[Document], parent: &Key, answer: &[u8]) -> Result<Value, String> {
    let simulation = Simulation::answering(documents, parent, answer.to_vec());
    Ok(simulation.map_err(|error| error_chain(&error))?.run(MAX_RECONCILES).await.plan())
}

/// The controller, the definitions of its kinds, the parent, its children and its related objects.
fn documents(call: &RecordedCall, definitions: &[Value]) -> Result<Vec<Document>, String> {
    let mut request: Value = serde_json::from_str(&call.request).map_err(|error| error.to_string())?;
    let mut take = |field: &str| request.get_mut(field).map(Value::take).filter(|value| !value.is_null());
    let mut controller = take("controller").ok_or("the request has no controller")?;
    // What it would answer is known already: the related objects of the request.
    if let Some(hooks) = controller.pointer_mut("/spec/hooks").and_then(Value::as_object_mut) {
        hooks.remove("customize");
    }
    let parent = take("parent").or_else(|| take("object")).ok_or("the request has no parent")?;
    let groups = ["children", "attachments", "related"].into_iter().filter_map(&mut take);
    let groups = groups.filter_map(|mut field| field.as_object_mut().map(std::mem::take));
    let objects = groups.flat_map(|groups| groups.into_iter().map(|(_, group)| group));
    let objects = objects.filter_map(|mut group| group.as_object_mut().map(std::mem::take));
    let objects = objects.flat_map(|group| group.into_iter().map(|(_, object)| object));
    let mut ids = BTreeSet::new();
    let mut all = vec![controller, parent];
    all.extend(definitions.iter().cloned().chain(objects));
    // A related object may be a child, too.
    all.retain(|object| {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let fields = ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name"];
        ids.insert(fields.map(text))
    });
    Ok(of_cluster(all))
}
