//! Properties of the reconciles of an author's files: what the API server would say of them, and whether they come to rest.

use std::collections::{BTreeMap, BTreeSet};

use metahook_core::json::difference::differences;
use metahook_server::cluster::api_client::{ApiClient, Unreachable};
use metahook_server::telemetry::error_chain;
use serde_json::Value;

use super::Sample;
use crate::render::Step;
use crate::render::rounds::{RenderEnd, Rounds};
use crate::schemas::MAX_FAULTS;

/// Children that a cluster is asked about.
const MAX_DRY_RUNS: usize = 100;

/// A property of reconciles, and what speaks against it: nothing where it holds.
#[derive(Debug)]
pub struct ReconcileVerdict {
    pub property: &'static str,
    pub faults: BTreeSet<String>,
}

/// Whether the reconciles come to rest.
pub fn settles(rounds: &Rounds) -> ReconcileVerdict {
    ReconcileVerdict {
        property: "what it answers is carried out, and then nothing is left to change",
        faults: unsettled(rounds).into_iter().collect(),
    }
}

/// Parts of the objects that the API server would drop or refuse, as far as schemas tell.
pub fn fits_schemas(rounds: &Rounds) -> ReconcileVerdict {
    let faults = rounds.rounds.iter().flatten().flat_map(|one| &one.faults);
    ReconcileVerdict {
        property: "the API server keeps what is answered, as far as its schemas tell",
        faults: faults.take(MAX_FAULTS).cloned().collect(),
    }
}

/// Whether the hooks were called, and nothing follows from what they answered.
pub fn are_idle(rounds: &Rounds) -> bool {
    // The server adds the generation to each status.
    let is_added = |step: &Step| {
        let after = (step.op == "status").then(|| step.effect.shown_after()).flatten();
        let status = after.as_ref().and_then(|after| after.pointer("/status")?.as_object());
        status.is_some_and(|status| status.keys().all(|field| field == "observedGeneration"))
    };
    let all = || rounds.rounds.iter().flatten();
    all().any(|one| !one.calls.is_empty())
        && all().all(|one| one.error.is_none() && one.steps.iter().all(is_added))
}

/// Fields of the children that the API server of a cluster does not keep in a dry run, as they are after the last round
/// that wrote them.
pub async fn is_kept(api: &ApiClient, rounds: &Rounds) -> Result<ReconcileVerdict, Unreachable> {
    Ok(ReconcileVerdict {
        property: "the API server of the cluster keeps what is answered (dry run)",
        faults: not_kept(api, rounds).await?,
    })
}

/// The requests of the reconciles, each once; later ones, which show more, come first.
pub fn requests(rounds: &Rounds) -> Vec<Sample> {
    let mut all: Vec<Sample> = Vec::new();
    for call in rounds.rounds.iter().flatten().flat_map(|one| &one.calls) {
        if let Ok(request) = serde_json::from_slice(&call.request) {
            let sample = Sample { hook: call.hook, request };
            if !all.contains(&sample) {
                all.push(sample);
            }
        }
    }
    all.reverse();
    all
}

/// Why the rounds did not come to rest.
fn unsettled(rounds: &Rounds) -> Option<String> {
    let count = rounds.rounds.len();
    match rounds.end {
        RenderEnd::Settled => None,
        RenderEnd::Enough => {
            Some(format!("round {count} still changes something: see `metahook render --cycles`"))
        }
        RenderEnd::Oscillates { like } => Some(format!(
            "it oscillates: after round {count} all is as after round {like}; `metahook render --cycles` shows between which answers"
        )),
        RenderEnd::Failed => {
            let mut last = rounds.rounds.last().into_iter().flatten();
            last.find_map(|one| Some(format!("{}: {}", one.parent, error_chain(one.error.as_ref()?))))
        }
    }
}

async fn not_kept(api: &ApiClient, rounds: &Rounds) -> Result<BTreeSet<String>, Unreachable> {
    let reconciled = || rounds.rounds.iter().flatten();
    let parents: BTreeSet<_> = reconciled().map(|one| &one.parent).collect();
    let steps = reconciled().flat_map(|one| &one.steps);
    let last: BTreeMap<_, _> = steps.map(|step| (&step.effect.id, step.effect.shown_after())).collect();
    let children = last.into_iter().filter(|(id, _)| !parents.contains(id));
    let mut faults = BTreeSet::new();
    for (id, object) in children.take(MAX_DRY_RUNS) {
        let Some(mut object) = object else { continue };
        if let Some(fields) = object.as_object_mut().filter(|_| id.resource.has_status) {
            // It has a request of its own.
            fields.remove("status");
        }
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            // The parent of the files is not there.
            metadata.remove("ownerReferences");
        }
        match api.would_keep(id, &object).await? {
            Ok(mut kept) => {
                if let Some(metadata) = kept.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.remove("managedFields");
                }
                let mut changes = differences(&object, &kept, None);
                // The API server fills in what the answer leaves out.
                changes.retain(|one| !one.wanted.is_null());
                faults.extend(changes.into_iter().take(MAX_FAULTS).map(|one| {
                    let what = if one.found.is_null() { "dropped" } else { "kept otherwise" };
                    format!("{id}: {} is {what}", one.path)
                }));
            }
            Err(refusal) => drop(faults.insert(format!("{id}: {refusal}"))),
        }
    }
    Ok(faults)
}
