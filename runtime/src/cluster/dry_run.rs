//! Dry runs for authors: what the API server would keep of an object, and the kinds that it defines. Nothing is written.

use metahook_core::object::id::ObjectId;
use serde_json::Value;

use crate::cluster::api_client::{ApiClient, SERVER_SIDE_APPLY, Unreachable};
use crate::cluster::definitions::definitions;
use crate::cluster::objects::{RequestError, RequestErrorKind, WriteOptions};

const OPTIONS: WriteOptions<'_> = WriteOptions::by("metahook-check").strict().force(true).dry_run();

/// The CustomResourceDefinitions of the cluster could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionsError {
    #[error(
        "the CustomResourceDefinitions of the cluster cannot be listed: ask for the right to list them, or give them with -f and leave the cluster out"
    )]
    List(#[source] RequestError),
    #[error("the API server does not answer")]
    Unreachable(#[source] RequestError),
    #[error("the list of CustomResourceDefinitions is no JSON")]
    Json(#[from] serde_json::Error),
}

impl From<RequestError> for DefinitionsError {
    fn from(error: RequestError) -> Self {
        match error.kind() {
            RequestErrorKind::Unreachable(_) => Self::Unreachable(error),
            _ => Self::List(error),
        }
    }
}

impl ApiClient {
    /// The object that the API server would keep if this one were applied over the one that is there, if one is; or its
    /// refusal.
    pub async fn would_keep(
        &self,
        id: &ObjectId,
        object: &Value,
    ) -> Result<Result<Value, String>, Unreachable> {
        let answer = self.request_patch(id, SERVER_SIDE_APPLY, object, OPTIONS).await?;
        if !answer.status.is_success() {
            return Ok(Err(answer.message()));
        }
        Ok(serde_json::from_str(&answer.body).map_err(|error| error.to_string()))
    }

    /// All CustomResourceDefinitions.
    pub async fn definitions(&self) -> Result<Vec<Value>, DefinitionsError> {
        let items = self.list(&definitions(), "", "", usize::MAX).await?;
        let mut items =
            items.iter().map(|item| serde_json::from_str(item.get())).collect::<Result<Vec<Value>, _>>()?;
        for item in items.iter_mut().filter_map(Value::as_object_mut) {
            // Items of a list do not say it.
            item.insert("kind".to_owned(), "CustomResourceDefinition".into());
        }
        Ok(items)
    }
}
