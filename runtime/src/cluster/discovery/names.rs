//! Names of a kind besides its plural: its singular and its short names, as kubectl takes them.

use metahook_core::object::id::Resource;
use serde::Deserialize;

use super::{Discovery, DiscoveryError, read};
use crate::cluster::paths::version_path;

/// A kind with its names, as discovery lists them.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedKind {
    name: String,
    #[serde(default)]
    singular_name: String,
    #[serde(default)]
    short_names: Vec<String>,
}

impl Discovery {
    /// The singular and the short names of a kind, such as `configmap` and `cm`.
    ///
    /// # Errors
    /// The API server does not say.
    pub async fn other_names(&self, resource: &Resource) -> Result<Vec<String>, DiscoveryError> {
        #[derive(Deserialize)]
        struct List {
            resources: Vec<ListedKind>,
        }
        let version = (&*resource.gvk.group, &*resource.gvk.version);
        let path = version_path(version.0, version.1);
        let answer = self.api.get_large(&path).await.map_err(DiscoveryError::Unreachable)?;
        let list: List =
            read(&answer).map_err(|why| DiscoveryError::unread(&answer, version, &resource.gvk, why))?;
        let named = list.resources.into_iter().find(|one| *one.name == *resource.plural).unwrap_or_default();
        let singular = Some(named.singular_name).filter(|name| !name.is_empty());
        Ok(singular.into_iter().chain(named.short_names).collect())
    }
}
