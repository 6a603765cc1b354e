//! Dry runs for authors: what the API server would keep of an object, and the kinds that it defines. Nothing is written.

use metahook_core::object::id::{Gvk, ObjectId, Resource};
use serde_json::Value;

use crate::cluster::api_client::{ApiClient, SERVER_SIDE_APPLY, Unreachable};
use crate::cluster::lists::ListError;
use crate::cluster::paths::{list_path, object_path};

/// Why definitions could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionsError {
    #[error("the API server does not answer")]
    Unreachable(#[from] Unreachable),
    #[error(
        "the CustomResourceDefinitions of the cluster cannot be listed ({0}): ask for the right to list them, or give them with -f and leave the cluster out"
    )]
    Refused(String),
    #[error("the list of CustomResourceDefinitions is no JSON")]
    Json(#[from] serde_json::Error),
}

impl ApiClient {
    /// What the API server would keep of an object that is applied over the one that is there, if one is, or its refusal.
    pub(crate) async fn would_keep(
        &self,
        id: &ObjectId,
        object: &Value,
    ) -> Result<Result<Value, String>, Unreachable> {
        let path = object_path(&id.resource, &id.key);
        let path = format!("{path}?fieldManager=metahook-check&force=true&dryRun=All&fieldValidation=Strict");
        let answer = self.patch(SERVER_SIDE_APPLY, &path, object).await?;
        if !answer.status.is_success() {
            return Ok(Err(answer.message()));
        }
        Ok(serde_json::from_str(&answer.body).map_err(|error| error.to_string()))
    }

    /// All CustomResourceDefinitions.
    pub(crate) async fn definitions(&self) -> Result<Vec<Value>, DefinitionsError> {
        let gvk = Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        let plural = "customresourcedefinitions".into();
        let resource = Resource { gvk, plural, namespaced: false, has_status: true };
        let items = self.list(&list_path(&resource, ""), usize::MAX).await.map_err(|error| match error {
            ListError::Refused(answer) => DefinitionsError::Refused(answer.message()),
            ListError::Unreachable(error) => error.into(),
            ListError::Answer(error) => error.into(),
        })?;
        let mut items =
            items.iter().map(|item| serde_json::from_str(item.get())).collect::<Result<Vec<Value>, _>>()?;
        for item in items.iter_mut().filter_map(Value::as_object_mut) {
            // Items of a list do not say it.
            item.insert("kind".to_owned(), "CustomResourceDefinition".into());
        }
        Ok(items)
    }
}
