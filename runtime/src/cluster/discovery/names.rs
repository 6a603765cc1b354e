//! Names of kinds besides their plurals: singulars and short names, as kubectl takes them.

use std::collections::BTreeMap;

use metahook_core::object::id::join_api_version;
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
    /// The singulars and the short names of the kinds of a group and version, such as `configmap` and `cm`, by plural.
    ///
    /// # Errors
    /// The API server does not say.
    pub async fn other_names(
        &self,
        version: (&str, &str),
    ) -> Result<BTreeMap<String, Vec<String>>, DiscoveryError> {
        #[derive(Deserialize)]
        struct List {
            resources: Vec<ListedKind>,
        }
        let answer = self.api.get_large(&version_path(version.0, version.1)).await;
        let answer = answer.map_err(DiscoveryError::Unreachable)?;
        let asked = join_api_version(version.0, version.1);
        let list: List =
            read(&answer).map_err(|why| DiscoveryError::unread(&answer, version, &asked, why))?;
        let names = |one: ListedKind| {
            let singular = Some(one.singular_name).filter(|name| !name.is_empty());
            (one.name, singular.into_iter().chain(one.short_names).collect())
        };
        Ok(list.resources.into_iter().map(names).collect())
    }
}
