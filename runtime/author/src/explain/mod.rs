//! `metahook explain`: the latest reconciles that concern an object, asked of the server that did them.

pub mod follow;
mod text;
mod unremembered;

use std::collections::BTreeSet;
use std::sync::Arc;

use metahook_core::bundle::{children_of, parents_of};
use metahook_core::object::id::{Gvr, ObjectId, Resource};
use metahook_core::trace::{Explained, TracedObject};
use metahook_server::cluster::api_client::ApiClient;
use metahook_server::cluster::discovery::{Discovery, DiscoveryError};
use metahook_server::cluster::objects::RequestError;

use crate::controllers::{KINDS, resource};
use crate::inspected_server::{InspectError, Inspector, Question, ServerError, Servers};
use crate::object_names::{self, NameError, object_id, served};
pub(crate) use text::{
    duration, end, failure_summaries, is_mended, is_planned_anew, name, readable_time, repeated, rows,
    settled,
};
pub use text::{print, print_following, print_gaps};
pub use unremembered::{Stopped, Unremembered};

#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("the kinds of the cluster cannot be read")]
    Discovery(#[from] DiscoveryError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Inspect(#[from] InspectError),
}

/// Who asks, and which server.
pub struct Explainer {
    pub inspector: Inspector,
    /// Where objects are whose name has no namespace.
    pub namespace: String,
}

/// Answers of all servers about an object.
struct Answers {
    /// `None`: none answered.
    explained: Option<Explained>,
    /// Why one did not answer.
    failed: Option<InspectError>,
}

pub(crate) use metahook_core::inspection_paths::RECONCILES as PATH;

impl Explainer {
    async fn find(&self, kind: &str, name: &str) -> Result<ObjectId, ExplainError> {
        let api = &self.inspector.api;
        find_object(api, &Discovery::new(api.clone()), (kind, name), &self.namespace).await
    }

    /// The object that is meant, and what the server knows of it.
    ///
    /// # Errors
    /// There is no such kind, the server cannot be reached, or the user may not see the object.
    pub async fn explain(&self, kind: &str, name: &str) -> Result<(ObjectId, Explained), ExplainError> {
        let id = self.find(kind, name).await?;
        let object = TracedObject::new(&id.resource, &id.key);
        let explained = explain_object(&self.inspector, &mut Servers::default(), &object).await?;
        Ok((id, explained))
    }
}

/// The object of this kind and name, which is in the namespace if its name has none.
pub(crate) async fn find_object(
    api: &ApiClient,
    discovery: &Discovery,
    (kind, name): (&str, &str),
    namespace: &str,
) -> Result<ObjectId, ExplainError> {
    Ok(object_id(find_kind(api, discovery, kind).await?, name, namespace)?)
}

/// A kind of parents or children of the cluster's controllers.
async fn find_kind(
    api: &ApiClient,
    discovery: &Discovery,
    kind: &str,
) -> Result<Arc<Resource>, ExplainError> {
    let mut named: BTreeSet<Gvr> = BTreeSet::new();
    for controllers in KINDS {
        let resource = resource(discovery, controllers).await?;
        for controller in api.list_objects(&resource).await? {
            let controller = controller.value().unwrap_or_default();
            named.extend(parents_of(&controller));
            named.extend(children_of(&controller));
        }
    }
    let served = served(discovery, named).await;
    Ok(object_names::find_kind(discovery, kind, "reconciles or makes", served).await?)
}

/// Answers of all servers about an object, also of those that are not reached yet.
async fn explain_object(
    inspector: &Inspector,
    servers: &mut Servers,
    object: &TracedObject,
) -> Result<Explained, InspectError> {
    let (answers, failed) =
        inspector.reach_and_ask(servers, Question { path: PATH, object, more: &[] }).await?;
    explained(answers, failed)
}

/// The answers of servers about an object as one. `failed`: the failure of another server.
pub(crate) fn explained(
    answers: Vec<Explained>,
    failed: Option<InspectError>,
) -> Result<Explained, InspectError> {
    Answers { explained: merged(answers), failed }.whole()
}

impl Answers {
    /// The answer about an object that is asked for once. An empty answer counts only where all servers answered.
    fn whole(self) -> Result<Explained, InspectError> {
        let says = |it: &Explained| !it.reconciles.is_empty() || it.hidden_parents > 0;
        match self {
            Self { explained: Some(explained), failed } if failed.is_none() || says(&explained) => {
                Ok(explained)
            }
            Self { failed: Some(error), .. } => Err(error),
            Self { failed: None, .. } => Err(ServerError::Answer("there is none".to_owned()).into()),
        }
    }
}

/// The answers of several servers as one: one of them leads, or each hosts other controllers.
fn merged(answers: Vec<Explained>) -> Option<Explained> {
    let is_one = answers.len() == 1;
    let mut all = answers.into_iter().reduce(|mut all, more| {
        all.reconciles.extend(more.reconciles);
        all.hidden_parents = all.hidden_parents.max(more.hidden_parents);
        all
    })?;
    if !is_one {
        all.reconciles.sort_by(|one, other| other.began.cmp(&one.began));
        // A server that led before has counted after an older one.
        let mut seen = BTreeSet::new();
        for trace in &mut all.reconciles {
            let parent = &trace.parent;
            let names = [&parent.group, &parent.resource, &parent.namespace, &parent.name].map(Arc::clone);
            if !seen.insert((trace.controller.clone(), names)) {
                trace.settled = None;
            }
        }
    }
    Some(all)
}
