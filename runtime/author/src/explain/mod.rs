//! `metahook explain`: the latest reconciles that concern an object, asked of the server that did them.

pub mod follow;
mod inspected_server;
mod text;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use metahook_core::bundle::{children_of, parents_of};
use metahook_core::object::id::{Gvr, ObjectId, Resource};
use metahook_core::trace::{Explained, TracedObject};
use metahook_server::cluster::api_client::{ApiClient, ConnectError};
use metahook_server::cluster::discovery::{Discovery, DiscoveryError};
use metahook_server::cluster::objects::RequestError;
use metahook_server::cluster::tokens::TokenError;

use crate::controllers::{KINDS, resource};
use crate::object_names::{NameError, object_id, one_of, served};
use inspected_server::{ServerError, Servers};
pub use text::{print, print_following, print_gaps};

#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("the kinds of the cluster cannot be read")]
    Discovery(#[from] DiscoveryError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Server(#[from] ServerError),
}

/// Who asks, and which server.
pub struct Explainer {
    pub api: ApiClient,
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
    /// Where objects are whose name has no namespace.
    pub namespace: String,
    /// The address of the server; its Pods are looked for in their namespace when absent.
    pub address: Option<String>,
    pub server_namespace: String,
    /// The token to be known by.
    pub token: Option<String>,
}

impl Explainer {
    /// The object that is meant, and what the server knows of it.
    ///
    /// # Errors
    /// There is no such kind, the server cannot be reached, or the user may not see the object.
    pub async fn explain(&self, kind: &str, name: &str) -> Result<(ObjectId, Explained), ExplainError> {
        let id = object_id(self.kind(kind).await?, name, &self.namespace)?;
        let explained =
            self.first(&mut Servers::default(), &TracedObject::new(&id.resource, &id.key)).await?;
        Ok((id, explained))
    }

    /// The first answer of servers that are not reached yet.
    async fn first(&self, servers: &mut Servers, object: &TracedObject) -> Result<Explained, ExplainError> {
        let unreached = self.reach(servers).await?;
        let mut answers = self.ask(servers, object).await;
        answers.failed = answers.failed.or(unreached.map(ExplainError::from));
        answers.whole()
    }

    /// A kind of parents or children of the cluster's controllers.
    async fn kind(&self, kind: &str) -> Result<Arc<Resource>, ExplainError> {
        let discovery = Discovery::new(self.api.clone());
        let mut named: BTreeSet<Gvr> = BTreeSet::new();
        for controllers in KINDS {
            let resource = resource(&discovery, controllers).await?;
            for controller in self.api.list_objects(&resource).await? {
                let controller = controller.value().unwrap_or_default();
                named.extend(parents_of(&controller));
                named.extend(children_of(&controller));
            }
        }
        Ok(one_of(kind, "reconciles or makes", &served(&discovery, named).await?)?)
    }
}
